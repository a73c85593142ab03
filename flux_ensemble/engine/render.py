"""Rules, actions and submissions as JSON, for the log and for custom functions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.model import Action, Rule

#: Fields of an action except its name, a getter of all of them, and their defaults.
_FIELDS = tuple(field.name for field in fields(Action)[1:])
_VALUES = attrgetter(*_FIELDS)
_DEFAULTS = tuple(field.default for field in fields(Action)[1:])

#: Fields that hold keys of the document.
_NESTED = ("overrides", "expressions")


#: An action as JSON, and the entry `jobs` of an action that submits jobs.
Shown = tuple[dict[str, Any], list[dict[str, Any]] | None]


class ShownActions:
    """Actions as JSON for the log entries of firings.

    Args:
        groups: the ensemble's job groups, by name.
    """

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        #: The identity of an action -> its JSON, for actions that are kept.
        self._kept: dict[int, Shown] = {}

    def of(self, action: Action, *, keep: bool) -> Shown:
        """Return the JSON of an action, and the `jobs` of its log entry.

        Args:
            action: the action.
            keep: the same object may come again, and lives as long as the engine.
        """
        shown = self._kept.get(id(action)) if keep else None
        if shown is None:
            jobs = None
            if action.name == "submit":
                jobs = describe(self._groups[action.label or ""], action)
            shown = action_json(action), jobs
            if keep:
                self._kept[id(action)] = shown
        return shown


def describe(group: Group, action: Action) -> list[dict[str, Any]]:
    """Return the jobs of a submit action: one object for each job set."""
    submission = group.submission(action.count, action.params, action.overrides)
    return [
        {
            "name": job_set.name,
            "command": shlex.join(job_set.command),
            "count": size,
            "nodes": job_set.variable.get("nodes", job_set.nodes),
        }
        for job_set, size in submission.sizes
    ]


def action_json(action: Action) -> dict[str, Any]:
    """Return the action as in a document, without default values."""
    value: dict[str, Any] = {"name": action.name}
    for name, field, default in zip(_FIELDS, _VALUES(action), _DEFAULTS, strict=True):
        if field is not default and field != default:
            value.update(field if name in _NESTED else {name: field})
    if action.repetitions is None:
        value["repetitions"] = "unlimited"
    return value


def rule_json(rule: Rule) -> dict[str, Any]:
    """Return the rule as in a document, without absent keys."""
    value = {
        "id": rule.id,
        "trigger": _alone(rule.triggers),
        "name": rule.name,
        "group": _alone(rule.groups),
        "when": rule.when,
        "scope": rule.scope,
        "on-error": rule.on_error,
        "after": rule.after,
        "every": rule.every,
        "action": action_json(rule.action),
        "actions": [action_json(action) for action in rule.actions] if rule.more_actions else None,
    }
    return {key: field for key, field in value.items() if field is not None}


def _alone(items: tuple[str, ...]) -> Any:
    """Return the only item, None if there is none, or the list of all."""
    return list(items) if len(items) > 1 else items[0] if items else None
