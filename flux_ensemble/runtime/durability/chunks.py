"""What is stored beside the snapshots of an ensemble, a chunk for each: what no snapshot repeats.

A chunk has the values that streams took in since the snapshot before (`metrics.streams.Values`),
and the jobs that were gone since (`engine.records`), if there are any:

    {"format": n, "values": [[group, variable, [value, ...]], ...], "jobs": {...}}

Where all values of a row are multiples of a tick (`engine.events.TICKS`), as durations are, being
differences of times, they are integers, and the row has how many ticks are one besides. To write an
integer takes a tenth of the time that another number does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from flux_ensemble.encoding import dumps
from flux_ensemble.engine.events import TICKS
from flux_ensemble.metrics.streams import Values
from flux_ensemble.runtime.durability.format import FORMAT, KEY, check_format
from flux_ensemble.runtime.durability.records import Records

#: A chunk as JSON.
Beside = Values | Mapping[str, Any]


def beside(values: Values, jobs: str | None) -> str:
    """A chunk as JSON text; the jobs are that already."""
    text = dumps([_in_ticks(*row) for row in values])
    record = "" if jobs is None else f',"jobs":{jobs}'
    return f'{{"{KEY}":{FORMAT},"values":{text}{record}}}'


def sorted_out(chunks: Iterable[Beside], records: Records) -> Iterator[Values]:
    """The values of chunks; their jobs are added to a record.

    Raises:
        ValueError: a chunk is damaged.
    """
    for chunk in chunks:
        # One of format 1 that has no jobs is a list.
        if isinstance(chunk, Mapping):
            check_format(chunk, "what is beside the snapshot")
            if "jobs" in chunk:
                records.add(chunk["jobs"])
            chunk = chunk["values"]
        yield [_as_taken(*row) for row in chunk]


def _in_ticks(group: str, variable: str, values: list[Any]) -> list[Any]:
    """A row as it is written.

    >>> _in_ticks("a", "duration", [0.5, 2.0]), _in_ticks("a", "x", [0.1])
    (['a', 'duration', [2097152, 8388608], 4194304], ['a', 'x', [0.1]])
    """
    if set(map(type, values)) == {float}:
        many = [value * TICKS for value in values]
        # Of the largest numbers so many are infinite.
        ticks = list(map(int, many)) if all(map(isfinite, many)) else []
        # Zero has a sign.
        if ticks == many and (0 not in ticks or "-0.0" not in map(repr, values)):
            return [group, variable, ticks, TICKS]
    return [group, variable, values]


def _as_taken(group: str, variable: str, values: list[Any], unit: int = 0) -> list[Any]:
    """A row as it was before.

    >>> _as_taken("a", "duration", [2097152], 4194304), _as_taken("a", "x", [0.1])
    (['a', 'duration', [0.5]], ['a', 'x', [0.1]])
    """
    return [group, variable, [value / unit for value in values] if unit else values]
