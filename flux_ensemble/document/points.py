"""Reads files of parameter values: CSV (RFC 4180), whose header names the columns.

Separators are commas, tabs or semicolons. Of a sheet only the columns that parameters are named
after are looked at. A cell without quotes is a number if it is written as one, and keeps its
spelling; one with quotes is a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.bounds import MAX_BYTES, MAX_VALUES
from flux_ensemble.document.plain_data import MAX_CHARACTERS
from flux_ensemble.document.problems import Path, Problems, TooMany
from flux_ensemble.document.texts import MAX_WORD
from flux_ensemble.document.values import FileColumn
from flux_ensemble.scalars import as_text, spelled
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown, with_guard, without_guard

_NUMBER = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)"
    r"|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?)",
    re.ASCII,
)

_FILES = "files of parameter values"

#: What separates the cells of a row; of those that are as frequent in a header the first.
_SEPARATORS = (",", "\t", ";")

#: What is in quotes in a file that is written: separators, and what is not read at an end.
_UNSAFE = re.compile(r'[,;\t"\r\n]|^\s|\s$')

_QUOTED = re.compile(r'"(?:[^"]|"")*+"')

#: What a column of a parameter is called in an export.
_EXPORTED = "params."


class _Quoted(str):
    """A cell that was in quotes."""

    __slots__ = ()


@dataclass
class _Sheet:
    """The contents of a file with points.

    Attributes:
        header: the names of its columns.
        rows: the number of the first line of each row, and its cells.
        columns: those that were asked for, with their problems.
    """

    header: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    columns: dict[str, tuple[FileColumn | None, Problems]] = field(default_factory=dict)


class Points:
    """Files of parameter values. Each is read once.

    Args:
        texts: the text of a file by its name, or None with a problem.

    >>> points = Points(lambda name, problems: "x,y\\n1,a\\n2,b\\n")
    >>> points.column("points.csv", "y", Problems(), ()).values
    ('a', 'b')
    """

    def __init__(self, texts: Callable[[str, Problems], str | None]) -> None:
        self._texts = texts
        self._read: dict[str, tuple[_Sheet, Problems]] = {}
        #: Rows of all files and values of their columns that are used, and characters.
        self._values = 0
        self._characters = 0

    def column(self, file: Any, name: str, problems: Problems, at: Path) -> FileColumn | None:
        """The values of a parameter; None if there are problems.

        Args:
            file: the file's name.
            name: of the parameter, and of the column; in an export, that is `params.NAME`.
            problems: collects the problems.
            at: the path in the document of the parameter.
        """
        if not isinstance(file, str) or not file:
            problems.add(at, f"expected the name of a file, not {shown(file)}")
            return None
        if file not in self._read:
            own = Problems()
            sheet = _Sheet()
            with suppress(TooMany):
                sheet = self._sheet(file, own)
            self._read[file] = sheet, own
        sheet, own = self._read[file]
        problems.take(own, at)
        if own.blames(()):
            return None
        if name not in sheet.columns:
            own = Problems()
            column = None
            with suppress(TooMany):
                column = self._column(file, sheet, name, own)
            sheet.columns[name] = column, own
        column, own = sheet.columns[name]
        problems.take(own, at)
        return column

    def _sheet(self, file: str, problems: Problems) -> _Sheet:
        text = self._texts(file, problems)
        if text is None:
            return _Sheet()
        self._characters += len(text)
        if len(text) > MAX_BYTES:
            problems.give_up((), f"expected at most {MAX_BYTES} bytes in {file!r}")
        if self._characters > MAX_CHARACTERS:
            problems.give_up((), f"expected at most {MAX_CHARACTERS} characters in {_FILES}")
        if "\0" in text:
            problems.give_up((), f"expected text without the character '\\0' in {file!r}")
        rows = self._rows(file, text.removeprefix("\ufeff"), problems)
        _, header = next(rows, (1, []))
        if not header and not problems:
            problems.give_up((), f"{file}:1: expected a header with the names of parameters")
        sheet = _Sheet(header)
        for line, row in rows:
            if any(map(_holds, row[len(header) :])):
                problems.add(
                    (),
                    f"{file}:{line}: expected {len(header)} values, as the header has, "
                    f"not {len(row)}",
                )
            sheet.rows.append((line, row))
        if not problems and not sheet.rows:
            problems.add((), f"{file}:1: expected at least one row below the header")
        return sheet

    def _column(self, file: str, sheet: _Sheet, name: str, problems: Problems) -> FileColumn | None:
        exported = f"{_EXPORTED}{name}"
        there = exported if exported in sheet.header else name
        if there not in sheet.header:
            names = [one for one in dict.fromkeys(sheet.header) if one]
            problems.add(
                (), f"{file!r} has no column {name!r} ({hint(name, names)}columns: {listed(names)})"
            )
            return None
        if sheet.header.count(there) > 1:
            problems.add((), f"{file!r} has several columns {there!r}: give the others other names")
            return None
        place = sheet.header.index(there)
        values: list[Any] = []
        empty: list[int] = []
        for line, row in sheet.rows:
            if place >= len(row):
                problems.add(
                    (),
                    f"{file}:{line}: expected {len(sheet.header)} values, as the header has, "
                    f"not {len(row)}",
                )
            elif len(row[place]) > MAX_WORD:
                problems.add(
                    (),
                    f"{file}:{line}: {name}: expected at most {MAX_WORD} characters, "
                    f"not {len(row[place])}",
                )
            else:
                values.append(_value(row[place]))
                if not _holds(row[place]):
                    empty.append(line)
        self._count(len(values), problems)
        return None if problems else FileColumn(file, tuple(values), tuple(empty[:1]), len(empty))

    def _count(self, values: int, problems: Problems) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            problems.give_up((), f"expected at most {MAX_VALUES} values in {_FILES}")

    def _rows(self, file: str, text: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not blank, each with the number of its first line."""
        rows = 0
        for line, row in _records(text, _separator(file, text)):
            if row is None:
                problems.add((), f"{file}:{line}: a '\"' is not closed, or not where a cell ends")
                return
            if any(map(_holds, row)):
                rows += 1
                if rows > MAX_VALUES:
                    self._count(rows, problems)
                yield line, row


