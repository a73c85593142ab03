"""The JSON Schema of an ensemble document, and of the jobspecs in it.

It uses neither `anyOf` nor `$ref`, so every error becomes one sentence, made from the
`description` of the failing part. What cannot be expressed without them is checked by the
other modules.
"""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.document.detectors import DETECTOR
from flux_ensemble.document.job_sets import ON_LOST, ORDERS, STARTS
from flux_ensemble.document.model import ACTIONS, TRIGGERS
from flux_ensemble.document.schema_jobspec import JOBSPEC_V1, RESOURCE_V1
from flux_ensemble.document.schema_members import member
from flux_ensemble.document.schema_search import COMPUTED, SEARCH
from flux_ensemble.document.schema_terms import (
    BOOLEAN,
    DURATION,
    ENSEMBLE_NAME,
    ENSEMBLE_NAME_RULE,
    IDENTIFIER,
    NAMED,
    OBJECT,
    PROBABILITY,
    SCALAR,
    SYSTEM,
    URGENCY,
    Schema,
    choice,
    integer,
    list_of,
    mapping,
    or_list,
    or_text,
    text,
    variable,
)
from flux_ensemble.document.sweep import SWEEPS
from flux_ensemble.metrics.best import MODES
from flux_ensemble.metrics.names import OF

#: What a submission can have in place of what its group says.
_OVERRIDES = {
    "nodes": or_text(integer(1)),
    "tasks": or_text(integer(1)),
    "cores": or_text(integer(1)),
    "gpus": or_text(integer(0)),
    "duration": DURATION,
    "urgency": or_text(URGENCY),
    "queue": text(),
    "bank": text(),
    "environment": {"type": "object", "description": "a mapping of environment variables"},
    "workdir": text(),
    "attributes": mapping(
        "a mapping with the keys system and user", {"system": SYSTEM, "user": OBJECT}
    ),
}

ACTION = mapping(
    "an action such as {name: submit, label: GROUP}",
    {
        "name": choice("an action", ACTIONS),
        "label": text(),
        "value": or_text(integer(1)),
        "count": or_text(integer(1)),
        "params": {
            "type": ["object", "string"],
            "description": "a mapping, or 'trigger'",
            "pattern": r"^trigger\Z",
        },
        **_OVERRIDES,
        "jobs": choice("the jobs", ("trigger",)),
        "near": choice("a job to run near to", ("trigger",)),
        "state": choice("a final state", ("completed", "failed")),
        "reason": text(),
        "repetitions": {
            "type": ["integer", "string"],
            "description": "an integer >= 1 or 'unlimited'",
            "minimum": 1,
            "pattern": r"^unlimited\Z",
        },
        "backoff": integer(0),
        "cooldown": DURATION,
        "cancel": BOOLEAN,
        "timeout": DURATION,
    },
    "name",
)


RULE = mapping(
    "a rule such as {trigger: start, action: {...}}",
    {
        "id": NAMED,
        "trigger": or_list(choice("a trigger", TRIGGERS), "a trigger, or a list of them"),
        "name": text(),
        "group": or_list(text(), "a job group, or a list of them"),
        "when": {
            "type": ["number", "string"],
            "description": "a number, a comparison such as '> 5', or an expression",
        },
        "scope": choice("a scope", ("ensemble", "member", "queue")),
        "on-error": choice("a way to handle errors", ("disable", "fail", "retry")),
        "after": DURATION,
        "every": DURATION,
        "below": DURATION,
        "by": {**list_of("a list of parameters", text("the name of a parameter")), "minItems": 1},
        "detector": DETECTOR,
        "enabled": BOOLEAN,
        "action": ACTION,
        "actions": {**list_of("a list of actions", ACTION), "minItems": 1},
    },
    "trigger",
)

JOB = mapping(
    "a job group such as {name: NAME, command: COMMAND}",
    {
        "name": NAMED,
        "command": {
            "type": ["string", "array"],
            "description": "a command: text, or a list of its words",
            "items": SCALAR,
        },
        "jobspec": {
            "type": ["string", "object"],
            "description": "a jobspec: a mapping, or the path of a file with one",
        },
        "count": integer(1),
        "nodes": variable(integer(1)),
        "tasks": variable(integer(1)),
        "cores": variable(integer(1)),
        "gpus": variable(integer(0)),
        "duration": DURATION,
        "workdir": text(),
        "environment": {"type": "object", "description": "a mapping of environment variables"},
        "output": text(),
        "error": text(),
        "queue": text(),
        "bank": text(),
        "urgency": variable(URGENCY),
        "exclusive": BOOLEAN,
        "attributes": mapping(
            "a mapping with the keys system and user", {"system": SYSTEM, "user": OBJECT}
        ),
        "params": OBJECT,
        "sweep": choice("a kind of sweep", SWEEPS),
        "samples": integer(1, 1_000_000),
        "retries": {
            **mapping(
                "an integer >= 0, or a mapping such as {times: 3, on: [failed, timeout]}",
                {
                    "times": integer(0),
                    "on": or_list(text(), "an outcome or an expression, or a list of them"),
                    "after": DURATION,
                    "factor": {"type": "number", "description": "a number >= 1", "minimum": 1},
                    "with": mapping("a mapping such as {duration: 2h}", _OVERRIDES),
                    "spread": choice("where it runs again", ("node",)),
                },
                "times",
            ),
            "type": ["integer", "object"],
            "minimum": 0,
        },
        "max-active": integer(1),
        "predict": list_of("a list of parameters", text("the name of a parameter")),
        "order": choice("an order", ORDERS),
        "start": choice("when its jobs are started", STARTS),
        "member": text("the name or a label of members"),
        "on-lost": choice("what becomes of a job that is lost", ON_LOST),
        "avoid-nodes": BOOLEAN,
    },
    "name",
)

