"""Process groups that the kernel kills when another process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys

#: The descriptor of `Ties.held` at first. Each process that is started costs the more the higher
#: the highest descriptor is, and below 64 it costs nothing.
_HELD = 63

#: How many times as high it is whenever there are too many ties below it.
_HIGHER = 4


class Ties:
    """Ties process groups to whoever has the other end of a pipe.

    When that end is closed, because its process is gone, the kernel kills the groups, as long as
    this process lives. If two processes do this for each other, one of them always still lives
    when the other goes.

    When a process ends, the kernel closes its descriptors from the highest down. So the end of the
    pipe that the other process has its ties on has a higher one than the ties here.

    Args:
        fd: the end of the pipe that is read.
        held: the end that this process has of the other's pipe; it is moved.

    Attributes:
        held: its descriptor now.
    """

    def __init__(self, fd: int, held: int) -> None:
        self._fd = fd
        # The others are for everything else.
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._free: list[int] = []
        self.held = held
        self._raise_held(_HELD)

    def _raise_held(self, least: int) -> None:
        """Move `held` to a descriptor that is at least so high, as far as ties can be."""
        held = self.held
        self.held = fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, min(least, self._most))
        os.close(held)

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
        if fd > self.held:
            if fd < self._most:
                with contextlib.suppress(OSError):
                    self._raise_held(max(fd + 1, _HIGHER * self.held))
            if fd > self.held:
                os.close(fd)
                return None
        with contextlib.suppress(OSError):
            if sys.platform == "linux":
                fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        return fd
