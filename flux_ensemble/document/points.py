"""Reads files of parameter values: CSV (RFC 4180), whose header names the columns.

Separators are commas, tabs or semicolons. Of a sheet only the columns that parameters are named
after are looked at, and those that the condition names which chooses rows. A cell without quotes is
a number if it is written as one, and keeps its spelling; one with quotes is a text.

    text ──records──► rows ──where, limit──► chosen rows ──► the column of each parameter

Rows are chosen one by one, so of a large sheet only the chosen ones take memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flux_ensemble.document.bounds import MAX_BYTES, MAX_SHEET, MAX_VALUES
from flux_ensemble.document.plain_data import MAX_CHARACTERS
from flux_ensemble.document.problems import Path, Problems, TooMany
from flux_ensemble.document.sheet_rows import Chooser, RowError, place_of
from flux_ensemble.document.texts import MAX_WORD
from flux_ensemble.document.values import FileColumn
from flux_ensemble.scalars import as_text, spelled
from flux_ensemble.texts import shown, with_guard, without_guard

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

_LINE = re.compile(r"[^\r\n]*+")

#: Most characters of all sheets together of which rows are chosen, and most steps of conditions:
#: both take the time of whoever reads the document.
_MAX_READ = 2 * MAX_SHEET
_MAX_STEPS = 50_000_000


class RowSelection(NamedTuple):
    """The rows of a file that an entry of `jobs:` uses.

    Attributes:
        where: the condition of a row; None for each row.
        limit: how many rows at most, the first ones; None for all.
        at: the path in the document of the parameter that says so.
    """

    where: str | None = None
    limit: int | None = None
    at: Path = ()


ALL = RowSelection()


class _Quoted(str):
    """A cell that was in quotes."""

    __slots__ = ()


class _Row(NamedTuple):
    """A row: the number of its first line, its cells, and where it begins and ends in the text."""

    line: int
    cells: list[str]
    begin: int = 0
    end: int = 0


#: The cells of a row that cannot be read.
_MALFORMED: list[str] = []

#: What some programs write at the beginning of a text.
_MARK = "\ufeff"


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
    >>> points.column("points.csv", "y", Problems(), (), RowSelection("x > 1")).values
    ('b',)
    """

    def __init__(self, texts: Callable[[str, Problems], str | None]) -> None:
        self._texts = texts
        self._read: dict[tuple[Any, ...], tuple[_Sheet, Problems]] = {}
        #: Rows of all files and values of their columns that are used, and characters.
        self._values = 0
        self._characters = 0
        #: Characters of files of which rows are chosen, and steps of conditions.
        self._looked_at = self._steps = 0
        #: Where the rows begin and end that were chosen of large files, by file.
        self._chosen: dict[str, dict[int, int]] = {}

    def column(
        self, file: Any, name: str, problems: Problems, at: Path, rows: RowSelection = ALL
    ) -> FileColumn | None:
        """The values of a parameter; None if there are problems.

        Args:
            file: the file's name.
            name: of the parameter, and of the column; in an export, that is `params.NAME`.
            problems: collects the problems.
            at: the path in the document of the parameter.
            rows: those that are used.
        """
        if not isinstance(file, str) or not file:
            problems.add(at, f"expected the name of a file, not {shown(file)}")
            return None
        key = file, rows.where, rows.limit
        if key not in self._read:
            own = Problems()
            sheet = _Sheet()
            with suppress(TooMany):
                sheet = self._sheet(file, own, rows)
            self._read[key] = sheet, own
        sheet, own = self._read[key]
        # What is wrong with the choice of rows is said once, of the parameter that has it.
        problems.take(own, at if rows is ALL else rows.at)
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

    def shorten(self, texts: MutableMapping[str, str]) -> None:
        """Leave only the chosen rows in the texts of files that are too large to be kept.

        They give the same values: each condition holds for the same rows.

        Args:
            texts: of files by name.

        >>> points = Points(lambda name, problems: "x\\n1\\n2\\n")
        >>> points.shorten({})
        """
        for file, chosen in self._chosen.items():
            if file in texts:
                text = texts[file]
                texts[file] = "".join(text[at : chosen[at]] for at in sorted(chosen))

    def _sheet(self, file: str, problems: Problems, choice: RowSelection) -> _Sheet:
        text = self._texts(file, problems)
        if text is None:
            return _Sheet()
        chooses = choice is not ALL
        self._check_size(file, text, problems, chooses=chooses)
        if "\0" in text:
            problems.give_up((), f"expected text without the character '\\0' in {file!r}")
        records = self._rows(file, text, problems, len(text) if chooses else MAX_VALUES)
        first = next(records, None)
        if first is None:
            if not problems:
                problems.give_up((), f"{file}:1: expected a header with the names of parameters")
            return _Sheet()
        header = first.cells
        sheet = _Sheet(header)
        spans = {first.begin: first.end}
        chooser = self._chooser(file, header, choice, problems)
        if problems:
            return sheet
        for row in records:
            if len(row.cells) > len(header) and any(map(_holds, row.cells[len(header) :])):
                problems.add((), _of_header(file, row, header))
            if chooser is not None and not self._is_chosen(chooser, file, row, header, problems):
                continue
            sheet.rows.append((row.line, row.cells))
            spans[row.begin] = row.end
            if len(sheet.rows) > MAX_VALUES:
                self._count(len(sheet.rows), problems)
            if len(sheet.rows) == choice.limit:
                break
        if not problems and not sheet.rows:
            if chooser is None or not chooser.rows:
                problems.add((), f"{file}:1: expected at least one row below the header")
            else:
                problems.add(("where",), chooser.nothing(file))
        if len(text) > MAX_BYTES and not problems:
            size = sum(end - begin for begin, end in spans.items())
            self._characters += size
            if size > MAX_BYTES:
                problems.give_up((), f"expected at most {MAX_BYTES} bytes in the rows of {file!r}")
            self._chosen.setdefault(file, {}).update(spans)
        return sheet

    def _check_size(self, file: str, text: str, problems: Problems, *, chooses: bool) -> None:
        most = MAX_SHEET if chooses else MAX_BYTES
        if len(text) > most:
            larger = "" if chooses else " ('where' and 'limit' choose rows of a larger one)"
            problems.give_up((), f"expected at most {most} bytes in {file!r}{larger}")
        if len(text) > MAX_BYTES:
            self._looked_at += len(text)
        else:
            self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            problems.give_up((), f"expected at most {MAX_CHARACTERS} characters in {_FILES}")
        if self._looked_at > _MAX_READ:
            problems.give_up(
                (),
                f"expected at most {_MAX_READ} characters in {_FILES} of which rows are chosen; "
                "each 'where' reads its file",
            )

    def _chooser(
        self, file: str, header: list[str], choice: RowSelection, problems: Problems
    ) -> Chooser | None:
        if choice.where is None:
            return None
        try:
            return Chooser(choice.where, file, header, _value)
        except ValueError as error:
            problems.add(("where",), str(error))
            return None

    def _is_chosen(
        self, chooser: Chooser, file: str, row: _Row, header: list[str], problems: Problems
    ) -> bool:
        self._steps += chooser.steps
        if self._steps > _MAX_STEPS:
            problems.give_up(("where",), f"expected at most {_MAX_STEPS} steps for all rows")
        if len(row.cells) <= chooser.last:
            problems.add(("where",), _of_header(file, row, header))
            return False
        try:
            return chooser.holds(row.cells)
        except RowError as error:
            problems.add(("where",), f"{file}:{row.line}: {error}")
            return False

    def _column(self, file: str, sheet: _Sheet, name: str, problems: Problems) -> FileColumn | None:
        try:
            place = place_of(name, file, sheet.header)
        except ValueError as error:
            problems.add((), str(error))
            return None
        values: list[Any] = []
        empty: list[int] = []
        for line, row in sheet.rows:
            if place >= len(row):
                problems.add((), _of_header(file, _Row(line, row), sheet.header))
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
            words = f"expected at most {MAX_VALUES} values in {_FILES}"
            problems.give_up((), f"{words} ('where' and 'limit' choose rows)")

    def _rows(self, file: str, text: str, problems: Problems, most: int) -> Iterator[_Row]:
        """The rows that are not blank, of which there are at most so many."""
        rows = 0
        for row in _records(text, _separator(file, text.removeprefix(_MARK))):
            if row.cells is _MALFORMED:
                problems.add(
                    (), f"{file}:{row.line}: a '\"' is not closed, or not where a cell ends"
                )
                return
            if row.cells[0] or any(map(_holds, row.cells)):
                rows += 1
                if rows > most:
                    self._count(rows, problems)
                yield row