def _holds(cell: str) -> bool:
    """There is something in a cell."""
    return cell != "" or type(cell) is _Quoted


def _separator(file: str, text: str) -> str:
    """Return the separator of the cells: the most frequent one in the header, outside quotes."""
    if file.lower().endswith((".tsv", ".tab")):
        return "\t"
    header = _QUOTED.sub("", text.lstrip("\r\n")[:MAX_WORD]).splitlines()[:1]
    return max(_SEPARATORS, key="".join(header).count)


def _records(text: str, separator: str) -> Iterator[tuple[int, list[str] | None]]:
    """The rows of a text, with the numbers of their first lines; None for one that is malformed."""
    blank = "[ ]" if separator == "\t" else r"[ \t]"
    cell = re.compile(
        rf'{blank}*+"(?P<quoted>(?:[^"]|"")*+)"{blank}*+(?P<end>{separator}|\r\n?|\n|\Z)'
        rf"|(?P<plain>[^{separator}\r\n]*+)(?P<stop>{separator}|\r\n?|\n|\Z)"
    )
    at, line, begin = 0, 1, 1
    row: list[str] = []
    while at < len(text) or row:
        match = cell.match(text, at)
        assert match is not None
        quoted = match["quoted"]
        if quoted is not None:
            row.append(_Quoted(quoted.replace('""', '"')))
            line += len(quoted.splitlines()) - 1 if "\n" in quoted or "\r" in quoted else 0
            end = match["end"]
        else:
            plain = match["plain"].strip()
            if plain.startswith('"'):
                yield line, None
                return
            row.append(plain)
            end = match["stop"]
        at = match.end()
        if end != separator:
            yield begin, row
            row = []
            line += 1
            begin = line
            if not end:
                return


def _value(cell: str) -> Any:
    """The number that a cell holds, with its spelling, or its text."""
    if type(cell) is _Quoted:
        return without_guard(str(cell))
    return spelled(cell) if _NUMBER.fullmatch(cell) else without_guard(cell)


def cell_of(value: Any, *, raw: bool = False) -> str:
    """A value as a cell that is read as the same one.

    Args:
        value: a scalar, or None for an empty cell.
        raw: texts that a spreadsheet takes for formulas stay as they are.

    >>> [cell_of(value) for value in (True, 300, "300", "1.10", "=1+1", "-1.50", "a,b", "", None)]
    ['true', '300', '"300"', '1.10', "'=1+1", '-1.50', '"a,b"', '""', '']
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return as_text(value)
    is_number = _NUMBER.fullmatch(value) is not None
    text = value if raw or is_number else with_guard(value)
    quoted = type(spelled(value)) in (int, float) if is_number else _UNSAFE.search(text)
    return '"{}"'.format(text.replace('"', '""')) if quoted or not text else text
