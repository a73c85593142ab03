"""The rate at which jobs of a group finish, over a moving window of time."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

#: The number of parts of a window; when a new part begins, the oldest is forgotten.
PARTS = 60


class Rate:
    """A counter over a moving window of time, by parts of the window.

    Args:
        window: the length of the window in seconds.

    Attributes:
        begin: when counting began; None before that.

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
        #: [number of the part, count], oldest first; parts with count 0 are left out.
        self._parts: deque[list[int]] = deque()

    def add(self, t: float) -> None:
        """Count one more event at a time that is not before the last."""
        part = self._part(t)
        if self._parts and self._parts[-1][0] == part:
            self._parts[-1][1] += 1
            return
        self._parts.append([part, 1])
        while self._parts[0][0] <= part - PARTS:
            self._parts.popleft()

    def get(self, t: float) -> float | None:
        """Return the events per second; None before a whole window has been counted."""
        if self.begin is None or t - self.begin < self._window:
            return None
        oldest = self._part(t) - PARTS
        return sum(count for part, count in self._parts if part > oldest) / self._window

    def _part(self, t: float) -> int:
        return math.floor(t / self._window * PARTS)

    def dump(self) -> list[Any]:
        """Return the state as JSON."""
        return [self.begin, [list(part) for part in self._parts]]

    def load(self, value: Any) -> None:
        """Set the state from the result of `dump`."""
        self.begin, parts = value
        self._parts = deque(list(part) for part in parts)
