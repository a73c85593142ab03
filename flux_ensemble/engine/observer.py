"""The handling of job events: changes of phases, counts and streams, and the triggered rules.

`PoolCounts` has the counters of a group by the pool on which the jobs are (`success@pool`). If
rules with `scope: member` read counters, the jobs are counted by the member, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flux_ensemble import eventlog
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import Interrupted, JobEvent
from flux_ensemble.engine.feature import Standing
from flux_ensemble.engine.job_changes import (
    DETECTED,
    GAVE_UP,
    NO_NEWS,
    Change,
    News,
    further_triggers,
)
from flux_ensemble.engine.job_keys import split
from flux_ensemble.engine.job_view import caused_by
from flux_ensemble.engine.jobs import FIRST_SEEN, ActiveJob, Phase
from flux_ensemble.engine.member import EXPIRY_SECONDS, Member
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.retries import Further, Retries
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.engine.trigger_queue import TriggerQueue
from flux_ensemble.engine.values import Values
from flux_ensemble.metrics.names import (
    ATTEMPT_OUTCOMES,
    COUNTERS,
    DURATION_OF_FINISHED,
    INTERRUPTED,
    OUTCOMES,
    RATE,
)
from flux_ensemble.metrics.paths import COUNT, PENDING_NODES
from flux_ensemble.metrics.streams import Metrics


class PoolCounts:
    """Counts jobs for the pools and members of one engine."""

    def __init__(self, stats: Metrics, members: Members) -> None:
        self._counts = stats.counts
        self._of_members = stats.of_members
        self._members = members
        self._names = {
            pool: tuple((counter, f"{counter}@{pool}") for counter in COUNTERS)
            for pool in members.gone
        }
        for counts in self._counts.values():
            for pool in members.gone:
                counts.update({f"{counter}@{pool}": 0 for counter in COUNTERS})

    def validated(self, job: ActiveJob, group: str) -> tuple[Change, ...]:
        """Count a submitted job for its pool; return the change."""
        counter = f"submitted@{self._members.pool_of(job.id)}"
        self._counts[group][counter] += 1
        if self._of_members.active:
            self._of_members.count(self._members.name_of_job(job.id), group, "submitted", 1)
        return ((COUNT, counter),)

    def before(self, group: str) -> list[int]:
        """Return the counters of a group, for `concluded`, before a job is counted."""
        counts = self._counts[group]
        return [counts[counter] for counter in COUNTERS]

    def concluded(self, job: ActiveJob, group: str, before: list[int]) -> tuple[Change, ...]:
        """Add the growth of a group's counters since `before` to those of the job's pool.

        Returns:
            The changes of the pool's counters.
        """
        counts, pool = self._counts[group], self._members.pool_of(job.id)
        changed: list[Change] = []
        for (counter, of_pool), number in zip(self._names[pool], before, strict=True):
            if counts[counter] != number:
                counts[of_pool] += counts[counter] - number
                if self._of_members.active:
                    name = self._members.name_of_job(job.id)
                    self._of_members.count(name, group, counter, counts[counter] - number)
                changed.append((COUNT, of_pool))
        return tuple(changed)


_VALIDATED: Final[News] = (None, ((COUNT, "submitted"),))
_STARTED: Final[News] = (None, (("", "pending"),))

#: The changes when a job ends that never started, when a job finishes, and when it succeeds.
_UNWANTED: Final[tuple[Change, ...]] = ((PENDING_NODES.statistic, PENDING_NODES.variable),)
_RAN: Final[tuple[Change, ...]] = (("", DURATION_OF_FINISHED),)
_SUCCEEDED: Final[tuple[Change, ...]] = (("", "duration"), *_RAN)

#: The changes when the outcome of an attempt is known: with the rate of outcomes, and without it
#: (an interrupted attempt is none of the rate). Then the change when the job does not run again.
_CONCLUDED: Final[dict[str, tuple[Change, ...]]] = {
    outcome: ((COUNT, "attempts"), (COUNT, outcome), (RATE, "")) for outcome in OUTCOMES
}
_COUNTED: Final[dict[str, tuple[Change, ...]]] = {
    outcome: ((COUNT, "attempts"), (COUNT, outcome)) for outcome in ATTEMPT_OUTCOMES
}
_FINISHED: Final[tuple[Change, ...]] = ((COUNT, "finished"),)

#: The outcomes that count as failures.
_BAD: Final = ("failed", "timeout")

#: The changes of nearly all jobs that succeed. Always the same object, so that the lookup of rules
#: compares identities.
_DONE: Final[tuple[Change, ...]] = _SUCCEEDED + _CONCLUDED["success"] + _FINISHED

#: A global, because looking up a member of an enumeration is slow.
_GONE: Final = Phase.GONE


class Observer:
    """Handles job events for one engine.

    Attributes:
        values: passes memo values and durations of jobs to the streams.
    """

    def __init__(self, core: Core, sending: Submitter, members: Members | None = None) -> None:
        self._core = core
        self._members = members
        self._hooks = core.hooks
        self._pool_counts = PoolCounts(core.stats, members) if members is not None else None
        self._sending = sending
        self._retrying = Retries(core, sending, members)
        self.values = Values(core)
        #: The nodes of each group's jobs, 0 if they differ.
        self._nodes: dict[str, int] = {}
        for name, group in core.spec.groups.items():
            sizes = {0 if job_set.variable else job_set.nodes for job_set in group.sets}
            self._nodes[name] = sizes.pop() if len(sizes) == 1 else 0
        #: Handlers of the events of the ensemble's jobs; the last argument is the outcome before.
        self._takes: dict[str, Callable[[ActiveJob, str, JobEvent, str | None], News]] = {
            "validate": self._on_validate,
            "start": self._on_start,
            "finish": self._on_finish,
            "memo": self._on_memo,
            "invalidate": self._on_gone,
            "clean": self._on_gone,
        }

    def await_nodes(self, job: ActiveJob) -> None:
        """Count the nodes that a job of the ensemble waits for."""
        nodes = self._nodes[job.group or ""]
        if not nodes or (job.firing is not None and job.firing.overrides):
            nodes = self._core.job_of(job)[0].nodes
        job.nodes = nodes
        self._core.stats.pending_nodes += job.nodes

    def on_job_event(self, event: JobEvent) -> Sequence[TriggerQueue]:
        """Handle an event of a job, and return the rules that it triggers."""
        if event.foreign:
            return self._on_foreign(event)
        core, name = self._core, event.name
        detected = core.stats.detected
        if detected:
            detected.clear()
        job, news = core.workload.jobs.get(event.job), NO_NEWS
        if job is None:
            job = self._admit(event)
            if job is None:
                return ()
            group = job.group or ""
        else:
            known = job.outcome
            if name == "exception" or (name == "finish" and core.t_walltime is not None):
                self._expire(job, event)
            if not job.accept(event):
                return ()
            group = job.group or ""
            take = self._takes.get(name)
            if self._hooks.judged and job.outcome is not known:
                for judge in self._hooks.judged:
                    judge(job)
            if take is not None:
                news = take(job, group, event, known)
                if detected:
                    news = news[0], (*news[1], *((DETECTED, rule) for rule in detected))
        if not core.rules.reacting:
            return ()
        if job.interrupted and self._is_nothing(job):
            # Rules on outcomes do not see the attempt; rules on its counters do.
            name = INTERRUPTED
        states = core.rules.by_news.triggered(group, name, news)
        return self._triggered(job, event, news, states) if states and core.acting else ()

    def _is_nothing(self, job: ActiveJob) -> bool:
        """Return whether rules on jobs ignore the end of an interrupted job."""
        return (job.outcome or self._retrying.fate(job).outcome) != "failed"

    def _admit(self, event: JobEvent) -> ActiveJob | None:
        """Return the job of the ensemble that appears in the queue with this event, or None."""
        if event.name != "submit" or event.tag is None:
            return None
        members = self._members
        if members is not None and not members.expects(event.job, event.tag):
            return None
        job = self._core.workload.admit(event.job, event.tag, event.t)
        if job is not None:
            member = None if members is None else members.admitted(job)
            if job.firing is not None and (
                job.firing.cancel_unseen or (member is not None and _withdrew(member, job))
            ):
                self._sending.cancel_unseen(job, job.firing)
            elif members is not None and member is not None and member.state == "draining":
                members.move(member, [job])
            self.await_nodes(job)
            for appeared in self._hooks.admitted:
                appeared(job)
        return job

    def on_interrupted(self, event: Interrupted) -> Sequence[TriggerQueue]:
        """Mark active jobs of an instance that ends as evicted."""
        for id in event.jobs:
            job = self._core.workload.jobs.get(id)
            # A job that the ensemble itself cancels is not evicted: its end is intended.
            if job is not None and not job.canceling:
                job.evict()
        return ()

    def _expire(self, job: ActiveJob, event: JobEvent) -> None:
        """Mark a job as interrupted if the end of the allocation ended it.

        The job's own time limit and its own failure are told apart by the time: when a resource
        manager other than Flux ends an allocation it sends signals to processes, and each program
        chooses its exit code then.
        """
        t_walltime = self._core.t_walltime
        if self._members is not None and t_walltime is None:
            t_walltime = self._members.t_expires(job.id)
        if t_walltime is None or event.t < t_walltime - EXPIRY_SECONDS:
            return
        if event.name == "finish":
            if event.t >= t_walltime and job.exception_type is None and not job.canceling:
                job.evict()
                job.interrupted = True
        elif event.context.get("type") == "timeout":
            self.on_interrupted(Interrupted(event.t, (job.id,)))

    def job(self, id: int) -> ActiveJob | None:
        """Return an active job that has been seen, of the ensemble or foreign; else None."""
        return self._core.workload.jobs.get(id) or self._core.foreign.get(id)

    def _on_foreign(self, event: JobEvent) -> Sequence[TriggerQueue]:
        core = self._core
        if not core.wants_foreign:
            return ()
        job = core.foreign.get(event.job)
        if job is None:
            job = core.foreign[event.job] = ActiveJob(event.job, event.job_name, None, 0, event.t)
            # The job is older than the ensemble: its earlier events are not known.
            job.phase = FIRST_SEEN.get(event.name, Phase.PENDING)
        elif event.name == "submit":
            return ()
        known = job.outcome
        if event.name != "submit" and not job.accept(event):
            return ()
        job.mark(event)
        if job.outcome == INTERRUPTED:
            # The ensemble does not run foreign jobs again.
            job.outcome = "failed"
        news: News = (job.outcome if known is None else None), ()
        if job.phase is _GONE:
            del core.foreign[event.job]
        triggers = f"job-{event.name}", *further_triggers(news)
        return self._triggered(job, event, news, core.rules.foreign(triggers, job.group))

    # -- counts and streams -------------------------------------------------------

    def _on_validate(self, job: ActiveJob, group: str, event: JobEvent, known: str | None) -> News:
        self._core.stats.counts[group]["submitted"] += 1
        if self._pool_counts is None:
            return _VALIDATED
        return None, _VALIDATED[1] + self._pool_counts.validated(job, group)

    def _on_start(self, job: ActiveJob, group: str, event: JobEvent, known: str | None) -> News:
        stats = self._core.stats
        pending = self._core.workload.absences.waited(job.id, job.t_submit, event.t)
        stats.observe(group, "pending", pending)
        stats.pending_nodes -= job.nodes
        job.nodes = 0
        if self._members is not None:
            self._members.breaker.started(job)
            self.values.of_member(job, group, "pending", pending)
        for begun in self._hooks.began:
            begun(job)
        changed = _STARTED[1]
        if self.values.ended:
            changed += self.values.running(job, group, ("pending",))
        if self.values.further:
            changed += self.values.by_value(job, group, "pending", pending)
        return _STARTED if changed is _STARTED[1] else (None, changed)

    def _on_finish(self, job: ActiveJob, group: str, event: JobEvent, known: str | None) -> News:
        if job.t_start is None:
            return self._conclude(job, group, event, self._want_no_nodes(job))
        seconds = max(0.0, event.t - job.t_start)
        for ended in self._hooks.ended:
            ended(job)
        if job.interrupted:
            # The duration tells how long the node lasted, not how long the job takes.
            return self._conclude(job, group, event, ())
        stats = self._core.stats
        variables = stats.durations(job.outcome)
        for variable in variables:
            stats.observe(group, variable, seconds)
            if self._members is not None:
                self.values.of_member(job, group, variable, seconds)
        succeeded = job.outcome == "success"
        changed = _SUCCEEDED if succeeded else _RAN
        if self.values.further:
            changed += self.values.by_value(job, group, "duration", seconds, variables)
        return self._conclude(job, group, event, changed)

    def _on_memo(self, job: ActiveJob, group: str, event: JobEvent, known: str | None) -> News:
        for published in self._hooks.published:
            published(job, event.context)
        return None, self.values.published(job, group, event.context)

    def _on_gone(self, job: ActiveJob, group: str, event: JobEvent, known: str | None) -> News:
        news = NO_NEWS if job.outcome is known else self._conclude(job, group, event, ())
        if job.nodes:
            outcome, changed = news
            news = outcome, changed + self._want_no_nodes(job)
        if known is None and job.t_start is not None:
            for ended in self._hooks.ended:
                ended(job)
        for gone in self._hooks.gone:
            gone(job)
        self._core.workload.leave(job)
        if self._members is not None:
            self._members.left(job)
        # A job without an outcome was never accepted.
        if job.outcome is None:
            assert job.firing is not None
            for unaccepted in self._hooks.unaccepted:
                unaccepted(job.firing)
        else:
            self.record(job)
        return news

    def record(self, job: ActiveJob) -> None:
        """Record a job that is gone; log the first job for which there is no room."""
        if not self._core.records.add(job):
            self._core.record(eventlog.RecordsFull(limit=self._core.spec.limits.records))

    def _want_no_nodes(self, job: ActiveJob) -> tuple[Change, ...]:
        self._core.stats.pending_nodes -= job.nodes
        job.nodes = 0
        return _UNWANTED

    def _conclude(
        self, job: ActiveJob, group: str, event: JobEvent, changed: tuple[Change, ...]
    ) -> News:
        """Count the outcome of a job, for its pool too, and submit it again if it is to run again.

        The return value is as for `_count`.
        """
        pool_counts = self._pool_counts
        if pool_counts is None:
            return self._count(job, group, event, changed)
        before = pool_counts.before(group)
        outcome, changed = self._count(job, group, event, changed)
        if self._members is not None:
            self._members.breaker.ended(job)
        return outcome, changed + pool_counts.concluded(job, group, before)

    def _count(
        self, job: ActiveJob, group: str, event: JobEvent, changed: tuple[Change, ...]
    ) -> News:
        """Count the outcome of a job, and submit it again if its group has retries for it.

        Args:
            job: the job, whose outcome is known.
            group: the job's group.
            event: the event that gave the outcome.
            changed: the changes by the event so far.

        Returns:
            The outcome, if rules are to see it, and all changes.
        """
        core, firing, outcome = self._core, job.firing, job.outcome
        assert firing is not None
        assert outcome is not None
        counts = core.stats.counts[group]
        if job.interrupted:
            return self._count_interrupted(job, group, event, changed)
        counts["attempts"] += 1
        if core.stats.rates and (rate := core.stats.rates.get(group)) is not None:
            rate.add(core.t)
        counts[outcome] += 1
        plain = changed is _SUCCEEDED and not (self.values.ended or self._hooks.concluded)
        if plain and firing.trial is None:
            counts["finished"] += 1
            core.workload.succeeded(job)
            return outcome, _DONE
        changed += _CONCLUDED[outcome]
        if self.values.ended:
            changed += self.values.over(job, group)
        standing = self._standing(job) if self._hooks.concluded else None
        if standing is not None and standing is Standing.DECIDED:
            return None, changed
        if outcome == "success":
            if firing.trial is None:
                counts["finished"] += 1
                core.workload.succeeded(job)
                return outcome, changed + _FINISHED
            return outcome, self._finish(job, counts, event, changed, Further.OVER)
        if standing is not None:
            return outcome, changed
        further = self._retrying.ended(job, event.t, event.name)
        return outcome, self._finish(job, counts, event, changed, further)

    def _count_interrupted(
        self, job: ActiveJob, group: str, event: JobEvent, changed: tuple[Change, ...]
    ) -> News:
        """Count the attempt of an interrupted job, and submit it again if it is to run again."""
        core, firing = self._core, job.firing
        assert firing is not None
        fate = self._retrying.fate(job)
        outcome = job.outcome = fate.outcome
        counts = core.stats.counts[group]
        counts["attempts"] += 1
        counts[outcome] += 1
        changed += _COUNTED[outcome]
        if self.values.ended:
            changed += self.values.over(job, group)
        core.record(
            eventlog.Interrupted(
                id=split(job.id)[1],
                member=core.member_of(job.id),
                group=firing.group,
                rule=firing.rule,
                firing=firing.number,
                index=job.index,
                fate=fate.value,
                reason=job.exception_note or "",
            )
        )
        if self._standing(job) is not None:
            return None, changed
        further = self._retrying.interrupted(job, fate, event.t, event.name)
        changed = self._finish(job, counts, event, changed, further)
        return outcome if outcome == "failed" else None, changed

    def _standing(self, job: ActiveJob) -> Standing | None:
        """Return what an attempt that is over means for the job; None for one like others."""
        for concluded in self._hooks.concluded:
            standing = concluded(job)
            if standing is not None:
                return standing
        return None

    def _finish(
        self,
        job: ActiveJob,
        counts: dict[str, int],
        event: JobEvent,
        changed: tuple[Change, ...],
        further: Further,
    ) -> tuple[Change, ...]:
        """Count the job of an attempt that is over as finished, if it does not run again.

        Args:
            job, event: as for `_count`.
            counts: the counters of the job's group.
            changed: the changes so far.
            further: whether the job runs again; a feature may run a trial again in any case.

        Returns:
            All changes.
        """
        assert job.firing is not None
        if job.firing.trial is not None:
            for tried in self._hooks.tried:
                of_trial = tried(job, event.t, further is Further.AGAIN)
                if of_trial is None:
                    return changed
                changed += of_trial
        if further is not Further.AGAIN:
            counts["finished"] += 1
            changed += _FINISHED
            if job.outcome == "success":
                self._core.workload.succeeded(job)
            if job.outcome in _BAD:
                self._core.failed += 1
                self._core.timed_out += job.outcome == "timeout"
        if further is Further.GAVE_UP:
            job.gave_up = True
            counts["gave-up"] += 1
            changed += GAVE_UP
        return changed

    def news_of_success(self, pool: str) -> tuple[News, ...]:
        """Return the effects of the five events of a job that succeeds on a pool at once.

        The job is no trial and no feature follows it; the order is that of `events.LIFE`.
        """
        concluded = (*_SUCCEEDED, *_CONCLUDED["success"], *_FINISHED)
        return (
            NO_NEWS,
            (None, _with_pool(_VALIDATED[1], pool)),
            _STARTED,
            ("success", _with_pool(concluded, pool)),
            NO_NEWS,
        )

    # -- rules --------------------------------------------------------------------

    def _triggered(
        self, job: ActiveJob, event: JobEvent, news: News, states: Sequence[RuleState]
    ) -> Sequence[TriggerQueue]:
        """Return the rules that a job event triggers, with their cause."""
        if not states:
            return ()
        cause = caused_by(self._core, job, event.name, event.t, event.context)
        cause.news = news
        memo = event.context if event.name == "memo" else None
        return [TriggerQueue(state, cause, None, memo) for state in states]


def _withdrew(member: Member, job: ActiveJob) -> bool:
    """Return whether a job was withdrawn from its member before it appeared."""
    firing = job.firing
    return firing is not None and member.withdrew((firing.rule, firing.number, job.index))


def _with_pool(changed: tuple[Change, ...], pool: str) -> tuple[Change, ...]:
    """Return the changes, and those of the same counters of the pool on which the job is."""
    of_pool = [(kind, f"{name}@{pool}") for kind, name in changed if kind == COUNT]
    return (*changed, *of_pool)
