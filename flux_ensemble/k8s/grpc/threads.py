"""Blocking calls from an event loop, on a bounded number of threads.

Unlike those of `concurrent.futures`, the threads are daemons. A call that never returns, such as
one to a stopped broker, blocks only its own thread, not the loop or the exit of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

#: A call that no thread has begun, with the future of its result.
_Waiting = tuple[Future[Any], Callable[[], Any]]


class LaneFull(Exception):
    """Too many calls are running or waiting."""


class Lane:
    """A queue of blocking calls, and the threads that perform them.

    Args:
        name: of its threads, and for messages.
        threads: number of calls that run at once; threads are started when they are needed.
        waiting: number of further calls that may wait.
    """

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self.name = name
        self._threads = threads
        self._limit = threads + waiting
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._running = 0
        self._started = 0
        self._closed = False

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call and return its result. If the caller is cancelled first, the call is skipped.

        Raises:
            LaneFull: too many calls run and wait already.
        """
        future: Future[T] = Future()
        item: _Waiting = (future, call)
        with self._changed:
            unfinished = len(self._waiting) + self._running
            if unfinished >= self._limit:
                raise LaneFull(f"{self.name} has {unfinished} requests open already")
            self._waiting.append(item)
            if self._started < min(unfinished + 1, self._threads):
                self._started += 1
                threading.Thread(target=self._work, name=self.name, daemon=True).start()
            self._changed.notify()
        try:
            return await _result_of(future)
        except asyncio.CancelledError:
            # Otherwise it would take the place of another call until a thread comes to it.
            with self._changed, suppress(ValueError):
                self._waiting.remove(item)
            raise
        finally:
            # An exception of the call refers to this frame: they would keep each other alive.
            del future, item

    @property
    def busy(self) -> bool:
        """A call runs or waits."""
        return bool(self._running or self._waiting)

    def close(self) -> None:
        """End the threads once the current calls are done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            future, call = item
            try:
                result = call()
            except BaseException as exc:
                self._done()
                future.set_exception(exc)
            else:
                self._done()
                future.set_result(result)
            # Objects that a call leaves behind (the handle of an instance) belong to this thread.
            del item, future, call

    def _next(self) -> _Waiting | None:
        """Return the next call that somebody waits for; None if there will be none."""
        with self._changed:
            while True:
                while not self._waiting:
                    if self._closed:
                        return None
                    self._changed.wait()
                item = self._waiting.popleft()
                if item[0].set_running_or_notify_cancel():
                    self._running += 1
                    return item

    def _done(self) -> None:
        with self._changed:
            self._running -= 1


async def _result_of(future: Future[T]) -> T:
    """Do as `asyncio.wrap_future`, which fails in the thread if the loop is closed just then."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def told(_: Future[T]) -> None:
        # Nobody waits on a loop that is closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(told)
    try:
        await over.wait()
        return future.result()
    except asyncio.CancelledError:
        future.cancel()
        raise
    finally:
        # An exception of the call refers to this frame: they would keep each other alive.
        del future
