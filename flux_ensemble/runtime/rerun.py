"""The choice of the jobs that a user has run again (`engine.reruns`), from the record of jobs.

A job is chosen by its last attempt: one that was followed by another one, by `retries`, after an
interruption or by a rerun, is none, unless the later one was dropped before it was sent. Copies of
a job are attempts of it, of which one success is enough. The record can be long, so a choice
consists of steps, as a query for jobs does (`job_query`).
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from flux_ensemble.document.model import RETRY_RULE
from flux_ensemble.encoding import dumps
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.metrics.job_filter import compile_filter
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.job_query import STEP

#: The outcomes that count as failures (`Core.failed`).
_FAILED = ("failed", "timeout")

#: The firing that first submitted a job, as text, and its index.
_Work = tuple[str, int]


class _Attempt(NamedTuple):
    """An attempt, with its position in the record and its `ActiveJob.replaced`."""

    firing: Firing
    outcome: str
    position: int
    replaced: int | None

    @classmethod
    def of(cls, job: ActiveJob, position: int) -> _Attempt:
        assert job.firing is not None
        return cls(job.firing, job.outcome or "", position, job.replaced)


class Choice:
    """A choice of jobs to run again.

    Args:
        engine: of the ensemble.
        records: has the jobs that have ended.
        describer: describes them, for the filter.
        filter: an expression, as for `jobs`: only jobs that match; None: those that did not
            succeed, and those that were never sent.
        failed: only jobs that failed or ran out of time.

    Attributes:
        over: there are no more steps.
        unsent: the jobs that were never sent are among those that run.

    Raises:
        RequestError: the filter is wrong, or no record of the jobs is kept.
    """

    def __init__(
        self,
        engine: Engine,
        records: Records,
        describer: Describer,
        filter: str | None,
        *,
        failed: bool,
    ) -> None:
        if not engine.records.kept:
            reason = f"ensemble {engine.spec.name!r} keeps no record of its jobs (records: false)"
            raise RequestError(errno.EINVAL, reason)
        self._engine = engine
        self._records = records
        self._describer = describer
        self._matches = _matches(filter, failed=failed)
        self.unsent = filter is None and not failed
        self._position = 0
        #: The last attempts of the jobs that run, and their positions in the record.
        self._chosen: dict[_Work, tuple[ActiveJob, int]] = {}
        #: All attempts of jobs with copies, which a second look finds.
        self._copied: dict[_Work, list[_Attempt]] = {}
        #: The attempt before, by the number of the retry that ran it again.
        self._before: dict[int, _Attempt] = {}
        #: The numbers of the retries that are in the record.
        self._retries: set[int] = set()
        self._take = self._choose
        self._trials = 0
        self.over = False

    @classmethod
    def asked(
        cls, engine: Engine, records: Records, describer: Describer, payload: Mapping[str, Any]
    ) -> Choice:
        """Return the choice of a request `rerun` (docs/rpc.md)."""
        filter, failed = payload.get("filter"), payload.get("failed", False)
        if failed and filter is not None:
            reason = "ensemble.rerun: failed and filter choose jobs in two ways: give one of them"
            raise RequestError(errno.EINVAL, reason)
        return cls(engine, records, describer, filter, failed=failed)

    def step(self, now: float) -> None:
        """Examine some more jobs; `now` is the time."""
        records, left = self._records, STEP
        while left > 0 and not self.over:
            jobs = records.jobs(self._position)[:left]
            for job in jobs:
                self._take(job, now)
                self._position += 1
            left -= len(jobs)
            if not jobs:
                self._position = 0
                self.over = not self._copied or self._take == self._settle
                self._take = self._settle
                if self.over:
                    self._leave_last()

    def all(self, now: float) -> None:
        """Take all steps."""
        while not self.over:
            self.step(now)

    def _choose(self, job: ActiveJob, now: float) -> None:
        firing = job.firing
        assert firing is not None
        if firing.work is not None:
            self._copied[_work(firing, job.index)] = []
        if firing.rule == RETRY_RULE:
            self._retries.add(firing.number)
        if (later := job.followed if job.replaced is None else job.replaced) is not None:
            self._before[later] = _Attempt.of(job, self._position)
        if self._matches(job, lambda: self._describer.describe(job, now)):
            self._chosen[_work(firing, job.index)] = job, self._position

    def _settle(self, job: ActiveJob, now: float) -> None:
        """Drop a job with copies if another attempt of it has succeeded, or ran again."""
        firing = job.firing
        assert firing is not None
        work = _work(firing, job.index)
        if work in self._copied:
            self._copied[work].append(_Attempt.of(job, self._position))
            chosen = self._chosen.get(work)
            done = job.outcome == "success" or self._later(job) in self._retries
            if done and chosen is not None and chosen[0].id != job.id:
                del self._chosen[work]

    def _leave_last(self) -> None:
        """Drop attempts that were followed by another one, and those of trials."""
        firings = self._engine.workload.firings
        retries = {
            firing.number
            for firing in firings
            if firing.rule == RETRY_RULE and (firing.waiting or firing.unseen or firing.live)
        }
        retries |= self._retries
        for work, (job, _) in list(self._chosen.items()):
            assert job.firing is not None
            later = self._later(job)
            # The record is full: a later attempt that it does not have may have run.
            unknown = later is not None and self._engine.records.dropped > 0
            followed = later in retries or unknown
            if followed or job.firing.trial is not None:
                self._trials += not followed
                del self._chosen[work]

    def _later(self, job: ActiveJob) -> int | None:
        """Return the number of the last retry that was to run a job again; None without one."""
        if (again := self._rerun(job)) is not None:
            return again
        return job.followed if job.replaced is None else job.replaced

    def _rerun(self, job: ActiveJob) -> int | None:
        firing = job.firing
        assert firing is not None
        return self._engine.rerun.get((firing.rule, firing.number, job.index))

    def firings(self) -> list[dict[str, Any]]:
        """Return the jobs in the form of `engine.reruns`."""
        by_firing: dict[tuple[str, int], dict[str, Any]] = {}
        for work, (job, position) in sorted(self._chosen.items()):
            firing = job.firing
            assert firing is not None
            key = firing.rule, firing.number
            if key not in by_firing:
                value = {"rule": firing.rule, "firing": firing.number, "group": firing.group}
                for name in ("each", "params", "overrides"):
                    if getattr(firing, name) is not None:
                        value[name] = getattr(firing, name)
                by_firing[key] = {**value, "jobs": [], "rows": []}
            failed = job.outcome in _FAILED and self._later(job) is None
            counted = int(failed), int(job.gave_up)
            others = list(self._others(firing, work))
            names = [[one.firing.rule, one.firing.number, one.outcome] for one in others]
            by_firing[key]["jobs"].append(
                [job.index, job.id, job.outcome, *counted, self._rerun(job), *names]
            )
            attempts = (_Attempt.of(job, position), *others)
            by_firing[key]["rows"].append([[one.position, one.replaced] for one in attempts])
        # As the log will have it, from which it is read again.
        plain: list[dict[str, Any]] = json.loads(dumps(list(by_firing.values())))
        return plain

    def _others(self, firing: Firing, work: _Work) -> Iterator[_Attempt]:
        """Yield the other attempts of a job: earlier ones, and copies."""
        for one in self._copied.get(work, ()):
            if (one.firing.rule, one.firing.number) != (firing.rule, firing.number):
                yield one
        while firing.rule == RETRY_RULE and (before := self._before.get(firing.number)):
            yield before
            firing = before.firing

    def report(self) -> dict[str, Any]:
        """Return how many jobs there are, by their outcomes, and what was left out, as JSON."""
        outcomes = Counter(job.outcome or "" for job, _ in self._chosen.values())
        unsent = sum(rest.waiting for rest in self._engine.left()) if self.unsent else 0
        report: dict[str, Any] = {"jobs": len(self._chosen) + unsent, "outcomes": dict(outcomes)}
        if unsent:
            report["unsent"] = unsent
        if self._trials:
            report["trials"] = self._trials
        if dropped := self._engine.records.dropped:
            report["dropped"] = dropped
        return report


def _work(firing: Firing, index: int) -> _Work:
    return firing.work or f"{firing.rule}:{firing.number}", index


def _matches(
    text: str | None, *, failed: bool
) -> Callable[[ActiveJob, Callable[[], JobRow]], bool]:
    if failed:
        return lambda job, row: job.outcome in _FAILED
    if text is None:
        return lambda job, row: job.outcome != "success"
    try:
        matches: Callable[[Mapping[str, Any]], bool] = compile_filter(text)
    except ValueError as error:
        raise RequestError(errno.EINVAL, f"ensemble.rerun: filter: {error}") from None
    return lambda job, row: matches(row())
