"""The submission of jobs: rules and requests add them, and they are sent as the limits allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.keys.overrides import GIVEN
from flux_ensemble.document.model import REQUEST_RULE, RETRY_RULE
from flux_ensemble.document.texts import ATTEMPT, NUMBER, numbered
from flux_ensemble.engine.combinations import MAX_COMBINATIONS
from flux_ensemble.engine.commands import StartTimer, SubmitJobs
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.dispatch import Dispatch
from flux_ensemble.engine.firings import DELAY, Firing
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Origin, Pending
from flux_ensemble.scalars import unpacked

#: The most places where a job failed that are remembered.
_PLACES = 8

#: The reason for the cancellation of a job when it appears, since a cancel came before. That cancel
#: has its own outcome.
WITHDRAWN = "canceled before it showed in the queue"


class Submitter:
    """Submits the jobs of one engine.

    Args:
        core: the engine's core.
        placing: chooses members; None if there is the enclosing instance alone.
    """

    def __init__(self, core: Core, placing: Dispatch | None = None) -> None:
        self._core = core
        self._placing = placing
        self.members = None if placing is None else placing.members
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
        """Submit a group: open a firing with its jobs, which wait to be sent.

        Args:
            group: the group's name.
            each: overrides the group's count.
            params: override the group's parameters.
            origin: the firing that submits.
            overrides: overrides of fields of the group.
            trial: the name of the trial, if a feature judges the outcome of the jobs.
            near: the number of the member on which the jobs are to run, 0 for any.
            bound: the jobs run on that member or nowhere.

        Returns:
            The reason why no jobs are submitted; None if they are, or if the ensemble has failed.
        """
        core, before = self._core, self._core.workload.submitted.get(group, 0)
        own = core.spec.groups[group]
        size = len(own.submission(each, params, overrides))
        core.workload.submitted[group] = before + size
        if before and own.tells_numbers(params, overrides):
            overrides = {**(overrides or {}), NUMBER: before}
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
        return self.ask_for(firing, origin)

    def ask_for(self, firing: Firing, origin: Origin, delay: float = 0.0) -> str | None:
        """Open a firing, whose jobs wait to be sent.

        Args:
            firing: the firing.
            origin: the rule and number of the firing, for messages.
            delay: seconds until the jobs may be sent.

        Returns:
            The reason why not, as for `submit`.
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
        """Return why a job that is bound to a member cannot run there again; None if it can.

        Args:
            firing, index: firing and index of the job.
            overrides: overrides of fields of its group for the next attempt.
        """
        if not firing.bound or self._placing is None:
            return None
        again = replace(firing, first=index, stop=index + 1, overrides=overrides)
        return self._placing.bars(again)

    def delay_over(self, key: str) -> bool:
        """End the delay of a timer's firing; return False if the timer is for something else."""
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
        published: Mapping[str, int] | None = None,
        rerun: bool = False,
    ) -> int:
        """Submit a job again, by a new firing.

        Args:
            firing: the firing of the earlier attempt.
            index: the index of the job.
            overrides: overrides of fields of its group.
            delay: seconds until the job is sent.
            attempt: the number of attempts before.
            avoid: the members to avoid.
            failed: the earlier attempt, if its nodes may be the cause of its end.
            lost: the earlier attempt was lost while it may have run.
            published: `Firing.published` of the new firing.
            rerun: a user has the job run again.

        Returns:
            The number of the new firing.
        """
        origin = Origin(RETRY_RULE, self._table.next_number(RETRY_RULE))
        if failed is not None:
            failed.followed = origin.number
        given, before = (overrides or {}).get(GIVEN, {}), (overrides or {}).get(NUMBER, 0)
        self._core.record(
            eventlog.Retry(
                rule=firing.rule,
                firing=firing.number,
                index=index,
                attempt=attempt,
                **self.which(firing, index),
                retry=origin.number,
                params={
                    name: numbered(unpacked(value), index, before + index)
                    for name, value in given.items()
                }
                or None,
            )
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
            failed_on=firing.failed_on if failed is None else self.places_off(failed),
            published=published,
            rerun=rerun,
        )
        self.ask_for(again, origin, delay)
        return origin.number

    def which(self, firing: Firing, index: int) -> dict[str, str | None]:
        """Return the group and the parameters of a job, for entries about its attempts."""
        _, params = self._core.job_at(firing, index)
        return {"group": firing.group, "point": eventlog.cut_pairs(params) or None}

    def places_off(self, job: ActiveJob) -> tuple[tuple[int, str], ...]:
        """Return `Firing.failed_on` for a job that does the same: with the place of this one."""
        core, firing = self._core, job.firing
        assert firing is not None
        before = firing.failed_on
        if job.ranks is None or not core.job_of(job)[0].avoid_nodes:
            return before
        place, there = (ordinal_of(job.id), job.ranks), core.member_names
        others = [old for old in before if old != place and (not old[0] or old[0] in there)]
        return (*others, place)[-_PLACES:]

    def run_again(self, firing: Firing, job: ActiveJob, *, held: bool, lost: bool) -> None:
        """Submit an interrupted job again, as if it had not run.

        Args:
            firing, job: the job and its firing.
            held: submit the job with urgency 0.
            lost: the job was lost while it may have run.
        """
        self._core.workload.total -= 1
        overrides = {**(firing.overrides or {}), "urgency": 0} if held else firing.overrides
        failed, again = job if lost else None, (firing.attempt, firing.avoid)
        job.replaced = self.retry(
            firing,
            job.index,
            overrides,
            0.0,
            *again,
            failed=failed,
            lost=lost,
            published=job.published_in_all(),
        )

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
                core.record(eventlog.NotStarted(group=group, reason=core.why_not(group)))
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
    """Return the name of an origin for a sentence, such as "rule 'x'"."""
    if origin.rule == REQUEST_RULE:
        return "a request"
    if origin.rule == RETRY_RULE:
        return "a retry"
    # No id in a document has a colon: features submit under a rule id such as "search:hpo".
    kind, colon, id = origin.rule.partition(":")
    return f"{kind} {id!r}" if colon else f"rule {origin.rule!r}"
