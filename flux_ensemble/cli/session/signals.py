"""Signals that end what a command waits for: a callback from its loop, at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def signal_pipe(numbers: Collection[signal.Signals]) -> Iterator[int]:
    """The end to read of a pipe into which each of these signals writes a byte.

    A loop that watches it sees a signal in whichever thread it comes: a document with
    statistics brings in numpy, which has threads that may get it. Nor is there a
    KeyboardInterrupt, which is lost inside a callback of Flux.
    """
    with ExitStack() as stack:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        for number in numbers:
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write))
        yield read


@contextmanager
def signals(
    handle: Any, numbers: Collection[signal.Signals], callback: Callable[[int], None]
) -> Iterator[None]:
    """Calls `callback` with its number from the reactor of a Flux handle when a signal comes.

    Not with Flux's signal watchers: those block a signal in this thread only.
    """
    with signal_pipe(numbers) as read:

        def drain(*_: Any) -> None:
            for number in os.read(read, 64):
                callback(number)

        with handle.fd_watcher_create(read, drain):
            yield