def cells_of(file: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row of a sheet: the number of its line, and its cells by column.

    An empty cell without quotes is None.

    Raises:
        ValueError: the text is no sheet; the message begins with the file and the line.

    >>> list(cells_of("a.csv", "x,loss\\n1,0.5\\n2,\\n"))
    [(2, {'x': 1, 'loss': 0.5}), (3, {'x': 2, 'loss': None})]
    """
    header: list[str] | None = None
    for row in _records(text, _separator(file, text.removeprefix(_MARK))):
        if row.cells is _MALFORMED:
            raise ValueError(f"{file}:{row.line}: a '\"' is not closed, or not where a cell ends")
        if not any(map(_holds, row.cells)):
            continue
        if header is None:
            header = row.cells
            twice = next((one for one in header if one and header.count(one) > 1), None)
            if twice is not None:
                raise ValueError(f"{file}:{row.line}: there are several columns {twice!r}")
            continue
        extra = any(map(_holds, row.cells[len(header) :]))
        if extra or len(row.cells) < len(header):
            raise ValueError(_of_header(file, row, header))
        cells = zip(header, row.cells, strict=False)
        yield row.line, {name: _value(cell) if _holds(cell) else None for name, cell in cells}


def _of_header(file: str, row: _Row, header: list[str]) -> str:
    """The message about a row that has not as many cells as the header."""
    expected = f"expected {len(header)} values, as the header has"
    return f"{file}:{row.line}: {expected}, not {len(row.cells)}"


def _holds(cell: str) -> bool:
    """Return True if a cell is not empty; an empty one in quotes holds a text."""
    return cell != "" or type(cell) is _Quoted


def _separator(file: str, text: str) -> str:
    """Return the separator of the cells: the most frequent one in the header, outside quotes."""
    if file.lower().endswith((".tsv", ".tab")):
        return "\t"
    header = _QUOTED.sub("", text.lstrip("\r\n")[:MAX_WORD]).splitlines()[:1]
    return max(_SEPARATORS, key="".join(header).count)


def _records(text: str, separator: str) -> Iterator[_Row]:
    """The rows of a text; the last one has the cells `_MALFORMED` if it is malformed."""
    blank = "[ ]" if separator == "\t" else r"[ \t]"
    cell = re.compile(
        rf'{blank}*+"(?P<quoted>(?:[^"]|"")*+)"{blank}*+(?P<end>{separator}|\r\n?|\n|\Z)'
        rf"|(?P<plain>[^{separator}\r\n]*+)(?P<stop>{separator}|\r\n?|\n|\Z)"
    )
    at, line = len(_MARK) if text.startswith(_MARK) else 0, 1
    while at < len(text):
        begin, first = at, line
        match = _LINE.match(text, at)
        assert match is not None
        stop = match.end()
        if text.find('"', at, stop) < 0:
            # Most lines have no quotes, and cells of these are found much faster.
            row = [part.strip() for part in match[0].split(separator)]
            at = stop + (2 if text.startswith("\r\n", stop) else 1)
        else:
            row, end = [], separator
            while end == separator:
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
                        yield _Row(line, _MALFORMED)
                        return
                    row.append(plain)
                    end = match["stop"]
                at = match.end()
        line += 1
        yield _Row(first, row, begin, at)


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
