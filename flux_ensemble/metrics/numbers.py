"""Numbers for statistics and conditions: finite and of bounded size."""

from __future__ import annotations

import math
from typing import Any

#: An int or a float. (For a parameter of type `float`, compiled code would convert an int.)
Number = int | float

#: Integers beyond this, of more than 64 bits, become floats.
_LARGE = 2**63


def finite(value: Any) -> Number | None:
    """Convert a value to a finite number of bounded size; None if that is not possible.

    The bound matters because values come from users: an integer of a million digits is easy to
    write, and slow to compute with.

    Returns:
        Integers of at most 64 bits unchanged, other numbers as a finite float.

    >>> finite(3), finite(2**64), finite(float("nan"))
    (3, 1.8446744073709552e+19, None)
    """
    if value is None:
        return None
    if type(value) is int and -_LARGE <= value < _LARGE:
        return value
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
