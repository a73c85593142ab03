"""Queries for jobs of an ensemble: in its record, and then among the active jobs.

A record can be long, so a query consists of steps, between which the service does other work. A
query can go on where another one stopped: the record only grows at its end. A query for the last
jobs begins that far from the end, and reads nothing before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.runtime.durability.records import Records

#: Jobs that a step examines, and jobs of the record that a query examines.
STEP = 200
MOST = 25_000

#: Jobs that a query finds, unless another number is requested; most of the last jobs.
COUNT = 1000
MOST_LAST = 10_000


class JobQuery:
    """A query for jobs.

    Args:
        engine: has the active jobs.
        records: has the ended jobs.
        describer: describes both.
        matches: returns whether a described job is to be found.
        group, outcome: find only jobs of the group, or with the outcome.
        after: number of jobs of the record that are skipped.
        count: most jobs of the record that are found.

    Attributes:
        over: there are no more steps.
        next: if it is over, the `after` of a query that goes on; None if this one has examined
            all jobs, the active ones last.
    """

    def __init__(
        self,
        engine: Engine,
        records: Records,
        describer: Describer,
        *,
        matches: Callable[[JobRow], bool],
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
        #: The number of the last jobs to find; None for all.
        self._page: int | None = None
        self._last = after + MOST
        self._gone: Iterator[ActiveJob] = iter(())
        self._active: Iterator[ActiveJob] | None = None
        self.over = False
        self.next: int | None = after
        self._total = 0

    @classmethod
    def of_last(cls, last: int, engine: Engine, records: Records, describer: Describer) -> Self:
        """Return a query for the last jobs.

        Args:
            last: number of jobs; there are more if jobs end meanwhile.
            engine, records, describer: as for the class.
        """
        everything = len(records) + len(engine.workload.active())
        query = cls(
            engine,
            records,
            describer,
            matches=lambda _: True,
            after=min(max(everything - last, 0), len(records)),
            count=MOST,
        )
        query._page = last
        return query

    @property
    def total(self) -> int | None:
        """The number of jobs when the query was over; None if attempts have run again.

        Only who reads all attempts knows which of them count.
        """
        ran_again = self._engine.interrupted or self._engine.rerun
        return None if ran_again else self._total

    def step(self, now: float) -> list[JobRow]:
        """Examine some more jobs, and return those found; `now` is the time."""
        found: list[JobRow] = []
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
        """Return the next job; None if the query is over."""
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
            # Listed at once, so that a job that ends later is not looked for in the record, too.
            active = list(self._engine.workload.active())
            self._total = self.next + len(active)
            if self._page is not None:
                active = active[max(self._total - self._page - self.next, 0) :]
            self._active = iter(active)
            self.next = None
        job = next(self._active, None)
        self.over = job is None
        return job
