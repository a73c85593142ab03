"""Rules, actions and submissions as JSON, for the log and for custom functions."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from flux_ensemble.spec.model import Action, Group, Rule

#: Fields of an action but for its name, with their defaults.
_DEFAULTS = tuple((field.name, field.default) for field in fields(Action)[1:])


def describe(group: Group, action: Action) -> list[dict[str, Any]]:
    """What a submit action submits: one object for each job set."""
    submission = group.submission(action.count, action.params)
    return [
        {"name": one.name, "command": shlex.join(one.command), "count": size, "nodes": one.nodes}
        for one, size in submission.sizes
    ]


def action_json(action: Action) -> dict[str, Any]:
    """The action as a document has it, without what is default."""
    value: dict[str, Any] = {"name": action.name}
    for name, default in _DEFAULTS:
        given = getattr(action, name)
        if given != default:
            value[name] = given
    if action.repetitions is None:
        value["repetitions"] = "unlimited"
    return value


def rule_json(rule: Rule) -> dict[str, Any]:
    """The rule as a document has it, without what is absent."""
    value = {
        "id": rule.id,
        "trigger": rule.trigger,
        "name": rule.name,
        "group": rule.group,
        "when": rule.when,
        "scope": rule.scope,
        "on-error": rule.on_error,
        "after": rule.after,
        "every": rule.every,
        "action": action_json(rule.action),
    }
    return {key: given for key, given in value.items() if given is not None}
