"""Texts of others, made fit for a page: bounded, and without what would steer it."""

from __future__ import annotations

from flux_ensemble.scalars import as_text
from flux_ensemble.texts import clip, printable

#: Most characters of a value, of a line, and of a text of many lines.
MAX_VALUE = 200
MAX_LINE = 1000
MAX_TEXT = 200_000

#: Stands for what is not known.
NOTHING = "\N{EN DASH}"


def shown(text: str, limit: int = MAX_LINE) -> str:
    r"""Text with what cannot be seen as escapes, and without its middle where it is long.

    >>> shown("a\x1b[31m\u202eb"), shown("a" * 30, 10)
    ('a\\x1b[31m\\u202eb', 'aaaaa ... 20 characters left out ... aaaaa')
    """
    return printable(clip(text, limit))


def plural(count: int, noun: str) -> str:
    """A number of things.

    >>> plural(1, "job"), plural(12000, "job")
    ('1 job', '12,000 jobs')
    """
    return f"{count:,} {noun}{'s'[: count != 1]}"


def seconds(value: float | None) -> str:
    """A duration in the units that people use.

    >>> [seconds(value) for value in (0, 0.0123, 4.5, 75.3, 3725, 200000)]
    ['0s', '12.3ms', '4.5s', '1m 15s', '1h 2m', '2d 7h']
    """
    if value is None or value != value:
        return NOTHING
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 1:
        return f"{1000 * value:.3g}ms" if value else "0s"
    if value < 59.5:
        return f"{value:.3g}s"
    left, parts = round(value), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number}{unit}" if number else "")
    return " ".join(filter(None, parts[:2]))


def number(value: object) -> str:
    """A value of a parameter or a memo.

    >>> number(1234567), number(0.123456789), number("x")
    ('1234567', '0.123457', 'x')
    """
    return f"{value:.6g}" if type(value) is float else shown(as_text(value), MAX_VALUE)
