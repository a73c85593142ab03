"""The algorithm `stragglers`: a job that takes far longer than the others gets a copy.

The first of the two to succeed counts.
"""

from __future__ import annotations

from typing import Any

from flux_ensemble.algorithms.algorithm import GROUP, Algorithm, ArgumentError, Plain

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "group": GROUP,
    "factor": {
        "type": "number",
        "exclusiveMinimum": 1,
        "title": "a number > 1",
        "description": "A job is a straggler if it has run for so many times what is usual.",
        "default": 3,
    },
    "quantile": {
        "type": "number",
        "exclusiveMinimum": 0,
        "exclusiveMaximum": 1,
        "title": "a number > 0 and < 1",
        "description": "What is usual: this quantile of the run times of the group's jobs that "
        "have succeeded. 0.5 is the median.",
        "default": 0.5,
    },
    "ends": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "So many jobs have succeeded before it is known what is usual.",
        "default": 10,
    },
    "least": {
        "type": ["number", "string"],
        "format": "duration",
        "title": "a duration",
        "description": "A job that has run for less is no straggler.",
        "default": 0,
    },
    "every": {
        "type": ["number", "string"],
        "format": "duration",
        "title": "a duration",
        "description": "How often the jobs that run are looked at.",
        "default": 30,
    },
    "copies": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "How many copies there are at most, in all. The default is no limit.",
        "examples": [100],
    },
}


def _expand(arguments: Plain, document: Plain) -> Plain:
    name, group = arguments["id"], arguments["group"]
    if any(search.get("group") == group for search in document.get("search", ())):
        raise ArgumentError(
            "group", f"the jobs of group {group!r} are trials of a search, which have no copies"
        )
    if arguments.get("every") == 0:
        raise ArgumentError("every", "expected a duration > 0, not 0")
    usual = f"{name.replace('-', '_').replace('.', '_')}_usual"
    duration = f'["{group}-duration"]'
    long = f"{arguments.get('factor', 3):g} * {usual}{duration}"
    if arguments.get("least"):
        long = f"max({long}, {arguments['least']:g})"
    condition = (
        f"not job.copied and n{duration} >= {arguments.get('ends', 10)} and job.runtime > {long}"
    )
    return {
        "metrics": [
            {"name": usual, "statistic": "quantile", "q": arguments.get("quantile", 0.5)},
        ],
        "rules": [
            {
                "id": f"{name}-copy",
                "trigger": "job-running",
                "group": group,
                "every": _number(arguments.get("every", 30)),
                "when": condition,
                "action": {"name": "copy", "repetitions": arguments.get("copies", "unlimited")},
            }
        ],
    }


def _number(value: float) -> float:
    # A larger integer may be beyond those that a document can hold.
    return int(value) if value == int(value) < 2**53 else value


ALGORITHMS = {
    "stragglers": Algorithm(
        "A job that takes far longer than the others of its group gets a copy. The first of the "
        "two to succeed counts, and the other is cancelled.",
        _ARGUMENTS,
        ("group",),
        _expand,
    ),
}
