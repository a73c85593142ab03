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

from .children import kill_descendants, wake_for_children
from .jobs import CHUNK, Supervisor
from .ties import Ties, move_above_ties

#: From <linux/prctl.h>.
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the guard and the supervisor; see the package for the arguments."""
    channel_fd, theirs, ours, output = map(int, sys.argv[1:5])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # A job that held the channel would keep the queue from seeing that these are gone.
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
            _watch(supervisor, channel, wakeup)
        else:
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            move_above_ties(ours)
            link.close()
            Supervisor(channel, other, Ties(theirs), output).run()
    finally:
        kill_descendants()
        shutil.rmtree(sys.argv[5], ignore_errors=True)


def _watch(supervisor: int, channel: socket.socket, wakeup: int) -> None:
    """Be the guard: wait until the supervisor or the queue is gone.

    Args:
        supervisor: its process id.
        channel: closed at the other end when the queue is gone.
        wakeup: can be read when a child has ended.
    """
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    # No events: it is reported only when the other end is gone.
    poll.register(channel, 0)
    while channel.fileno() not in dict(poll.poll()):
        os.read(wakeup, CHUNK)
        # Its descriptors do not tell: a process that it was about to start has them too.
        if os.waitpid(supervisor, os.WNOHANG)[0]:
            return
    # It may be stopped.
    os.kill(supervisor, signal.SIGKILL)
