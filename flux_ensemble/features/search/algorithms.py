"""The algorithms `asha`, `median-stop` and `population`.

The first two are searches whose trials are stopped early; a population needs no search.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from flux_ensemble.algorithms.algorithm import Algorithm, Plain

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Arguments that are keys of a search.
_OF_SEARCH: dict[str, dict[str, Any]] = {
    "group": {
        "type": "string",
        "format": "group",
        "title": "the name of a job group",
        "description": "The job group of the trials.",
        "examples": ["trial"],
    },
    "variables": {
        "type": "object",
        "minProperties": 1,
        "title": "a mapping such as {lr: {low: 1e-5, high: 0.1, log: true}}",
        "description": "What is searched, by name, as in a search.",
        "examples": [{"lr": {"low": 1e-5, "high": 0.1, "log": True}}],
    },
    "minimize": {
        "type": "string",
        "title": "the key of a memo",
        "description": "The key of the memo that is to be small.",
        "examples": ["loss"],
    },
    "maximize": {
        "type": "string",
        "title": "the key of a memo",
        "description": "The key of the memo that is to be large.",
        "examples": ["accuracy"],
    },
    "trials": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "How many trials there are.",
        "examples": [100],
    },
    "parallel": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "How many are in the queue at once.",
        "default": 1,
    },
    "sampler": {
        "type": "string",
        "title": "a sampler",
        "description": "What suggests the points.",
        "default": "tpe",
    },
}

#: Arguments that are keys of `stop`.
_OF_STOP: dict[str, dict[str, Any]] = {
    "step": {
        "type": "string",
        "title": "the key of a memo",
        "description": "The key of the memo that says how far the job is.",
        "examples": ["epoch"],
    },
    "from": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "The first step at which trials are compared.",
        "default": 1,
    },
}

_ETA = {
    "type": "integer",
    "minimum": 2,
    "title": "an integer >= 2",
    "description": "One trial in so many goes on.",
    "default": 3,
}

_COMPLETE = {
    "type": "integer",
    "minimum": 1,
    "title": "an integer >= 1",
    "description": "So many trials are complete before one is stopped.",
    "default": 5,
}

_FINAL = {
    "type": "string",
    "format": "group",
    "title": "the name of a job group",
    "description": "A group that is submitted with the best point when the search is over. The "
    "variables are parameters of it.",
    "examples": ["final"],
}


def _expand(policy: str, own: dict[str, str], arguments: Plain, document: Plain) -> Plain:
    """Make a search, the rule that starts it, and the rule that submits the best point at its end.

    Args:
        policy: the `policy` of `stop`.
        own: arguments of this policy -> their keys in `stop`.
        arguments, document: as for every algorithm.
    """
    id = arguments["id"]
    stop = {key: arguments[key] for key in _OF_STOP if key in arguments}
    stop |= {key: arguments[argument] for argument, key in own.items() if argument in arguments}
    search = {key: arguments[key] for key in _OF_SEARCH if key in arguments}
    rules: list[dict[str, Any]] = [
        {"id": f"{id}-start", "trigger": "start", "action": {"name": "search", "label": id}}
    ]
    if "final" in arguments:
        best = f"search{_key(id)}.best"
        submit = {
            "name": "submit",
            "label": arguments["final"],
            "params": {name: f"{{{best}{_key(name)}}}" for name in arguments["variables"]},
        }
        final = {
            "id": f"{id}-final",
            "trigger": "search-done",
            "name": id,
            # Without a complete trial there is no best one.
            "when": f"search{_key(id)}.complete > 0",
            "action": submit,
        }
        rules.append(final)
    return {
        "search": [{"id": id, **search, "stop": {"policy": policy, **stop}}],
        "rules": rules,
    }


def _key(name: str) -> str:
    """Return the suffix of an expression that selects a key: `.name` or `["name"]`."""
    return f".{name}" if _NAME.fullmatch(name) else f'["{name}"]'


_REQUIRED = ("group", "variables", "trials", "step")

ASHA = Algorithm(
    "A search in which at each of a few steps one trial in eta goes on: asynchronous successive "
    "halving.",
    {**_OF_SEARCH, **_OF_STOP, "eta": _ETA, "final": _FINAL},
    _REQUIRED,
    partial(_expand, "asha", {"eta": "eta"}),
)

MEDIAN_STOP = Algorithm(
    "A search in which a trial is stopped that is worse than half of those before it at the same "
    "step.",
    {**_OF_SEARCH, **_OF_STOP, "complete": _COMPLETE, "final": _FINAL},
    _REQUIRED,
    partial(_expand, "median", {"complete": "trials"}),
)

#: The most members.
_MEMBERS = 500

_SHARE = {"type": "number", "minimum": 0, "maximum": 1, "title": "a number >= 0 and <= 1"}

_OF_POPULATION: dict[str, dict[str, Any]] = {
    "group": {
        **_OF_SEARCH["group"],
        "description": "The job of a member in a round. It is given the variables, and the "
        "parameters member, round and from; it publishes the objective.",
        "examples": ["train"],
    },
    "variables": {
        **_OF_SEARCH["variables"],
        "description": "What varies, by name, as in a search.",
    },
    "minimize": _OF_SEARCH["minimize"],
    "maximize": _OF_SEARCH["maximize"],
    "population": {
        "type": "integer",
        "minimum": 2,
        "maximum": _MEMBERS,
        "title": f"an integer >= 2 and <= {_MEMBERS}",
        "description": "How many members there are.",
        "examples": [16],
    },
    "rounds": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "How many rounds there are.",
        "examples": [20],
    },
    "quantile": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 0.5,
        "title": "a number > 0 and <= 0.5",
        "description": "The share of members, the worst ones, that go on from as many best ones.",
        "default": 0.25,
    },
    "resample": {
        **_SHARE,
        "description": "How often the value of such a member is drawn anew, and not changed a "
        "little.",
        "default": 0.25,
    },
    "factors": {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"type": "number", "exclusiveMinimum": 0, "title": "a number > 0"},
        "title": "a list of two numbers",
        "description": "What numbers are multiplied by, at random, to be changed a little.",
        "default": [0.8, 1.2],
    },
    "directory": {
        "type": "string",
        "minLength": 1,
        "title": "a path",
        "description": "The directory in which each member has one of its own for each round. The "
        "default is the id.",
        "examples": ["runs"],
    },
}


def _expand_population(arguments: Plain, document: Plain) -> Plain:
    # The reader of variables needs the keys of documents, which name the algorithms.
    from flux_ensemble.features.search.population_rules import expand

    return expand(arguments, document)


POPULATION = Algorithm(
    "Members of a population are trained in rounds, after which the worst go on from checkpoints "
    "of the best, with other parameters: population based training.",
    _OF_POPULATION,
    ("group", "variables", "population", "rounds"),
    _expand_population,
)

ALGORITHMS = {"asha": ASHA, "median-stop": MEDIAN_STOP, "population": POPULATION}
