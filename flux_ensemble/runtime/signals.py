"""Signals as readable bytes, for any loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def signal_pipe(numbers: Collection[signal.Signals]) -> Iterator[int]:
    """Yield the read end of a pipe into which each of these signals writes a byte.

    A loop that watches it notices a signal in whichever thread that arrives: a document with
    statistics loads numpy, whose threads may receive it. And there is no KeyboardInterrupt, which
    would be lost inside a callback of Flux.
    """
    with ExitStack() as stack:
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        for number in numbers:
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write))
        yield read
