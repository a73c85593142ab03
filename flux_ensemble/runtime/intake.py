"""Which job events go to the engine of an ensemble, and what the others are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, JobEvents
from flux_ensemble.runtime.eventlog import Log
from flux_ensemble.runtime.ports import Queue

#: What a job did, one event or several at once.
OfJob = JobEvent | JobEvents

_NO_CONTEXT: Mapping[str, Any] = {}


class Taker(Protocol):
    """An ensemble, as far as it is asked here: see `runtime.ensemble.Ensemble`."""

    engine: Engine
    log: Log
    member: Queue

    def violation(self, event: OfJob) -> None:
        """A job has the tag of another one, or one that nobody gave."""
        ...


def is_wanted(taker: Taker, event: JobEvent) -> bool:
    """Whether an event is for the engine; what is not the engine's to see to is done."""
    if event.tag is not None and not _is_expected(taker, event):
        return False
    wanted = _is_needed(taker, event.t, event.job, event.name, event.context)
    return wanted and (not event.foreign or taker.engine.wants_job(event.job_name))


def wanted(taker: Taker, event: OfJob) -> OfJob | None:
    """What of an event, or of several of a job, is for the engine, if anything: as `is_wanted`."""
    if not isinstance(event, JobEvents):
        return event if is_wanted(taker, event) else None
    if event.tag is not None and not _is_expected(taker, event):
        return None
    needed = [one for one in event.events if _is_needed(taker, one[0], event.job, *one[1:])]
    if len(needed) == len(event.events):
        return event
    return replace(event, events=needed) if needed else None


def _is_expected(taker: Taker, event: OfJob) -> bool:
    """Whether a job with a tag is the one that was sent; one that is not is a violation."""
    engine, tag = taker.engine, event.tag
    assert tag is not None
    taker.member.seen(tag, event.job)
    if event.job in engine.workload.jobs or engine.expects(tag, event.job):
        return True
    taker.violation(event)
    return False


def _is_needed(
    taker: Taker, t: float, job: int, name: str, context: Mapping[str, Any] = _NO_CONTEXT
) -> bool:
    """Whether the engine needs an event; who follows those of jobs is told of it."""
    engine = taker.engine
    if name == "invalidate":
        taker.member.refused(job)
    if taker.log.wants_events:
        taker.log.job_event(t, engine.named(job), name, context)
    return name in engine.wants_events
