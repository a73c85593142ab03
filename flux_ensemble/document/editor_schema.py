"""The schema of documents for editors, and what there is to say of one key.

It is the schema that documents are checked with (`keys.document`), in the dialect of editors:
regular expressions are ECMA's, and each key has its meaning, its default and examples. So an editor
refuses what the check of the form refuses, and what that leaves to other checks, such as whether a
group exists, it leaves, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flux_ensemble.algorithms.algorithm import Algorithm
from flux_ensemble.algorithms.builtin import SHIPPED, shipped
from flux_ensemble.document.keys.document import DOCUMENT, INNER, KEYS, SAME, parts
from flux_ensemble.document.keys.forms import Key, Properties, Schema

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
    """Return the JSON Schema (draft 2020-12) of a document, for editors.

    >>> editor_schema()["properties"]["finish"]["default"]
    'idle'
    """
    schema = _for_editors(DOCUMENT)
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
    """Return the schema of an entry of `use` with an algorithm of flux-ensemble."""
    properties = {**algorithm.arguments, **dict.fromkeys(own, True)}
    return {**algorithm.schema, "properties": properties, "description": algorithm.summary}


def explained() -> Iterator[Explained]:
    """Yield every key of the document, each before those of its value.

    >>> next(key.expected for key in explained() if key.path == "jobs.count")
    'an integer >= 1'
    """
    required = {path: _required(key.form) for path, key in KEYS.items()}
    for path, key in KEYS.items():
        inside, _, name = path.rpartition(".")
        yield Explained(
            path,
            key,
            _expected(key.form),
            tuple(_TYPES.get(one, one) for one in _types(key.form)),
            tuple(_choices(key.form)),
            name in required.get(inside, ()),
            () if path in SAME else tuple(_names(key.form)),
        )


def explained_algorithms() -> Iterator[Explained]:
    """Yield every algorithm as a key, each before its arguments: `use.NAME.ARGUMENT`.

    >>> next(one.below[0] for one in explained_algorithms() if one.path == "use.retry-with-more")
    'group'
    """
    for name in SHIPPED:
        algorithm = shipped(name)
        yield Explained(
            f"use.{name}",
            Key(name, algorithm.schema, algorithm.summary),
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
            Key(
                name,
                part,
                part["description"],
                tuple(part.get("examples", ())),
                part.get("default"),
            ),
            part.get("title", ""),
            tuple(_TYPES.get(one, one) for one in _types(part)),
            tuple(_choices(part)),
            name in schema.get("required", ()),
            tuple(part.get("properties", {})),
        )
        yield from _explained_arguments(part, f"{path}.{name}")


def _for_editors(schema: Schema) -> Schema:
    made: Schema = {}
    for word, value in schema.items():
        if word == "properties":
            table = value.table if isinstance(value, Properties) else {}
            made[word] = {name: _of_key(part, table.get(name)) for name, part in value.items()}
        elif word in INNER and isinstance(value, dict):
            made[word] = _for_editors(value)
        elif word == "pattern":
            made[word] = ecma(value)
        else:
            made[word] = value
    return made


def _of_key(schema: Schema, key: Key | None) -> Schema:
    made = _for_editors(schema)
    if key is None:
        return made
    made["description"] = f"{key.text}\n\nExpected: {_expected(schema)}."
    if key.default is not None:
        made["default"] = key.default
    if key.examples:
        made["examples"] = list(key.examples)
    return made


def ecma(pattern: str) -> str:
    r"""Return a regular expression of Python's in ECMA's dialect, which has no `\Z`.

    >>> ecma(r"^[a-z]+\Z")
    '^[a-z]+$'
    """
    return re.sub(r"\\Z\Z", "$", pattern)


def _names(schema: Schema) -> list[str]:
    """Return the names of the keys of a value, wherever they stand in its schema."""
    return list(
        dict.fromkeys(name for part in parts(schema) for name in part.get("properties", ()))
    )


def _required(schema: Schema) -> set[str]:
    """Return the names of the keys that each mapping with this form has to have.

    >>> form = {"then": {"required": ["of", "by"]}, "else": {"required": ["of"]}}
    >>> _required({"type": "array", "items": form})
    {'of'}
    """
    # What `if` requires is how forms are told apart.
    both = [_required(schema[word]) for word in ("then", "else") if word in schema]
    inner = [schema.get(word) for word in ("items", "additionalProperties")]
    return {
        *schema.get("required", ()),
        *(set.intersection(*both) if len(both) == 2 else ()),
        *(name for part in inner if isinstance(part, dict) for name in _required(part)),
    }


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
