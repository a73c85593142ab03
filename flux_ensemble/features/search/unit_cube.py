"""Points of the unit cube as values of variables, and back; and points of a Sobol sequence.

A variable is described as by `Variable.to_json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

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
        # With the argument `rng` the same number would begin another sequence.
        self._sobol = qmc.Sobol(len(self._variables), seed=sequence_seed(search))
        self._block: tuple[int, Any] = (-1, None)

    def add(self, params: Sequence[Any], attributes: Any) -> None:
        """Do nothing: earlier points have no effect."""

    def end(self, number: int, value: Any, step: float | None = None) -> None:
        """Do nothing: outcomes have no effect."""

    def suggest(self, number: int, seed: int) -> tuple[list[Any], None]:
        """Return the point with this number."""
        block, row = divmod(number, self._BLOCK)
        if self._block[0] != block:
            self._sobol.reset()
            if block:
                self._sobol.fast_forward(block * self._BLOCK)
            self._block = block, self._sobol.random(self._BLOCK)
        uniforms = self._block[1][row].tolist()
        return list(map(at, self._variables, uniforms)), None


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
