"""Queries for jobs of an ensemble: in its record, and then among the active jobs.

A record can be long, so a query consists of steps, between which the service does other work. A
query can go on where another one stopped: the record only grows at its end.

A query for the last jobs reads the record from its end, until it has as many as are asked for:

    the record, backwards ──► and on to its present end ──► active jobs ──► attempts to run again

It finds what reading all does (`client.tables`): an attempt whose job runs again is left out if
there is one of the retry that was to run it, else it stands last. How many there are in all, and
which stand last, is in `engine.attempts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flux_ensemble.engine.attempts import replaced_by
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.runtime.durability.records import Records

#: Jobs that a step examines, and jobs of the record that a query examines.
STEP = 200
MOST = 25_000

#: Jobs that a query finds, unless another number is requested.
COUNT = 1000


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
        self._last = after + MOST
        self._gone: Iterator[ActiveJob] = iter(())
        self._active: Iterator[ActiveJob] | None = None
        self.over = False
        self.next: int | None = after

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
            self._active = iter(list(self._engine.workload.active()))
            self.next = None
        job = next(self._active, None)
        self.over = job is None
        return job


class LastJobs:
    """A query for the last jobs.

    Args:
        engine, records, describer: as for `JobQuery`.
        last: number of jobs; there are more if jobs end meanwhile.
        every: find all attempts, as `JobQuery` does.
        guest: leave out each attempt whose job runs again: guests are not told what came after.

    Attributes:
        over, next: as for `JobQuery`; `next` is None.
        total: once it is over, how many jobs there are in all; None if only who reads all attempts
            knows which of them are left out.
        left_out: how many attempts are left out.
    """

    def __init__(
        self,
        engine: Engine,
        records: Records,
        describer: Describer,
        last: int,
        *,
        every: bool = False,
        guest: bool = False,
    ) -> None:
        self._engine = engine
        self._records = records
        self._describer = describer
        self._last = last
        self._every = every
        self._guest = guest
        self._steps = self._read() if every or self._known else iter(())
        self.over = False
        self.next: int | None = None
        self.total: int | None = None
        self.left_out = 0

    def step(self, now: float) -> list[JobRow]:
        """Do as `JobQuery.step`."""
        found = next(self._steps, None)
        self.over = found is None
        return [self._describer.describe(job, now) for job in found or ()]

    @property
    def _known(self) -> bool:
        """True if it is known which attempts of this record run again."""
        of_engine = self._engine.records
        return of_engine.attempts.known and of_engine.total == len(self._records)

    def _read(self) -> Iterator[Sequence[ActiveJob]]:
        """Yield the jobs that a step finds; one step reads one chunk of the record."""
        records, rerun = self._records, self._engine.rerun
        reruns, begin = len(rerun), len(records)
        end = begin
        active, last, _ = self._besides()
        wanted = self._last - len(active) - len(last)
        pages: list[list[ActiveJob]] = []
        while wanted > 0 and begin > 0:
            jobs = records.before(begin)
            begin -= len(jobs)
            pages.append([job for job in jobs if self._shows(job)][-wanted:])
            wanted -= len(pages[-1])
            yield ()
        for page in reversed(pages):
            yield from _steps_of(page)
        while jobs := records.jobs(end)[:STEP]:
            end += len(jobs)
            yield [job for job in jobs if self._shows(job)]
        # From here on it is the present state, in which jobs may have ended since.
        active, last, number = self._besides()
        if len(rerun) != reruns:
            # What was found has run again meanwhile.
            return
        self.left_out = number - len(last)
        self.total = len(records) + len(self._engine.workload.active()) - self.left_out
        yield from _steps_of(active[max(len(active) + len(last) - self._last, 0) :])
        yield from self._at(last[-self._last :])

    def _shows(self, job: ActiveJob) -> bool:
        return self._every or replaced_by(job, self._engine.rerun) is None

    def _besides(self) -> tuple[list[ActiveJob], list[int | ActiveJob], int]:
        """Return what there is besides the record: see `ReplacedAttempts.now`."""
        active = self._engine.workload.active()
        if self._every:
            return list(active), [], 0
        shown, last, number = self._engine.records.attempts.now(active, self._engine.rerun)
        return shown, [] if self._guest else last, number

    def _at(self, attempts: Sequence[int | ActiveJob]) -> Iterator[Sequence[ActiveJob]]:
        """Yield attempts, which are active jobs or positions in the record."""
        begin = 0
        jobs: Sequence[ActiveJob] = ()
        found: list[ActiveJob] = []
        for attempt in attempts:
            if isinstance(attempt, ActiveJob):
                found.append(attempt)
                continue
            if len(found) >= STEP or not begin <= attempt < begin + len(jobs):
                yield found
                found = []
            if not begin <= attempt < begin + len(jobs):
                begin, jobs = attempt, self._records.jobs(attempt)
            found.append(jobs[attempt - begin])
        yield found


def _steps_of(jobs: Sequence[ActiveJob]) -> Iterator[Sequence[ActiveJob]]:
    for begin in range(0, len(jobs), STEP):
        yield jobs[begin : begin + STEP]
