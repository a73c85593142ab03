"""How many jobs of a group finish per second, of late."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

#: Parts of a window; with each that has passed, the oldest is forgotten.
PARTS = 60


class Rate:
    """Counts what happens in a window of time, by its parts.

    Args:
        window: its length in seconds.

    Attributes:
        begin: since when it counts; None before that.

    >>> rate = Rate(60.0)
    >>> rate.begin = 0.0
    >>> for t in (10.0, 20.0, 30.0):
    ...     rate.add(t)
    >>> rate.get(40.0), rate.get(60.0), rate.get(75.0)
    (None, 0.05, 0.03333333333333333)
    """

    def __init__(self, window: float) -> None:
        self.begin: float | None = None
        self._window = window
        #: [number of the part, how many], oldest first; parts with nothing are left out.
        self._parts: deque[list[int]] = deque()

    def add(self, t: float) -> None:
        """Count one more at a time that is not before the last."""
        part = self._part(t)
        if self._parts and self._parts[-1][0] == part:
            self._parts[-1][1] += 1
            return
        self._parts.append([part, 1])
        while self._parts[0][0] <= part - PARTS:
            self._parts.popleft()

    def get(self, t: float) -> float | None:
        """How many per second; None before it has counted for a whole window."""
        if self.begin is None or t - self.begin < self._window:
            return None
        oldest = self._part(t) - PARTS
        return sum(count for part, count in self._parts if part > oldest) / self._window

    def _part(self, t: float) -> int:
        return math.floor(t / self._window * PARTS)

    def dump(self) -> list[Any]:
        """It as JSON."""
        return [self.begin, [list(part) for part in self._parts]]

    def load(self, value: Any) -> None:
        """Set what `dump` returned."""
        self.begin, parts = value
        self._parts = deque(list(part) for part in parts)
