"""Numbers as statistics and conditions take them in and give them out: finite, and never large."""

from __future__ import annotations

import math
from typing import Any

#: A number that stays what it is; a compiled function makes an int that is given for a float one.
Number = int | float

#: Integers beyond this, of more than 64 bits, become fractions.
_LARGE = 2**63


def finite(value: Any) -> Number | None:
    """The value as a number that JSON has and whose size is bounded, or None.

    Whoever computes with numbers of others needs the bound: an integer of a million digits is
    as easily written as any, and each operation on it takes as long as it has digits.

    Returns:
        An integer of at most 64 bits as it is, and any other number as a finite float.

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
