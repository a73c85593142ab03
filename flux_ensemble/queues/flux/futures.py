"""Responses to many requests, awaited with Flux's C functions alone.

A burst has thousands of these at once. The bindings make several objects for each, and one more to
read its response; that takes as long as all other work for a job. A timer for each would take as
long again, so there is one for all of them.

No future has a time limit of its own. A future that times out gives its matchtag back (flux-core
`src/common/libflux/rpc.c`), and a response that comes after all would be taken for that to another
request with the same matchtag. Destroying a future keeps its matchtag until the response comes.
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
        seconds: time limit of a response.
    """

    def __init__(self, loop: Loop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        #: Oldest first. Flux has pointers to these objects.
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
            future: a C pointer, straight from the function that made it; this object destroys it.
            came: receives the future when it has its response; it must not raise.
            late: called instead if there is no response in time; it must not raise either.

        Raises:
            OSError: the request could not be sent; neither callback is called.
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
        """Stop waiting for a response, and destroy its future."""
        del self._open[opened]
        lib.flux_future_destroy(opened.future)
        # The two refer to each other; otherwise only the garbage collector would free them.
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
    """A future without a response.

    Attributes:
        future: the C pointer.
        t: the time when it was sent, in seconds of the monotonic clock.
        late: called if no response has come.
        pointer: refers to this object, until it is closed.
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
        """Pass the response on, and close this."""
        try:
            self._came(self.future)
        finally:
            self._all.close(self)


def error(number: int, text: Any = ffi.NULL) -> OSError:
    """Make the error of an errno, with Flux's own sentence if there is one."""
    if text == ffi.NULL:
        return OSError(number, os.strerror(number))
    return OSError(number, ffi.string(text).decode(errors="replace"))
