"""Spaces with finitely many points, and the sampler that tries each of them once.

The points are numbered; the number of a point has a digit for each variable. The order is that of
multiples of about 0.618 times the number of points (a Kronecker sequence with the golden ratio), so
that the first points are spread over the values of every variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd, prod
from typing import Any

from flux_ensemble.features.search.model import Variable
from flux_ensemble.scalars import identity

#: The golden ratio, less 1, as a fraction.
_GOLDEN = 618_033_988_749_895, 10**15


class Grid:
    """The points of a finite space, each once; the methods are those of `samplers.Sampler`.

    Args:
        search: as `advisers.described` gives it, with its choices unpacked.

    >>> grid = Grid({"variables": [{"name": "x", "choices": [1, 2]}]})
    >>> grid.add([2], None)
    >>> grid.suggest(1, 0), grid.suggest(2, 0)
    (([1], None), None)
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        variables = [
            Variable(**{**one, "choices": tuple(one.get("choices", ()))})
            for one in search["variables"]
        ]
        self._values = [variable.values for variable in variables]
        self._known: set[tuple[tuple[type, Any], ...]] = set()
        self._left = self._walk()

    @property
    def is_finite(self) -> bool:
        """True if each variable has finitely many values."""
        return None not in self._values

    def knows(self, params: Sequence[Any]) -> bool:
        """Return whether a point was given or added before."""
        return _key(params) in self._known

    def add(self, params: Sequence[Any], attributes: Any) -> None:
        """Add a point that was given, which is not given again."""
        self._known.add(_key(params))

    def end(self, number: int, value: Any, step: float | None = None) -> None:
        """Do nothing: outcomes have no effect."""

    def suggest(self, number: int, seed: int) -> tuple[list[Any], None] | None:
        """Return the next point; None if each has been given."""
        for params in self._left:
            if not self.knows(params):
                self.add(params, None)
                return params, None
        return None

    def _walk(self) -> Iterator[list[Any]]:
        values = [one for one in self._values if one is not None]
        size = prod(map(len, values))
        stride = max(1, size * _GOLDEN[0] // _GOLDEN[1])
        while gcd(stride, size) != 1:
            stride += 1
        for number in range(size):
            rest, params = number * stride % size, []
            for one in reversed(values):
                rest, place = divmod(rest, len(one))
                params.append(one[place])
            yield params[::-1]


def _key(params: Sequence[Any]) -> tuple[tuple[type, Any], ...]:
    return tuple(map(identity, params))
