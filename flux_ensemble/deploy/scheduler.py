"""Reload of a scheduler that Flux 0.88 has given up.

A broker that is lost between the allocation of a job and its record leaves a job that waits and has
resources. After a restart, Flux gives up its scheduler because of that job, each time ("already
allocated"), and no job starts any more. The job has not begun. So an exception marks it as lost,
for which its ensemble submits it again, and the scheduler is reloaded.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from flux_ensemble.service.status.conditions import OFFLINE
from flux_ensemble.words import counted

#: The only scheduler that can be reloaded here.
_NAME = "sched-simple"

#: State of a job that waits for resources (flux-core, `job.h`).
_SCHED = 8

#: The exception that marks the job as interrupted (`engine.jobs`), and its note.
_LOST, _NOTE = "lost", "its resources were not recorded before the broker was lost"

#: Seconds in which Flux should start a job that it is just giving resources, or end one; and
#: seconds between two checks.
_LONGEST, _PAUSE = 30.0, 0.2


def revive(handle: Any) -> str | None:
    """Reload the scheduler if Flux has given it up because of jobs that have not begun.

    Args:
        handle: of the instance, which belongs to the user.

    Returns:
        What was done, in one sentence; None if there was nothing to do.

    Raises:
        OSError: a request to Flux failed.
    """
    deadline = time.monotonic() + _LONGEST
    while ids := [id for id in _waiting(handle) if _has_resources(handle, id)]:
        if _is_offline(handle):
            break
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)
    else:
        return None
    modules = _rpc(handle, "module.list", {})["mods"]
    path = next((one.get("path") or _NAME for one in modules if one["name"] == _NAME), None)
    if path is None:
        return (
            "Flux has given its scheduler up over a job that is 'already allocated', and it is "
            f"not {_NAME!r}: cancel that job, and load the scheduler anew by hand"
        )
    for id in ids:
        about = {"id": id, "severity": 0, "type": _LOST, "note": _NOTE}
        _rpc(handle, "job-manager.raise", about)
    while set(ids) & set(_waiting(handle)):
        if time.monotonic() > deadline:
            raise OSError(errno.ETIMEDOUT, "a job that has not begun does not end")
        time.sleep(_PAUSE)
    _rpc(handle, "module.remove", {"name": _NAME})
    _rpc(handle, "module.load", {"path": path, "args": []})
    return (
        f"Flux had given its scheduler up over {counted(len(ids), 'job')} with resources that were "
        "not recorded when the broker was lost: it is loaded again, and what was lost is submitted "
        "again"
    )


def _waiting(handle: Any) -> list[int]:
    """Return the jobs that wait for resources."""
    jobs = _rpc(handle, "job-manager.list", {"max_entries": 0})["jobs"]
    return [job["id"] for job in jobs if job["state"] == _SCHED]


def _has_resources(handle: Any, id: int) -> bool:
    try:
        _rpc(handle, "job-info.lookup", {"id": id, "keys": ["R"], "flags": 0})
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def _is_offline(handle: Any) -> bool:
    """Return True if Flux has no scheduler."""
    names = _rpc(handle, "job-manager.queue-list", {})["queues"]
    about: list[dict[str, str]] = [{"name": name} for name in names] or [{}]
    return any(
        _rpc(handle, "job-manager.queue-status", one).get("stop_reason") == OFFLINE for one in about
    )


def _rpc(handle: Any, topic: str, payload: dict[str, Any]) -> Any:
    return handle.rpc(topic, payload, nodeid=0).get()
