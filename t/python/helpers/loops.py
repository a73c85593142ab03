"""The local queue's event loop, for tests: it gives up where a test would hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from patience import PATIENCE

from flux_ensemble.queues.local.loop import LocalLoop


class SelectorLoop(LocalLoop):
    """A `LocalLoop` to use in a `with`, whose `run` has a limit."""

    _ticks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def watching(self) -> int:
        """How many timers and descriptors are being watched, but for the loop's own."""
        return self.timers - self._ticks + len(self._selector.get_map())

    def run(self, until: Callable[[], bool], limit: float = PATIENCE) -> None:
        """Run callbacks until `until()` holds.

        Raises:
            TimeoutError: it did not within `limit` seconds.
        """
        t_end = time.monotonic() + limit

        def over() -> bool:
            if until():
                return True
            if time.monotonic() > t_end:
                raise TimeoutError(f"the condition did not hold within {limit:g} s")
            return False

        # So that a loop that has nothing else to wait for looks at the time.
        tick = self.timer(0.2, lambda: None, every=0.2)
        self._ticks += 1
        try:
            super().run(over)
        finally:
            self._ticks -= 1
            tick.cancel()
