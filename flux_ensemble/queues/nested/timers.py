"""Timers that are known by their names, one of each at a time."""

from __future__ import annotations

from collections.abc import Callable

from flux_ensemble.runtime.ports import Handle, Loop


class Timers:
    """Timers.

    Args:
        loop: has them.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._set: dict[str, Handle] = {}

    def later(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after some seconds, in place of the timer of that name, if there is one."""
        self.stop(name)
        self._set[name] = self._loop.timer(seconds, callback)

    def stop(self, name: str) -> None:
        """Do not call back, if there is such a timer."""
        timer = self._set.pop(name, None)
        if timer is not None:
            timer.cancel()

    def stop_all(self) -> None:
        """Do not call back at all."""
        for name in list(self._set):
            self.stop(name)
