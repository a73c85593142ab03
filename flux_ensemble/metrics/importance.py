"""The importance of parameters for a value that jobs published.

The importance of a parameter is the share of the variance of the values that differs between ranges
of this parameter: the correlation ratio of ranks. It needs no model, only the points that there
are. Ranks are used because a few diverged values would be nearly all of the variance.

The share that chance alone gives is taken off (Kelley's epsilon squared), so that a parameter
without any effect is near 0 however few the points are. What parameters only do together is not in
it. For a parameter that only some points have, it is the share among these.

    values ──► ranks ──► between ranges of a parameter / in all
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

#: Least number of points, and most: of more points evenly spaced ones are used.
LEAST, MOST = 10, 20_000

#: The value of a parameter that a point does not have.
ABSENT: Final = object()

#: Number of points of a range of a number, and most ranges of it.
_EACH, _RANGES = 5, 8


class Importance(NamedTuple):
    """The importance of one parameter.

    Attributes:
        name: the parameter.
        share: from 0, no effect by itself, to 1.
        points: the number of points that it is computed from, which all have the parameter.
    """

    name: str
    share: float
    points: int


def importances(params: Mapping[str, Sequence[Any]], values: Sequence[float]) -> list[Importance]:
    """Return the importances of parameters, the greatest first.

    Parameters whose values are all the same are left out, texts that are all different, and
    parameters that fewer than `LEAST` points have.

    Args:
        params: the values of each parameter, a value or `ABSENT` for each point.
        values: the value of each point.

    Returns:
        Empty if there are too few points, or all values are the same.

    >>> x = [number / 40 for number in range(40)]
    >>> noise = [number * 17 % 40 for number in range(40)]
    >>> found = importances({"noise": noise, "x": x, "same": [1] * 40}, [one**2 for one in x])
    >>> [(name, round(share, 2), points) for name, share, points in found]
    [('x', 0.98, 40), ('noise', 0.0, 40)]
    """
    if len(values) > MOST:
        places = [place * len(values) // MOST for place in range(MOST)]
        values = [values[place] for place in places]
        params = {name: [of[place] for place in places] for name, of in params.items()}
    ranks = _ranks(values)
    found = []
    for name, of in params.items():
        having = [place for place, value in enumerate(of) if value is not ABSENT]
        if len(having) < LEAST or len({values[place] for place in having}) == 1:
            continue
        whole = len(having) == len(values)
        ranges = _ranges(of if whole else [of[place] for place in having])
        if 1 < len(set(ranges)) < len(ranges):
            among = ranks if whole else _ranks([values[place] for place in having])
            found.append(Importance(name, _share(ranges, among), len(having)))
    return sorted(found, key=lambda one: (-one.share, one.name))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 0; equal values have their mean rank.

    >>> _ranks([5, 1, 5, 9])
    [1.5, 0.0, 1.5, 3.0]
    """
    ranks = [0.0] * len(values)
    begin = 0
    order = sorted(range(len(values)), key=values.__getitem__)
    for _, equal in groupby(order, key=values.__getitem__):
        places = list(equal)
        for place in places:
            ranks[place] = begin + (len(places) - 1) / 2
        begin += len(places)
    return ranks


def _ranges(values: Sequence[Any]) -> list[Any]:
    """Return the range of each value: itself, or of many numbers ranges with as many points each.

    >>> _ranges(["a", "b", "a"]), _ranges(list(range(12)))
    (['a', 'b', 'a'], [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    """
    many = max(2, min(_RANGES, len(values) // _EACH))
    numeric = all(type(value) in (int, float) for value in values)
    if not numeric or len(set(values)) <= many:
        return [str(value) for value in values]
    ranks = _ranks(values)
    return [int(rank * many / len(values)) for rank in ranks]


def _share(ranges: Sequence[Any], ranks: Sequence[float]) -> float:
    """Return the share of the variance of ranks that differs between ranges."""
    count, mean = len(ranks), (len(ranks) - 1) / 2
    whole = sum((rank - mean) ** 2 for rank in ranks)
    sums: dict[Any, tuple[int, float, float]] = {}
    for key, rank in zip(ranges, ranks, strict=True):
        many, total, squares = sums.get(key, (0, 0.0, 0.0))
        sums[key] = many + 1, total + rank, squares + rank * rank
    within = sum(squares - total * total / many for many, total, squares in sums.values())
    return max(0.0, 1 - within / (count - len(sums)) / (whole / (count - 1)))
