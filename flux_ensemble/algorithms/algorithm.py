"""What an algorithm is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: What can be in an expansion: entries of the document's lists, source that is appended to
#: `custom`, and by name of a group of the document, what is added to its entries.
EXPANSION = ("jobs", "rules", "search", "metrics", "custom", "groups")

#: Plain data, as JSON has it.
Plain = Mapping[str, Any]


#: The argument of an algorithm that is about one job group.
GROUP = {
    "type": "string",
    "format": "group",
    "title": "the name of a job group",
    "description": "The job group.",
    "examples": ["relax"],
}


class ArgumentError(ValueError):
    """An argument that the schema allows, and that cannot be.

    Args:
        argument: its name.
        message: what is wrong, as a sentence without a full stop.

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
        summary: what it does, in a sentence or two.
        arguments: by name the JSON Schema (draft 2020-12) of each argument: `description` says
            what it means, `title` what is expected in words, such as "a number > 0". With the
            `format` group a text is the name of a job group of the document, and with the format
            duration, seconds or text such as 30m, it is handed over in seconds.
        required: the arguments that must be there.
        expand: makes the groups and rules, with the keys of `EXPANSION`, of the arguments, among
            them the `id` that names have to begin with, and of the document so far. It is a
            pure function: of the same it always makes the same. Raises ArgumentError.

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
        """The JSON Schema of the arguments together."""
        return {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.required),
            "additionalProperties": False,
        }
