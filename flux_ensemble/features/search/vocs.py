"""A search in the terms of gest-api: its description, and the points of a generator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble import scalars
from flux_ensemble.features.search.model import Variable
from flux_ensemble.scalars import number

#: A number beyond a bound by at most this share of the range counts as rounded.
_ROUNDED = 1e-6


class Choices(set[Any]):
    """The values of a discrete variable, in the order of the document.

    A set of texts has a different order in each process, which would change a generator's draws.

    >>> list(Choices(["sgd", "adam", "sgd"]))
    ['sgd', 'adam']
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._ordered = list(dict.fromkeys(values))
        super().__init__(self._ordered)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ordered)


def vocs_of(search: Mapping[str, Any]) -> Any:
    """Return the VOCS of a search, as `advisers.described` gives it.

    A range is a continuous variable; a range of integers has the `dtype` int, since the standard
    has no other type for it. Choices are a discrete variable. A constraint on outcomes has its text
    as its name, and its violation as its value.
    """
    from gest_api.vocs import VOCS, ContinuousVariable, DiscreteVariable

    variables: dict[str, Any] = {}
    for given in search["variables"]:
        if "choices" in given:
            choices = Choices(map(number, given["choices"]))
            variable = DiscreteVariable(values=set(choices))
            variable.values = choices
        else:
            kind = int if given["integer"] else None
            variable = ContinuousVariable(domain=[given["low"], given["high"]], dtype=kind)
        variables[given["name"]] = variable
    objectives = {
        name: "MAXIMIZE" if maximize else "MINIMIZE" for name, maximize in search["objectives"]
    }
    constraints = {text: ["LESS_THAN", 0.0] for text in search.get("subject_to", ())}
    return VOCS(variables=variables, objectives=objectives, constraints=constraints)


def identity(params: Any) -> tuple[tuple[type, Any], ...]:
    """Return the key that distinguishes points; True is not 1."""
    return tuple(map(scalars.identity, params))


def adapted(variable: Variable, value: Any) -> Any:
    """Convert a value to the type of its variable, and to a bound that it exceeds by rounding.

    >>> adapted(Variable("n", 1, 8, integer=True), 2.6)
    3
    >>> adapted(Variable("x", 0.0, 1.0), 1.0000001), adapted(Variable("x", 0.0, 1.0), 1.1)
    (1.0, 1.1)
    >>> adapted(Variable("n", choices=(1, 2)), 2.0)
    2
    """
    if variable.choices:
        same = (choice for choice in variable.choices if number(choice) == value)
        return next(same, value)
    if type(value) not in (int, float) or not math.isfinite(value):
        return value
    margin = 0.5 if variable.integer else (variable.high - variable.low) * _ROUNDED
    if variable.low - margin <= value <= variable.high + margin:
        value = min(max(value, variable.low), variable.high)
        if variable.steps is not None:
            return variable.steps.nearest(value)
        return round(value) if variable.integer else value
    return value


def plain(value: Any) -> Any:
    """Convert a value to JSON: scalars and arrays of NumPy or PyTorch to numbers and lists.

    >>> import numpy
    >>> plain(numpy.float64(0.5)), plain(numpy.array([2])), plain({"a": numpy.arange(2)})
    (0.5, 2, {'a': [0, 1]})
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if callable(getattr(value, "tolist", None)):
        listed = value.tolist()
        while isinstance(listed, list) and len(listed) == 1:
            (listed,) = listed
        return listed
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
