"""The parts that the JSON Schema of an ensemble document is made of."""

from __future__ import annotations

import re
from typing import Any

from flux_ensemble.scalars import WRITTEN

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


def mapping(what: str, properties: Schema, *required: str) -> Schema:
    """The schema of a mapping with known keys.

    >>> mapping("a point", {"x": integer(0)}, "x")["required"]
    ['x']
    """
    return {
        "type": "object",
        "description": what,
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def list_of(what: str, items: Schema) -> Schema:
    """The schema of a list.

    >>> list_of("a list of names", text())["type"]
    'array'
    """
    return {"type": "array", "description": what, "items": items}


def choice(what: str, names: tuple[str, ...]) -> Schema:
    """The schema of a text that is one of some names.

    >>> choice("a mode", ("max", "min"))["enum"]
    ['max', 'min']
    """
    return {"type": "string", "description": what, "enum": list(names)}


def text(what: str = "text that is not empty", **more: Any) -> Schema:
    """The schema of a text that is not empty.

    >>> text()["description"]
    'text that is not empty'
    """
    return {"type": "string", "description": what, "minLength": 1, **more}


def integer(minimum: int, maximum: int = MAX_INT) -> Schema:
    """The schema of an integer between two bounds.

    >>> integer(0, 31)["description"]
    'an integer >= 0 and <= 31'
    """
    upper = "" if maximum == MAX_INT else f" and <= {maximum}"
    return {
        "type": "integer",
        "description": f"an integer >= {minimum}{upper}",
        "minimum": minimum,
        "maximum": maximum,
    }


def variable(schema: Schema) -> Schema:
    """The schema of a number that a text with a parameter can give.

    >>> variable(integer(1))["type"]
    ['integer', 'string']
    """
    return {**schema, "type": [schema["type"], "string"]}


BOOLEAN = {"type": "boolean", "description": "true or false"}

OBJECT = {"type": "object", "description": "a mapping"}

DURATION = {
    "type": ["number", "string"],
    "description": "a duration (seconds, or text such as '30s', '1.5h' or '100ms')",
    "minimum": 0,
}

PROBABILITY = {
    "type": "number",
    "description": "a probability (a number >= 0 and <= 1)",
    "minimum": 0,
    "maximum": 1,
}

SCALAR = {
    "type": ["string", "number", "boolean"],
    "description": "text, a number, true or false",
}

_OF_CHOICE = {"description": "a value as text, such as {written: '1.10'}"}

#: A scalar, or its text as `{written: "1.10"}`.
CHOICE = {
    **SCALAR,
    "type": ["string", "number", "boolean", "object"],
    "propertyNames": {"enum": [WRITTEN], **_OF_CHOICE},
    "additionalProperties": {"type": "string", **_OF_CHOICE},
    "minProperties": 1,
}

NAMED = text(
    "a name (letters, digits, '_', '-' and '.', at most 128, not '-' or '.' first)", pattern=NAME
)

URGENCY = integer(0, 31)

#: `attributes.system` of a jobspec, as far as Flux itself insists on it.
SYSTEM = {
    **OBJECT,
    "properties": {
        "duration": {"type": "number", "description": "a number of seconds", "minimum": 0},
        "cwd": text(),
        "environment": {
            "type": "object",
            "description": "a mapping of environment variables",
            "additionalProperties": {"type": "string", "description": "text"},
        },
        "dependencies": list_of(
            "a list of dependencies",
            {
                **OBJECT,
                "properties": {"scheme": text(), "value": text()},
                "required": ["scheme", "value"],
            },
        ),
        "constraints": OBJECT,
        "shell": {**OBJECT, "properties": {"options": OBJECT}},
        "job": OBJECT,
    },
}


def or_text(schema: Schema) -> Schema:
    """The schema of a value that an expression in braces can give.

    >>> or_text(integer(1))["type"]
    ['integer', 'string']
    """
    return {**schema, "type": [schema["type"], "string"]}


def or_list(schema: Schema, what: str) -> Schema:
    """The schema of one or several values.

    >>> or_list(text(), "a name, or a list of them")["else"]["minItems"]
    1
    """
    return {
        "if": {"type": schema["type"]},
        "then": schema,
        "else": {**list_of(what, schema), "minItems": 1},
    }


def matches(pattern: str, text: str) -> bool:
    """Whether a text matches one of the patterns of names.

    >>> matches(NAME, "md-300.a"), matches(NAME, "md 300")
    (True, False)
    """
    return re.match(pattern, text) is not None
