"""The schema of documents for editors, and what there is to say of one key.

It is the schema that documents are checked with (`document.schema`), in the dialect of editors:
regular expressions are ECMA's, and each key has its meaning, its default and examples
(`document.explanations`). So an editor refuses what the check of the form refuses, and what that
leaves to other checks, such as whether a group exists, it leaves, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flux_ensemble.algorithms.algorithm import Algorithm
from flux_ensemble.algorithms.builtin import SHIPPED, shipped
from flux_ensemble.document.explanations import KEYS
from flux_ensemble.document.key import Key
from flux_ensemble.document.schema import DOCUMENT
from flux_ensemble.document.schema_terms import Schema

#: Keys whose values have the keys of another one.
_SAME = {"rules.actions": "rules.action"}

#: Parts of a schema that are schemas of the same value.
_ALTERNATIVES = ("if", "then", "else")

#: Those, and schemas of values in it that have no key of their own.
_INNER = (*_ALTERNATIVES, "items", "additionalProperties")

_TYPES = {"object": "mapping", "array": "list", "string": "text"}


@dataclass(frozen=True, slots=True)
class Explained:
    """A key of the document.

    Args:
        path: its name, such as "jobs.retries.times".
        key: what it means.
        expected: the form of its value, in words.
        types: the types of its value, in words.
        choices: what it can be, if that is one of some.
        required: the mapping that it is in has to have it.
        below: the names of the keys of its value.
    """

    path: str
    key: Key
    expected: str
    types: tuple[str, ...]
    choices: tuple[Any, ...]
    required: bool
    below: tuple[str, ...]


def editor_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a document, for editors.

    >>> editor_schema()["properties"]["finish"]["default"]
    'idle'
    """
    schema = _for_editors(DOCUMENT, "")
    use = schema["properties"]["use"]["items"]
    use["allOf"] = [
        {
            "if": {"properties": {"algorithm": {"const": name}}, "required": ["algorithm"]},
            "then": _arguments(shipped(name), use["properties"]),
        }
        for name in SHIPPED
    ]
    return {
        **schema,
        "description": "An ensemble: job groups, and rules that say what to do when something "
        "happens.",
    }


def _arguments(algorithm: Algorithm, own: Schema) -> Schema:
    """The schema of an entry of `use` with an algorithm of flux-ensemble."""
    properties = {**algorithm.arguments, **dict.fromkeys(own, True)}
    return {**algorithm.schema, "properties": properties, "description": algorithm.summary}


def explained() -> Iterator[Explained]:
    """Every key of the document, each before those of its value.

    >>> next(key.expected for key in explained() if key.path == "jobs.count")
    'an integer >= 1'
    """
    yield from _explained(DOCUMENT, "")


def explained_algorithms() -> Iterator[Explained]:
    """Every algorithm of flux-ensemble as a key, each before its arguments: `use.NAME.ARGUMENT`.

    >>> next(one.below[0] for one in explained_algorithms() if one.path == "use.retry-with-more")
    'group'
    """
    for name in SHIPPED:
        algorithm = shipped(name)
        yield Explained(
            f"use.{name}",
            Key(algorithm.summary),
            "an entry of 'use'",
            ("mapping",),
            (),
            False,
            tuple(algorithm.arguments),
        )
        yield from _explained_arguments(algorithm.schema, f"use.{name}")


def _explained_arguments(schema: Schema, path: str) -> Iterator[Explained]:
    for name, part in schema.get("properties", {}).items():
        yield Explained(
            f"{path}.{name}",
            Key(part["description"], tuple(part.get("examples", ())), part.get("default")),
            part.get("title", ""),
            tuple(_TYPES.get(one, one) for one in _types(part)),
            tuple(_choices(part)),
            name in schema.get("required", ()),
            tuple(part.get("properties", {})),
        )
        yield from _explained_arguments(part, f"{path}.{name}")


def _for_editors(schema: Schema, path: str) -> Schema:
    """A part of the schema; `path` is the key whose value it describes."""
    made: Schema = {}
    for word, value in schema.items():
        if word == "properties":
            made[word] = {name: _of_key(part, _below(path, name)) for name, part in value.items()}
        elif word in _INNER and isinstance(value, dict):
            made[word] = _for_editors(value, path)
        elif word == "pattern":
            made[word] = ecma(value)
        else:
            made[word] = value
    return made


def _of_key(schema: Schema, path: str) -> Schema:
    key = KEYS.get(path)
    made = _for_editors(schema, path)
    if key is None:
        return made
    made["description"] = f"{key.text}\n\nExpected: {_expected(schema)}."
    if key.default is not None:
        made["default"] = key.default
    if key.examples:
        made["examples"] = list(key.examples)
    return made


def ecma(pattern: str) -> str:
    r"""A regular expression of Python's in ECMA's dialect, which has no `\Z`.

    >>> ecma(r"^[a-z]+\Z")
    '^[a-z]+$'
    """
    return re.sub(r"\\Z\Z", "$", pattern)


def _explained(schema: Schema, path: str) -> Iterator[Explained]:
    for name, part in _properties(schema).items():
        below = _below(path, name)
        if below in _SAME:
            below_names: tuple[str, ...] = ()
        else:
            below_names = tuple(_properties(part))
        if below in KEYS:
            yield Explained(
                below,
                KEYS[below],
                _expected(part),
                tuple(_TYPES.get(one, one) for one in _types(part)),
                tuple(_choices(part)),
                name in schema.get("required", ()),
                below_names,
            )
        if below not in _SAME:
            yield from _explained(_whole(part), below)


def _whole(schema: Schema) -> Schema:
    """A schema that has the keys of a value, and which are required, wherever they stand."""
    required = {
        name
        for part in _parts(schema)
        if part.get("type") == "object" or part is schema
        for name in part.get("required", ())
    }
    return {"properties": _properties(schema), "required": sorted(required)}


def _parts(schema: Schema) -> Iterator[Schema]:
    """A schema, and those of the values in it that have no key of their own."""
    yield schema
    for word in _INNER:
        part = schema.get(word)
        if isinstance(part, dict):
            yield from _parts(part)


def _properties(schema: Schema) -> Schema:
    found: Schema = {}
    for part in _parts(schema):
        for name, value in part.get("properties", {}).items():
            found.setdefault(name, value)
    return found


def _expected(schema: Schema) -> str:
    expected: str = schema.get("description") or schema.get("else", {}).get("description", "")
    return expected


def _types(schema: Schema) -> list[str]:
    types = schema.get("type")
    if types is None:
        both = (*_types(schema.get("then", {})), *_types(schema.get("else", {})))
        return list(dict.fromkeys(both))
    return [types] if isinstance(types, str) else list(types)


def _choices(schema: Schema) -> list[Any]:
    choices: list[Any] = schema.get("enum") or schema.get("then", {}).get("enum", [])
    return choices


def _below(path: str, name: str) -> str:
    return f"{_SAME.get(path, path)}.{name}" if path else name
