"""Tables without Flux: the part of Flux's OutputFormat that the tables need.

A format is text with `{FIELD}` in it. `+:` before a field widens it to its values, and `?:` leaves
it out if it is empty in every row; `?+:` does both. `!F` prints seconds as a duration and `!D` a
time. An `h` at the end of a width prints a hyphen for empty values (flux-jobs(1)).
`sort:KEY,-KEY` in front sorts the rows, in descending order after a hyphen; empty values come
first, then numbers, then text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from string import Formatter
from typing import Any

import click

_SENTINELS = ("?+:", "+:", "?:")


def fsd(seconds: float) -> str:
    """Return a duration (RFC 23), as Flux prints it from a millisecond up: "1.500s", "2.25m"."""
    if math.isinf(seconds):
        return "inf"
    if seconds < 0.001:
        return f"{seconds * 1000:.3f}ms" if seconds >= 1e-6 else "0s"
    if seconds < 10:
        return f"{seconds:.3f}s"
    for unit, size, below in (("s", 1, 60), ("m", 60, 3600), ("h", 3600, 86400)):
        if seconds < below:
            return f"{seconds / size:.4g}{unit}"
    return f"{seconds / 86400:.4g}d"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%FT%T") if seconds else ""


_CONVERSIONS: Mapping[str | None, Callable[[Any], Any]] = {
    None: lambda value: value,
    "F": fsd,
    "D": _date,
}


#: The layout of a field, and the format of a number in it: ">10" and ".6f" of ">10.6f".
_NUMBER = re.compile(r"(.*?)((?:\.\d+)?[deEfFgGn%])")

#: Sort keys, in front of a format.
_SORT = re.compile(r"sort:([^{\s]+) ?")


def _sorted(
    text: str, headings: Mapping[str, str], rows: list[Mapping[str, Any]]
) -> tuple[str, list[Mapping[str, Any]]]:
    """Return a format without its sort keys, and the rows in their order.

    Raises:
        ValueError: a key is no field.
    """
    found = _SORT.match(text)
    if found is None:
        return text, rows
    for key in reversed(found[1].split(",")):
        name = key.removeprefix("-")
        if name not in headings:
            raise ValueError(f"Unknown format field: {name}")
        rows = sorted(rows, key=lambda row: _place(row[name]), reverse=key.startswith("-"))
    return text[found.end() :], rows


def _place(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a value."""
    if value in ("", None):
        return 0, 0.0, ""
    try:
        return 1, float(value), ""
    except (TypeError, ValueError):
        return 2, 0.0, str(value)


def _split(width: str) -> tuple[str, str]:
    """Return the layout of a field, and the format of a number in it, which may be empty."""
    found = _NUMBER.fullmatch(width)
    if found is None:
        return width, ""
    layout, number = found.groups()
    # By default, numbers are aligned to the right.
    return (f">{layout}" if layout[:1].isdigit() else layout), number


def _written(value: Any, number: str) -> str:
    return f"{value:{number}}" if isinstance(value, (int, float)) else str(value)


def print_rows(
    text: str,
    headings: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]],
    *,
    no_header: bool = False,
) -> None:
    """Print rows in a format.

    Args:
        text: the format.
        headings: of each field.
        rows: a value for each field.
        no_header: leave out the line of headings.

    Raises:
        ValueError: the format is invalid, or names an unknown field.
    """
    text, rows = _sorted(text, headings, list(rows))
    columns: list[list[str]] = []
    for literal, field, width, conversion in Formatter().parse(text):
        sentinel = next((one for one in _SENTINELS if literal.endswith(one)), "")
        literal = literal.removesuffix(sentinel)
        if field is None:
            columns.append([literal] * (len(rows) + 1))
            continue
        if field not in headings:
            raise ValueError(f"Unknown format field: {field}")
        if conversion not in _CONVERSIONS:
            raise ValueError(f"Unknown conversion: !{conversion}")
        convert = _CONVERSIONS[conversion]
        width, number = _split(width or "")
        values = ["" if row[field] == "" else _written(convert(row[field]), number) for row in rows]
        if "?" in sentinel and not any(values):
            continue
        if width.endswith("h"):
            width = width[:-1]
            values = [value or "-" for value in values]
        cells = [headings[field], *values]
        if "+" in sentinel:
            longest = max(map(len, cells))
            width = f"{width[:1]}{max(longest, int(width[1:] or 0))}"
        columns.append([f"{literal}{cell:{width}}" for cell in cells])
    lines = ["".join(cells) for cells in zip(*columns, strict=True)]
    for line in lines[1:] if no_header else lines:
        click.echo(line)
