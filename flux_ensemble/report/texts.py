"""Texts of others, made safe for a page: bounded, and without control characters."""

from __future__ import annotations

from flux_ensemble.scalars import as_text, brief
from flux_ensemble.texts import clip, printable

#: Most characters of a value, of a line, and of a text of many lines.
MAX_VALUE = 200
MAX_LINE = 1000
MAX_TEXT = 200_000

#: Text for unknown values.
NOTHING = "\N{EN DASH}"


def shown(text: str, limit: int = MAX_LINE) -> str:
    r"""Return text with escapes for invisible characters, without its middle if it is long.

    >>> shown("a\x1b[31m\u202eb"), shown("a" * 30, 10)
    ('a\\x1b[31m\\u202eb', 'aaaaa ... 20 characters left out ... aaaaa')
    """
    return printable(clip(text, limit))


def plural(count: int, noun: str) -> str:
    """Return a number of things, in words.

    >>> plural(1, "job"), plural(12000, "job")
    ('1 job', '12,000 jobs')
    """
    return f"{count:,} {noun}{'s'[: count != 1]}"


def numbers(rows: int, replaced: int, noun: str) -> str:
    """Return the number of jobs, and that of the earlier attempts beside them.

    Args:
        rows: how many jobs and attempts there are.
        replaced: how many of them were interrupted, and their jobs ran again.
        noun: of the others.

    >>> numbers(33, 8, "job")
    '25 jobs and 8 earlier attempts'
    """
    jobs = plural(rows - replaced, noun)
    return f"{jobs} and {plural(replaced, 'earlier attempt')}" if replaced else jobs


def seconds(value: float | None) -> str:
    """Return a duration in common units.

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


def amount(value: float, noun: str, least: float | None = None) -> str:
    """Return what was used of something in a time, in hours unless that is little.

    Args:
        value: in seconds.
        noun: of what.
        least: the value for which the unit is chosen; default: `value`.

    >>> amount(7200 * 12.345, "core"), amount(3600, "node"), amount(90, "core"), amount(0.5, "GPU")
    ('24.7 core hours', '1 node hour', '1.5 core minutes', '0.5 GPU seconds')
    """
    chosen = value if least is None else least
    size, unit = (
        (3600, "hour") if chosen >= 3600 else (60, "minute") if chosen >= 60 else (1, "second")
    )
    many = value / size
    text = f"{many:,.0f}" if many >= 100 else f"{many:.3g}"
    return f"{text} {noun} {unit}{'s'[: text != '1']}"


def memory(megabytes: float) -> str:
    """Return an amount of memory.

    >>> memory(8.836), memory(208.888), memory(45678.9), memory(999.9)
    ('8.84 MB', '209 MB', '45.7 GB', '1 GB')
    """
    size, unit = (
        (1e6, "TB") if megabytes >= 999.5e3 else (1e3, "GB") if megabytes >= 999.5 else (1, "MB")
    )
    return f"{megabytes / size:.3g} {unit}"


def number(value: object) -> str:
    """Return a published value as text.

    >>> number(1234567), number(0.123456789), number("x")
    ('1234567', '0.123457', 'x')
    """
    return f"{value:.6g}" if type(value) is float else shown(as_text(value), MAX_VALUE)


def spelling(value: object) -> str:
    """Return the value of a parameter as text, in its spelling if that is short.

    >>> spelling(0.123456789), spelling(4.0), spelling("x")
    ('0.123457', '4.0', 'x')
    """
    return shown(brief(value), MAX_VALUE)