#: The arguments of the algorithm are checked with its own schema.
USE = {
    **mapping(
        "a mapping such as {algorithm: retry-with-more, group: GROUP}",
        {"algorithm": text(), "id": NAMED},
        "algorithm",
    ),
    "additionalProperties": True,
}

_NUMBER = {"type": "number", "description": "a number"}
_POSITIVE = {"type": "number", "description": "a number >= 0", "minimum": 0}


def _distribution(what: str, value: Schema, **more: Schema) -> Schema:
    """The schema of a distribution of values; `more` are further kinds of it."""
    example = "{normal: {mean: 60, sigma: 5}}"
    return {
        **mapping(
            f"{what}, a list of these, or a mapping such as {example}",
            {
                "uniform": mapping(
                    "a mapping such as {min: 1, max: 2}", {"min": value, "max": value}, "min", "max"
                ),
                "normal": mapping(
                    "a mapping such as {mean: 60, sigma: 5}",
                    {"mean": value, "sigma": _POSITIVE},
                    "mean",
                    "sigma",
                ),
                "lognormal": mapping(
                    "a mapping such as {median: 60, sigma: 0.5}",
                    {"median": value, "sigma": _POSITIVE},
                    "median",
                    "sigma",
                ),
                "exponential": mapping("a mapping such as {mean: 60}", {"mean": value}, "mean"),
                "param": text("the name of a parameter"),
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
SIMULATED = mapping(
    "a mapping such as {duration: 30s, failure-rate: 0.01}",
    {
        "duration": _distribution(
            "a duration", DURATION, **{"from-log": text("the path of a recording")}
        ),
        "failure-rate": PROBABILITY,
        "startup": _distribution("a duration", DURATION),
        "memo": {
            "type": "object",
            "description": "a mapping such as {KEY: 5}",
            "additionalProperties": {
                "if": {"type": "object", "required": ["expression"]},
                "then": COMPUTED,
                # It is never there; but who writes another name of it reads this one.
                "else": _distribution(
                    "a number",
                    {**_NUMBER, "type": ["number"]},
                    expression=COMPUTED["properties"]["expression"],
                ),
            },
        },
    },
)

MEMBER = member(_distribution("a duration", DURATION))

#: An entry of `metrics`: a statistic, a best job, or a metric that is kept by value.
_METRIC = {
    "if": {"type": "object", "required": ["by"]},
    "then": mapping(
        "a mapping such as {of: GROUP-KEY, by: [t]}",
        {
            "of": text(),
            "by": {
                **list_of("a list of parameters", text("the name of a parameter")),
                "minItems": 1,
            },
        },
        "of",
    ),
    "else": {
        "type": ["string", "object"],
        "description": "a statistic: its name, or a mapping such as "
        "{name: p90, statistic: quantile, q: 0.9}, or {best: {name: top, of: md-fom}}, "
        "or {of: md-fom, by: [t]}",
        "properties": {
            "name": text(),
            "statistic": text(),
            "of": choice("the jobs that it is of", OF),
            "best": mapping(
                "a mapping such as {name: top, of: GROUP-KEY, mode: max}",
                {
                    "name": text(pattern=IDENTIFIER),
                    "of": text(),
                    "mode": choice("a mode", MODES),
                    "live": BOOLEAN,
                },
                "name",
                "of",
            ),
        },
    },
}

DOCUMENT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "ensemble document of flux-ensemble",
    **mapping(
        "a mapping such as {jobs: [...], rules: [...]}",
        {
            "name": text(ENSEMBLE_NAME_RULE, pattern=ENSEMBLE_NAME),
            "logging": mapping(
                "a mapping with the keys debug and heartbeat",
                {"debug": BOOLEAN, "heartbeat": DURATION},
            ),
            "jobs": list_of("a list of job groups", JOB),
            "rules": list_of("a list of rules", RULE),
            "search": list_of("a list of searches", SEARCH),
            "members": {**list_of("a list of members", MEMBER), "minItems": 1},
            "use": list_of("a list such as [{algorithm: retry-with-more, group: GROUP}]", USE),
            "custom": {"type": "string", "description": "Python source text"},
            "plugins": list_of(
                "a list of Python modules",
                text(
                    "the name of a Python module",
                    pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z",
                ),
            ),
            "metrics": list_of("a list of statistics", _METRIC),
            "rate-window": DURATION,
            "limits": mapping(
                "a mapping with the keys active-jobs, jobs, records and losses",
                {
                    "active-jobs": integer(1),
                    "jobs": integer(1),
                    "records": integer(1),
                    "losses": integer(0),
                },
            ),
            "scaling": mapping(
                "a mapping with the keys min-nodes, max-nodes, deadline and refusals",
                {
                    "min-nodes": integer(1),
                    "max-nodes": integer(1),
                    "deadline": DURATION,
                    "refusals": integer(1),
                },
            ),
            "finish": choice("a way to finish", ("idle", "never")),
            "job-names": choice("a kind of job names", ("group", "full")),
            "durability": choice("a durability", ("fast", "strict")),
            "records": BOOLEAN,
            "seed": {"type": "integer", "description": "an integer"},
            "simulate": {
                "type": "object",
                "description": "a mapping such as {GROUP: {duration: 30s}}",
                "additionalProperties": SIMULATED,
            },
        },
    ),
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
