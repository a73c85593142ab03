"""Job events: how they change phases, counts and streams, and which rules they trigger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import Interrupted, JobEvent
from flux_ensemble.engine.job_view import JobView
from flux_ensemble.engine.jobs import FIRST_SEEN, Job, Phase
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.pool_counts import PoolCounts
from flux_ensemble.engine.retrying import Further, Retrying
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.rules import DETECTED, GAVE_UP, TRIGGER_OF, Change, News
from flux_ensemble.engine.searching import Searching
from flux_ensemble.engine.sending import Sending
from flux_ensemble.engine.triggered import Cause, Triggered
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.names import (
    DURATION_OF_FINISHED,
    GAUGES,
    OUTCOMES,
    RATE,
    STREAMS,
)
from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.metrics.paths import BEST, COUNT, PENDING_NODES, SEARCH
from flux_ensemble.metrics.streams import MAX_NAME, MAX_VALUES, MAX_VARIABLES
from flux_ensemble.texts import shortened

_NO_NEWS: News = (None, ())
_VALIDATED: News = (None, ((COUNT, "submitted"),))
_STARTED: News = (None, (("", "pending"),))

#: What changes when a job ends that never started, when one finishes, and when it succeeds.
_UNWANTED: tuple[Change, ...] = ((PENDING_NODES.statistic, PENDING_NODES.variable),)
_RAN: tuple[Change, ...] = (("", DURATION_OF_FINISHED),)
_SUCCEEDED: tuple[Change, ...] = (("", "duration"), *_RAN)

#: What changes when the outcome of an attempt is known, and when the job does not run again.
_CONCLUDED: Mapping[str, tuple[Change, ...]] = {
    outcome: ((COUNT, "attempts"), (COUNT, outcome), (RATE, "")) for outcome in OUTCOMES
}
_FINISHED: tuple[Change, ...] = ((COUNT, "finished"),)

#: A global, because looking up a member of an enumeration is slow.
_GONE = Phase.GONE

#: How many seconds before the allocation expires a time limit is taken for that of the allocation.
EXPIRY_SECONDS = 1.0

#: Memo keys with these names are ignored: they are variables that every group has.
_RESERVED_VARIABLES = frozenset((*STREAMS, *GAUGES, DURATION_OF_FINISHED))


class Observer:
    """Takes in job events for one engine.

    Attributes:
        crowded: groups for which it was logged that a memo key was ignored, and metrics for which
            it was that values of parameters were.
    """

    def __init__(
        self, core: Core, sending: Sending, searching: Searching, members: Members | None = None
    ) -> None:
        self._core = core
        self._members = members
        self._pool_counts = PoolCounts(core.stats, members) if members is not None else None
        self._searching = searching
        self._sending = sending
        self._retrying = Retrying(core, sending)
        self.crowded: set[str] = set()
        #: The nodes of each group's jobs, 0 where they differ.
        self._nodes: dict[str, int] = {}
        for name, group in core.spec.groups.items():
            sizes = {0 if job_set.variable else job_set.nodes for job_set in group.sets}
            self._nodes[name] = sizes.pop() if len(sizes) == 1 else 0
        #: Handlers of the events of the ensemble's jobs; the last argument is the outcome before.
        self._takes: dict[str, Callable[[Job, str, JobEvent, str | None], News]] = {
            "validate": self._on_validate,
            "start": self._on_start,
            "finish": self._on_finish,
            "memo": self._on_memo,
            "invalidate": self._on_gone,
            "clean": self._on_gone,
        }

    def await_nodes(self, job: Job) -> None:
        """Count the nodes that a job of the ensemble waits for."""
        nodes = self._nodes[job.group or ""]
        if not nodes or (job.firing is not None and job.firing.overrides):
            nodes = self._core.job_of(job)[0].nodes
        job.nodes = nodes
        self._core.stats.pending_nodes += job.nodes

    def on_job_event(self, event: JobEvent) -> Sequence[Triggered]:
        """A job posted an event."""
        if event.foreign:
            return self._on_foreign(event)
        core, name = self._core, event.name
        detected = core.stats.detected
        if detected:
            detected.clear()
        job, news = core.workload.jobs.get(event.job), _NO_NEWS
        if job is None:
            job = self._admit(event)
            if job is None:
                return ()
            group = job.group or ""
        else:
            known = job.outcome
            if name == "exception":
                self._expire(job, event)
            if not job.accept(event):
                return ()
            group = job.group or ""
            take = self._takes.get(name)
            if take is not None:
                news = take(job, group, event, known)
                if detected:
                    news = news[0], (*news[1], *((DETECTED, rule) for rule in detected))
        if job.interrupted and (
            core.t_walltime is not None or (job.again and job.outcome == "canceled")
        ):
            # It runs again, as if it had not run.
            return ()
        states = core.rules.own(group, name, news)
        return self._triggered(job, event, states) if states and core.acting else ()

    def _admit(self, event: JobEvent) -> Job | None:
        """The job of the ensemble that appears in the queue with this event, or None."""
        if event.name != "submit" or event.tag is None:
            return None
        members = self._members
        if members is not None and not members.expects(event.job, event.tag):
            return None
        job = self._core.workload.admit(event.job, event.tag, event.t)
        if job is not None:
            member = None if members is None else members.admitted(job)
            if job.firing is not None and job.firing.cancel_unseen:
                self._sending.cancel_unseen(job, job.firing)
            elif members is not None and member is not None and member.state == "draining":
                members.move(member, [job])
            self.await_nodes(job)
        return job

    def on_interrupted(self, event: Interrupted) -> Sequence[Triggered]:
        """The instance shut down while jobs of the ensemble were active."""
        for id in event.jobs:
            job = self._core.workload.jobs.get(id)
            # A job that the ensemble cancels itself ends as intended.
            if job is not None and not job.canceling:
                job.interrupted = True
                if self._members is not None:
                    self._members.interrupt(job)
        return ()

    def _expire(self, job: Job, event: JobEvent) -> None:
        """An exception while an allocation ends: tell a job's own time limit from that end."""
        t_walltime = self._core.t_walltime
        if self._members is not None and t_walltime is None:
            t_walltime = self._members.t_expires(job.id)
        if t_walltime is None or event.t < t_walltime - EXPIRY_SECONDS:
            return
        if event.context.get("type") == "timeout":
            self.on_interrupted(Interrupted(event.t, (job.id,)))

    def job(self, id: int) -> Job | None:
        """An active job, as far as it has been seen: of the ensemble, or of others."""
        return self._core.workload.jobs.get(id) or self._core.foreign.get(id)

    def _on_foreign(self, event: JobEvent) -> Sequence[Triggered]:
        core = self._core
        if not core.wants_foreign:
            return ()
        job = core.foreign.get(event.job)
        if job is None:
            job = core.foreign[event.job] = Job(event.job, event.job_name, None, 0, event.t)
            # A job from before: its earlier events are not known.
            job.phase = FIRST_SEEN.get(event.name, Phase.PENDING)
        elif event.name == "submit":
            return ()
        known = job.outcome
        if event.name != "submit" and not job.accept(event):
            return ()
        job.mark(event)
        triggers = [f"job-{event.name}"]
        if job.outcome is not None and known is None:
            triggers.append(TRIGGER_OF[job.outcome])
        if job.phase is _GONE:
            del core.foreign[event.job]
        return self._triggered(job, event, core.rules.foreign(triggers, job.group))

    # -- counts and streams -------------------------------------------------------

    def _on_validate(self, job: Job, group: str, event: JobEvent, known: str | None) -> News:
        self._core.stats.counts[group]["submitted"] += 1
        if self._pool_counts is None:
            return _VALIDATED
        return None, _VALIDATED[1] + self._pool_counts.validated(job, group)

    def _on_start(self, job: Job, group: str, event: JobEvent, known: str | None) -> News:
        stats = self._core.stats
        pending = max(0.0, event.t - job.t_submit)
        stats.observe(group, "pending", pending)
        stats.pending_nodes -= job.nodes
        job.nodes = 0
        more = (
            *self._better(job, group, "pending", pending),
            *self._by_value(job, group, "pending", pending),
        )
        return (None, (*_STARTED[1], *more)) if more else _STARTED

    def _on_finish(self, job: Job, group: str, event: JobEvent, known: str | None) -> News:
        if job.t_start is None:
            return self._conclude(job, group, event, self._want_no_nodes(job))
        seconds = max(0.0, event.t - job.t_start)
        stats = self._core.stats
        variables = stats.durations(job.outcome)
        for variable in variables:
            stats.observe(group, variable, seconds)
        changed = _RAN
        if job.outcome == "success":
            changed = _SUCCEEDED + self._better(job, group, "duration", seconds)
        changed += self._by_value(job, group, "duration", seconds, variables)
        return self._conclude(job, group, event, changed)

    def _on_memo(self, job: Job, group: str, event: JobEvent, known: str | None) -> News:
        changed: list[Change] = []
        stats = self._core.stats
        pruning = self._searching.pruning
        if pruning is not None and job.firing is not None and job.firing.trial is not None:
            pruning.published(job, event.context)
        for key, value in event.context.items():
            number = finite(value) if type(value) in (int, float) else None
            if number is None or key in _RESERVED_VARIABLES or stats.kept_by_value(group, key):
                stats.ignore(group, key)
            elif stats.has_room(group, key):
                stats.observe(group, key, number)
                changed += (("", key), *self._better(job, group, key, number))
                changed += self._by_value(job, group, key, number)
            else:
                stats.ignore(group, key)
                if group not in self.crowded:
                    self._leave_out(group, key)
        return None, tuple(changed)

    def _better(self, job: Job, group: str, variable: str, value: Number) -> tuple[Change, ...]:
        """The best jobs that it is one of now."""
        bests = self._core.stats.bests
        if not bests.kept:
            return ()
        names = bests.offer(group, variable, value, job.id, lambda: self._core.job_of(job)[1])
        return tuple((BEST, name) for name in names)

    def _by_value(
        self, job: Job, group: str, variable: str, value: Number, streams: Sequence[str] = ()
    ) -> tuple[Change, ...]:
        """Take in a value by those of the job's parameters; the streams that changed.

        Args:
            job, group: the job, and its group.
            variable: whose value it is.
            value: the value.
            streams: the variables of the streams, if they are others.
        """
        stats = self._core.stats
        by_values = stats.by.get((group, variable)) if stats.by else None
        if by_values is None:
            return ()
        changed: list[Change] = []
        for by_value in by_values:
            suffix = by_value.suffix(self._core.job_of(job)[1])
            for stream in streams or (variable,):
                if stats.has_room(group, stream + suffix):
                    stats.observe(group, stream + suffix, value)
                    changed.append(("", stream + suffix))
                else:
                    self._leave_out_value(by_value, suffix)
        return tuple(changed)

    def _leave_out_value(self, by_value: ByValue, suffix: str) -> None:
        """Some values of parameters get no stream; it is said once for each metric."""
        stats, form = self._core.stats, by_value.form
        stats.ignore(by_value.group, form.removeprefix(f"{by_value.group}-"))
        if form not in self.crowded:
            self.crowded.add(form)
            reason = (
                f"no statistics of {form} for {shortened(suffix)}, and of others like it: there "
                f"are at most {MAX_VALUES} of them, with names of at most {MAX_NAME} characters"
            )
            self._core.record("values-left-out", group=by_value.group, reason=reason)

    def _leave_out(self, group: str, key: str) -> None:
        """A key of a memo gets no stream; it is said once for each group."""
        self.crowded.add(group)
        reason = (
            f"no statistics of the memo key {shortened(repr(key))}, and of others like it: a group "
            f"has at most {MAX_VARIABLES} memo keys, of at most {MAX_NAME} characters each"
        )
        self._core.record("memo-left-out", group=group, reason=reason)

    def _on_gone(self, job: Job, group: str, event: JobEvent, known: str | None) -> News:
        news = _NO_NEWS if job.outcome is known else self._conclude(job, group, event, ())
        if job.nodes:
            outcome, changed = news
            news = outcome, changed + self._want_no_nodes(job)
        self._core.workload.leave(job)
        if self._members is not None:
            self._members.left(job)
        # One without an outcome was never accepted.
        if job.outcome is not None and not self._core.records.add(job):
            self._core.record("records-full", limit=self._core.spec.limits.records)
        return news

    def _want_no_nodes(self, job: Job) -> tuple[Change, ...]:
        self._core.stats.pending_nodes -= job.nodes
        job.nodes = 0
        return _UNWANTED

    def _conclude(self, job: Job, group: str, event: JobEvent, changed: tuple[Change, ...]) -> News:
        """Count the outcome of a job, for its pool too, and have it run again if it is to."""
        pool_counts = self._pool_counts
        if pool_counts is None:
            return self._count(job, group, event, changed)
        before = pool_counts.before(group)
        outcome, changed = self._count(job, group, event, changed)
        return outcome, changed + pool_counts.concluded(job, group, before)

    def _count(self, job: Job, group: str, event: JobEvent, changed: tuple[Change, ...]) -> News:
        """Count the outcome of a job, and have it run again if its group says so."""
        core, firing, outcome = self._core, job.firing, job.outcome
        assert firing is not None
        assert outcome is not None
        counts = core.stats.counts[group]
        counts["attempts"] += 1
        if core.stats.rates and (rate := core.stats.rates.get(group)) is not None:
            rate.add(core.t)
        counts[outcome] += 1
        changed += _CONCLUDED[outcome]
        if outcome == "success":
            counts["finished"] += 1
            if firing.trial is not None:
                self._searching.ended(job, event.t)
                changed += _of_trial(firing.trial)
            return outcome, changed + _FINISHED
        interrupted = job.interrupted and outcome == "canceled"
        if interrupted:
            core.interrupted += 1
            core.record_job("interrupted", job)
        further = self._retrying.ended(job, event.t, event.name, interrupted=interrupted)
        if firing.trial is not None:
            again = further is Further.AGAIN
            if self._searching.ended(job, event.t, again=again):
                further = Further.AGAIN
            else:
                changed += _of_trial(firing.trial)
        if further is not Further.AGAIN:
            counts["finished"] += 1
            changed += _FINISHED
        if further is Further.GAVE_UP:
            counts["gave-up"] += 1
            changed += (GAVE_UP,)
        return None if interrupted else outcome, changed

    # -- rules --------------------------------------------------------------------

    def _triggered(
        self, job: Job, event: JobEvent, states: Sequence[RuleState]
    ) -> Sequence[Triggered]:
        """The rules that a job event triggers."""
        if not states:
            return ()
        seen = {
            "trigger": f"job-{event.name}",
            "job": event.job,
            **self._core.where(event.job),
            "group": job.group,
            "timestamp": event.t,
            "context": event.context,
        }
        view = JobView(self._core, job, event.t, event.name)
        cause = Cause(seen, job=view)
        if job.firing is not None:
            cause.rule, cause.group = job.firing.rule, job.group
            cause.combinations = self._core.workload.combinations(job)
        memo = event.context if event.name == "memo" else None
        return [Triggered(state, cause, None, memo) for state in states]


def _of_trial(trial: str) -> tuple[Change, ...]:
    """What changes when a trial has ended: what is known of its search."""
    return ((SEARCH, trial.partition(":")[0]),)
