"""Functions that searches minimize: what is known of how they are found, and what they take.

It imports nothing of the project: other tools' environments run it, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

#: For each variable the least and the greatest value.
Bounds = list[tuple[float, float]]


def branin(x: float, y: float) -> float:
    """Branin's function, with three minima."""
    bowl = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(*x: float) -> float:
    """Hartmann's function of six variables, with six minima."""
    return -sum(
        height
        * math.exp(
            -sum(
                width * (value - place / 1e4) ** 2
                for width, value, place in zip(widths, x, places, strict=True)
            )
        )
        for height, widths, places in zip(_HEIGHTS, _WIDTHS, _PLACES, strict=True)
    )


def rosenbrock4(*x: float) -> float:
    """Rosenbrock's function of four variables: a bent valley."""
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))


_HEIGHTS = [1.0, 1.2, 3.0, 3.2]
_WIDTHS = [
    [10, 3, 17, 3.5, 1.7, 8],
    [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8],
    [17, 8, 0.05, 10, 0.1, 14],
]
_PLACES = [
    [1312, 1696, 5569, 124, 8283, 5886],
    [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650],
    [4047, 8828, 8732, 5743, 1091, 381],
]

#: By name: the function, the bounds, and the least value. The middle of Rosenbrock's is none of
#: its good places: some tools begin there.
FUNCTIONS: dict[str, tuple[Callable[..., float], Bounds, float]] = {
    "branin": (branin, [(-5.0, 10.0), (0.0, 15.0)], 0.397887),
    "hartmann6": (hartmann6, [(0.0, 1.0)] * 6, -3.32237),
    "rosenbrock4": (rosenbrock4, [(-5.0, 10.0)] * 4, 0.0),
}
