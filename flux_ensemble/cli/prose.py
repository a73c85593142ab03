"""Sentences on a terminal: lines are broken between words, by the terminal they are within words.

A command is never broken, since it could not be copied then: that is quoted text, and what begins
with `flux-ensemble`, `flux ensemble` or `pip install`, up to the end of the line or two spaces.
Pipes and files get each line as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

#: What is not broken, with the spaces before it.
_UNIT = re.compile(
    r" *(?:[(\[]?'[^'\n]*'\S*|(?:flux[ -]ensemble(?= [a-z-])|pip install)(?: \S+)+|\S+)"
)

#: The end of the space before a column of a line.
_GAP = re.compile(r"\S {2,}(?=\S)")

#: Indentation of further lines of a line without columns, beyond that of the first one.
_INDENT = 4


def fitted(text: str, *, err: bool = False) -> str:
    """Return a text for standard output or standard error; on a terminal its lines fit that."""
    stream = sys.stderr if err else sys.stdout
    return wrapped(text, _columns(stream)) if stream.isatty() else text


def wrapped(text: str, width: int) -> str:
    r"""Return a text in lines of `width` characters, which are longer where a command is.

    >>> wrapped("3 jobs failed: 'failures sweep' says why", 20)
    "3 jobs failed:\n    'failures sweep'\n    says why"
    """
    lines = []
    for line in text.split("\n"):
        parts = [line[part] for part in pieces(line, width)]
        lines.append(f"\n{' ' * indent(line, width)}".join(parts))
    return "\n".join(lines)


def indent(line: str, width: int) -> int:
    """Return the indentation of the further lines of a line.

    It is that of the last column which begins well to the left.
    """
    columns = [gap.end() for gap in _GAP.finditer(line, 0, width * 2 // 5)]
    return columns[-1] if columns else len(line) - len(line.lstrip(" ")) + _INDENT


def pieces(line: str, width: int) -> Iterator[slice]:
    """Yield the parts of a line; the spaces between them are dropped."""
    start = end = 0
    room = width
    if len(line) > width:
        for unit in _UNIT.finditer(line):
            if unit.end() - start > room and line[start:end].strip():
                yield slice(start, end)
                start = unit.end() - len(unit[0].lstrip(" "))
                room = width - indent(line, width)
            end = unit.end()
    yield slice(start, len(line))


def _columns(stream: TextIO) -> int:
    size = os.terminal_size((80, 24))
    with suppress(OSError):
        size = os.get_terminal_size(stream.fileno())
    return shutil.get_terminal_size(size).columns
