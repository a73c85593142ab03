"""Which job events go to the engine of an ensemble, and what the others are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, JobEvents
from flux_ensemble.runtime.eventlog import Log
from flux_ensemble.runtime.ports import Member

#: What a job did, one event or several at once.
OfJob = JobEvent | JobEvents


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


def _part(taker: Taker, several: JobEvents) -> JobEvents | None:
    """Those of several events of a job that are for the engine, if any: as `is_wanted`."""
    engine, events = taker.engine, several.events
    if several.tag is not None:
        taker.member.seen(several.tag, several.job)
        known = several.job in engine.workload.jobs
        if not known and not engine.expects(several.tag, several.job):
            taker.violation(next(several.each()))
            return None
    if taker.log.wants_events:
        for event in several.each():
            taker.log.job_event(event.t, engine.named(event.job), event.name, event.context)
    names = [event[1] for event in events]
    if "invalidate" in names:
        taker.member.refused(several.job)
    if engine.wants_events.issuperset(names):
        return several
    wanted = [event for event in events if event[1] in engine.wants_events]
    return replace(several, events=wanted) if wanted else None


def wanted(taker: Taker, events: Iterable[OfJob]) -> Iterator[OfJob]:
    """What of events is for the engine; each is looked at when those before it were handled."""
    for event in events:
        if isinstance(event, JobEvents):
            several = _part(taker, event)
            if several is not None:
                yield several
        elif is_wanted(taker, event):
            yield event
