"""What job events do: phases, counts, streams, and the rules that they trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flux_ensemble.engine.events import Interrupted, JobEvent
from flux_ensemble.engine.jobs import Job, Phase
from flux_ensemble.engine.metrics import finite
from flux_ensemble.engine.paths import COUNT, PENDING_NODES
from flux_ensemble.engine.rules import TRIGGER_OF, Change, RuleState
from flux_ensemble.spec.model import GAUGES, OUTCOMES, STREAMS, JobSet

if TYPE_CHECKING:
    from flux_ensemble.engine.engine import Engine

#: What changes when a job that has not started waits no more. (Where it is submitted or
#: starts the index of the rules knows by the event.)
_UNWANTED: tuple[Change, ...] = ((PENDING_NODES.statistic, PENDING_NODES.variable),)

#: What changes when a job is valid, starts, finishes after a start, and has its outcome.
_VALIDATED: tuple[Change, ...] = ((COUNT, "submitted"),)
_STARTED: tuple[Change, ...] = (("", "pending"),)
_FINISHED: tuple[Change, ...] = (("", "duration"),)
_CONCLUDED: Mapping[str, tuple[Change, ...]] = {
    outcome: ((COUNT, "finished"), (COUNT, outcome)) for outcome in OUTCOMES
}

#: Looking up a member of an enumeration takes longer than everything else about it.
_GONE = Phase.GONE

#: A memo key of such a name would be taken for a variable of ours, and is left out.
_RESERVED_VARIABLES = frozenset((*STREAMS, *GAUGES))

#: Phase of a foreign job before the event by which it is first seen. An event after
#: `finish` leaves the outcome unknown.
_FIRST_SEEN = {
    **dict.fromkeys(("submit", "validate", "invalidate"), Phase.NEW),
    **dict.fromkeys(("release", "free", "epilog-start", "epilog-finish", "clean"), Phase.NEW),
    "finish": Phase.RUNNING,
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a rule is evaluated.

    Args:
        event: what the log and custom functions get to see.
        rule: the rule whose job brought it about, or None.
        chain: the rules that led here with no job or time between.
    """

    event: Mapping[str, Any]
    rule: str | None = None
    chain: tuple[str, ...] = ()


