"""The guard and the supervisor: how the two processes begin and end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import sys
import time

from .children import kill_descendants, wake_for_children
from .jobs import CHUNK, Supervisor
from .ties import Ties

#: From <linux/prctl.h>.
_PR_SET_CHILD_SUBREAPER = 36

#: Seconds that the supervisor may take to kill all jobs and end when the queue is gone.
PATIENCE = 2.0


def main() -> None:
    """Run the guard and the supervisor; see the package for the arguments."""
    channel_fd, theirs, ours, output = map(int, sys.argv[1:5])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # A job that inherited the channel would keep the queue from noticing the end of these.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    channel = socket.socket(fileno=channel_fd)
    link, other = socket.socketpair()
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = wake_for_children()
    supervisor = os.fork()
    try:
        if supervisor:
            os.close(theirs)
            os.close(ours)
            other.close()
            _watch(supervisor, channel, wakeup, int(sys.argv[6]) if len(sys.argv) > 6 else None)
        else:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            link.close()
            Supervisor(channel, other, Ties(theirs, ours), output).run()
    finally:
        kill_descendants()
        shutil.rmtree(sys.argv[5], ignore_errors=True)


def _watch(supervisor: int, channel: socket.socket, wakeup: int, held: int | None) -> None:
    """Wait, as the guard, until the supervisor or the queue is gone.

    Args:
        supervisor: its process id.
        channel: closed at the other end when the queue is gone.
        wakeup: can be read when a child has ended.
        held: a file whose time becomes that at which the queue is gone.
    """
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    # No events: it is reported only when the other end is gone.
    poll.register(channel, 0)
    while channel.fileno() not in dict(poll.poll()):
        os.read(wakeup, CHUNK)
        # The state of its descriptors proves nothing: a process that it was starting has them too.
        if os.waitpid(supervisor, os.WNOHANG)[0]:
            return
    poll.unregister(channel)
    if held is not None:
        with contextlib.suppress(OSError):
            os.utime(held)
    # The supervisor notices this too. If it were killed, only this process would be left to end
    # the jobs, and whoever killed the queue may be about to kill this one.
    os.kill(supervisor, signal.SIGCONT)
    deadline = time.monotonic() + PATIENCE
    while not os.waitpid(supervisor, os.WNOHANG)[0]:
        left = deadline - time.monotonic()
        if left <= 0:
            # It hangs, for instance in a file system.
            os.kill(supervisor, signal.SIGKILL)
            return
        if poll.poll(1000 * left):
            os.read(wakeup, CHUNK)
