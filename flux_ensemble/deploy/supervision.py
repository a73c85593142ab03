"""Keeps the broker module `ensemble` running: it is loaded again when it is gone.

An entry of Flux's cron service looks for the module every second, by `flux module list`,
which takes a few milliseconds and asks nothing of the module, and loads it where it is
not. The broker runs a cron entry's command at its next heartbeat, so a killed module is
back within a few seconds. The attribute `broker.module-nopanic` keeps the instance alive
until then.

Used by `flux ensemble supervise`, and by `etc/rc1.d` and `etc/rc3.d` under Flux's own
Python: only the standard library is needed here, and a handle to work with.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

#: The name of the cron entry, and of the module.
NAME = "ensemble"

#: The broker goes on when a module dies.
NOPANIC = "broker.module-nopanic"

#: Seconds between two looks.
INTERVAL = 1.0


def supervise(handle: Any, path: str, args: Sequence[str]) -> None:
    """Have the module loaded again when it is gone, until the instance ends.

    Args:
        handle: a Flux handle of the instance's owner.
        path: the module's file.
        args: the module's arguments.

    Raises:
        OSError: ENOSYS, the instance has no cron service; EPERM, not the owner.
    """
    release(handle)
    handle.rpc("attr.set", {"name": NOPANIC, "value": "1"}, nodeid=0).get()
    load = shlex.join(["flux", "module", "load", path, *args])
    entry = {
        "type": "interval",
        "name": NAME,
        "command": f"flux module list | grep -q '^{NAME} ' || {load}",
        "args": {"interval": INTERVAL},
    }
    handle.rpc("cron.create", entry, nodeid=0).get()


def release(handle: Any) -> bool:
    """Supervise the module no longer; `NOPANIC` stays as it is.

    Returns:
        Whether it was supervised.

    Raises:
        OSError: as for `supervise`.
    """
    entries = supervisors(handle)
    for entry in entries:
        handle.rpc("cron.delete", {"id": entry["id"]}, nodeid=0).get()
    return bool(entries)


def supervisors(handle: Any) -> list[dict[str, Any]]:
    """The cron entries that supervise the module: one or none.

    Raises:
        OSError: as for `supervise`.
    """
    entries = handle.rpc("cron.list", {}, nodeid=0).get()["entries"]
    return [entry for entry in entries if entry["name"] == NAME]
