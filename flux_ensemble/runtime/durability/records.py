"""The ended jobs of an ensemble: those stored beside its snapshots, and those since.

    engine ──take──► chunk, as JSON, to storage ──after a crash──► chunk
                       └──► Records (compressed) ──jobs──► queries

Each chunk has the jobs between two snapshots, so those since the last one come back by replay.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.encoding import dumps
from flux_ensemble.engine import records
from flux_ensemble.engine.jobs import ActiveJob


class Records:
    """The record of the jobs of one ensemble."""

    def __init__(self) -> None:
        self._source = records.Records(0)
        self._chunks: list[bytes] = []
        #: Number of jobs before each chunk, and after the last one.
        self._ends = [0]

    def follow(self, source: records.Records) -> None:
        """Continue with an engine, which has the jobs since the last chunk."""
        source.keep()
        self._source = source

    def __len__(self) -> int:
        return self._ends[-1] + len(self._source.waiting)

    @property
    def waiting(self) -> Sequence[ActiveJob]:
        """The jobs since the last chunk."""
        return self._source.waiting

    def every(self) -> Iterator[ActiveJob]:
        """Yield all jobs, in the order in which they ended."""
        position = 0
        while jobs := self.jobs(position):
            yield from jobs
            position += len(jobs)

    def take(self) -> str | None:
        """Make a chunk of the jobs since the last one, as JSON text; return None without jobs."""
        jobs = self._source.take()
        if not jobs:
            return None
        chunk = dumps(records.encode(jobs))
        self._append(chunk, len(jobs))
        return chunk

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Add a chunk that an earlier process made.

        Raises:
            ValueError: the chunk is damaged.
        """
        try:
            self._append(dumps(chunk), len(chunk["id"]))
        except (LookupError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"the jobs beside the snapshot are damaged: {reason}") from error

    def _append(self, chunk: str, jobs: int) -> None:
        self._chunks.append(zlib.compress(chunk.encode(), 1))
        self._ends.append(self._ends[-1] + jobs)

    def before(self, position: int) -> Sequence[ActiveJob]:
        """Return some of the jobs before a position, in the order in which they ended.

        Returns:
            The last ones before it, at least one unless the position is 0.
        """
        number = max(bisect_left(self._ends, position) - 1, 0)
        begin = self._ends[number]
        return self.jobs(begin)[: position - begin] if position else ()

    def jobs(self, position: int) -> Sequence[ActiveJob]:
        """Return some of the jobs from a position on, in the order in which they ended.

        Returns:
            At least one job, unless the position is at the end.
        """
        number = bisect_right(self._ends, position) - 1
        begin = self._ends[number]
        if number == len(self._chunks):
            return self._source.waiting[position - begin :]
        return records.decode(json.loads(zlib.decompress(self._chunks[number])))[position - begin :]
