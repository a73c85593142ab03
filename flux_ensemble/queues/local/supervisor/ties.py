"""Process groups that the kernel kills when another process is gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys

#: The initial descriptor of `Ties.held`. The higher the highest descriptor, the more each start of
#: a process costs; below 64 it costs nothing.
_HELD = 63

#: Factor by which it is raised when there are too many ties below it.
_HIGHER = 4


class Ties:
    """Ties of process groups to the process that has the other end of a pipe.

    When that end is closed, because its process is gone, the kernel kills the groups, as long as
    this process lives. If two processes do this for each other, one of them is always alive when
    the other ends.

    When a process ends, the kernel closes its descriptors from the highest down. So the end of the
    pipe to which the other process has tied its groups has a higher descriptor than the ties here.

    Args:
        fd: the end of the pipe that is read.
        held: this process's end of the other's pipe; it is moved to another descriptor.

    Attributes:
        held: its present descriptor.
    """

    def __init__(self, fd: int, held: int) -> None:
        self._fd = fd
        # The other half of the descriptors is for all other uses.
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._free: list[int] = []
        self.held = held
        self._raise_held(_HELD)

    def _raise_held(self, least: int) -> None:
        """Move `held` to a descriptor of at least this number, within the limit of ties."""
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
            # A group that has ended already needs no tie.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETOWN, -group)
        return fd

    def untie(self, fd: int | None) -> None:
        """Release the descriptor of a process group that is gone."""
        if fd is not None:
            fcntl.fcntl(fd, fcntl.F_SETOWN, 0)
            self._free.append(fd)

    def close(self) -> None:
        """Close the descriptors, when all groups are gone."""
        for fd in self._free:
            os.close(fd)
        self._free.clear()

    def _open(self) -> int | None:
        """Open a descriptor for one tie; return None if there are too many."""
        flags = os.O_RDONLY | os.O_NONBLOCK
        try:
            # A pipe that is opened again can have an owner of its own.
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
