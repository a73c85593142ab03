"""The thread that sends requests: one picture a second, and in between the requests of the keys.

A Flux handle is used by one thread. So the source is opened here, and the terminal never waits for
a service that is slow or away.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, TypeVar

from flux_ensemble.cli.top.picture import Picture
from flux_ensemble.cli.top.source import Source

_T = TypeVar("_T")

#: Least seconds between two pictures, and most, for very large ensembles.
INTERVAL, LONGEST = 1.0, 10.0

#: Seconds after a quick first picture in which nothing else delays its drawing.
SETTLE = 0.5

#: Pause until the next picture, as a multiple of the processor time that a picture takes.
PATIENCE = 40.0


class Poller:
    """Takes pictures until it is stopped.

    Args:
        open_source: opens the source, in the thread.
        interval: seconds between two pictures.
        quick: begin with a picture without failures.

    Attributes:
        pictures: number of pictures taken.
    """

    def __init__(
        self, open_source: Callable[[], Source], interval: float = INTERVAL, *, quick: bool = False
    ) -> None:
        self._open = open_source
        self._quick = quick
        self._interval = interval
        self._tasks: queue.SimpleQueue[Callable[[Source], None] | None] = queue.SimpleQueue()
        self._visible = Event()
        self._visible.set()
        self._stopped = False
        self._show: Callable[[Picture], None] = lambda picture: None
        self._fail: Callable[[Exception], None] = lambda error: None
        self._first: Future[Picture] = Future()
        self.pictures = 0
        self._thread = Thread(target=self._main, name="poller", daemon=True)
        self._thread.start()

    def first(self, timeout: float | None = None) -> Picture:
        """Return the first picture.

        Raises:
            TimeoutError: it is not available within so many seconds.
            Exception: the error that kept it from being taken.
        """
        return self._first.result(timeout)

    def show(self, show: Callable[[Picture], None], fail: Callable[[Exception], None]) -> None:
        """Call back, in the thread, with each picture, and with the error that ended them."""
        self._show, self._fail = show, fail
        if self._first.done():
            error = self._first.exception()
            if isinstance(error, Exception):
                fail(error)
            else:
                show(self._first.result())

    def do(self, function: Callable[[Source], _T], then: Callable[[_T | Exception], None]) -> None:
        """Call a function with the source in the thread, and `then` with its result or error."""

        def call(source: Source) -> None:
            result: Any
            try:
                result = function(source)
            except Exception as error:
                result = error
            then(result)

        self._tasks.put(call)

    def look_now(self) -> None:
        """Take the next picture early."""
        self._tasks.put(None)

    def hide(self) -> None:
        """Take no more pictures until `unhide`, since nobody sees them."""
        self._visible.clear()

    def unhide(self) -> None:
        """Take pictures again."""
        self._visible.set()
        self.look_now()

    def stop(self) -> None:
        """Take no more pictures; pending requests are not waited for."""
        self._stopped = True
        self.look_now()

    def _main(self) -> None:
        try:
            source = self._open()
            if self._quick:
                self._look(source, quick=True)
                self._work(source, time.monotonic() + SETTLE)
            while not self._stopped:
                begin, spent = time.monotonic(), time.thread_time()
                if self._visible.is_set():
                    self._look(source)
                pause = min(PATIENCE * (time.thread_time() - spent), LONGEST)
                self._work(source, begin + max(self._interval, pause))
        except Exception as error:
            if not self._first.done():
                self._first.set_exception(error)
            self._fail(error)

    def _look(self, source: Source, *, quick: bool = False) -> None:
        picture = source.look(quick=quick)
        self.pictures += 1
        if not self._first.done():
            self._first.set_result(picture)
        self._show(picture)

    def _work(self, source: Source, until: float) -> None:
        """Perform tasks until it is time for the next picture, or longer if hidden."""
        while not self._stopped:
            left = until - time.monotonic()
            if self._visible.is_set() and left <= 0:
                return
            try:
                task = self._tasks.get(timeout=left if self._visible.is_set() else None)
            except queue.Empty:
                return
            if task is not None:
                task(source)
