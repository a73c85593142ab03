"""Jobs that run again: by the `retries` of their group, or because they were interrupted.

An attempt is interrupted if its end was no doing of the job (`ActiveJob.interrupted`). The fate of
an interrupted job is decided here and nowhere else:

    the ensemble is over, or another job does the same ──► its outcome is `interrupted`
    it may have run, and `on-lost` is `fail` ────────────► `failed`; trials of searches run again
    it is bound to a member that takes no more jobs ─────► `canceled`
    it was lost more than `limits.losses` times ─────────► `failed`, and it is given up
    else ────────────────────────────────────────────────► `interrupted`, and it runs again

The job runs again as if it had not run before, so this does not count as one of its `retries`.
Interruptions by an orderly end (of an allocation, an instance or a drained member) may occur any
number of times. The number of *losses* is bounded, since the job may be the cause of its node's
failure.
"""

from __future__ import annotations

from enum import Enum

from flux_ensemble import eventlog
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.retries import Policy
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import members_of
from flux_ensemble.engine.job_view import JobView
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.conditions import Names, variables
from flux_ensemble.metrics.job_fields import scope_of
from flux_ensemble.metrics.names import INTERRUPTED


class Further(Enum):
    """The future of a job that ended without success."""

    #: The job runs again.
    AGAIN = "again"
    #: The job has used up its attempts, or cannot be submitted again.
    GAVE_UP = "gave up"
    #: The job is over, since nothing requires another attempt.
    OVER = "over"


class Fate(Enum):
    """The future of a job that was interrupted."""

    AGAIN = "again"
    #: The job is submitted again with urgency 0.
    HELD = "held"
    #: The job has been lost too often.
    GAVE_UP = "gave up"
    #: The job's `on-lost` is `fail`.
    FAILED = "failed"
    #: The job is bound to a member where it cannot run any more.
    BOUND = "bound"
    #: The job is not needed any more, or a copy of it continues.
    OVER = "over"

    @property
    def outcome(self) -> str:
        """The outcome of the interrupted attempt."""
        if self in (Fate.GAVE_UP, Fate.FAILED):
            return "failed"
        return "canceled" if self is Fate.BOUND else INTERRUPTED


class Retries:
    """Decides for one engine which jobs run again."""

    def __init__(self, core: Core, sending: Submitter, members: Members | None = None) -> None:
        self._core = core
        self._sending = sending
        self._members = members
        #: Name and index of a job set -> its policy.
        self._policies: dict[tuple[str, int], Policy] = {}

    def fate(self, job: ActiveJob) -> Fate:
        """Return the fate of a job of the ensemble that was, or is being, interrupted."""
        core, firing = self._core, job.firing
        assert firing is not None
        if not core.acting or firing.cancel_unseen or self._continues(job):
            return Fate.OVER
        fate = Fate.AGAIN
        if job.may_have_run:
            on_lost = core.job_of(job)[0].on_lost
            if on_lost is None and self._members is not None:
                on_lost = self._members.on_lost(job.id)
            if on_lost == "fail" and firing.trial is None:
                return Fate.FAILED
            if on_lost == "hold":
                fate = Fate.HELD
        if firing.bound and self._sending.bars(firing, job.index, firing.overrides) is not None:
            return Fate.BOUND
        if not job.evicted and firing.losses >= core.spec.limits.losses:
            return Fate.GAVE_UP
        return fate

    def _continues(self, job: ActiveJob) -> bool:
        return any(continues(job) for continues in self._core.hooks.continues)

    def interrupted(self, job: ActiveJob, fate: Fate, t: float, event: str) -> Further:
        """Act on the fate of a job that was interrupted.

        Args:
            job: a job of the ensemble.
            fate: the job's fate.
            t, event: time and name of the event by which the job ended.
        """
        firing = job.firing
        assert firing is not None
        if fate is Fate.GAVE_UP:
            times = firing.losses + 1
            lost = "once" if times == 1 else f"{times} times"
            return self._give_up(firing, job, f"it was lost {lost}, the last time: {_why(job)}")
        if fate is Fate.FAILED:
            return self.ended(job, t, event)
        if fate not in (Fate.AGAIN, Fate.HELD):
            return Further.OVER
        held = fate is Fate.HELD
        self._sending.run_again(firing, job, held=held, lost=not job.evicted)
        return Further.AGAIN

    def ended(self, job: ActiveJob, t: float, event: str) -> Further:
        """Submit a job that ended without success again, if the `retries` of its group apply.

        Args:
            job: a job of the ensemble.
            t, event: time and name of the event by which the job ended.
        """
        core, firing, outcome = self._core, job.firing, job.outcome
        assert firing is not None
        assert outcome is not None
        job_set, _ = core.job_of(job)
        if not job_set.retries.times or firing.cancel_unseen or not core.acting:
            return Further.OVER
        policy = self._policy(job_set)
        values = variables(core.stats.lookup, None, JobView(core, job, t, event))
        if job.canceling or not policy.applies(outcome, values):
            return Further.OVER
        if firing.attempt >= job_set.retries.times:
            return Further.GAVE_UP
        overrides = firing.overrides
        try:
            if job_set.retries.overrides:
                overrides = policy.overrides(values, firing.overrides)
                core.spec.groups[firing.group].submission(firing.each, firing.params, overrides)
        except ValueError as error:
            return self._give_up(firing, job, f"retries: with: {error}")
        reason = self._sending.bars(firing, job.index, overrides)
        if reason is not None:
            return self._give_up(firing, job, reason)
        delay, avoid = job_set.retries.delay(firing.attempt), firing.avoid
        if job_set.retries.spread is not None:
            tried = dict.fromkeys((*avoid, *members_of(job.id)))
            avoid = tuple(ordinal for ordinal in tried if ordinal in core.member_names)
        again = overrides, delay, firing.attempt + 1, avoid
        self._sending.retry(firing, job.index, *again, failed=job)
        # If the retry was over a limit, the ensemble has failed.
        return Further.AGAIN if core.acting else Further.OVER

    def _give_up(self, firing: Firing, job: ActiveJob, reason: str) -> Further:
        self._core.record(
            eventlog.GaveUp(
                rule=firing.rule,
                firing=firing.number,
                index=job.index,
                attempt=firing.attempt,
                **self._sending.which(firing, job.index),
                reason=reason,
            )
        )
        return Further.GAVE_UP

    def _policy(self, job_set: JobSet) -> Policy:
        key = job_set.name, job_set.index
        policy = self._policies.get(key)
        if policy is None:
            core = self._core
            group = core.spec.groups[job_set.name]
            statistics = [statistic.name for statistic in core.spec.statistics]
            scope = scope_of("job-fail", Known.END, group.params, group.features)
            names = Names(core.spec.groups, statistics, None, scope, by=core.spec.by)
            policy = self._policies[key] = Policy(job_set.retries, names)
        return policy


def _why(job: ActiveJob) -> str:
    """Return the reason of an interruption as a phrase."""
    return ": ".join(filter(None, (job.exception_type, job.exception_note)))
