"""An event loop on `selectors`: timers and file descriptors, in one thread.

It is the `runtime.ports.Loop` of the local queue, which has no Flux reactor.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field

#: Longest wait in seconds: epoll(7) counts milliseconds, in 32 bits.
_MAX_WAIT = 86400.0


def _nothing() -> None:
    pass


@dataclass(order=True, slots=True)
class Timer:
    """A timer that is set."""

    t: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    every: float = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Do not call back any more."""
        self.cancelled = True


class Reader:
    """A watched file descriptor; `cancel` has to be called before it is closed."""

    def __init__(self, selector: selectors.BaseSelector, fd: int, callback: Callable[[], None]):
        self._selector = selector
        self._fd = fd
        self.callback = callback
        self.cancelled = False
        selector.register(fd, selectors.EVENT_READ, self)

    def cancel(self) -> None:
        """Do not call back any more."""
        if not self.cancelled:
            self.cancelled = True
            self._selector.unregister(self._fd)


class LocalLoop:
    """An event loop that runs until a condition holds; timers ignore changes of the clock."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._numbers = itertools.count()
        #: Called before each wait.
        self.before_wait: Callable[[], object] = _nothing

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return time.time()

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Timer:
        """Call back after `after` seconds, then each `every` seconds if that is not 0."""
        timer = Timer(time.monotonic() + after, next(self._numbers), callback, every)
        heapq.heappush(self._timers, timer)
        return timer

    def reader(self, fd: int, callback: Callable[[], None]) -> Reader:
        """Call back whenever file descriptor `fd` can be read."""
        return Reader(self._selector, fd, callback)

    @property
    def timers(self) -> int:
        """Number of timers that are set."""
        return sum(not timer.cancelled for timer in self._timers)

    def run(self, until: Callable[[], bool]) -> None:
        """Run callbacks until `until()` holds."""
        while not until():
            self._turn()

    def close(self) -> None:
        """Drop all timers, and close the selector."""
        self._timers.clear()
        self._selector.close()

    def _turn(self) -> None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        wait = None
        if self._timers:
            wait = min(max(0.0, self._timers[0].t - time.monotonic()), _MAX_WAIT)
        self.before_wait()
        for key, _ in self._selector.select(wait):
            # A callback before this one may have cancelled it.
            if not key.data.cancelled:
                key.data.callback()
        now = time.monotonic()
        while self._timers and self._timers[0].t <= now:
            timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            if timer.every:
                timer.t = now + timer.every
                heapq.heappush(self._timers, timer)
            timer.callback()
