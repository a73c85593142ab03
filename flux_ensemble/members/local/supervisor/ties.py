"""Process groups that the kernel kills when another process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys


class Ties:
    """Ties process groups to whoever has the other end of a pipe.

    When that end is closed, because its process is gone, the kernel kills the groups, as long as
    this process lives. If two processes do this for each other, one of them always still lives
    when the other goes.

    Args:
        fd: the end of the pipe that is read.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._max_fd = max_tie_fd()
        self._free: list[int] = []

    def tie(self, group: int) -> int | None:
        """Tie a process group.

        Args:
            group: the process group.

        Returns:
            A descriptor that ties it until `untie`; None if there are too many ties.
        """
        fd = self._free.pop() if self._free else self._open()
        if fd is not None:
            # A group that is gone already needs none.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETOWN, -group)
        return fd

    def untie(self, fd: int | None) -> None:
        """The process group that a descriptor ties is gone."""
        if fd is not None:
            fcntl.fcntl(fd, fcntl.F_SETOWN, 0)
            self._free.append(fd)

    def close(self) -> None:
        """Tie no more, when all groups are gone."""
        for fd in self._free:
            os.close(fd)
        self._free.clear()

    def _open(self) -> int | None:
        """A descriptor for one tie; None if there are too many."""
        flags = os.O_RDONLY | os.O_NONBLOCK
        try:
            # A pipe that is opened anew can have an owner of its own.
            fd = os.open(f"/proc/self/fd/{self._fd}", flags | os.O_CLOEXEC)
        except OSError:
            return None
        if fd >= self._max_fd:
            os.close(fd)
            return None
        with contextlib.suppress(OSError):
            if sys.platform == "linux":
                fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        return fd


def move_above_ties(fd: int) -> int:
    """Move the end of a pipe that another process has ties on; its new descriptor.

    When a process ends, the kernel closes its descriptors from the highest down. This one has to
    be closed before the process's own ties are.
    """
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max_tie_fd())
    os.close(fd)
    return moved


def max_tie_fd() -> int:
    """Descriptors below this, half of all there can be, are for ties and everything else."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
