"""Responses to many requests, waited for by Flux's C functions alone.

A burst is thousands of these at once. The bindings make several objects for each, and one more
to look at its response; that takes as long as everything else that is done for a job. So does a
timer for each, and there is one for all of them.

No future has a limit of time of its own: one that has timed out gives its matchtag back
(flux-core `src/common/libflux/rpc.c`), and a response that comes after all would be taken for
that to whatever request got the matchtag next. Destroying a future keeps its matchtag until then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from flux.core.inner import ffi, lib

from flux_ensemble.runtime.ports import Loop


@ffi.callback("void(flux_future_t *, void *)")
def _came(_future: Any, open: Any) -> None:
    ffi.from_handle(open).come()


class Futures:
    """Futures that have no response yet.

    Args:
        loop: for the time.
        seconds: how long a response is waited for.
    """

    def __init__(self, loop: Loop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        #: Oldest first. Flux has pointers to them.
        self._open: dict[_Open, None] = {}
        self._watching = False

    def add(
        self,
        future: Any,
        came: Callable[[Any], None],
        late: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait for a response.

        Args:
            future: a C pointer, straight from the function that made it; it is destroyed here.
            came: gets it when the response is there; nothing may escape it.
            late: called instead, when there was none in time; nothing may escape it either.

        Raises:
            OSError: the request could not be sent; nobody is called.
        """
        if future == ffi.NULL:
            raise error(ffi.errno)
        opened = _Open(self, future, time.monotonic(), came, late)
        self._open[opened] = None
        if lib.flux_future_then(future, -1.0, _came, opened.pointer) < 0:
            number = ffi.errno
            self.close(opened)
            raise error(number)
        if not self._watching:
            self._watch(self._seconds)

    def close(self, opened: _Open) -> None:
        """One is waited for no more."""
        del self._open[opened]
        lib.flux_future_destroy(opened.future)
        # It refers to what refers to it; nobody but the collector would free the two.
        opened.pointer = None

    def _watch(self, seconds: float) -> None:
        self._watching = True
        self._loop.timer(seconds, self._look)

    def _look(self) -> None:
        self._watching = False
        t_late = time.monotonic() - self._seconds
        overdue: list[_Open] = []
        for opened in self._open:
            if opened.t > t_late:
                self._watch(opened.t - t_late)
                break
            overdue.append(opened)
        for opened in overdue:
            self.close(opened)
        for opened in overdue:
            opened.late()


class _Open:
    """One of them.

    Attributes:
        future: Flux's.
        t: when it was sent, in seconds of the monotonic clock.
        late: called when no response has come.
        pointer: to this, until it is closed.
    """

    __slots__ = ("__weakref__", "_all", "_came", "future", "late", "pointer", "t")

    def __init__(
        self,
        all: Futures,
        future: Any,
        t: float,
        came: Callable[[Any], None],
        late: Callable[[], None],
    ) -> None:
        self._all = all
        self._came = came
        self.future = future
        self.t = t
        self.late = late
        self.pointer = ffi.new_handle(self)

    def come(self) -> None:
        """The response is there."""
        try:
            self._came(self.future)
        finally:
            self._all.close(self)


def error(number: int, text: Any = ffi.NULL) -> OSError:
    """The error of an errno, with Flux's own sentence if there is one."""
    if text == ffi.NULL:
        return OSError(number, os.strerror(number))
    return OSError(number, ffi.string(text).decode(errors="replace"))
