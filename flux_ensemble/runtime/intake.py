"""Which job events go to the engine of an ensemble, and what the others are."""

from __future__ import annotations

from typing import Protocol

from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.runtime.eventlog import Log
from flux_ensemble.runtime.ports import Member


class Taker(Protocol):
    """An ensemble, as far as it is asked here: see `runtime.ensemble.Ensemble`."""

    engine: Engine
    log: Log
    member: Member

    def violation(self, event: JobEvent) -> None:
        """A job has the tag of another one, or one that nobody gave."""
        ...


def is_wanted(taker: Taker, event: JobEvent) -> bool:
    """Whether an event is for the engine; what is not the engine's to see to is done."""
    engine, name = taker.engine, event.name
    if event.tag is not None:
        taker.member.seen(event.tag, event.job)
        if event.job not in engine.workload.jobs and not engine.expects(event.tag, event.job):
            taker.violation(event)
            return False
    if name == "invalidate":
        taker.member.refused(event.job)
    if taker.log.wants_events:
        taker.log.job_event(event.t, engine.named(event.job), name, event.context)
    wanted = name in engine.wants_events
    return wanted and (not event.foreign or engine.wants_job(event.job_name))
