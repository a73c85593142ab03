"""The JSON Schema of a search in an ensemble document, and of what it finds in a simulation."""

from __future__ import annotations

from flux_ensemble.document.computed import MAX_STEPS
from flux_ensemble.document.schema_terms import (
    BOOLEAN,
    CHOICE,
    DURATION,
    IDENTIFIER,
    OBJECT,
    PARAMETER,
    choice,
    integer,
    mapping,
    text,
)
from flux_ensemble.document.search import MAX_BATCH, MAX_TRIALS, SAMPLERS
from flux_ensemble.document.stop import POLICIES

#: YAML reads 1e-5 as text.
_NUMBER = {"type": ["number", "string"], "description": "a number"}

_PENALTY = {
    "type": ["number", "string", "array"],
    "description": "a number, or a list of one for each objective",
    "items": _NUMBER,
    "minItems": 1,
}

_OBJECTIVE = {
    **text("the key of a memo, or a list of such keys"),
    "type": ["string", "array"],
    "items": text("the key of a memo"),
    "minItems": 1,
}

_VARIABLE = {
    **mapping(
        "a mapping such as {low: 1e-5, high: 0.1, log: true}, or a list of choices",
        {"low": _NUMBER, "high": _NUMBER, "log": BOOLEAN, "integer": BOOLEAN},
        "low",
        "high",
    ),
    "type": ["object", "array"],
    "items": CHOICE,
    "minItems": 1,
}

#: A memo of simulated jobs that is computed from their parameters.
COMPUTED = mapping(
    "a mapping such as {expression: '(x - 1) ** 2 + 1 / n', step: n, steps: 10}",
    {
        "expression": text("an expression of parameters, such as '(x - 1) ** 2'"),
        "step": text("the name of the step", pattern=IDENTIFIER),
        "steps": integer(1, MAX_STEPS),
    },
    "expression",
)

#: A class in a module.
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z"

_STOP = mapping(
    "a mapping such as {policy: asha, step: epoch, eta: 3}",
    {
        "policy": choice("a policy", tuple(POLICIES)),
        "step": text("the key of a memo"),
        "from": integer(1),
        "eta": integer(2),
        "trials": integer(1),
    },
    "policy",
)

SEARCH = mapping(
    "a search such as {id: hpo, group: trial, variables: {...}, minimize: loss, trials: 100}",
    {
        "id": text(
            "a name (letters, digits, '_' and '-', at most 128, not a digit or '-' first)",
            pattern=PARAMETER,
        ),
        "group": text(),
        "variables": {
            "type": "object",
            "description": "a mapping such as {lr: {low: 1e-5, high: 0.1, log: true}}",
            "minProperties": 1,
            "additionalProperties": _VARIABLE,
        },
        "minimize": _OBJECTIVE,
        "maximize": _OBJECTIVE,
        "sampler": choice("a sampler", SAMPLERS),
        "generator": text("a class such as 'package.module:Class'", pattern=_CLASS),
        "arguments": OBJECT,
        "initial": integer(0, MAX_TRIALS),
        "trials": integer(1, MAX_TRIALS),
        "parallel": integer(1, MAX_TRIALS),
        "batch": integer(1, MAX_BATCH),
        "sequential": BOOLEAN,
        "on-failure": {
            **mapping("skip, retry, or {penalty: NUMBER}", {"penalty": _PENALTY}, "penalty"),
            "type": ["object", "string"],
            "pattern": r"^(skip|retry)\Z",
        },
        "failures": integer(1),
        "timeout": DURATION,
        "stop": _STOP,
    },
    "id",
    "group",
    "variables",
    "trials",
)
