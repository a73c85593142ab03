"""What job events do: phases, counts, streams, and the rules that they trigger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flux_ensemble.engine.events import JobEvent
from flux_ensemble.engine.jobs import Job, Phase
from flux_ensemble.engine.metrics import finite
from flux_ensemble.engine.paths import COUNT, MetricPath
from flux_ensemble.engine.rules import RuleState
from flux_ensemble.spec.model import GAUGES, OUTCOME_TRIGGERS, STREAMS

if TYPE_CHECKING:
    from flux_ensemble.engine.engine import Engine

_TRIGGER_OF = {outcome: trigger for trigger, outcome in OUTCOME_TRIGGERS.items()}

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

    def on_job_event(self, event: JobEvent) -> None:
        """A job posted an event."""
        if event.foreign:
            self._on_foreign(event)
        else:
            self._on_own(event)

    def forget_foreign(self) -> None:
        """No rule is about jobs of others any more."""
        self._foreign.clear()

    def _on_own(self, event: JobEvent) -> None:
        engine = self._engine
        job = engine.workload.jobs.get(event.job)
        known = None if job is None else job.outcome
        if job is not None:
            if not job.accept(event):
                return
        elif event.name == "submit" and event.tag is not None:
            job = engine.workload.admit(event.job, event.tag, event.t)
            if job is None:
                return
            engine.actions.admitted(job)
        else:
            return
        triggers = [f"job-{event.name}"]
        changed = self._observe(job, event)
        if known is None and job.outcome is not None:
            triggers.append(_TRIGGER_OF[job.outcome])
            self._conclude(job, job.outcome, changed)
        if job.phase is Phase.GONE:
            engine.workload.leave(job)
        if engine.acting and (states := engine.rules.own(triggers, job.group, changed)):
            self._trigger(job, event, states)

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
            triggers.append(_TRIGGER_OF[job.outcome])
        if job.phase is Phase.GONE:
            del self._foreign[event.job]
        self._trigger(job, event, engine.rules.foreign(triggers, job.group))

    def _trigger(self, job: Job, event: JobEvent, states: list[RuleState]) -> None:
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

    def _observe(self, job: Job, event: JobEvent) -> list[MetricPath]:
        """Count and measure what happened to a job of ours.

        Returns:
            The metrics that changed.
        """
        group, name = job.group or "", event.name
        changed: list[MetricPath] = []
        if name == "validate":
            self._count(group, "submitted", changed)
        elif name == "start":
            self._measure(group, "pending", max(0.0, event.t - job.t_submit), changed)
        elif name == "finish" and job.t_start is not None:
            self._measure(group, "duration", max(0.0, event.t - job.t_start), changed)
        elif name == "memo":
            for key, value in event.context.items():
                number = finite(value) if type(value) in (int, float) else None
                if number is not None and key not in _RESERVED_VARIABLES:
                    self._measure(group, key, number, changed)
        return changed

    def _conclude(self, job: Job, outcome: str, changed: list[MetricPath]) -> None:
        """Count the outcome of a job of ours, and try it again if it is to be."""
        engine, firing = self._engine, job.firing
        assert firing is not None
        self._count(firing.group, "finished", changed)
        self._count(firing.group, outcome, changed)
        if outcome != "failed" or not engine.acting or firing.cancel_unseen:
            return
        group = engine.spec.groups[firing.group]
        one, _ = group.submission(firing.each, firing.params)[job.index]
        if firing.attempt < one.retries:
            engine.actions.retry(firing, job.index)

    def _count(self, group: str, counter: str, changed: list[MetricPath]) -> None:
        self._engine.stats.increment(group, counter)
        changed.append(MetricPath(COUNT, group, counter))

    def _measure(self, group: str, variable: str, value: float, changed: list[MetricPath]) -> None:
        self._engine.stats.observe(group, variable, value)
        changed.append(MetricPath("", group, variable))
