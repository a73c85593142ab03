"""Copies: a second job does the same work beside the first, and the first success counts.

A piece of work is the job of one index of one firing. While it has a copy it is in this table, with
the number of its jobs that are not over, and whether one of them has succeeded. Then

- the first success counts, and the other jobs are cancelled;
- later outcomes are not outcomes of the work: the other jobs are `canceled`, even one that succeeds
  before it is cancelled;
- a job that fails while another one continues does not run again, and is not finished: the other
  one is its further attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.feature import Feature, JobHooks, Standing
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import members_of
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Call, Origin
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.engine.trigger_queue import TriggerQueue

#: The reason for the cancellation of the other jobs of a piece of work after the first success.
NOT_NEEDED = "another job that does the same has succeeded"

#: A piece of work: the firing that first submitted it, as text, and the index of the job.
Key = tuple[str, int]


class Work:
    """A piece of work that has a copy.

    Args:
        left: the number of its jobs that are not over.
        won: True if one of them has succeeded.
        jobs: the ids of those that have appeared in the queue.
        firing: the key of the firing that submitted the copy.
    """

    def __init__(self, left: int, won: bool, jobs: list[int], firing: tuple[str, int]) -> None:
        self.left = left
        self.won = won
        self.jobs = jobs
        self.firing = firing


def feature(core: Core, sending: Submitter) -> Feature:
    """Return the feature for an engine.

    Args:
        core: the engine's core.
        sending: submits jobs.
    """
    copies = Copies(core, sending)
    return Feature(
        "copies",
        actions={"copy": copies.copy},
        fields={"copied": copies.copied},
        quiet=frozenset({NOT_NEEDED}),
        dump=copies.dump,
        load=copies.load,
    )


class Copies:
    """The pieces of work of one engine that have copies.

    While there are any, they follow the engine's jobs.
    """

    def __init__(self, core: Core, sending: Submitter) -> None:
        self._core = core
        self._sending = sending
        self._works: dict[Key, Work] = {}
        self._hooks = JobHooks(
            admitted=self._appeared,
            judged=self._judge,
            concluded=self._concluded,
            given_up=self._given_up,
            refused=self._refused,
            continues=self._continues,
            links=True,
        )

    def copied(self, job: ActiveJob) -> bool:
        """Return whether the work that a job of the ensemble does has a copy."""
        return self._of(job) is not None

    def _of(self, job: ActiveJob) -> Work | None:
        return None if job.firing is None else self._works.get(key_of(job.firing, job.index))

    # -- copying --------------------------------------------------------------------

    def copy(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        """Submit a copy of the triggering job, which runs beside it."""
        job = self._core.workload.jobs.get(call.event["job"])
        reason = self._copy(job, origin) if job is not None else "the job has ended"
        if reason is not None:
            self._core.outcome(origin, jobs=0, reason=reason)
        return ()

    def _copy(self, job: ActiveJob, origin: Origin) -> str | None:
        """Submit a copy of a job; return the reason why there is none, else None."""
        core, firing = self._core, job.firing
        if firing is None or not job.may_be_canceled or job.evicted:
            return "the job has ended, or is about to"
        if firing.trial is not None:
            return "the job is a trial of a search"
        if firing.bound:
            return "the job is bound to its member"
        if self.copied(job):
            return "the job has a copy, or is one"
        if core.workload.total >= core.spec.limits.jobs:
            return f"limits.jobs is {core.spec.limits.jobs}"
        if not self._works:
            core.hooks.follow(self._hooks)
        key = key_of(firing, job.index)
        self._works[key] = Work(2, False, [job.id], (origin.rule, origin.number))
        copy = Firing(
            origin.rule,
            origin.number,
            firing.group,
            job.index,
            job.index + 1,
            firing.each,
            firing.params,
            firing.attempt,
            origin.request,
            firing.overrides,
            work=key[0],
            avoid=members_of(job.id),
            failed_on=self._sending.places_off(job),
        )
        self._sending.ask_for(copy, origin)
        return None

    def _cancel_others(self, job: ActiveJob, work: Work) -> None:
        """Cancel or drop the other jobs of a piece of work, of which a job has succeeded."""
        core, origin = self._core, Origin(*work.firing)
        copy = core.workload.firings.get(*work.firing)
        if copy is not None and not copy.cancel_unseen:
            copy.cancel_unseen = True
            if core.workload.drop(copy):
                self._over(copy, job.index)
        for id in work.jobs:
            other = core.workload.jobs.get(id)
            if other is not None and other is not job and other.may_be_canceled:
                other.canceling = True
                core.cancel((id,), NOT_NEEDED, origin)

    # -- hooks ------------------------------------------------------------------------

    def _appeared(self, job: ActiveJob) -> None:
        work = self._of(job)
        if work is not None:
            work.jobs.append(job.id)

    def _judge(self, job: ActiveJob) -> None:
        """Set the outcome of a job to canceled if another job of its work has succeeded before."""
        work = self._of(job)
        if work is not None and work.won:
            job.outcome, job.interrupted = "canceled", False

    def _concluded(self, job: ActiveJob) -> Standing | None:
        assert job.firing is not None
        won = job.outcome == "success"
        work = self._over(job.firing, job.index, won=won)
        if work is None:
            return None
        if won:
            self._cancel_others(job, work)
            return None
        if work.won:
            return Standing.DECIDED
        return Standing.CONTINUES if work.left else None

    def _given_up(self, firing: Firing) -> int:
        finished = 0
        for index in range(firing.next, firing.stop):
            work = self._over(firing, index)
            finished += work is not None and not (work.left or work.won)
        return finished

    def _refused(self, firing: Firing) -> None:
        if firing.work is not None:
            self._over(firing, firing.first)

    def _continues(self, job: ActiveJob) -> bool:
        work = self._of(job)
        return work is not None and work.left > 1

    def _over(self, firing: Firing, index: int, *, won: bool = False) -> Work | None:
        """Count a job that is over, or will never be sent.

        Args:
            firing, index: firing and index of the job.
            won: the job is the first of its work that has succeeded.

        Returns:
            The job's work, updated; None if it has no copy.
        """
        key = key_of(firing, index)
        work = self._works.get(key)
        if work is not None:
            work.left -= 1
            work.won |= won
            if not work.left:
                del self._works[key]
                if not self._works:
                    self._core.hooks.leave(self._hooks)
        return work

    # -- snapshots ----------------------------------------------------------------------

    def dump(self) -> list[list[Any]] | None:
        """Return the table as JSON; None if it is empty."""
        return [
            [*key, work.left, work.won, work.jobs, *work.firing]
            for key, work in self._works.items()
        ] or None

    def load(self, value: Iterable[list[Any]] | None) -> None:
        """Set the table from the result of `dump`; None for an empty one."""
        for firing, index, left, won, jobs, rule, number in value or ():
            self._works[firing, index] = Work(left, won, list(jobs), (rule, number))
        if self._works:
            self._core.hooks.follow(self._hooks)


def key_of(firing: Firing, index: int) -> Key:
    """Return the key of the piece of work that a job does."""
    return (firing.work or f"{firing.rule}:{firing.number}", index)
