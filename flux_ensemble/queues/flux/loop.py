"""The reactor of a Flux handle as a `runtime.ports.Loop`, and the guard of its callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flux.constants import FLUX_POLLIN
from flux.core.handle import Flux
from flux.core.inner import lib

from flux_ensemble.faults import ENDINGS

#: Wraps a callback so that no exception escapes it: an escaped one ends a broker module.
Guard = Callable[[Callable[..., None]], Callable[..., None]]


def guard(report: Callable[[BaseException], None]) -> Guard:
    """Make a `Guard` that passes exceptions to `report`."""

    def wrap(callback: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            try:
                callback(*args)
            except ENDINGS:
                raise
            except BaseException as error:
                report(error)

        return call

    return wrap


class _Watcher:
    """A `runtime.ports.Handle` for a Flux watcher."""

    def __init__(self, watcher: Any) -> None:
        self._watcher = watcher
        watcher.start()

    def cancel(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.destroy()


class FluxLoop:
    """A `runtime.ports.Loop` on the reactor of a Flux handle."""

    def __init__(self, handle: Flux, guard: Guard) -> None:
        self._handle = handle
        self._guard = guard
        self._reactor = handle.get_reactor()

    def now(self) -> float:
        return time.time()

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> _Watcher:
        # The reactor's current time dates from the start of its present turn.
        lib.flux_reactor_now_update(self._reactor)
        guarded = self._guard(callback)

        def fire(*_: Any) -> None:
            if not every:
                handle.cancel()
            guarded()

        handle = _Watcher(
            self._handle.timer_watcher_create(max(after, 0.0), fire, repeat=max(every, 0.0))
        )
        return handle

    def reader(self, fd: int, callback: Callable[[], None]) -> _Watcher:
        guarded = self._guard(callback)
        return _Watcher(
            self._handle.fd_watcher_create(fd, lambda *_: guarded(), events=FLUX_POLLIN)
        )
