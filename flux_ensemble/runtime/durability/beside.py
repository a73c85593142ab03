"""What is stored beside the snapshots of an ensemble, a chunk for each: what no snapshot repeats.

A chunk has the values that streams took in since the snapshot before (`metrics.streams.Values`),
and the jobs that were gone since (`engine.records`), if there are any:

    [[group, variable, [value, ...]], ...]    or    {"values": [...], "jobs": {...}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble.encoding import dumps
from flux_ensemble.metrics.streams import Values
from flux_ensemble.runtime.durability.records import Records

#: A chunk as JSON.
Beside = Values | Mapping[str, Any]


def beside(values: Values, jobs: str | None) -> str:
    """A chunk as JSON text; the jobs are that already."""
    text = dumps(values)
    return text if jobs is None else f'{{"values":{text},"jobs":{jobs}}}'


def sorted_out(chunks: Iterable[Beside], records: Records) -> Iterator[Values]:
    """The values of chunks; their jobs are added to a record.

    Raises:
        ValueError: a chunk is damaged.
    """
    for chunk in chunks:
        if isinstance(chunk, Mapping):
            records.add(chunk["jobs"])
            yield chunk["values"]
        else:
            yield chunk
