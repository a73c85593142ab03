"""Children that have ended, and how to kill all descendants."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def wake_for_children() -> int:
    """Return a descriptor that can be read when a child has ended."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def kill_group(group: int, number: int) -> None:
    """Send a signal to a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill_descendants() -> None:
    """Kill all descendants of this process, and wait until they are gone."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    spared: set[int] = set()
    # Orphans of a dying process become children of this one, so repeat until none is left.
    while pids := {int(pid) for pid in children.read_text().split()} - spared:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                # A job can start a program that runs as another user.
                spared.add(pid)
            except ProcessLookupError:
                pass
        for pid in pids - spared:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
