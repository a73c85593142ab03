"""Puts the spelling of each value into the document itself.

    params: {c: [1.10, NO, 3]} ──► {"c": [{"written": "1.10"}, {"written": "NO"}, 3]}

So what reads the values needs no text of the document, and what is made of them is JSON that says
the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from flux_ensemble.document.problems import Path
from flux_ensemble.document.yaml_reader import Document, read_yaml
from flux_ensemble.feature_list import parts
from flux_ensemble.scalars import Spelled, packed

#: Any key of a mapping, any entry of a list.
_ANY = None

#: Paths of values of parameters.
_VALUES: tuple[tuple[str | None, ...], ...] = (
    ("jobs", _ANY, "params", _ANY),
    ("jobs", _ANY, "retries", "with", "params", _ANY),
    *(path for part in parts("keys") for path in getattr(part, "SPELLED", ())),
    ("rules", _ANY, "action", "params", _ANY),
    ("rules", _ANY, "actions", _ANY, "params", _ANY),
)

#: Paths of values that are texts whatever they look like.
_TEXTS: tuple[tuple[str | None, ...], ...] = (
    ("jobs", _ANY, "retries", "with", "environment", _ANY),
    ("rules", _ANY, "action", "environment", _ANY),
    ("rules", _ANY, "actions", _ANY, "environment", _ANY),
)


def with_spellings(document: Document) -> Any:
    """The value of a document, with the spellings of parameters; the document is not changed.

    >>> from flux_ensemble.document.yaml_reader import read_yaml
    >>> document, _ = read_yaml("jobs: [{name: a, command: x, params: {c: [1.10, 2]}}]")
    >>> with_spellings(document)["jobs"][0]["params"]
    {'c': [{'written': '1.10'}, 2]}
    """
    value = document.value
    for pattern in _VALUES:
        value = _changed(value, pattern, (), lambda path, one: _packed(document.written(path, one)))
    for pattern in _TEXTS:
        value = _changed(value, pattern, (), lambda path, one: document.text(path) or one)
    return value


def read_action(text: str) -> Any:
    """An action that is written as in a document, with the spellings of parameters.

    Raises:
        DocumentError: it is no YAML.

    >>> read_action("{name: submit, label: md, params: {c: 1.10}}")["params"]
    {'c': {'written': '1.10'}}
    """
    return with_spellings(_read(f"rules:\n- action:\n{_indented(text, 4)}"))["rules"][0]["action"]


def read_argument(text: str) -> Any:
    """A value or values of a parameter, written as in a document.

    Raises:
        DocumentError: it is no YAML.

    >>> read_argument("1.10"), read_argument("[NO, 7]"), read_argument("{range: [1, 3]}")
    ({'written': '1.10'}, [{'written': 'NO'}, 7], {'range': [1, 3]})
    """
    document = _read(f"-\n{_indented(text, 2)}")
    return _packed(document.written((0,), document.value[0]))


def read_setting(key: str, text: str) -> Any:
    """The value of another key, written as in a document; variables of an environment are texts.

    Raises:
        DocumentError: it is no YAML.

    >>> read_setting("nodes", "0x10"), read_setting("environment", "{DEBUG: NO}")
    (16, {'DEBUG': 'NO'})
    """
    document = _read(f"-\n{_indented(text, 2)}")
    value = document.value[0]
    if key == "environment" and isinstance(value, dict):
        return {name: document.text((0, name)) or one for name, one in value.items()}
    return value


def _indented(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by)


def _read(text: str) -> Document:
    """A document, of which nothing is wrong.

    Raises:
        DocumentError: something is.
    """
    document, problems = read_yaml(text)
    if problems:
        raise problems.error()
    return document


def _packed(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_packed, value)) if any(type(one) is Spelled for one in value) else value
    # Null stays what it is, for the message about it.
    return packed(value) if type(value) is Spelled else value


def _changed(
    value: Any, pattern: tuple[str | None, ...], at: Path, change: Callable[[Path, Any], Any]
) -> Any:
    """A value with what the paths of a pattern lead to changed, as far as it has these paths."""
    if not pattern:
        return change(at, value)
    step, *rest = pattern
    keys: Any = ()
    if isinstance(value, dict):
        keys = list(value) if step is _ANY else [step] if step in value else ()
    elif isinstance(value, list) and step is _ANY:
        keys = range(len(value))
    made = {}
    for key in keys:
        new = _changed(value[key], tuple(rest), (*at, key), change)
        if new is not value[key]:
            made[key] = new
    if not made:
        return value
    if isinstance(value, dict):
        return {**value, **made}
    return [made.get(place, one) for place, one in enumerate(value)]