class Observer:
    """Takes in job events for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._foreign: dict[int, Job] = {}
        #: The nodes of each group's jobs, 0 where those of its job sets differ.
        self._nodes: dict[str, int] = {}
        for name, group in engine.spec.groups.items():
            sizes = {one.nodes for one in group.sets}
            self._nodes[name] = sizes.pop() if len(sizes) == 1 else 0

    def await_nodes(self, job: Job) -> None:
        """A job of ours waits for nodes."""
        job.nodes = self._nodes[job.group or ""] or self._job_set(job).nodes
        self._engine.stats.pending_nodes += job.nodes

    def _job_set(self, job: Job) -> JobSet:
        firing = job.firing
        assert firing is not None
        group = self._engine.spec.groups[firing.group]
        one, _ = group.submission(firing.each, firing.params)[job.index]
        return one

    def on_job_event(self, event: JobEvent) -> None:
        """A job posted an event."""
        if event.foreign:
            self._on_foreign(event)
            return
        engine = self._engine
        job, known = engine.workload.jobs.get(event.job), None
        if job is not None:
            known = job.outcome
            if not job.accept(event):
                return
        elif event.name == "submit" and event.tag is not None:
            job = engine.workload.admit(event.job, event.tag, event.t)
            if job is None:
                return
            engine.actions.admitted(job)
        else:
            return
        group = job.group or ""
        changed = self._observe(job, group, event)
        outcome = None
        if known is None and job.outcome is not None:
            interrupted = job.interrupted and job.outcome == "canceled"
            if not interrupted:
                outcome = job.outcome
            self._conclude(job, job.outcome, interrupted)
            changed += _CONCLUDED[job.outcome]
        if job.phase is _GONE:
            if job.nodes:
                changed += self._want_no_nodes(job)
            engine.workload.leave(job)
        states = engine.rules.own(group, event.name, outcome, changed)
        if states and engine.acting:
            self._trigger(job, event, states)

    def on_interrupted(self, event: Interrupted) -> None:
        """The instance shut down while jobs of ours were active."""
        for id in event.jobs:
            job = self._engine.workload.jobs.get(id)
            # A job that the ensemble cancels itself ends as it was meant to.
            if job is not None and not job.canceling:
                job.interrupted = True

    def forget_foreign(self) -> None:
        """Forget the jobs of others that no rule is about any more."""
        wants = self._engine.wants_job
        self._foreign = {id: job for id, job in self._foreign.items() if wants(job.group)}

    def _on_foreign(self, event: JobEvent) -> None:
        engine = self._engine
        if not engine.wants_foreign:
            return
        job = self._foreign.get(event.job)
        if job is None:
            job = self._foreign[event.job] = Job(event.job, event.job_name, None, 0, event.t)
            # A job that was in the queue before: what it has been through is not known.
            job.phase = _FIRST_SEEN.get(event.name, Phase.PENDING)
        elif event.name == "submit":
            return
        known = job.outcome
        if event.name != "submit" and not job.accept(event):
            return
        triggers = [f"job-{event.name}"]
        if job.outcome is not None and known is None:
            triggers.append(TRIGGER_OF[job.outcome])
        if job.phase is _GONE:
            del self._foreign[event.job]
        self._trigger(job, event, engine.rules.foreign(triggers, job.group))

    def _trigger(self, job: Job, event: JobEvent, states: Sequence[RuleState]) -> None:
        if not states:
            return
        seen = {
            "trigger": f"job-{event.name}",
            "job": event.job,
            "group": job.group,
            "timestamp": event.t,
            "context": event.context,
        }
        cause = Cause(seen, job.firing.rule if job.firing is not None else None)
        memo = event.context if event.name == "memo" else None
        for state in states:
            self._engine.evaluate(state, cause, memo=memo)

    def _observe(self, job: Job, group: str, event: JobEvent) -> tuple[Change, ...]:
        """Count and measure what happened to a job of ours.

        Returns:
            The metrics of the group that changed.
        """
        stats, name = self._engine.stats, event.name
        if name == "validate":
            stats.increment(group, "submitted")
            return _VALIDATED
        if name == "start":
            stats.observe(group, "pending", max(0.0, event.t - job.t_submit))
            stats.pending_nodes -= job.nodes
            job.nodes = 0
            return _STARTED
        if name == "finish":
            if job.t_start is None:
                return self._want_no_nodes(job)
            stats.observe(group, "duration", max(0.0, event.t - job.t_start))
            return _FINISHED
        if name == "submit":
            self.await_nodes(job)
            return ()
        if name != "memo":
            return ()
        changed: list[Change] = []
        for key, value in event.context.items():
            number = finite(value) if type(value) in (int, float) else None
            if number is not None and key not in _RESERVED_VARIABLES:
                stats.observe(group, key, number)
                changed.append(("", key))
        return tuple(changed)

    def _want_no_nodes(self, job: Job) -> tuple[Change, ...]:
        self._engine.stats.pending_nodes -= job.nodes
        job.nodes = 0
        return _UNWANTED

    def _conclude(self, job: Job, outcome: str, interrupted: bool) -> None:
        """Count the outcome of a job of ours, and try it again if it is to be."""
        engine, firing = self._engine, job.firing
        assert firing is not None
        engine.stats.increment(firing.group, "finished")
        engine.stats.increment(firing.group, outcome)
        if interrupted:
            engine.interrupted += 1
            engine.record(
                "interrupted",
                id=job.id,
                group=firing.group,
                rule=firing.rule,
                firing=firing.number,
                index=job.index,
            )
        again = outcome == "failed" or interrupted
        if not again or not engine.acting or firing.cancel_unseen:
            return
        if firing.attempt < self._job_set(job).retries:
            engine.actions.retry(firing, job.index)
