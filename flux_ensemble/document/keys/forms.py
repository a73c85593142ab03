"""The entry of a key, and the parts that forms of values are made of.

A form is a JSON Schema without `anyOf` and `$ref`, so that every error becomes one sentence, made
from the `description` of the failing part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flux_ensemble.feature_list import parts
from flux_ensemble.scalars import MAX_INT, WRITTEN
from flux_ensemble.texts import shown

#: Names of groups and rules. They are used in metric paths, and in file names.
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z"

#: Names of ensembles. A dot would separate directories of the KVS.
ENSEMBLE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}\Z"

ENSEMBLE_NAME_RULE = "a name (letters, digits, '_' and '-', at most 128, not '-' first)"

#: Names of parameters and statistics. They are used in `{name}` and in expressions.
PARAMETER = r"^[A-Za-z_][A-Za-z0-9_-]{0,127}\Z"

IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z"

Schema = dict[str, Any]


def unchanged(value: Any) -> Any:
    """Return a value as it is.

    >>> unchanged("never")
    'never'
    """
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """The declaration of a key of a document.

    >>> count = Key("count", integer(1), "Jobs of one submission.", (5,), 1, required=True)
    >>> count.optional().required, count.of("submit").takes("cancel")
    (False, False)

    Args:
        name: as in a document.
        form: the form of its value.
        text: its meaning, a sentence or two, for `explain`, editors and the guide.
        examples: values.
        default: what holds without the key, as in a document; None where there is nothing.
        required: the mapping that it is in has to have it.
        only: what alone takes the key: triggers of rules, actions, policies. "job-" is each that
            begins so.
        read: makes the value for the Spec, or raises ValueError; None where the reader of the
            family does it, because it needs more than the value.
        field: in the Spec, where it is not the name with underscores.
        expression: its value can be an expression in braces, or have some in it.
        parameter: its value can be text with a parameter of the sweep, such as "{n}".
        in_jobspec: a jobspec says it itself.
        formerly: an older name, which is still taken.
        python: the type in Python, where it does not follow from the form.
        unset: what holds without the key, for the guide, where it is no value.
        more: what the guide says besides, in Markdown.
        after: of a key of a feature, the key behind which it is listed.
    """

    name: str
    form: Schema
    text: str
    examples: tuple[Any, ...] = ()
    default: Any = None
    required: bool = False
    only: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = unchanged
    field: str = ""
    expression: bool = False
    parameter: bool = False
    in_jobspec: bool = False
    formerly: str = ""
    python: str = ""
    unset: str = ""
    more: str = ""
    after: str = ""

    def of(self, *only: str) -> Key:
        """Return the key as one that these alone take."""
        return replace(self, only=only)

    def optional(self) -> Key:
        """Return the key as one that need not be there."""
        return replace(self, required=False)

    def takes(self, what: str) -> bool:
        """Return whether a trigger, an action or a policy takes the key.

        >>> Key("after", {}, "A delay.", only=("timer", "job-")).takes("job-fail")
        True
        """
        return not self.only or any(
            what.startswith(one) if one.endswith("-") else what == one for one in self.only
        )


def with_features(family: str, keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return the keys of a family with those of features, each behind the key that it names.

    Args:
        family: the name of the keys in the part `keys` of a feature.
        keys: those of the kernel.

    >>> [key.name for key in with_features("JOB_KEYS", [Key("max-active", integer(1), "Jobs.")])]
    ['max-active', 'predict', 'order']
    """
    joined = list(keys)
    for part in parts("keys"):
        for key in getattr(part, family, ()):
            place = next(place for place, one in enumerate(joined) if one.name == key.after)
            joined.insert(place + 1, key)
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class FurtherAction:
    """An action that a feature adds to those of the kernel.

    Args:
        name: as in a document.
        text: what it does, for the guide. Links lead from docs/.
        after: the action behind which it is listed.
        takes: keys of other actions that it takes, besides those that declare it themselves.
        of_job: it acts on the triggering job.
        again: it submits jobs again, so there are more of them than rules ask for.
        on: its label names an entry of the list of the document with this key.
        submits: it has jobs of the group of this entry submitted.
        resizes: it changes the number of nodes of the instance; with a label, of the members of
            that pool.

    >>> FurtherAction("copy", "Run the triggering job again.", after="cancel", of_job=True).again
    False
    """

    name: str
    text: str
    after: str
    takes: tuple[str, ...] = ()
    of_job: bool = False
    again: bool = False
    on: str = ""
    submits: bool = False
    resizes: bool = False


@dataclass(frozen=True, slots=True)
class FurtherTrigger:
    """A trigger that a feature adds to those of the kernel.

    Args:
        name: as in a document; what precedes the first "-" is its kind.
        text: when it fires, for the guide. Links lead from docs/.
        after: the trigger behind which it is listed.
        on: the `name` of a rule names an entry of the list of the document with this key; if empty,
            a rule, about whose requests the trigger is.

    >>> FurtherTrigger("search-done", "A search is done.", after="member-lost", on="search").on
    'search'
    """

    name: str
    text: str
    after: str
    on: str = ""


