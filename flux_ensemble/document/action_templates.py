"""Actions with expressions: compiled with their rule, and filled in each time it fires.

{"nodes": "{job.nnodes * 2}"} ──► Filling ──fill──► {"nodes": 4}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.overrides import OF_EACH, OVERRIDES
from flux_ensemble.document.keys.rules import ACTION_KEYS
from flux_ensemble.document.model import Action
from flux_ensemble.document.templates import Template
from flux_ensemble.metrics.conditions import Names, Variable
from flux_ensemble.metrics.job_fields import IdleField
from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.scalars import packed

#: The value of `params` that hands over the parameters of the triggering job.
TRIGGER = "trigger"

#: Keys whose values expressions can give -> what reads one, or raises ValueError.
_VALUES = {key.name: key.read for key in ACTION_KEYS if key.expression and key.read is not None}


class Filling:
    """The expressions of one action.

    Args:
        expressions: values by key, of which some are or hold text with expressions.
        names: resolves the names in them.
        group: whose jobs the action submits, or None.

    Raises:
        ValueError: an expression is invalid; the message begins with its key.

    >>> action = Action("update", "md", expressions={"duration": "{60 * 2}"})
    >>> filling = Filling(action.expressions, Names([], [], None, None), None)
    >>> filling.fill(action, lambda variable: None, None).duration
    120.0
    """

    __slots__ = ("_group", "_values")

    def __init__(self, expressions: Mapping[str, Any], names: Names, group: Group | None) -> None:
        self._group = group
        self._values: dict[str, Any] = {}
        for key, value in expressions.items():
            try:
                self._values[key] = Template.within(value, names, key in OF_EACH)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None

    @property
    def paths(self) -> set[MetricPath]:
        """The metrics that the expressions read."""
        variables = Template.variables(self._values)
        return {variable for variable in variables if isinstance(variable, MetricPath)}

    @property
    def of_idle(self) -> bool:
        """True if an expression reads how the jobs went that an `idle` rule waited for."""
        return any(isinstance(one, IdleField) for one in Template.variables(self._values))

    def fill(
        self,
        action: Action,
        lookup: Callable[[Variable], Any],
        params: Mapping[str, Any] | None,
    ) -> Action:
        """The action with the values of its expressions.

        Args:
            action: the one with the expressions.
            lookup: returns the value of a variable.
            params: of the triggering job, for `params: trigger`.

        Raises:
            ValueError: an expression has no value, or one that does not fit; one sentence.
        """
        fields: dict[str, Any] = {}
        overrides = dict(action.overrides or {})
        for key, value in self._values.items():
            try:
                if key == "params":
                    fields[key] = self._params(value, lookup, params or {})
                    continue
                read = _VALUES[key](Template.filled(value, lookup))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
            if action.name == "submit" and key in OVERRIDES:
                overrides[key] = read
            else:
                fields[key] = read
        made = replace(action, expressions=None, overrides=overrides or None, **fields)
        if self._group is not None:
            self._group.submission(made.count, made.params, made.overrides)
        return made

    def _params(
        self, value: Any, lookup: Callable[[Variable], Any], params: Mapping[str, Any]
    ) -> dict[str, Any]:
        if value == TRIGGER:
            assert self._group is not None
            return {name: packed(params[name]) for name in self._group.params if name in params}
        return {name: _packed(filled) for name, filled in Template.filled(value, lookup).items()}


def _packed(value: Any) -> Any:
    return list(map(packed, value)) if isinstance(value, list) else packed(value)
