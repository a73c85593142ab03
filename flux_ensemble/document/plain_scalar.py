"""What a plain scalar of YAML means: null, a boolean, a number, or text."""

from __future__ import annotations

import re
from typing import Any

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
#: Longer numbers are read as text.
_MAX_DIGITS = 400


def plain_scalar(text: str) -> Any:
    """The value of a plain scalar: null, a boolean, a number, or text.

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
