"""Tables as typed columns: small, and read by a browser without parsing.

    values ──► Codes, Numbers, Times, Ids ──► pack ──► text (base64 of gzip)

The packed data begins with a header: its length in four bytes, and JSON with the number of rows and
the offset of each column for each table. The bytes of a column are grouped by position: first the
lowest byte of each number, then the next, because bytes that do not change compress well that way.
Columns that grow hold differences. All numbers are little-endian, and integers wrap round.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from flux_ensemble.report.texts import MAX_VALUE, shown

#: Most different values of a column; later ones appear as `OTHER`.
MAX_VALUES = 50_000
OTHER = "…"

#: A column with more different values than this becomes one of numbers, if all are numbers.
FEW_VALUES = 5_000

#: The types of `array` by their names in the header, and the value for "no number" in "u32".
_CODES = {"u8": "B", "u16": "H", "u32": "I", "f32": "f", "f64": "d", "i64": "q"}
_NONE = 0xFFFFFFFF

#: Possible steps of a column of times in seconds: the first one that fits the span is used.
_STEPS = (1e-6, 1e-3, 1.0)

#: Number of rows above which numbers of few digits suffice.
MANY_ROWS = 20_000


class Encoded:
    """A column: its numbers, and its description in the header."""

    def __init__(self, kind: str, numbers: Sequence[Any], **about: Any) -> None:
        self.about = {"type": kind, **about}
        self._numbers = array(_CODES[kind], numbers)

    def to_bytes(self) -> bytes:
        """Return the numbers as bytes, the lowest byte of each first."""
        numbers, size = self._numbers, self._numbers.itemsize
        if sys.byteorder == "big":
            numbers.byteswap()
        data = numbers.tobytes()
        return b"".join(data[start::size] for start in range(size)) if size > 1 else data


class Column(Protocol):
    """A collector of the values of a column, which encodes them."""

    def add(self, value: Any) -> None:
        """Add the value of the next row."""
        ...

    def encode(self) -> Encoded:
        """Return the encoded column."""
        ...


class Codes:
    """A column with recurring values: each value once, and the numbers of the values.

    Attributes:
        left_out: number of rows whose value is left out, since there are too many values.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {None: 0}
        self._rows = array("I")
        self.left_out = 0

    def add(self, value: Any) -> None:
        """Add the value of the next row."""
        kind = type(value)
        if kind not in (str, int, float) and value is not None:
            value = json.dumps(value)
        number = self._numbers.get(value)
        if number is None:
            if len(self._numbers) > MAX_VALUES:
                self.left_out += 1
                value = OTHER
            number = self._numbers.setdefault(value, len(self._numbers))
        self._rows.append(number)

    @property
    def values(self) -> list[Any]:
        """The different values, in the order of their first rows; the first is None."""
        return list(self._numbers)

    @property
    def rows(self) -> Sequence[int]:
        """The number of the value of each row."""
        return self._rows

    def encode(self) -> Encoded:
        """Return the encoded column, with its values as texts and finite numbers."""
        values = [_told(value) for value in self._numbers]
        kind = "u8" if len(values) <= 0xFF else "u16" if len(values) <= 0xFFFF else "u32"
        return Encoded(kind, self._rows, values=values)


class Values:
    """A column of values of any kind: numbers if there are many of them, else codes.

    Attributes:
        left_out: number of rows whose value is left out.
    """

    def __init__(self) -> None:
        self._codes: Codes | None = Codes()
        self._numbers = array("d")
        self._left_out = 0

    def add(self, value: Any) -> None:
        """Add the value of the next row."""
        if self._codes is not None:
            self._codes.add(value)
            if len(self._codes._numbers) == FEW_VALUES:
                self._become_numbers()
            return
        number = _number(value)
        self._left_out += number is None and value is not None
        self._numbers.append(math.nan if number is None else number)

    def fill(self, rows: int) -> None:
        """Add None for the missing rows before the given number of rows."""
        for _ in range(rows - len(self)):
            self.add(None)

    def __len__(self) -> int:
        return len(self._numbers) if self._codes is None else len(self._codes.rows)

    def pick(self, rows: Iterable[int]) -> list[Any]:
        """Return the values of some rows; None for those without one.

        >>> values = Values()
        >>> values.add("a"), values.add(2)
        (None, None)
        >>> values.pick([1, 0, 7])
        [2, 'a', None]
        """
        size = len(self)
        if self._codes is None:
            found = ((self._numbers[row] if row < size else math.nan) for row in rows)
            return [None if number != number else number for number in found]
        known, codes = self._codes.values, self._codes.rows
        return [known[codes[row]] if row < size else None for row in rows]

    @property
    def left_out(self) -> int:
        """Number of rows whose value is left out."""
        return self._left_out + (0 if self._codes is None else self._codes.left_out)

    def _become_numbers(self) -> None:
        assert self._codes is not None
        numbers = [_number(value) for value in self._codes.values]
        if None in numbers[1:]:
            return
        found = [math.nan, *(number for number in numbers[1:] if number is not None)]
        self._numbers.extend(found[code] for code in self._codes.rows)
        self._codes = None

    def encode(self) -> Encoded:
        """Return the encoded column."""
        if self._codes is not None:
            return self._codes.encode()
        return Encoded("f32" if len(self) > MANY_ROWS else "f64", self._numbers)


