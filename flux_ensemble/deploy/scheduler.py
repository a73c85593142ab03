"""A scheduler that Flux 0.88 has given up, loaded again.

A broker that is lost between the allocation of a job and its record leaves a job that waits and has
resources. Flux that is started anew gives its scheduler up over that job, each time ("already
allocated"), and no job starts any more. The job has not begun, so it is told to have been lost,
which has its ensemble submit it again, and the scheduler is loaded anew.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from flux_ensemble.service.status.conditions import OFFLINE

#: The scheduler that can be loaded anew without more ado.
_NAME = "sched-simple"

#: A job that waits for resources (flux-core, `job.h`).
_SCHED = 8

#: The exception of a job that is no doing of its own (`engine.jobs`), and what is said of it.
_LOST, _NOTE = "lost", "its resources were not recorded before the broker was lost"

#: How long Flux may take to go on with a job that it gives resources just now, and to let one go,
#: in seconds; and how often that is looked at.
_LONGEST, _PAUSE = 30.0, 0.2


def revive(handle: Any) -> str | None:
    """Load the scheduler anew where Flux has given it up over jobs that have not begun.

    Args:
        handle: of the instance, which is one's own.

    Returns:
        What was done, in one sentence; None where there was nothing to do.

    Raises:
        OSError: Flux did not do it.
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
        "Flux had given its scheduler up over a job that was given resources when the broker was "
        "lost: it is loaded again, and that job is submitted again"
    )


def _waiting(handle: Any) -> list[int]:
    """The jobs that wait for resources."""
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
    """Whether Flux has no scheduler."""
    names = _rpc(handle, "job-manager.queue-list", {})["queues"]
    about: list[dict[str, str]] = [{"name": name} for name in names] or [{}]
    return any(
        _rpc(handle, "job-manager.queue-status", one).get("stop_reason") == OFFLINE for one in about
    )


def _rpc(handle: Any, topic: str, payload: dict[str, Any]) -> Any:
    return handle.rpc(topic, payload, nodeid=0).get()
