"""Rules, actions and submissions as JSON, for the log and for custom functions."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from flux_ensemble.spec.model import Action, Group, Rule


def describe(group: Group, action: Action) -> list[dict[str, Any]]:
    """What a submit action submits: one object for each job set."""
    submission = group.submission(action.count, action.params)
    return [
        {"name": one.name, "command": shlex.join(one.command), "count": size, "nodes": one.nodes}
        for one, size in submission.sizes
    ]


def action_json(action: Action) -> dict[str, Any]:
    """The action as a document has it, without what is default."""
    plain = Action(action.name)
    value: dict[str, Any] = {"name": action.name}
    for field in fields(Action)[1:]:
        given = getattr(action, field.name)
        if given != getattr(plain, field.name):
            value[field.name] = given
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
