"""The JSON Schema of an ensemble document, and of the jobspecs in it.

It uses neither `anyOf` nor `$ref`, so every error becomes one sentence, made from the
`description` of the failing part. What cannot be expressed without them is checked by the
other modules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.model import ACTIONS, TRIGGERS
from flux_ensemble.document.sweep import SWEEPS
from flux_ensemble.metrics.names import OF

#: Largest integer of a jobspec; Flux reads them as C ints.
MAX_INT = 2**31 - 1

#: Names of groups and rules. They are used in metric paths, and in file names.
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z"

#: Names of ensembles. A dot would separate directories of the KVS.
ENSEMBLE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}\Z"
ENSEMBLE_NAME_RULE = "a name (letters, digits, '_' and '-', at most 128, not '-' first)"

#: Names of parameters and statistics. They are used in `{name}` and in expressions.
PARAMETER = r"^[A-Za-z_][A-Za-z0-9_-]{0,127}\Z"
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z"

Schema = dict[str, Any]


def _mapping(what: str, properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "description": what,
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(what: str, items: Schema) -> Schema:
    return {"type": "array", "description": what, "items": items}


def _choice(what: str, names: tuple[str, ...]) -> Schema:
    return {"type": "string", "description": what, "enum": list(names)}


def _text(what: str = "text that is not empty", **more: Any) -> Schema:
    return {"type": "string", "description": what, "minLength": 1, **more}


def _integer(minimum: int, maximum: int = MAX_INT) -> Schema:
    upper = "" if maximum == MAX_INT else f" and <= {maximum}"
    return {
        "type": "integer",
        "description": f"an integer >= {minimum}{upper}",
        "minimum": minimum,
        "maximum": maximum,
    }


_BOOLEAN = {"type": "boolean", "description": "true or false"}
_OBJECT = {"type": "object", "description": "a mapping"}
_DURATION = {
    "type": ["number", "string"],
    "description": "a duration (seconds, or text such as '30s', '1.5h' or '100ms')",
    "minimum": 0,
}
_SCALAR = {
    "type": ["string", "number", "boolean"],
    "description": "text, a number, true or false",
}
_NAME = _text(
    "a name (letters, digits, '_', '-' and '.', at most 128, not '-' or '.' first)", pattern=NAME
)
_URGENCY = _integer(0, 31)

#: `attributes.system` of a jobspec, as far as Flux itself insists on it.
_SYSTEM = {
    **_OBJECT,
    "properties": {
        "duration": {"type": "number", "description": "a number of seconds", "minimum": 0},
        "cwd": _text(),
        "environment": {
            "type": "object",
            "description": "a mapping of environment variables",
            "additionalProperties": {"type": "string", "description": "text"},
        },
        "dependencies": _list(
            "a list of dependencies",
            {
                **_OBJECT,
                "properties": {"scheme": _text(), "value": _text()},
                "required": ["scheme", "value"],
            },
        ),
        "constraints": _OBJECT,
        "shell": {**_OBJECT, "properties": {"options": _OBJECT}},
        "job": _OBJECT,
    },
}

ACTION = _mapping(
    "an action such as {name: submit, label: GROUP}",
    {
        "name": _choice("an action", ACTIONS),
        "label": _text(),
        "value": _integer(1),
        "count": _integer(1),
        "params": _OBJECT,
        "repetitions": {
            "type": ["integer", "string"],
            "description": "an integer >= 1 or 'unlimited'",
            "minimum": 1,
            "pattern": r"^unlimited\Z",
        },
        "backoff": _integer(0),
        "cooldown": _DURATION,
        "cancel": _BOOLEAN,
        "urgency": _URGENCY,
        "duration": _DURATION,
        "timeout": _DURATION,
    },
    "name",
)

RULE = _mapping(
    "a rule such as {trigger: start, action: {...}}",
    {
        "id": _NAME,
        "trigger": _choice("a trigger", TRIGGERS),
        "name": _text(),
        "group": _text(),
        "when": {
            "type": ["number", "string"],
            "description": "a number, a comparison such as '> 5', or an expression",
        },
        "scope": _choice("a scope", ("ensemble", "queue")),
        "on-error": _choice("a way to handle errors", ("disable", "fail", "retry")),
        "after": _DURATION,
        "every": _DURATION,
        "below": _DURATION,
        "by": {**_list("a list of parameters", _text("the name of a parameter")), "minItems": 1},
        "enabled": _BOOLEAN,
        "action": ACTION,
    },
    "trigger",
    "action",
)

JOB = _mapping(
    "a job group such as {name: NAME, command: COMMAND}",
    {
        "name": _NAME,
        "command": {
            "type": ["string", "array"],
            "description": "a command: text, or a list of its words",
            "items": _SCALAR,
        },
        "jobspec": {
            "type": ["string", "object"],
            "description": "a jobspec: a mapping, or the path of a file with one",
        },
        "count": _integer(1),
        "nodes": _integer(1),
        "tasks": _integer(1),
        "cores": _integer(1),
        "gpus": _integer(0),
        "duration": _DURATION,
        "workdir": _text(),
        "environment": {"type": "object", "description": "a mapping of environment variables"},
        "output": _text(),
        "error": _text(),
        "queue": _text(),
        "bank": _text(),
        "urgency": _URGENCY,
        "exclusive": _BOOLEAN,
        "attributes": _mapping(
            "a mapping with the keys system and user", {"system": _SYSTEM, "user": _OBJECT}
        ),
        "params": _OBJECT,
        "sweep": _choice("a kind of sweep", SWEEPS),
        "samples": _integer(1, 1_000_000),
        "retries": _integer(0),
    },
    "name",
)

_NUMBER = {"type": "number", "description": "a number"}
_POSITIVE = {"type": "number", "description": "a number >= 0", "minimum": 0}


def _distribution(what: str, value: Schema, **more: Schema) -> Schema:
    """The schema of a distribution of values; `more` are further kinds of it."""
    example = "{normal: {mean: 60, sigma: 5}}"
    return {
        **_mapping(
            f"{what}, a list of these, or a mapping such as {example}",
            {
                "uniform": _mapping(
                    "a mapping such as {min: 1, max: 2}", {"min": value, "max": value}, "min", "max"
                ),
                "normal": _mapping(
                    "a mapping such as {mean: 60, sigma: 5}",
                    {"mean": value, "sigma": _POSITIVE},
                    "mean",
                    "sigma",
                ),
                "lognormal": _mapping(
                    "a mapping such as {median: 60, sigma: 0.5}",
                    {"median": value, "sigma": _POSITIVE},
                    "median",
                    "sigma",
                ),
                "exponential": _mapping("a mapping such as {mean: 60}", {"mean": value}, "mean"),
                "param": _text("the name of a parameter"),
                **more,
            },
        ),
        "type": [*value["type"], "array", "object"],
        **({"minimum": value["minimum"]} if "minimum" in value else {}),
        "items": value,
        "minItems": 1,
        "minProperties": 1,
        "maxProperties": 1,
    }


#: How the jobs of a group behave in a simulation.
SIMULATED = _mapping(
    "a mapping such as {duration: 30s, failure-rate: 0.01}",
    {
        "duration": _distribution(
            "a duration", _DURATION, **{"from-log": _text("the path of a recording")}
        ),
        "failure-rate": {
            "type": "number",
            "description": "a probability (a number >= 0 and <= 1)",
            "minimum": 0,
            "maximum": 1,
        },
        "startup": _distribution("a duration", _DURATION),
        "memo": {
            "type": "object",
            "description": "a mapping such as {KEY: 5}",
            "additionalProperties": _distribution("a number", {**_NUMBER, "type": ["number"]}),
        },
    },
)

DOCUMENT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "ensemble document of flux-ensemble",
    **_mapping(
        "a mapping such as {jobs: [...], rules: [...]}",
        {
            "name": _text(ENSEMBLE_NAME_RULE, pattern=ENSEMBLE_NAME),
            "logging": _mapping(
                "a mapping with the keys debug and heartbeat",
                {"debug": _BOOLEAN, "heartbeat": _DURATION},
            ),
            "jobs": _list("a list of job groups", JOB),
            "rules": _list("a list of rules", RULE),
            "custom": {"type": "string", "description": "Python source text"},
            "plugins": _list(
                "a list of Python modules",
                _text(
                    "the name of a Python module",
                    pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z",
                ),
            ),
            "metrics": _list(
                "a list of statistics",
                {
                    "type": ["string", "object"],
                    "description": "a statistic: its name, or a mapping such as "
                    "{name: p90, statistic: quantile, q: 0.9}",
                    "properties": {
                        "name": _text(),
                        "statistic": _text(),
                        "of": _choice("the jobs whose durations it takes in", OF),
                    },
                    "required": ["statistic"],
                },
            ),
            "rate-window": _DURATION,
            "limits": _mapping(
                "a mapping with the keys active-jobs and jobs",
                {"active-jobs": _integer(1), "jobs": _integer(1)},
            ),
            "scaling": _mapping(
                "a mapping with the keys min-size, max-size, deadline and refusals",
                {
                    "min-size": _integer(1),
                    "max-size": _integer(1),
                    "deadline": _DURATION,
                    "refusals": _integer(1),
                },
            ),
            "finish": _choice("a way to finish", ("idle", "never")),
            "durability": _choice("a durability", ("fast", "strict")),
            "seed": {"type": "integer", "description": "an integer"},
            "simulate": {
                "type": "object",
                "description": "a mapping such as {GROUP: {duration: 30s}}",
                "additionalProperties": SIMULATED,
            },
        },
    ),
}

#: Canonical jobspec V1 (RFC 25), as far as Flux itself insists on it.
JOBSPEC_V1 = _mapping(
    "a jobspec (RFC 25)",
    {
        "version": {"description": "version 1", "enum": [1]},
        "resources": _list("a list of resources", _OBJECT),
        "tasks": {
            **_list(
                "a list of one task",
                {
                    **_mapping(
                        "a task with the keys command, slot and count",
                        {
                            "command": {
                                "type": "array",
                                "description": "a command as a list of words",
                                "items": {"type": "string", "description": "text"},
                                "minItems": 1,
                            },
                            "slot": _text(),
                            "count": {
                                **_mapping(
                                    "a mapping with one of per_slot and total",
                                    {"per_slot": _integer(1), "total": _integer(1)},
                                ),
                                "minProperties": 1,
                                "maxProperties": 1,
                            },
                        },
                        "command",
                        "slot",
                        "count",
                    ),
                    "additionalProperties": True,
                },
            ),
            "minItems": 1,
            "maxItems": 1,
        },
        "attributes": _mapping(
            "a mapping with the keys system and user", {"system": _SYSTEM, "user": _OBJECT}
        ),
    },
    "version",
    "resources",
    "tasks",
)

#: A resource of a jobspec, without what is in `with`.
RESOURCE_V1 = {
    **_mapping(
        "a resource such as {type: node, count: 1, with: [...]}",
        {
            "type": _text(),
            "count": _integer(0),
            "with": _list("a list of resources", _OBJECT),
            "label": _text(),
        },
        "type",
        "count",
    ),
    "additionalProperties": True,
}

#: Schemas by what is checked with them.
SCHEMAS: Mapping[str, Schema] = {
    "document": DOCUMENT,
    "rule": RULE,
    "action": ACTION,
    "jobspec": JOBSPEC_V1,
    "resource": RESOURCE_V1,
    "simulated": SIMULATED,
}


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches one of the patterns of names.

    >>> matches(NAME, "md-300.a"), matches(NAME, "md 300")
    (True, False)
    """
    return re.match(pattern, text) is not None
