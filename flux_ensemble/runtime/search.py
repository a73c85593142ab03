"""Looks for jobs of an ensemble: in its record, and then among those that are active.

A record can be long, so a search is made of steps, between which the service does other things.
Where it stops, another one can go on: the record only grows at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flux_ensemble.engine.describe import Describer
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.runtime.durability.records import Records

#: Jobs that a step looks at, and those of the record that a search does.
STEP = 200
MOST = 25_000

#: Jobs that a search finds, unless it is asked for another number.
COUNT = 1000

Found = dict[str, Any]


class Search:
    """One search.

    Args:
        engine: has the active jobs.
        records: has those that are gone.
        describer: describes both.
        matches: whether a job that was described is looked for.
        group, outcome: look only for jobs of the group, or with the outcome.
        after: of the record, so many jobs are left out.
        count: jobs of the record that it finds at most.

    Attributes:
        over: there are no more steps.
        next: if it is over, the `after` of a search that goes on; None if this one has seen all
            jobs, the active ones last.
    """

    def __init__(
        self,
        engine: Engine,
        records: Records,
        describer: Describer,
        *,
        matches: Callable[[Found], bool],
        group: str | None = None,
        outcome: str | None = None,
        after: int = 0,
        count: int = COUNT,
    ) -> None:
        self._engine = engine
        self._records = records
        self._describer = describer
        self._matches = matches
        self._group = group
        self._outcome = outcome
        self._left = count
        self._last = after + MOST
        self._gone: Iterator[ActiveJob] = iter(())
        self._active: Iterator[ActiveJob] | None = None
        self.over = False
        self.next: int | None = after

    def step(self, now: float) -> list[Found]:
        """Look at some jobs more; `now` is the time."""
        found: list[Found] = []
        for _ in range(STEP):
            job = self._take()
            if job is None:
                break
            if self._group is not None and job.group != self._group:
                continue
            if self._outcome is not None and job.outcome != self._outcome:
                continue
            described = self._describer.describe(job, now)
            if self._matches(described):
                found.append(described)
                self._left -= 1
        return found

    def _take(self) -> ActiveJob | None:
        """The next job; None if the search is over."""
        if self._active is None:
            assert self.next is not None
            if self._left <= 0 or self.next >= self._last:
                self.over = True
                return None
            job = next(self._gone, None)
            if job is None:
                self._gone = iter(self._records.jobs(self.next))
                job = next(self._gone, None)
            if job is not None:
                self.next += 1
                return job
            # All at once: what is gone later is not looked for in the record too.
            self._active = iter(list(self._engine.workload.active()))
            self.next = None
        job = next(self._active, None)
        self.over = job is None
        return job
