"""The algorithm `active-loop`: a learned model replaces an expensive computation.

The model is trained again where it is wrong.
"""

from __future__ import annotations

from typing import Any

from flux_ensemble.algorithms.algorithm import Algorithm, ArgumentError, Plain


def _group(text: str, example: str) -> dict[str, Any]:
    return {
        "type": "string",
        "format": "group",
        "title": "the name of a job group",
        "description": text,
        "examples": [example],
    }


def _memo(text: str, default: str) -> dict[str, Any]:
    return {
        "type": "string",
        "minLength": 1,
        "title": "the key of a memo",
        "description": text,
        "default": default,
    }


_NUMBER = {"type": "number", "title": "a number"}

_ARGUMENTS = {
    "ask": _group("Jobs that ask the model, and publish how unsure it is.", "ask"),
    "compute": _group(
        "The job that computes a value, and publishes how far the model was off. It gets the "
        "parameters of the job that asked.",
        "physics",
    ),
    "train": _group("The job that trains the model on all that was computed.", "train"),
    "unsure": _memo("How unsure the model is, as jobs that ask publish it.", "sigma"),
    "above": {
        **_NUMBER,
        "description": "A value is computed where the model is more unsure than this.",
        "examples": [0.2],
    },
    "error": _memo("How far the model was off, as jobs that compute publish it.", "error"),
    "tolerance": {
        **_NUMBER,
        "description": "The model is trained where its greatest error in a round is more than "
        "this; else the loop is over.",
        "examples": [0.05],
    },
    "rounds": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "After so many trainings the loop is over in any case.",
        "default": 10,
    },
    "round": {
        "type": "string",
        "title": "the name of a parameter",
        "description": "A parameter of the jobs that ask: the number of the round, from 0.",
        "examples": ["round"],
    },
}


def _expand(arguments: Plain, document: Plain) -> Plain:
    id, ask = arguments["id"], arguments["ask"]
    compute, train = arguments["compute"], arguments["train"]
    for argument, others in (("compute", (ask,)), ("train", (ask, compute))):
        if arguments[argument] in others:
            raise ArgumentError(argument, "expected three groups: to ask, to compute, to train")
    rounds, limit = arguments.get("rounds", 10), arguments["tolerance"]
    error = f"{compute}-{arguments.get('error', 'error')}"
    worst = f'max["{error}"]'
    trained = f'count["{train}"].success'
    submit = {"name": "submit", "label": ask}
    number = arguments.get("round")
    lost = " + ".join(
        f'count["{group}"].finished - count["{group}"].success' for group in (ask, compute)
    )
    return {
        "rules": [
            {
                "id": f"{id}-start",
                "trigger": "start",
                "action": submit if number is None else {**submit, "params": {number: 0}},
            },
            {
                "id": f"{id}-compute",
                "trigger": "job-success",
                "group": ask,
                "when": f'job.memo["{arguments.get("unsure", "sigma")}"] > {arguments["above"]}',
                "action": {
                    "name": "submit",
                    "label": compute,
                    "params": "trigger",
                    "repetitions": "unlimited",
                },
            },
            {
                "id": f"{id}-train",
                "trigger": "idle",
                "when": f"{worst} > {limit}",
                "action": {"name": "submit", "label": train, "repetitions": rounds},
            },
            # The errors of the old model are forgotten.
            {
                "id": f"{id}-again",
                "trigger": "job-success",
                "group": train,
                "actions": [
                    {"name": "reset", "label": error, "repetitions": rounds},
                    submit if number is None else {**submit, "params": {number: f"{{{trained}}}"}},
                ],
            },
            {
                "id": f"{id}-right",
                "trigger": "idle",
                "when": f"not {worst} > {limit} and {lost} == 0",
                "action": {
                    "name": "terminate",
                    "reason": f"the model was right wherever {compute!r} has checked it, after "
                    f"{{{trained}}} trainings",
                },
            },
            # If jobs did not succeed, the absence of errors does not show that the model is right.
            {
                "id": f"{id}-failed",
                "trigger": "idle",
                "when": f"not {worst} > {limit} and {lost} > 0",
                "action": {
                    "name": "terminate",
                    "state": "failed",
                    "reason": f"{{{lost}}} jobs of {ask!r} and {compute!r} did not succeed, so "
                    "nobody knows whether the model is right",
                },
            },
            {
                "id": f"{id}-enough",
                "trigger": "idle",
                "when": f'count["{train}"].finished >= {rounds} and {worst} > {limit}',
                "action": {
                    "name": "terminate",
                    "reason": f"after {rounds} trainings the model is still off by {{{worst}}}",
                },
            },
        ]
    }


ACTIVE_LOOP = Algorithm(
    "A learned model stands in for an expensive computation where it is sure, and is trained again "
    "where it was wrong, until it is right.",
    _ARGUMENTS,
    ("ask", "compute", "train", "above", "tolerance"),
    _expand,
)
