"""Leftovers of a local run whose queue, guard and supervisor were killed together.

The kernel ends the process groups that were tied by then (`supervisor.ties`). Daemons are left, and
jobs whose start the queue could no longer take note of. All of them have the path of the run's memo
socket in their environment, by which the run that goes on finds them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from flux_ensemble.queues.local import memos
from flux_ensemble.queues.local.directory import Directory

#: The file in the directory of a run that has the path of its scratch directory.
SCRATCH_FILE = "scratch"

#: The beginning of the names of scratch directories.
PREFIX = "flux-ensemble-"

_MAX_BYTES = 4096

#: Seconds within which killed processes have to be gone, and seconds between two looks.
_PATIENCE, _TICK = 5.0, 0.01


def remember(directory: Directory, scratch: str) -> None:
    """Store the path of the scratch directory of a run that begins or goes on.

    Raises:
        StateError: the file's name is taken by something else.
        OSError: the file cannot be written.
    """
    directory.replace(SCRATCH_FILE, os.fsencode(scratch))


def end_leftovers(directory: Directory) -> int:
    """Kill the processes left by the earlier run in a directory; remove its scratch directory.

    If this command itself runs in a shell that a job has left, it would end that shell and itself,
    so nothing is killed.

    Returns:
        The number of these processes.

    Raises:
        StateError: the name of the file with the path is taken by something else.
        OSError: the file cannot be read.
    """
    try:
        scratch = os.fsdecode(directory.read(SCRATCH_FILE, _MAX_BYTES))
    except FileNotFoundError:
        return 0
    if not Path(scratch).name.startswith(PREFIX):
        return 0
    socket = memos.socket_path(scratch)
    if os.environ.get(memos.VARIABLE) == socket:
        return 0
    mark = os.fsencode(f"{memos.VARIABLE}={socket}")
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    # A process may have started another one between two looks.
    while (found := set(_with(mark))) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(_TICK)
    shutil.rmtree(scratch, ignore_errors=True)
    return len(killed)


def _with(mark: bytes) -> Iterator[int]:
    """Yield this user's processes that have the given entry in their environment."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = Path("/proc", name, "environ").read_bytes()
            if mark in environment.split(b"\0"):
                yield int(name)
