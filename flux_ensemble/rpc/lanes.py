"""Blocking calls from an event loop, on a bounded number of threads.

Unlike those of `concurrent.futures`, the threads are daemons: a call that never returns
(of a Flux instance whose broker is stopped, say) costs its thread, and no more than that:
neither the loop nor the end of the process waits for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LaneFull(Exception):
    """There are as many calls as may run and wait."""


class Lane:
    """A queue of blocking calls, and the threads that make them.

    Args:
        name: of its threads, and for messages.
        threads: how many calls run at once; threads are started when they are needed.
        waiting: how many more may wait.
    """

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self.name = name
        self._threads = threads
        self._limit = threads + waiting
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._started = 0

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call; when the caller is cancelled while it waits, it is not made.

        Raises:
            LaneFull: too many calls run and wait already.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._unfinished >= self._limit:
                raise LaneFull(f"{self.name} has {self._unfinished} requests open already")
            self._unfinished += 1
            if self._started < min(self._unfinished, self._threads):
                self._started += 1
                threading.Thread(target=self._work, name=self.name, daemon=True).start()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    @property
    def busy(self) -> bool:
        """Whether a call is under way or waits."""
        return self._unfinished > 0

    def close(self) -> None:
        """Ends the threads once the calls that they are at are done."""
        with self._lock:
            for _ in range(self._started):
                self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as exc:
                    self._done()
                    future.set_exception(exc)
                else:
                    self._done()
                    future.set_result(result)
            else:
                self._done()
            # What a call leaves behind (the handle of an instance) belongs to this thread.
            del item, future, call

    def _done(self) -> None:
        with self._lock:
            self._unfinished -= 1
