"""What the sizes of jobs may be, wherever they come from: numbers, expressions or parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.schema_terms import MAX_INT
from flux_ensemble.texts import shown


@dataclass(frozen=True, slots=True)
class Whole:
    """The integers from `least` to `most`."""

    least: int
    most: int = MAX_INT

    def check(self, number: int | None, value: Any) -> int:
        """The number, if it is one of them.

        Args:
            number: what a value was read as; None if it is no integer.
            value: as it is written, for the message.

        Raises:
            ValueError: it is not.

        >>> Whole(0, 31).check(32, "32")
        Traceback (most recent call last):
        ValueError: expected an integer >= 0 and <= 31, not '32'
        """
        if number is None or not self.least <= number <= self.most:
            upper = "" if self.most == MAX_INT else f" and <= {self.most}"
            raise ValueError(f"expected an integer >= {self.least}{upper}, not {shown(value)}")
        return number


#: Keys of a job group and of a submission -> what they may be.
SIZES: Mapping[str, Whole] = {
    "nodes": Whole(1),
    "tasks": Whole(1),
    "cores": Whole(1),
    "gpus": Whole(0),
}
URGENCY = Whole(0, 31)
