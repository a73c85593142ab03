"""Text of others, made safe to be sent, logged and displayed: bounded, without odd characters.

Texts of users and of their jobs end up in errors, in Flux's log and on terminals. Text in Python
can hold characters that these cannot take. Lone surrogates cannot be encoded, and a NUL ends a C
string. Control characters steer a terminal, others turn the direction of the text around them or
are invisible, and a line break begins a line that looks like ours.

    printable(text)   a text of its own, of several lines
    hanging(text)     an entry of a list or a log: its further lines are indented
    one_line(text)    a cell of a table, a part of a line
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

#: Most characters of a line.
MAX_LINE = 4096

#: Most characters, and lines, of a text of several lines, such as the problems of a document.
MAX_TEXT = 64 * 1024
MAX_LINES = 1000

#: Most characters of a value that a sentence quotes, and of a name that it lists.
MAX_QUOTED = 60
MAX_LISTED = 128

#: Most names that a sentence lists.
MAX_NAMES = 60

#: Size in bits above which integers are not quoted.
_MAX_BITS = 1024

#: Compiled when the first odd text is met, because most commands meet none.
_ODD = (
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

#: A line that is not indented, after the first one.
_UNINDENTED = re.compile(r"\n(?! {4})")


def printable(text: str) -> str:
    r"""Escape characters that steer, turn or hide text: `\x1b`, `\u202e`, `\udcff`.

    These are control characters, those of the direction of text (Unicode's Bidi_Control), invisible
    ones, other line breaks and lone surrogates. Newlines and tabs stay.

    >>> printable("a\x1b[31m b\u202ec")
    'a\\x1b[31m b\\u202ec'
    """
    return text if text.isprintable() else re.sub(_ODD, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def hanging(text: str) -> str:
    r"""Return an entry of a log or a list: as `printable`, with its further lines indented.

    Lines that are indented already stay; what some of them have among themselves is kept.

    >>> hanging("failed\nall is well")
    'failed\n    all is well'
    """
    text = printable(text)
    return text.replace("\n", "\n    ") if _UNINDENTED.search(text) else text


def one_line(text: str) -> str:
    r"""Return a text for a line of ours: as `printable`, with escapes for newlines and tabs, too.

    >>> one_line("failed\nall is well")
    'failed\\nall is well'
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def clip(text: str, limit: int = MAX_LINE) -> str:
    """Return a text without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"


def bounded(text: str) -> str:
    """Return text that can be sent and logged: see `printable`; only the first of many lines."""
    kept: list[str] = []
    left = MAX_TEXT
    lines = text.split("\n")
    for line in lines:
        # Escapes are longer than the characters that they stand for.
        line = clip(printable(clip(line)))
        left -= len(line) + 1
        if left < 0 or len(kept) == MAX_LINES:
            kept.append(f"... {len(lines) - len(kept)} more lines left out")
            break
        kept.append(line)
    return "\n".join(kept)


def shown(value: Any) -> str:
    """Return a value as a sentence quotes it: in the form of YAML, and never long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        what, part = ("mapping", "key") if isinstance(value, dict) else ("list", "item")
        return f"a {what} with {len(value)} {part}{'s'[: len(value) != 1]}"
    if isinstance(value, str):
        return shortened(repr(value[: MAX_QUOTED + 1]))
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"an integer of {value.bit_length()} bits"
    return shortened(repr(value))


def listed(names: Iterable[str]) -> str:
    """Return names as a sentence lists them, only the first of many."""
    known = list(names)
    more = len(known) - MAX_NAMES
    # A name that is invalid itself, such as one with a lone surrogate, is listed, too.
    legible = [name if name.isprintable() else repr(name) for name in known[:MAX_NAMES]]
    first = [shortened(name, MAX_LISTED) for name in legible]
    return ", ".join(first + [f"and {more} more"] * (more > 0)) or "none"


def shortened(text: str, longest: int = MAX_QUOTED) -> str:
    """Return text that is quoted in a sentence, without the rest if it is long."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


#: The beginning of a text that a spreadsheet takes for a formula, in halfwidth and fullwidth
#: characters.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def with_guard(text: str) -> str:
    """Return a text for a cell of a spreadsheet; an apostrophe keeps it from being a formula.

    https://owasp.org/www-community/attacks/CSV_Injection

    >>> with_guard("=1+1"), with_guard("'=x"), with_guard("a=b")
    ("'=1+1", "''=x", 'a=b')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def without_guard(text: str) -> str:
    """Return the text that `with_guard` was given.

    >>> without_guard("'=1+1"), without_guard("'quoted'")
    ('=1+1', "'quoted'")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
