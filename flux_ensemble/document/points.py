"""Reads files of parameter values: CSV (RFC 4180), whose header names the columns."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from flux_ensemble.document.bounds import MAX_BYTES, MAX_VALUES
from flux_ensemble.document.plain import MAX_CHARACTERS
from flux_ensemble.document.problems import Path, Problems, TooMany, hint
from flux_ensemble.document.texts import MAX_WORD
from flux_ensemble.document.values import Column
from flux_ensemble.texts import listed, shown

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", re.ASCII)
_INT64 = 2**63

_FILES = "files of parameter values"


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
        self._read: dict[str, tuple[dict[str, Column], Problems]] = {}
        #: Values and characters of all files.
        self._values = 0
        self._characters = 0

    def column(self, file: Any, name: str, problems: Problems, at: Path) -> Column | None:
        """The values of a parameter; None if there are problems.

        Args:
            file: the file's name.
            name: of the parameter and of the column.
            problems: collects the problems.
            at: the path in the document of the parameter.
        """
        if not isinstance(file, str) or not file:
            problems.add(at, f"expected the name of a file, not {shown(file)}")
            return None
        if file not in self._read:
            own = Problems()
            table: dict[str, Column] = {}
            with suppress(TooMany):
                table = self._table(file, own)
            self._read[file] = table, own
        table, own = self._read[file]
        problems.take(own, at)
        if own.blames(()):
            return None
        if name not in table:
            problems.add(
                at,
                f"{file!r} has no column {name!r} ({hint(name, table)}columns: {listed(table)})",
            )
            return None
        return table[name]

    def _table(self, file: str, problems: Problems) -> dict[str, Column]:
        text = self._texts(file, problems)
        if text is None:
            return {}
        self._characters += len(text)
        if len(text) > MAX_BYTES:
            problems.give_up((), f"expected at most {MAX_BYTES} bytes in {file!r}")
        if self._characters > MAX_CHARACTERS:
            problems.give_up((), f"expected at most {MAX_CHARACTERS} characters in {_FILES}")
        rows = self._rows(file, text, problems)
        line, header = next(rows, (1, []))
        if not header:
            problems.give_up((), f"{file}:{line}: expected a header with the names of parameters")
        wrong = [name for name, times in Counter(header).items() if not name or times > 1]
        if wrong:
            problems.give_up(
                (), f"{file}:{line}: expected different names in the header, not {shown(wrong[0])}"
            )
        columns: list[list[Any]] = [[] for _ in header]
        for line, row in rows:
            if len(row) != len(header):
                problems.add(
                    (),
                    f"{file}:{line}: expected {len(header)} values, as the header has, "
                    f"not {len(row)}",
                )
                continue
            for name, column, cell in zip(header, columns, row, strict=True):
                try:
                    column.append(_value(cell))
                except ValueError as error:
                    problems.add((), f"{file}:{line}: {name}: {error}")
        if not problems and not columns[0]:
            problems.add((), f"{file}:{line}: expected at least one row below the header")
        pairs = zip(header, columns, strict=True)
        return {} if problems else {name: Column(file, tuple(values)) for name, values in pairs}

    def _rows(self, file: str, text: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not blank, each with the number of its first line."""
        if "\0" in text:
            problems.give_up((), f"expected text without the character '\\0' in {file!r}")
        reader = csv.reader(
            io.StringIO(text.removeprefix("\ufeff"), newline=""), skipinitialspace=True, strict=True
        )
        line = 1
        try:
            for row in reader:
                self._values += max(1, len(row))
                if self._values > MAX_VALUES:
                    problems.give_up((), f"expected at most {MAX_VALUES} values in {_FILES}")
                if any(map(str.strip, row)):
                    yield line, [cell.strip() for cell in row]
                line = reader.line_num + 1
        except csv.Error as error:
            problems.add((), f"{file}:{line}: {error}")


def _value(cell: str) -> Any:
    """The number that a cell holds, or its text.

    Raises:
        ValueError: it is empty, too long, or a number that is too large.
    """
    if not cell:
        raise ValueError("expected a value")
    if len(cell) > MAX_WORD:
        raise ValueError(f"expected at most {MAX_WORD} characters, not {len(cell)}")
    if _INTEGER.fullmatch(cell):
        # Converting very many digits takes long.
        number: float = int(cell[:40])
        if not -_INT64 <= number < _INT64:
            raise ValueError("expected an integer of at most 64 bits")
        return number
    if _FLOAT.fullmatch(cell):
        number = float(cell)
        if not math.isfinite(number):
            raise ValueError(f"expected a finite number, not {cell}")
        return number
    return cell
