"""The definition of a packaged algorithm, and the error for its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.metrics.names import FAMILY_KEYS

#: The keys of an expansion: entries for lists of the document; source to append to `custom`; and
#: `groups`, which maps the name of a group of the document to keys that are added to its entries.
EXPANSION = ("jobs", "rules", *FAMILY_KEYS, "metrics", "custom", "groups")

#: Plain data, as JSON has it.
Plain = Mapping[str, Any]


#: The schema of the argument `group` of an algorithm that is about one job group.
GROUP = {
    "type": "string",
    "format": "group",
    "title": "the name of a job group",
    "description": "The job group.",
    "examples": ["relax"],
}


class ArgumentError(ValueError):
    """An argument that the schema allows, but the algorithm cannot accept.

    Args:
        argument: the name of the argument.
        message: the fault, as a sentence without a full stop.

    >>> str(ArgumentError("group", "expected a group with a time limit"))
    'expected a group with a time limit'
    """

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(message)
        self.argument = argument


@dataclass(frozen=True)
class Algorithm:
    """A packaged algorithm.

    Args:
        summary: the effect of the algorithm, in a sentence or two.
        arguments: name of an argument -> its JSON Schema (draft 2020-12). `description` is the
            meaning, and `title` the expected value in words, such as "a number > 0". With the
            `format` "group", text is the name of a job group of the document. With the format
            "duration", the argument is seconds or text such as 30m; `expand` receives seconds.
        required: the names of the required arguments.
        expand: makes groups and rules, with the keys of `EXPANSION`, from the arguments and the
            document so far. The arguments include `id`, with which all names must begin. It is a
            pure function: equal arguments give equal results. Raises ArgumentError.

    >>> again = Algorithm(
    ...     "Submits a group again and again.",
    ...     {"group": {"type": "string", "format": "group", "description": "The group."}},
    ...     ("group",),
    ...     lambda arguments, document: {"rules": [{
    ...         "id": f"{arguments['id']}-next",
    ...         "trigger": "idle",
    ...         "group": arguments["group"],
    ...         "action": {"name": "submit", "label": arguments["group"], "repetitions": 3},
    ...     }]},
    ... )
    >>> again.expand({"id": "again", "group": "md"}, {"jobs": []})["rules"][0]["id"]
    'again-next'
    """

    summary: str
    arguments: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    expand: Callable[[Plain, Plain], Plain]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of all arguments together."""
        return {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.required),
            "additionalProperties": False,
        }
