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
from collections.abc import Iterator, Mapping
from pathlib import Path

from flux_ensemble.queues.local import memos
from flux_ensemble.queues.local.directory import Directory
from flux_ensemble.texts import listed

#: The file in the directory of a run that has the path of its scratch directory.
SCRATCH_FILE = "scratch"

#: The beginning of the names of scratch directories.
PREFIX = "flux-ensemble-"

_MAX_BYTES = 4096

#: The entry of the environment that has the id of a job, and digits that no id has.
_JOB, _DIGITS = b"FLUX_JOB_ID=", 20

#: Seconds within which killed processes have to be gone, and seconds between two looks.
_PATIENCE, _TICK = 5.0, 0.01


def remember(directory: Directory, scratch: str) -> None:
    """Store the path of the scratch directory of a run that begins or goes on.

    Raises:
        StateError: the file's name is taken by something else.
        OSError: the file cannot be written.
    """
    directory.replace(SCRATCH_FILE, os.fsencode(scratch))


def end_leftovers(directory: Directory) -> dict[int, int | None]:
    """Kill the processes left by the earlier run in a directory; remove its scratch directory.

    If this command itself runs in a shell that a job has left, it would end that shell and itself,
    so nothing is killed.

    Returns:
        The jobs of these processes, by their ids; None where the process is of no job.

    Raises:
        StateError: the name of the file with the path is taken by something else.
        OSError: the file cannot be read.
    """
    try:
        scratch = os.fsdecode(directory.read(SCRATCH_FILE, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    if not Path(scratch).name.startswith(PREFIX):
        return {}
    socket = memos.socket_path(scratch)
    if os.environ.get(memos.VARIABLE) == socket:
        return {}
    mark = os.fsencode(f"{memos.VARIABLE}={socket}")
    killed: dict[int, int | None] = {}
    deadline = time.monotonic() + _PATIENCE
    # A process may have started another one between two looks.
    while (found := dict(_with(mark))) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(_TICK)
    shutil.rmtree(scratch, ignore_errors=True)
    return killed


def told(killed: Mapping[int, int | None]) -> str:
    """Return what is said of the processes that `end_leftovers` has killed.

    >>> told({4711: 3, 4712: 3, 4800: 12})
    'killed 3 processes that jobs 3, 12 had left when this run was killed: 4711, 4712, 4800'
    >>> told({4711: 3})
    'killed 1 process that job 3 had left when this run was killed: 4711'
    >>> told({4711: None})
    'killed 1 process that was left when this run was killed: 4711'
    """
    jobs = sorted({job for job in killed.values() if job is not None})
    processes, left = (
        ("1 process", "was") if len(killed) == 1 else (f"{len(killed)} processes", "were")
    )
    whose = f"{left} left"
    if jobs:
        whose = f"job{'s'[: len(jobs) != 1]} {listed(map(str, jobs))} had left"
    ids = listed(map(str, killed))
    return f"killed {processes} that {whose} when this run was killed: {ids}"


def _with(mark: bytes) -> Iterator[tuple[int, int | None]]:
    """Yield this user's processes that have an entry in their environment, and their jobs."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = Path("/proc", name, "environ").read_bytes().split(b"\0")
            if mark in environment:
                job = next((one for one in environment if one.startswith(_JOB)), b"")[len(_JOB) :]
                # A job can have given its processes anything.
                yield int(name), int(job) if job.isdigit() and len(job) < _DIGITS else None
