"""The values of a range with steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any


class Steps(Sequence[Any]):
    """The values of a range with steps, the least one first; sums are those of decimal numbers.

    >>> list(Steps(0.1, 0.5, 0.1)), list(Steps(1, 8, 3))
    ([0.1, 0.2, 0.3, 0.4, 0.5], [1, 4, 7])
    """

    def __init__(self, low: float, high: float, step: float) -> None:
        self._low, self._step = Decimal(str(low)), Decimal(str(step))
        self._kind = int if type(low) is int and type(step) is int else float
        self._count = int((Decimal(str(high)) - self._low) / self._step) + 1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        place += self._count if place < 0 else 0
        if not 0 <= place < self._count:
            raise IndexError(place)
        return self._kind(self._low + place * self._step)

    def index(self, value: Any, *range: int) -> int:
        """Return the place of a value.

        Raises:
            ValueError: there is no such value.
        """
        place = self._place(value)
        if not 0 <= place < self._count or self[place] != value:
            raise ValueError(value)
        return place

    def __contains__(self, value: Any) -> bool:
        place = self._place(value)
        return 0 <= place < self._count and bool(self[place] == value)

    def near(self, value: float) -> Any:
        """Return the step that a value is but for rounding; the value if there is none."""
        place = self._place(value)
        if 0 <= place < self._count and math.isclose(
            self[place], value, rel_tol=1e-9, abs_tol=float(self._step) * 1e-9
        ):
            return self[place]
        return value

    def nearest(self, value: float) -> Any:
        """Return the step that is nearest to a value."""
        return self[min(max(self._place(value), 0), self._count - 1)]

    def _place(self, value: float) -> int:
        return round((Decimal(str(value)) - self._low) / self._step)
