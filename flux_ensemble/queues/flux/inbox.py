"""Deferred messages, drained in arrival order once all of them have been read.

    journal, responses ──► Inbox.put ──► handled when no message waits to be read
    requests ────────────► handled at once

A burst brings hundreds of messages at once, and each takes some tenths of a millisecond to handle.
A request behind them would wait for all of them. So they are only put aside when they are read,
which takes a few microseconds, and a request is handled when it is read.

All messages about the outcome of jobs go through one inbox, journal and responses alike. A fence
can be trusted because all that came before it has been handled before it (`queues.flux.fence`).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from flux.constants import FLUX_POLLIN
from flux.core.handle import Flux
from flux.core.inner import lib

from flux_ensemble.faults import ENDINGS
from flux_ensemble.runtime.ports import Loop

#: Seconds of handling after which the loop gets its turn.
TURN_SECONDS = 0.002

#: With more messages than this, reading no longer comes first.
LIMIT = 10_000


def unread(handle: Flux) -> bool:
    """True if a handle has messages to be read."""
    return bool(lib.flux_pollevents(handle.handle) & FLUX_POLLIN)


class Inbox:
    """A queue of work that was put aside.

    Args:
        loop: calls back to do the work that waits.
        more: returns True if there are messages to be read: see `unread`.
        report: receives the exceptions of the work.
    """

    def __init__(
        self, loop: Loop, more: Callable[[], bool], report: Callable[[BaseException], None]
    ) -> None:
        self._more = more
        self._report = report
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._handling = False
        self._closed = False
        # Readable while work is queued.
        self._there = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._reader = loop.reader(self._there, self._turn)

    def close(self) -> None:
        """Drop all work; this may be called from within work, too."""
        self._closed = True
        self._reader.cancel()
        self._queue.clear()
        os.close(self._there)

    def put(self, work: Callable[..., None], *args: Any) -> None:
        """Do work: at once if nothing else waits, but never from within other work."""
        if self._closed:
            return
        if not self._queue and not self._handling and not self._more():
            self._do(work, args)
            return
        if not self._queue:
            os.eventfd_write(self._there, 1)
        self._queue.append((work, args))

    def _turn(self) -> None:
        t_end = time.perf_counter() + TURN_SECONDS
        while self._queue and (len(self._queue) > LIMIT or not self._more()):
            work, args = self._queue.popleft()
            self._do(work, args)
            if time.perf_counter() >= t_end:
                break
        if not self._queue and not self._closed:
            os.eventfd_read(self._there)

    def _do(self, work: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._handling = True
        try:
            work(*args)
        except ENDINGS:
            raise
        except BaseException as error:
            self._report(error)
        finally:
            self._handling = False
