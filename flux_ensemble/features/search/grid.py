"""Spaces with finitely many points, and the sampler that tries each of them once.

The points are numbered; the number of a point has a digit for each variable. The order is that of
multiples of about 0.618 times the number of points (a Kronecker sequence with the golden ratio), so
that the first points are spread over the values of every variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import gcd, prod
from types import MappingProxyType
from typing import Any

from flux_ensemble.features.search.model import Variable
from flux_ensemble.features.search.space import rows_of
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
        self._rows = rows_of(search)
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

    def end(
        self,
        number: int,
        value: Any,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """Do nothing: outcomes have no effect."""

    def suggest(
        self, number: int, seed: int, fixed: Mapping[int, Any] = MappingProxyType({})
    ) -> tuple[list[Any], None] | None:
        """Return the next point, one with the fixed values; None if each has been given."""
        # Those that are passed over for fixed values have their turn later.
        left = self._walk() if fixed else self._left
        for params in left:
            if not self.knows(params) and fits(params, fixed):
                self.add(params, None)
                return params, None
        known = filter(partial(fits, fixed=fixed), self._walk()) if fixed else iter(())
        repeated = next(known, None)
        return None if repeated is None else (repeated, None)

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
            # Points that differ in values that they do not have are one.
            settled = self._rows.settled(params[::-1])
            if self._rows.allows(settled):
                yield settled


def fits(params: Sequence[Any], fixed: Mapping[int, Any]) -> bool:
    """Return whether a point has fixed values, by the place of the variable.

    >>> fits([1, "a"], {1: "a"}), fits([1, "a"], {0: True})
    (True, False)
    """
    # A value that the point does not have, by its condition, is None.
    return all(
        identity(params[place]) in (identity(value), identity(None))
        for place, value in fixed.items()
    )


def _key(params: Sequence[Any]) -> tuple[tuple[type, Any], ...]:
    return tuple(map(identity, params))
