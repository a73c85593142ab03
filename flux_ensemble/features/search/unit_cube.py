"""Points of the unit cube as values of variables, and back; and points of a Sobol sequence.

A variable is described as by `Variable.to_json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from flux_ensemble.features.search.space import DRAWS, NoPointError, rows_of
from flux_ensemble.scalars import identity


class Qmc:
    """A scrambled Sobol sequence, whose points follow from their numbers.

    Owen, "Scrambling Sobol' and Niederreiter-Xing points" (1998); the sequence is SciPy's, with the
    seed as `optuna.samplers.QMCSampler` gives it, so the points are those of that sampler, too.
    """

    #: Number of points that are computed at once.
    _BLOCK = 64

    def __init__(self, search: Mapping[str, Any]) -> None:
        from scipy.stats import qmc

        self._variables = search["variables"]
        self._rows = rows_of(search)
        #: The numbers, in the sequence, of its first points that the constraints allow.
        self._allowed: list[int] = []
        self._next = 0
        # With the argument `rng` the same number would begin another sequence.
        self._sobol = qmc.Sobol(len(self._variables), seed=sequence_seed(search))
        self._block: tuple[int, Any] = (-1, None)

    def add(self, params: Sequence[Any], attributes: Any) -> None:
        """Do nothing: earlier points have no effect."""

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
    ) -> tuple[list[Any], None]:
        """Return the point with this number, of those that the constraints allow.

        Raises:
            NoPointError: there is none among many points.
        """
        if not self._rows.space.is_constrained:
            return self._settled(number, fixed), None
        while len(self._allowed) <= number:
            self._allowed.append(self._from(self._next, {})[0])
            self._next = self._allowed[-1] + 1
        return self._from(self._allowed[number], fixed)[1], None

    def _from(self, first: int, fixed: Mapping[int, Any]) -> tuple[int, list[Any]]:
        """Return the next point of the sequence that the constraints allow, and its number."""
        for number in range(first, first + DRAWS):
            params = self._settled(number, fixed)
            if self._rows.allows(params):
                return number, params
        raise NoPointError

    def _settled(self, number: int, fixed: Mapping[int, Any]) -> list[Any]:
        block, row = divmod(number, self._BLOCK)
        if self._block[0] != block:
            self._sobol.reset()
            if block:
                self._sobol.fast_forward(block * self._BLOCK)
            self._block = block, self._sobol.random(self._BLOCK)
        uniforms = self._block[1][row].tolist()
        return self._rows.settled(with_fixed(list(map(at, self._variables, uniforms)), fixed))


def with_fixed(params: Sequence[Any], fixed: Mapping[int, Any]) -> list[Any]:
    """Return a point with fixed values, by the place of the variable, in place of its own.

    >>> with_fixed([1, "a"], {1: "b"})
    [1, 'b']
    """
    return [fixed.get(place, value) for place, value in enumerate(params)]


def sequence_seed(search: Mapping[str, Any]) -> int:
    """Return the seed of a search's Sobol sequence, of 32 bits.

    >>> sequence_seed({"seed": 7, "id": "hpo"}) == sequence_seed({"seed": 7, "id": "other"})
    False
    """
    name = json.dumps([search["seed"], search["id"]])
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


def at(variable: Mapping[str, Any], uniform: float) -> Any:
    """Return the value of a variable for a number >= 0 and < 1.

    >>> at({"choices": ["a", "b", "c"]}, 0.5)
    'b'
    >>> at({"low": 1, "high": 8, "log": False, "integer": True}, 0.999)
    8
    >>> round(at({"low": 1e-4, "high": 1.0, "log": True, "integer": False}, 0.5), 6)
    0.01
    """
    if "choices" in variable:
        choices = variable["choices"]
        return choices[min(int(uniform * len(choices)), len(choices) - 1)]
    low, high = variable["low"], variable["high"]
    # Each integer has an interval of its own, of length 1.
    margin = 0.5 if variable["integer"] else 0.0
    begin, end = low - margin, high + margin
    if variable["log"]:
        value = math.exp(math.log(begin) + uniform * (math.log(end) - math.log(begin)))
    else:
        value = begin + uniform * (end - begin)
    value = min(max(value, low), high)
    return round(value) if variable["integer"] else value


def back(variable: Mapping[str, Any], value: Any) -> list[float]:
    """Return a value as coordinates >= 0 and <= 1: one, or one for each choice.

    >>> back({"choices": ["a", "b", "c"]}, "b")
    [0.0, 1.0, 0.0]
    >>> back({"low": 1e-4, "high": 1.0, "log": True, "integer": False}, 0.01)
    [0.5]
    """
    if "choices" in variable:
        return [float(identity(choice) == identity(value)) for choice in variable["choices"]]
    margin = 0.5 if variable["integer"] else 0.0
    begin, end = variable["low"] - margin, variable["high"] + margin
    if variable["log"]:
        begin, end, value = math.log(begin), math.log(end), math.log(value)
    return [(value - begin) / (end - begin)]
