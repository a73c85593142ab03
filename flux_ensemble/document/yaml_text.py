"""Checks text before it is parsed: whether libyaml can read it in reasonable time."""

from __future__ import annotations

import re

from flux_ensemble.document.bounds import MAX_BYTES

#: Most %TAG directives. libyaml compares each with all others.
MAX_DIRECTIVES = 100

#: Most blanks, or empty lines, in a row. For each word libyaml clears as much memory as the
#: longest row so far needed.
MAX_BLANKS = 4096

_UNPRINTABLE = re.compile(
    "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_BREAK = "(?:\r\n|[\n\r\x85\u2028\u2029])"
_DIRECTIVE = re.compile(f"(?:^|{_BREAK})%TAG")
# Possessive: no character is looked at twice.
_BLANKS = re.compile("[ \t]++")
_EMPTY_LINES = re.compile(f"(?:{_BREAK}[ \t]*+)++")
_BREAKS = re.compile(_BREAK)


class UnreadableError(Exception):
    """A document that cannot be read.

    Attributes:
        line: the line; None if it is the whole document.
    """

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line


def check_text(text: str) -> None:
    """Check the text of a document.

    Raises:
        UnreadableError: it is too large, not UTF-8, not allowed in YAML, or would take too long
            to parse.

    >>> check_text("a:" + 5000 * " " + "1")
    Traceback (most recent call last):
    flux_ensemble.document.yaml_text.UnreadableError: expected at most 4096 blanks in a row, ...
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UnreadableError(_line_at(text, error.start), "expected UTF-8 text") from None
    if size > MAX_BYTES:
        raise UnreadableError(None, f"a document has at most {MAX_BYTES} bytes, not {size}")
    match = _UNPRINTABLE.search(text)
    if match is not None:
        message = f"malformed YAML: the character {match[0]!r} is not allowed"
        raise UnreadableError(_line_at(text, match.start()), message)
    if sum(1 for _ in _DIRECTIVE.finditer(text)) > MAX_DIRECTIVES:
        raise UnreadableError(None, f"a document has at most {MAX_DIRECTIVES} %TAG directives")
    _check_blanks(text)


def _check_blanks(text: str) -> None:
    for match in _BLANKS.finditer(text):
        size = match.end() - match.start()
        if size > MAX_BLANKS:
            message = f"expected at most {MAX_BLANKS} blanks in a row, not {size}"
            raise UnreadableError(_line_at(text, match.start()), message)
    for match in _EMPTY_LINES.finditer(text):
        if match.end() - match.start() > MAX_BLANKS:
            lines = sum(1 for _ in _BREAKS.finditer(match[0]))
            if lines > MAX_BLANKS:
                message = f"expected at most {MAX_BLANKS} empty lines in a row, not {lines}"
                raise UnreadableError(_line_at(text, match.start()), message)


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
