"""A small event loop on `selectors`, for tests of what runs on a `members.base.Loop`."""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self


@dataclass(order=True)
class _Timer:
    t: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    every: float = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class _Reader:
    def __init__(self, loop: SelectorLoop, fd: int, callback: Callable[[], None]) -> None:
        self._loop = loop
        self.fd = fd
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._loop.forget(self)


class SelectorLoop:
    """Timers and readable file descriptors; `run` until a condition holds."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[_Timer] = []
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def now(self) -> float:
        return time.time()

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> _Timer:
        timer = _Timer(time.monotonic() + after, next(self._numbers), callback, every)
        heapq.heappush(self._timers, timer)
        return timer

    def reader(self, fd: int, callback: Callable[[], None]) -> _Reader:
        reader = _Reader(self, fd, callback)
        self._selector.register(fd, selectors.EVENT_READ, reader)
        return reader

    def forget(self, reader: _Reader) -> None:
        self._selector.unregister(reader.fd)

    @property
    def watching(self) -> int:
        """How many timers and descriptors are being watched."""
        timers = sum(not timer.cancelled for timer in self._timers)
        return timers + len(self._selector.get_map())

    def run(self, until: Callable[[], bool], limit: float = 60.0) -> None:
        """Run callbacks until `until()` holds.

        Raises:
            TimeoutError: it did not within `limit` seconds.
        """
        t_end = time.monotonic() + limit
        while not until():
            if time.monotonic() > t_end:
                raise TimeoutError(f"the condition did not hold within {limit:g} s")
            self._turn()

    def _turn(self) -> None:
        wait = 0.2
        if self._timers:
            wait = min(wait, max(0.0, self._timers[0].t - time.monotonic()))
        for key, _ in self._selector.select(wait):
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
