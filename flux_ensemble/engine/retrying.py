"""Jobs that run again: `retries` of their group."""

from __future__ import annotations

from enum import Enum

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.retries import Policy
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import members_of
from flux_ensemble.engine.job_view import JobView
from flux_ensemble.engine.jobs import Job
from flux_ensemble.engine.sending import Sending
from flux_ensemble.metrics.conditions import Names, variables
from flux_ensemble.metrics.job_fields import scope_of


class Further(Enum):
    """What becomes of a job that ended without success."""

    #: It runs again.
    AGAIN = "again"
    #: It would, but has been tried as often as it may be.
    GAVE_UP = "gave up"
    #: It is not one that runs again.
    OVER = "over"


class Retrying:
    """Decides for one engine which jobs run again."""

    def __init__(self, core: Core, sending: Sending) -> None:
        self._core = core
        self._sending = sending
        #: By name and index of the job set.
        self._policies: dict[tuple[str, int], Policy] = {}

    def ended(self, job: Job, t: float, event: str, *, interrupted: bool) -> Further:
        """A job ended without success: have it run again if its group says so.

        Args:
            job: of the ensemble.
            t, event: when, and the name of the event by which it did.
            interrupted: the instance shut down, which counts as a failure, or its time was up.
        """
        core, firing, outcome = self._core, job.firing, job.outcome
        assert firing is not None
        assert outcome is not None
        if interrupted and core.acting and not self._barred(firing, job):
            if core.t_walltime is not None:
                self._sending.run_again(firing, job.index)
                return Further.AGAIN
            if job.again and not job.canceling and not firing.cancel_unseen:
                self._sending.run_again(firing, job.index, held=job.held)
                return Further.AGAIN
        job_set, _ = core.job_of(job)
        if not job_set.retries.times or firing.cancel_unseen or not core.acting:
            return Further.OVER
        policy = self._policy(job_set)
        values = variables(core.stats.lookup, None, JobView(core, job, t, event))
        if not interrupted and (job.canceling or not policy.applies(outcome, values)):
            return Further.OVER
        if firing.attempt >= job_set.retries.times:
            return Further.GAVE_UP
        overrides = firing.overrides
        try:
            changed = policy.overrides(values)
            if changed:
                overrides = {**(overrides or {}), **changed}
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
        self._sending.retry(firing, job.index, overrides, delay, firing.attempt + 1, avoid)
        # Where that is over a limit, the ensemble has failed.
        return Further.AGAIN if core.acting else Further.OVER

    def _barred(self, firing: Firing, job: Job) -> bool:
        """Whether a job is bound to a member that it cannot run on again."""
        return firing.bound and self._sending.bars(firing, job.index, firing.overrides) is not None

    def _give_up(self, firing: Firing, job: Job, reason: str) -> Further:
        self._core.record(
            "gave-up",
            rule=firing.rule,
            firing=firing.number,
            index=job.index,
            attempt=firing.attempt,
            reason=reason,
        )
        return Further.GAVE_UP

    def _policy(self, job_set: JobSet) -> Policy:
        key = job_set.name, job_set.index
        policy = self._policies.get(key)
        if policy is None:
            core = self._core
            group = core.spec.groups[job_set.name]
            statistics = [statistic.name for statistic in core.spec.statistics]
            scope = scope_of("job-fail", group.params, predicted=group.predicts)
            names = Names(core.spec.groups, statistics, None, scope, by=core.spec.by)
            policy = self._policies[key] = Policy(job_set.retries, names)
        return policy
