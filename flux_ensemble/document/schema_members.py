"""The JSON Schema of the members in an ensemble document."""

from __future__ import annotations

from flux_ensemble.document.job_sets import ON_LOST
from flux_ensemble.document.members import MAX_MEMBERS, SERVICES
from flux_ensemble.document.schema_terms import (
    DURATION,
    PARAMETER,
    PROBABILITY,
    Schema,
    choice,
    integer,
    list_of,
    mapping,
    text,
)

_NAME = "a name (letters, digits, '_' and '-', at most 128, not a digit or '-' first)"

_COUNT = {
    **mapping(
        "an integer >= 1, or a mapping such as {min: 2, max: 8}",
        {"min": integer(0, MAX_MEMBERS), "max": integer(1, MAX_MEMBERS)},
        "max",
    ),
    "type": ["integer", "object"],
    "minimum": 1,
    "maximum": MAX_MEMBERS,
}


def member(duration: Schema) -> Schema:
    """The schema of an entry of `members:`.

    Args:
        duration: that of a distribution of durations of jobs.

    >>> member({"properties": {}})["required"]
    ['name']
    """
    known = {key: part for key, part in duration["properties"].items() if key != "param"}
    duration = {**duration, "properties": known}
    return mapping(
        "a member such as {name: pool, nodes: 4, duration: 4h}",
        {
            "name": text(_NAME, pattern=PARAMETER),
            "count": _COUNT,
            "nodes": integer(1),
            "duration": DURATION,
            "drain": DURATION,
            "on-lost": choice("what becomes of the jobs of a member that is lost", ON_LOST),
            "breaker": integer(0),
            "labels": {
                **list_of("a list of labels", text(_NAME, pattern=PARAMETER)),
                "minItems": 1,
            },
            "service": choice("the service that submits the jobs of a member", SERVICES),
            "uri": text("the URI of a Flux instance"),
            "simulate": mapping(
                "a mapping such as {startup: 5s, loss: {exponential: {mean: 20h}}}",
                {"startup": duration, "loss": duration, "broken": PROBABILITY},
            ),
        },
        "name",
    )
