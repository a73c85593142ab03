"""Chooses rows of a sheet by a condition: `where` of `params: {NAME: {file: FILE, where: ...}}`.

The condition is an expression as in rules, over the columns of the sheet: NAME is the column that a
parameter of this name has, and `row["any name"]` the column that is called so.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flux_ensemble.metrics.expressions import (
    MAX_LENGTH,
    compile_expression,
    keys_of,
    parse_expression,
)
from flux_ensemble.metrics.hints import remedy
from flux_ensemble.metrics.operations import Unfit, truth
from flux_ensemble.scalars import EMPTY
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: What precedes the name of a column that is no name of the language.
ROW = "row"

#: What a column of a parameter is called in an export.
_EXPORTED = "params."

#: Rows of which values are quoted if none is chosen, and values of each column.
_QUOTED_ROWS, _QUOTED_VALUES = 1000, 3


class RowError(ValueError):
    """The condition cannot be asked of a row, because a cell has text where it needs a number."""


class Chooser:
    """Decides which rows of a sheet a condition chooses.

    Args:
        where: the condition.
        file, header: the sheet, and the names of its columns.
        value: returns the value of a cell that is not empty.

    Attributes:
        last: the place of the last column that the condition names, or -1.
        steps: how many steps the condition takes for a row.
        rows: how many rows were asked for.

    Raises:
        ValueError: the text is no condition, or names a column that is not there.

    >>> from flux_ensemble.scalars import spelled
    >>> where = "kind == 'a' and row['the length'] > 3"
    >>> chooser = Chooser(where, "s.csv", ["kind", "the length"], spelled)
    >>> chooser.holds(["a", "5"]), chooser.holds(["b", "5"]), chooser.holds(["a", ""])
    (True, False, False)
    """

    def __init__(
        self, where: str, file: str, header: Sequence[str], value: Callable[[str], Any]
    ) -> None:
        def resolve(keys: list[str]) -> int:
            return _named(keys, file, header)

        check_where(where)
        self._expression = compile_expression(where.strip(), resolve)
        self._header = header
        self._value = value
        self.steps = len(self._expression.steps)
        self.rows = 0
        self._computed = [resolve(keys) for keys in _computed(parse_expression(where.strip()))]
        #: Values of the columns in the first rows, by column; and texts that were refused.
        self._seen: dict[int, dict[Any, None]] = {
            place: {} for place in sorted(self._expression.variables)
        }
        self._told: set[tuple[int, str]] = set()
        self.last = max(self._seen, default=-1)

    def holds(self, cells: Sequence[str]) -> bool:
        """Return whether a row is chosen.

        Args:
            cells: of the row, more than `last`.

        Raises:
            RowError: a cell has text where the condition needs a number.
        """
        self.rows += 1
        if self.rows <= _QUOTED_ROWS:
            for place, seen in self._seen.items():
                if len(seen) <= _QUOTED_VALUES:
                    seen[self._value(cells[place])] = None

        def value(place: int) -> Any:
            # Of most rows the first comparison decides, and the other cells are not looked at.
            cell = cells[place]
            return self._value(cell) if cell else EMPTY

        try:
            return truth(self._expression.value(value))
        except (Unfit, ValueError):
            for place in (*self._computed, *self._seen):
                text = value(place)
                if type(text) is str and (place, text) not in self._told:
                    self._told.add((place, text))
                    raise RowError(_no_number(self._header[place], text)) from None
            return False

    def nothing(self, file: str) -> str:
        """Return the message that no row is chosen, with some values of the columns."""
        seen = []
        for place, values in self._seen.items():
            known = [shown(value) for value in values]
            more = ", ..." if len(known) > _QUOTED_VALUES else ""
            seen.append(f"{self._header[place]} is {', '.join(known[:_QUOTED_VALUES])}{more}")
        said = f": {'; '.join(seen)}" if seen else ""
        return f"it chooses none of the {self.rows} rows of {file!r}{said}"


def check_where(where: Any) -> None:
    """Check that a value is a condition, whatever columns there are.

    Raises:
        ValueError: it is none.

    >>> check_where("length > 3")
    >>> check_where("length => 3")
    Traceback (most recent call last):
    ValueError: expected an expression such as "kind == 'a'", not 'length => 3' (write ...
    """
    expected = "expected an expression such as \"kind == 'a'\""
    if not isinstance(where, str):
        raise ValueError(f"{expected}, not {shown(where)}")
    if len(where) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters, not {len(where)}")
    try:
        compile_expression(where.strip(), ".".join)
    except (SyntaxError, RecursionError, MemoryError) as error:
        said = remedy(where) or _column_of_python(where)
        raise ValueError(f"{expected}, not {shown(where)}{said}") from error


def _column_of_python(where: str) -> str:
    """Return how a column is written whose name is a word of Python, in brackets; "" if none is."""
    for word in re.findall(r"(?<![\w.'\"])([a-z]+)(?=\s*[=!<>]|\s+in\b)", where):
        if keyword.iskeyword(word) and word not in ("not", "and", "or", "in"):
            return f" (write row[{word!r}] for the column {word!r})"
    return ""


def place_of(name: str, file: str, header: Sequence[str], *, exact: bool = False) -> int:
    """Return the place of the column that a parameter of this name has.

    Args:
        name: of the parameter; in an export, its column is `params.NAME`.
        file, header: the sheet, and the names of its columns.
        exact: the column has this name itself.

    Raises:
        ValueError: there is none, or several have the name.

    >>> place_of("t", "jobs.csv", ["id", "params.t"])
    1
    """
    exported = f"{_EXPORTED}{name}"
    there = exported if exported in header and not exact else name
    if there not in header:
        names = [one for one in dict.fromkeys(header) if one]
        raise ValueError(
            f"{file!r} has no column {name!r} ({hint(name, names)}columns: {listed(names)})"
        )
    if header.count(there) > 1:
        raise ValueError(f"{file!r} has several columns {there!r}: give the others other names")
    return header.index(there)


def _named(keys: list[str], file: str, header: Sequence[str]) -> int:
    """Return the place of the column that a name in a condition means."""
    name = ".".join(keys)
    if keys[0] == ROW and len(keys) > 1 and name not in header:
        return place_of(".".join(keys[1:]), file, header, exact=True)
    try:
        return place_of(name, file, header)
    except ValueError as error:
        if f"{_EXPORTED}{name}" in header or name in header:
            raise
        said = str(error).removesuffix(")")
        near = [one for one in header if " " in one and one.split()[0] == name]
        row = f"; a column of several words is {_written(near[0])}" if near else ""
        raise ValueError(f"{said}; text is written in quotes{row})") from None


def _written(column: str) -> str:
    """Return the name of a column as a condition has it."""
    plain = all(part.isidentifier() for part in column.split("."))
    return column if plain and column.isascii() else f"{ROW}[{column!r}]"


def _no_number(column: str, value: str) -> str:
    return (
        f"{column}: {shown(value)} is text, and 'where' needs a number here (to leave out such "
        f"rows, begin with {_written(column)} != {shown(value)} and ...)"
    )


def _computed(tree: ast.expr) -> Iterator[list[str]]:
    """Yield the names of which an expression needs numbers."""
    for node in ast.walk(tree):
        operands: Sequence[ast.expr] = ()
        match node:
            case ast.Compare():
                orders = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
                if any(isinstance(operator, orders) for operator in node.ops):
                    operands = (node.left, *node.comparators)
            case ast.BinOp():
                operands = (node.left, node.right)
            case ast.UnaryOp():
                operands = (node.operand,)
            case ast.Call():
                operands = node.args
        yield from (keys for operand in operands if (keys := keys_of(operand)) is not None)
