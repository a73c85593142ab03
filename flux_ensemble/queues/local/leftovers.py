"""What a local run left behind whose queue, guard and supervisor were killed together.

The kernel ends the process groups that were tied by then (`supervisor.ties`). What is left are
daemons, and jobs that started when their queue could not read of it any more. All of them have the
path of the run's memo socket in their environment, by which the run that goes on finds them.
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

#: What the names of scratch directories begin with.
PREFIX = "flux-ensemble-"

_MAX_BYTES = 4096

#: Seconds that processes have to be gone once they are killed, and between two looks.
_PATIENCE, _TICK = 5.0, 0.01


def remember(directory: Directory, scratch: str) -> None:
    """Note the scratch directory of a run that begins or goes on.

    Raises:
        StateError: the file is none of ours.
        OSError: it cannot be written.
    """
    directory.replace(SCRATCH_FILE, os.fsencode(scratch))


def end_leftovers(directory: Directory) -> int:
    """Kill what is left of the earlier run in a directory, and remove its scratch directory.

    A command in a shell that a job has left would end that shell, and itself: it ends nothing.

    Returns:
        How many processes there were.

    Raises:
        StateError: the file that names the scratch directory is none of ours.
        OSError: it cannot be read.
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
    # Between two looks one of them may have started another one.
    while (found := set(_with(mark))) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(_TICK)
    shutil.rmtree(scratch, ignore_errors=True)
    return len(killed)


def _with(mark: bytes) -> Iterator[int]:
    """Yield the processes of this user that have an entry in their environment."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = Path("/proc", name, "environ").read_bytes()
            if mark in environment.split(b"\0"):
                yield int(name)
