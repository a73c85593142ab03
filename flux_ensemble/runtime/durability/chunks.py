"""Chunks that are stored beside the snapshots of an ensemble, with data that only grow.

There is a chunk for each snapshot. It has the values that streams took in since the previous
snapshot (`metrics.streams.Values`), and the jobs that ended since (`engine.records`), if any:

    {"format": n, "by": version, "values": [[group, variable, [value, ...]], ...], "jobs": {...}}

If all values of a row are multiples of a tick (`engine.events.TICKS`), as durations are, being
differences of times, the row has them as integers, followed by the number of ticks in one. Writing
an integer takes a tenth of the time that another number takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from flux_ensemble.encoding import dumps
from flux_ensemble.engine.events import TICKS
from flux_ensemble.metrics.streams import Values
from flux_ensemble.runtime.durability.format import NUMBERED, check_format
from flux_ensemble.runtime.durability.records import Records

#: A chunk as JSON.
Beside = Values | Mapping[str, Any]


def beside(values: Values, jobs: str | None) -> str:
    """Return a chunk as JSON text; `jobs` are JSON text already."""
    text = dumps([_in_ticks(*row) for row in values])
    record = "" if jobs is None else f',"jobs":{jobs}'
    return f'{{{NUMBERED},"values":{text}{record}}}'


def sorted_out(chunks: Iterable[Beside], records: Records) -> Iterator[Values]:
    """Yield the values of chunks, and add their jobs to a record.

    Raises:
        ValueError: a chunk is damaged.
    """
    for chunk in chunks:
        # A chunk of format 1 without jobs is a list.
        if isinstance(chunk, Mapping):
            check_format(chunk, "what is beside the snapshot")
            if "jobs" in chunk:
                records.add(chunk["jobs"])
            chunk = chunk["values"]
        yield [_as_taken(*row) for row in chunk]


def _in_ticks(group: str, variable: str, values: list[Any]) -> list[Any]:
    """Return a row in its written form.

    >>> _in_ticks("a", "duration", [0.5, 2.0]), _in_ticks("a", "x", [0.1])
    (['a', 'duration', [2097152, 8388608], 4194304], ['a', 'x', [0.1]])
    """
    if set(map(type, values)) == {float}:
        many = [value * TICKS for value in values]
        # Very large numbers times TICKS are infinite.
        ticks = list(map(int, many)) if all(map(isfinite, many)) else []
        # An integer would lose the sign of a negative zero.
        if ticks == many and (0 not in ticks or "-0.0" not in map(repr, values)):
            return [group, variable, ticks, TICKS]
    return [group, variable, values]


def _as_taken(group: str, variable: str, values: list[Any], unit: int = 0) -> list[Any]:
    """Return a row in its original form.

    >>> _as_taken("a", "duration", [2097152], 4194304), _as_taken("a", "x", [0.1])
    (['a', 'duration', [0.5]], ['a', 'x', [0.1]])
    """
    return [group, variable, [value / unit for value in values] if unit else values]
