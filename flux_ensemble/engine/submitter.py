"""Jobs of the ensemble are asked for, and sent to the member as the limits allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble.document.model import REQUEST_RULE, RETRY_RULE
from flux_ensemble.document.texts import ATTEMPT
from flux_ensemble.engine.combinations import MAX_COMBINATIONS
from flux_ensemble.engine.commands import StartTimer, SubmitJobs
from flux_ensemble.engine.copies import Work
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.dispatch import Placing
from flux_ensemble.engine.firings import DELAY, Firing
from flux_ensemble.engine.job_keys import members_of, ordinal_of
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Origin, Pending

#: What the rule ids of searches begin with; no id in a document has a colon.
_SEARCH = "search:"

#: How many of the places where a job failed are remembered.
_PLACES = 8

#: Why a job is cancelled as soon as it shows: a cancel came before, which has its own outcome.
WITHDRAWN = "canceled before it showed in the queue"

#: Why a job is cancelled of which a copy has succeeded, or that is a copy.
NOT_NEEDED = "another job that does the same has succeeded"


class Sending:
    """Submits the jobs of one engine.

    Args:
        core: of the engine.
        placing: to members; None where there is the enclosing instance alone.
    """

    def __init__(self, core: Core, placing: Placing | None = None) -> None:
        self._core = core
        self._placing = placing
        self._table = core.pending_table

    def submit(
        self,
        group: str,
        each: int | None,
        params: Mapping[str, Any] | None,
        origin: Origin,
        *,
        overrides: Mapping[str, Any] | None = None,
        trial: str | None = None,
        near: int = 0,
        bound: bool = False,
    ) -> str | None:
        """Ask for the jobs of one submission of a group.

        Args:
            group: the group's name.
            each: overrides the group's count.
            params: override the group's parameters.
            origin: the firing that asks.
            overrides: of fields of the group.
            trial: of a search that its one job is, if it is one.
            near: the member that they are to run on.
            bound: they run on that member or nowhere.

        Returns:
            Why they are not asked for; None where they are, or the ensemble has failed.
        """
        size = len(self._core.spec.groups[group].submission(each, params, overrides))
        firing = Firing(
            origin.rule,
            origin.number,
            group,
            0,
            size,
            each,
            params,
            request=origin.request,
            overrides=overrides,
            trial=trial,
            near=near,
            bound=bound,
        )
        return self._ask_for(firing, origin)

    def _ask_for(self, firing: Firing, origin: Origin, delay: float = 0.0) -> str | None:
        """Ask for the jobs of a firing.

        Args:
            firing: the firing.
            origin: which rule it is of, and why.
            delay: seconds until they are sent.

        Returns:
            As `submit` does.
        """
        core = self._core
        limit = core.spec.limits.jobs
        if core.workload.total + firing.waiting > limit:
            core.fail(self._over_limit(firing.group, origin, firing.waiting, limit))
            return None
        reason = self._placing.bars(firing) if firing.bound and self._placing is not None else None
        if reason is not None:
            return reason
        firing.delayed = delay > 0
        if not core.workload.add(firing):
            core.fail(
                f"{because(origin)} would submit group {firing.group!r}: more than "
                f"{MAX_COMBINATIONS} combinations of values would have jobs for a rule with 'by'; "
                "give it fewer parameters"
            )
        elif firing.delayed:
            core.emit(StartTimer(firing.timer, delay))
        return None

    def bars(self, firing: Firing, index: int, overrides: Mapping[str, Any] | None) -> str | None:
        """Why a job that is bound to a member cannot run there again; None if it can.

        Args:
            firing, index: the job.
            overrides: of fields of its group, when it runs again.
        """
        if not firing.bound or self._placing is None:
            return None
        again = replace(firing, first=index, stop=index + 1, overrides=overrides)
        return self._placing.bars(again)

    def delay_over(self, key: str) -> bool:
        """Send the job that a timer is for; False if the timer is for something else."""
        if not key.startswith(DELAY):
            return False
        self._core.workload.delay_over(RETRY_RULE, int(key.removeprefix(DELAY)))
        return True

    def retry(
        self,
        firing: Firing,
        index: int,
        overrides: Mapping[str, Any] | None,
        delay: float,
        attempt: int,
        avoid: tuple[int, ...],
        *,
        failed: ActiveJob | None = None,
        lost: bool = False,
    ) -> None:
        """Ask for a job again.

        Args:
            firing: that asked for it.
            index: of the job.
            overrides: of fields of its group.
            delay: seconds until it is sent.
            attempt: how often it has been tried before.
            avoid: the members that it is kept off.
            failed: its attempt, if the nodes of that may be to blame.
            lost: it was lost while it may have run.
        """
        origin = Origin(RETRY_RULE, self._table.next_number(RETRY_RULE))
        self._core.record(
            "retry",
            rule=firing.rule,
            firing=firing.number,
            index=index,
            attempt=attempt,
            retry=origin.number,
        )
        if attempt and self._core.spec.groups[firing.group].tells_attempts:
            overrides = {**(overrides or {}), ATTEMPT: attempt}
        again = Firing(
            origin.rule,
            origin.number,
            firing.group,
            index,
            index + 1,
            firing.each,
            firing.params,
            attempt,
            overrides=overrides,
            trial=firing.trial,
            near=firing.near,
            avoid=avoid,
            bound=firing.bound,
            losses=firing.losses + lost,
            failed_on=firing.failed_on if failed is None else self._off(failed),
        )
        self._ask_for(again, origin, delay)

    def _off(self, job: ActiveJob) -> tuple[tuple[int, str], ...]:
        """What a job that runs again, or a copy of it, is kept off: also where this attempt ran."""
        core, firing = self._core, job.firing
        assert firing is not None
        before = firing.failed_on
        if job.ranks is None or not core.job_of(job)[0].avoid_nodes:
            return before
        place, there = (ordinal_of(job.id), job.ranks), core.member_names
        others = [old for old in before if old != place and (not old[0] or old[0] in there)]
        return (*others, place)[-_PLACES:]

    def copy(self, job: ActiveJob, origin: Origin) -> str | None:
        """Have a job run a second time beside itself.

        Args:
            job: the job.
            origin: the firing that asks for it.

        Returns:
            Why it does not; None where it does.
        """
        core, firing = self._core, job.firing
        if firing is None or not job.may_be_canceled or job.evicted:
            return "the job has ended, or is about to"
        if firing.trial is not None:
            return "the job is a trial of a search"
        if firing.bound:
            return "the job is bound to its member"
        if core.copies.of(job) is not None:
            return "the job has a copy, or is one"
        if core.workload.total >= core.spec.limits.jobs:
            return f"limits.jobs is {core.spec.limits.jobs}"
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
            work=core.copies.begin(job, (origin.rule, origin.number)),
            avoid=members_of(job.id),
            failed_on=self._off(job),
        )
        self._ask_for(copy, origin)
        return None

    def cancel_others(self, job: ActiveJob, work: Work) -> None:
        """A job has succeeded: the others that do the same are not needed."""
        core, origin = self._core, Origin(*work.firing)
        copy = core.workload.firings.get(*work.firing)
        if copy is not None and not copy.cancel_unseen:
            copy.cancel_unseen = True
            if core.workload.drop(copy):
                core.copies.over(copy, job.index)
        for id in work.jobs:
            other = core.workload.jobs.get(id)
            if other is not None and other is not job and other.may_be_canceled:
                other.canceling = True
                core.cancel((id,), NOT_NEEDED, origin)

    def run_again(self, firing: Firing, job: ActiveJob, *, held: bool, lost: bool) -> None:
        """Ask for a job again that was interrupted, as if it had not run.

        Args:
            firing, job: the job.
            held: submit it with urgency 0.
            lost: it was lost while it may have run.
        """
        self._core.workload.total -= 1
        overrides = {**(firing.overrides or {}), "urgency": 0} if held else firing.overrides
        failed, again = job if lost else None, (firing.attempt, firing.avoid)
        self.retry(firing, job.index, overrides, 0.0, *again, failed=failed, lost=lost)

    def _over_limit(self, group: str, origin: Origin, jobs: int, limit: int) -> str:
        core = self._core
        asked = f"{core.workload.total + jobs} jobs in all, and limits.jobs is {limit}"
        sentence = f"{because(origin)} would submit group {group!r}: {asked}"
        cycle = core.rules.cycle(origin.rule)
        return f"{sentence}; rules that fire each other: {', '.join(cycle)}" if cycle else sentence

    def send_jobs(self) -> None:
        """Send waiting jobs, as many as the limits allow."""
        core = self._core
        if core.state != "running" or core.t_start is None or core.t_walltime is not None:
            return
        too_long = core.too_long()
        for group in too_long:
            if group not in core.not_started and core.workload.backlog.holds(group):
                core.not_started.append(group)
                core.record("not-started", group=group, reason=core.why_not(group))
        placing = self._placing
        fits = None if placing is None else placing.fits
        while (batch := core.workload.next_batch(too_long, fits)) is not None:
            firing, first, count = batch
            ordinal = 0 if placing is None else placing.place(firing, first, count)
            request = None if firing.answered else firing.request
            origin = Origin(firing.rule, firing.number, (), request)
            command = SubmitJobs(
                self._table.next_id(),
                firing.group,
                firing.rule,
                firing.number,
                first,
                count,
                firing.each,
                firing.params,
                firing.overrides,
                ordinal,
                tuple([ranks for member, ranks in firing.failed_on if member == ordinal]),
            )
            core.send(Pending(origin, command, firing=firing))

    def cancel_unseen(self, job: ActiveJob, firing: Firing) -> None:
        """Cancel a job that was withdrawn before it appeared in the queue."""
        job.canceling = True
        origin = Origin(firing.rule, firing.number)
        self._core.cancel((job.id,), WITHDRAWN, origin)


def because(origin: Origin) -> str:
    """Who asks, for a sentence."""
    if origin.rule == REQUEST_RULE:
        return "a request"
    if origin.rule.startswith(_SEARCH):
        return f"search {origin.rule.removeprefix(_SEARCH)!r}"
    return "a retry" if origin.rule == RETRY_RULE else f"rule {origin.rule!r}"


def search_rule(id: str) -> str:
    """The rule id that the jobs of a search have in their tags."""
    return f"{_SEARCH}{id}"
