"""The space of a search beyond its variables: the conditions of these, and constraints on points.

    {opt: [sgd, adam], momentum: {low: 0, high: 1, when: opt == "sgd"}},  where: lr * batch <= 1

A point has a value of each variable whose condition holds. A constraint that names a variable
without a value does not apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from flux_ensemble.features.search.steps import Steps
from flux_ensemble.metrics.expressions import Expression, compile_expression

#: Most points that are drawn until the constraints allow one.
DRAWS = 10_000


class NoPointError(ValueError):
    """No point was found that the constraints allow."""

    def __init__(self) -> None:
        super().__init__(f"found no point that 'where' allows in {DRAWS:,} draws")


class CircleError(ValueError):
    """Conditions that lead back to their variable, by the names of the variables."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(" -> ".join(names))
        self.names = names


@lru_cache(maxsize=256)
def _compiled(text: str) -> Expression[str]:
    return compile_expression(text, ".".join)


class Space:
    """The conditions of variables, and the constraints on points.

    Args:
        names: of the variables.
        conditions: the condition of each variable that has one.
        where: the constraints.

    Attributes:
        order: the variables, each behind those that its condition names.
        is_plain: there are no conditions and no constraints.

    Raises:
        CircleError: the conditions of variables lead back to these.

    >>> space = Space(("opt", "momentum"), {"momentum": "opt == 'sgd'"}, ("momentum < 1",))
    >>> space.settled({"opt": "adam", "momentum": 2}), space.allows({"opt": "adam"})
    ({'opt': 'adam'}, True)
    >>> space.allows({"opt": "sgd", "momentum": 1})
    False
    """

    def __init__(
        self, names: Sequence[str], conditions: Mapping[str, str], where: Sequence[str] = ()
    ) -> None:
        self._names = tuple(names)
        self._conditions = {name: _compiled(text) for name, text in conditions.items()}
        self._where = [_compiled(text) for text in where]
        self.order = tuple(self._ordered())
        self.is_plain = not conditions and not where

    def _ordered(self) -> Iterator[str]:
        done: dict[str, bool] = {}

        def visit(name: str, before: tuple[str, ...]) -> Iterator[str]:
            if done.get(name):
                return
            if name in before:
                raise CircleError([*before[before.index(name) :], name])
            condition = self._conditions.get(name)
            for other in sorted(condition.variables, key=self._names.index) if condition else ():
                yield from visit(other, (*before, name))
            done[name] = True
            yield name

        for name in self._names:
            yield from visit(name, ())

    @property
    def is_conditional(self) -> bool:
        """True if a point may lack values of variables."""
        return bool(self._conditions)

    @property
    def is_constrained(self) -> bool:
        """True if there are points that are left out."""
        return bool(self._where)

    def has(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return whether a point has a value of a variable, given the values of those before."""
        condition = self._conditions.get(name)
        return condition is None or condition.holds(values.get)

    def settled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a point has, of those given, in the order of the variables."""
        if not self._conditions:
            return {name: values[name] for name in self._names if name in values}
        known: dict[str, Any] = {}
        for name in self.order:
            if name in values and self.has(name, known):
                known[name] = values[name]
        return {name: known[name] for name in self._names if name in known}

    def lacks(self, values: Mapping[str, Any]) -> bool:
        """Return whether a point of these values lacks some that it is to have."""
        known = self.settled(values)
        return any(name not in known and self.has(name, known) for name in self._names)

    def broken(self, values: Mapping[str, Any]) -> int | None:
        """Return the place of the first constraint that does not hold; None if each does."""
        for place, constraint in enumerate(self._where):
            if constraint.variables <= values.keys() and not constraint.holds(values.get):
                return place
        return None

    def allows(self, values: Mapping[str, Any]) -> bool:
        """Return whether each constraint holds for the values that a point has."""
        return self.broken(values) is None


class RowSpace:
    """The space for samplers, whose points are lists in the order of the variables.

    They have the places of the values of steps in place of these.

    Args:
        search: as `advisers.described` gives it, with its choices unpacked.

    Attributes:
        names: of the variables.
        space: their conditions, and the constraints.
        order: the places of the variables, each behind those that its condition names.

    >>> rows = RowSpace(
    ...     {
    ...         "variables": [
    ...             {"name": "x", "low": 0.5, "high": 1.5, "step": 0.5},
    ...             {"name": "y", "choices": [1, 2], "when": "x > 1"},
    ...         ]
    ...     }
    ... )
    >>> rows.settled([1, 2]), rows.settled([2, 1]), rows.named([2, 1])
    ([1, None], [2, 1], {'x': 1.5, 'y': 1})
    """

    def __init__(self, search: Mapping[str, Any]) -> None:
        variables = search["variables"]
        self.names = tuple(one["name"] for one in variables)
        self.space = Space(
            self.names,
            {one["name"]: one["when"] for one in variables if "when" in one},
            search.get("where", ()),
        )
        self._steps = {
            place: Steps(one["low"], one["high"], one["step"])
            for place, one in enumerate(variables)
            if "step" in one
        }

        self.order = [self.names.index(name) for name in self.space.order]

    def valued(self, row: Sequence[Any]) -> Sequence[Any]:
        """Return a row with the values of steps."""
        return (
            [self.value_of(place, value) for place, value in enumerate(row)] if self._steps else row
        )

    def value_of(self, place: int, value: Any) -> Any:
        """Return the value at a place of a row, which may be the place of a step."""
        has_steps = place in self._steps and value is not None
        return self._steps[place][int(value)] if has_steps else value

    def placed(self, row: Sequence[Any]) -> Sequence[Any]:
        """Return a row with the places of steps in place of their values."""
        if not self._steps:
            return row
        return [self.place_of(place, value) for place, value in enumerate(row)]

    def place_of(self, place: int, value: Any) -> Any:
        """Return the place of a value, if the variable at a place has steps; else the value."""
        return (
            self._steps[place].index(value) if place in self._steps and value is not None else value
        )

    def named(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return the values that a point has, by variable."""
        return self.space.settled(dict(zip(self.names, self.valued(row), strict=True)))

    def settled(self, row: Sequence[Any]) -> list[Any]:
        """Return a row with None in place of the values that the point does not have."""
        if not self.space.is_conditional:
            return list(row)
        known = self.named(row)
        return [
            value if name in known else None for name, value in zip(self.names, row, strict=True)
        ]

    def has(self, row: Sequence[Any]) -> list[bool]:
        """Return for each variable whether a point has a value of it."""
        if not self.space.is_conditional:
            return [True] * len(self.names)
        known = self.named(row)
        return [name in known for name in self.names]

    def allows(self, row: Sequence[Any]) -> bool:
        """Return whether each constraint holds for a point."""
        return not self.space.is_constrained or self.space.allows(self.named(row))


def rows_of(search: Mapping[str, Any]) -> RowSpace:
    """Return the rows that a search has for its sampler."""
    rows: RowSpace = search.get("rows") or RowSpace(search)
    return rows
