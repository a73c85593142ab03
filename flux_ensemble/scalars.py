"""Scalars as they are written: the meaning of a plain one in YAML, and the text that it keeps.

The spelling of a value is its text, in commands, names, tables and exports. Computations with the
value, such as expressions or samplers, use its number.

    1.10 ──spelled──► Spelled("1.10") ──► text "1.10"
                                      └──number──► 1.1
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

#: Largest integer of a jobspec, and of a request; Flux reads them as C ints.
MAX_INT = 2**31 - 1

#: Key of a mapping in place of values: their texts, as in a document without quotes.
WRITTEN = "written"

_WORDS: dict[str, bool | None] = {
    spelled: value
    for word, value in (
        ("null", None),
        ("true", True),
        ("yes", True),
        ("on", True),
        ("false", False),
        ("no", False),
        ("off", False),
    )
    for spelled in (word, word.capitalize(), word.upper())
} | {"": None, "~": None}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0b_*[01][01_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
#: Length above which a number is read as text.
_MAX_DIGITS = 400
_INT64 = 2**63

#: Numbers that are not finite, as texts that `float` accepts.
_NOT_FINITE = re.compile("[-+]?(nan|inf(inity)?)", re.IGNORECASE)

#: Types of formats that are only for numbers.
_OF_NUMBERS = frozenset("bcdeEfFgGnoxX%")


def plain_scalar(text: str) -> Any:
    """Return the value of a plain scalar: null, a boolean, a number, or text.

    >>> plain_scalar("1e-5"), plain_scalar("on"), plain_scalar("null")
    (1e-05, True, None)
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789" and len(text) <= _MAX_DIGITS:
        number = text.replace("_", "")
        if _INTEGER.fullmatch(text):
            return int(number, 0)
        if _FLOAT.fullmatch(text):
            return float(number.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def as_text(value: Any) -> str:
    """Return a scalar as text; booleans and null as in YAML.

    >>> as_text(True), as_text(0.5), as_text(spelled("1.10")), as_text(None)
    ('true', '0.5', '1.10', 'null')
    """
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def brief(value: Any) -> str:
    """Return a scalar as text; a fraction of more than six digits is rounded to so many.

    >>> brief(1 / 3), brief(4.0), brief(0.5), brief(True), brief("fast")
    ('0.333333', '4.0', '0.5', 'true', 'fast')
    """
    if isinstance(value, float) and float(rounded := f"{value:.6g}") != value:
        return rounded
    return as_text(value)


class Spelled(str):
    """A number or a boolean in an unusual spelling, which is kept: `1.10`, `0x1F`, `NO`.

    It is a text, so that output and JSON have it as it was written.
    """

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The number or boolean."""
        return plain_scalar(self)

    def __format__(self, spec: str) -> str:
        """Format the text, or the number if the format is one of numbers.

        >>> f"{Spelled('1.10'):>5}", f"{Spelled('1.10'):.3f}"
        (' 1.10', '1.100')
        """
        return format(self.value if spec[-1:] in _OF_NUMBERS else str(self), spec)


#: Null as the value of a parameter where None says that there is no value: its text is "null", and
#: as a number it is none.
NULL = Spelled("null")


class Empty(str):
    """An empty cell of a sheet, a text without characters."""

    __slots__ = ()


EMPTY = Empty()


def spelled(text: str) -> Any:
    """Return the value of a plain scalar, with its text if that differs from the usual spelling.

    >>> spelled("300"), spelled("fast"), spelled("true"), spelled("1e-05")
    (300, 'fast', True, 1e-05)
    >>> spelled("1.10"), spelled("1.10").value, type(spelled("NO")).__name__
    ('1.10', 1.1, 'Spelled')
    """
    value = plain_scalar(text)
    kind = type(value)
    if kind is str or value is None:
        return value
    fits = kind is bool or (-_INT64 <= value < _INT64 if kind is int else math.isfinite(value))
    return value if fits and as_text(value) == text else Spelled(text)


def as_spelling(value: Any) -> Any:
    """Return a value from JSON; a text that could be a number without quotes is taken for one.

    >>> as_spelling("1.10").value, as_spelling("fast"), as_spelling("null"), as_spelling(3)
    (1.1, 'fast', 'null', 3)
    """
    means = plain_scalar(value) if isinstance(value, str) else None
    return value if means is None or isinstance(means, str) else Spelled(value)


def number(value: Any) -> Any:
    """Return the value for expressions and samplers: without its spelling.

    >>> number(spelled("0x1F")), number(spelled("NO")), number("0x1F"), number(2.5)
    (31, False, '0x1F', 2.5)
    """
    return value.value if type(value) is Spelled else value


def measured(value: Any) -> Any:
    """Return the number of a published value that is NaN or infinite: JSON has these as texts.

    >>> measured("-inf"), measured("NaN"), measured("fast"), measured(3)
    (-inf, nan, 'fast', 3)
    """
    return float(value) if type(value) is str and _NOT_FINITE.fullmatch(value) else value


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, without their spellings, also in nested mappings.

    >>> numbers({"top": {"c": spelled("1.10")}, "job": 1})
    {'top': {'c': 1.1}, 'job': 1}
    """
    return {
        name: numbers(value) if isinstance(value, Mapping) else number(value)
        for name, value in values.items()
    }


def packed(value: Any) -> Any:
    """Return a value in which JSON keeps that a text is a spelling; `unpacked` undoes it.

    Null is packed, too, since as a parameter's value it is mostly a mistake.

    >>> packed(spelled("1.10")), packed("1.10"), packed(300), packed(None)
    ({'written': '1.10'}, '1.10', 300, {'written': None})
    """
    if value is None or value is NULL:
        return {WRITTEN: None}
    return {WRITTEN: str(value)} if type(value) is Spelled else value


def unpacked(value: Any) -> Any:
    """Return the value that `packed` was given.

    >>> unpacked({"written": "1.10"}).value, unpacked({"written": None})
    (1.1, None)
    """
    if not isinstance(value, Mapping):
        return value
    return None if value[WRITTEN] is None else spelled(value[WRITTEN])


def identity(value: Any) -> tuple[type, Any]:
    """Return a key that distinguishes values, also after JSON: 1, 1.0 and true are three.

    >>> identity(1) == identity(True), identity("1.10") == identity(spelled("1.10"))
    (False, True)
    """
    kind = type(value)
    return str if kind is Spelled else kind, value