def with_further(
    texts: Mapping[str, str], further: Iterable[FurtherAction | FurtherTrigger]
) -> Mapping[str, str]:
    """Return the texts of actions or triggers, those of features behind the one that each names.

    Args:
        texts: those of the kernel.
        further: those of features.

    >>> copy = FurtherAction("copy", "Run the triggering job again.", after="cancel")
    >>> list(with_further({"cancel": "Cancel jobs.", "custom": "Call a function."}, [copy]))
    ['cancel', 'copy', 'custom']
    """
    joined = list(texts.items())
    for action in further:
        place = [name for name, _ in joined].index(action.after)
        joined.insert(place + 1, (action.name, action.text))
    return dict(joined)


class Properties(dict[str, Schema]):
    """The forms of keys by name: `properties` of a JSON Schema that is made of a table.

    Args:
        keys: the table.

    Attributes:
        table: the keys by name.

    >>> Properties([Key("count", integer(1), "Jobs.")]).table["count"].text
    'Jobs.'
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self.table = {key.name: key for key in keys}
        super().__init__({name: key.form for name, key in self.table.items()})


def mapping(what: str, keys: Iterable[Key]) -> Schema:
    """Make the form of a mapping with known keys.

    >>> mapping("a point", [Key("x", integer(0), "The place.", required=True)])["required"]
    ['x']
    """
    properties = Properties(keys)
    return {
        "type": "object",
        "description": what,
        "properties": properties,
        "required": [key.name for key in properties.table.values() if key.required],
        "additionalProperties": False,
    }


def foreign(what: str, properties: Schema, *required: str) -> Schema:
    """Make the form of a mapping whose keys are not the document's own, such as a jobspec.

    >>> foreign("a point", {"x": integer(0)}, "x")["required"]
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
    """Make the form of a list.

    >>> list_of("a list of names", text())["type"]
    'array'
    """
    return {"type": "array", "description": what, "items": items}


def choice(what: str, names: tuple[str, ...]) -> Schema:
    """Make the form of a text that is one of some names.

    >>> choice("a mode", ("max", "min"))["enum"]
    ['max', 'min']
    """
    return {"type": "string", "description": what, "enum": list(names)}


def text(what: str = "text that is not empty", **more: Any) -> Schema:
    """Make the form of a text that is not empty.

    >>> text()["description"]
    'text that is not empty'
    """
    return {"type": "string", "description": what, "minLength": 1, **more}


def integer(minimum: int, maximum: int = MAX_INT) -> Schema:
    """Make the form of an integer between two bounds.

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


def or_text(schema: Schema) -> Schema:
    """Make the form of a number that a text with an expression or a parameter can give.

    >>> or_text(integer(1))["type"]
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


def no_scalar(value: Any) -> str:
    """The message about a value that is no scalar.

    >>> no_scalar([])
    'expected text, a number, true or false, not a list with 0 items'
    >>> no_scalar(None)
    'expected text, a number, true or false, not null (put it in quotes if the text is meant)'
    """
    quoted = " (put it in quotes if the text is meant)" if value is None else ""
    return f"expected {SCALAR['description']}, not {shown(value)}{quoted}"


_OF_CHOICE = {"description": "a value as text, such as {written: '1.10'}"}

#: A scalar, or its text as `{written: "1.10"}`.
CHOICE = {
    **SCALAR,
    "type": ["string", "number", "boolean", "object"],
    "propertyNames": {"enum": [WRITTEN], **_OF_CHOICE},
    "additionalProperties": {"type": "string", **_OF_CHOICE},
    "minProperties": 1,
}

#: Names of pools and searches, which are those of metrics too.
PARAMETER_RULE = "a name (letters, digits, '_' and '-', at most 128, not a digit or '-' first)"

#: Seconds and the like.
NUMBER = {"type": "number", "description": "a number"}
POSITIVE = {"type": "number", "description": "a number >= 0", "minimum": 0}

NAMES_OF_PARAMETERS = list_of("a list of parameters", text("the name of a parameter"))

ENVIRONMENT = {"type": "object", "description": "a mapping of environment variables"}

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


def or_list(schema: Schema, what: str) -> Schema:
    """Make the form of one or several values.

    >>> or_list(text(), "a name, or a list of them")["else"]["minItems"]
    1
    """
    return {
        "if": {"type": schema["type"]},
        "then": schema,
        "else": {**list_of(what, schema), "minItems": 1},
    }


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches one of the patterns of names.

    >>> matches(NAME, "md-300.a"), matches(NAME, "md 300")
    (True, False)
    """
    return re.match(pattern, text) is not None


#: What becomes of a job whose end was no doing of its own after it may have run; the default first.
ON_LOST = ("resubmit", "fail", "hold")

ATTRIBUTES = foreign("a mapping with the keys system and user", {"system": SYSTEM, "user": OBJECT})


def table(form: Schema) -> dict[str, Key]:
    """Return the keys by name of a form that has some at its top.

    >>> list(table(mapping("a point", [Key("x", integer(0), "The place.")])))
    ['x']
    """
    properties = form["properties"]
    assert isinstance(properties, Properties)
    return properties.table