class Counts:
    """A column of integers from 0."""

    def __init__(self) -> None:
        self._rows = array("I")

    def add(self, value: int) -> None:
        """Add the value of the next row."""
        self._rows.append(min(max(value, 0), _NONE))

    def encode(self) -> Encoded:
        """Return the encoded column."""
        return Encoded("u32", _differences(self._rows), delta=True)


class Ids:
    """A column of 64-bit ids."""

    def __init__(self) -> None:
        self._rows = array("q")

    def add(self, value: int) -> None:
        """Add the value of the next row."""
        self._rows.append(value)

    def encode(self) -> Encoded:
        """Return the encoded column."""
        rows = self._rows
        steps = array("q", rows[:1])
        for before, after in pairwise(rows):
            step = (after - before) & 0xFFFFFFFFFFFFFFFF
            steps.append(step - (step >> 63 << 64))
        return Encoded("i64", steps, delta=True)


#: The begin and the end of a span of time.
Gap = tuple[float, float]


class Times:
    """Columns of times in seconds, encoded in steps from the first time on.

    Attributes:
        names: of the columns.
        first, last: the earliest and the latest time, or None.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self._rows = {name: array("d") for name in names}
        self.first: float | None = None
        self.last: float | None = None

    def add(self, name: str, t: float | None) -> None:
        """Add a time of the next row, or None."""
        if t is None:
            self._rows[name].append(math.nan)
            return
        self._rows[name].append(t)
        if self.first is None or t < self.first:
            self.first = t
        if self.last is None or t > self.last:
            self.last = t

    def rows(self, name: str) -> Sequence[float]:
        """Return the times of a column; NaN for none."""
        return self._rows[name]

    def encode(self, begin: float, gaps: Sequence[Gap] = ()) -> dict[str, Encoded]:
        """Return the encoded columns.

        Args:
            begin: the times are relative to it, and none is before it.
            gaps: spans of time that are left out.
        """
        span = (self.last or begin) - begin
        step = next((step for step in _STEPS if span / step < _NONE - 1), _STEPS[-1])
        found = {}
        for name, times in self._rows.items():
            numbers = array("I", (_steps(t - begin - skipped(t, gaps), step) for t in times))
            found[name] = Encoded("u32", _differences(numbers), delta=True, step=step)
        return found


def skipped(t: float, gaps: Sequence[Gap]) -> float:
    """Return the seconds before `t` that are left out.

    >>> skipped(15.0, [(0.0, 2.0), (10.0, 20.0), (30.0, 40.0)])
    7.0
    """
    return sum(max(0.0, min(t, until) - since) for since, until in gaps)


def _steps(seconds: float, step: float) -> int:
    return _NONE if seconds != seconds else min(max(round(seconds / step), 0), _NONE - 1)


def _differences(numbers: Sequence[int]) -> array[int]:
    found = array("I", numbers[:1])
    found.extend((after - before) & _NONE for before, after in pairwise(numbers))
    return found


def _number(value: Any) -> float | None:
    if type(value) is float:
        return value if math.isfinite(value) else None
    return float(value) if type(value) is int and value.bit_length() < 64 else None


def _told(value: Any) -> Any:
    """Convert a value for the header: a number that JSON can hold, or text."""
    if value is None:
        return None
    if type(value) is str:
        return shown(value, MAX_VALUE)
    number = _number(value)
    if number is None or (type(value) is int and abs(value) > 2**53):
        return shown(str(value), MAX_VALUE)
    return value


def pack(tables: Mapping[str, tuple[int, Mapping[str, Encoded]]], about: Any) -> str:
    """Pack tables as base64 of gzip.

    Args:
        tables: by name: the number of rows, and the columns by name.
        about: further contents of the header, as JSON.
    """
    parts: list[bytes] = []
    offset = 0
    header: dict[str, Any] = {"about": about, "tables": {}}
    for name, (rows, columns) in tables.items():
        described: dict[str, Any] = {}
        header["tables"][name] = {"rows": rows, "columns": described}
        for key, column in columns.items():
            data = column.to_bytes()
            described[key] = {**column.about, "offset": offset}
            parts.append(data)
            offset += len(data)
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    return b64encode(_gzip([len(text).to_bytes(4, "little"), text, *parts])).decode()


def _gzip(parts: Iterable[bytes]) -> bytes:
    """Compress the parts in gzip format, without a name and a time."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(part) for part in parts), packer.flush()])
