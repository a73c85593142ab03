"""Timers with names; of each name one is set at a time."""

from __future__ import annotations

from collections.abc import Callable

from flux_ensemble.runtime.ports import Handle, Loop


class Timers:
    """A set of named timers.

    Args:
        loop: that runs them.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._set: dict[str, Handle] = {}

    def later(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after some seconds; this replaces the timer of that name, if there is one."""
        self.stop(name)
        self._set[name] = self._loop.timer(seconds, callback)

    def stop(self, name: str) -> None:
        """Cancel the timer of that name, if there is one."""
        timer = self._set.pop(name, None)
        if timer is not None:
            timer.cancel()

    def stop_all(self) -> None:
        """Cancel all timers."""
        for name in list(self._set):
            self.stop(name)
