"""The choice of the job events for an ensemble's engine, and the handling of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, JobEvents
from flux_ensemble.runtime.eventlog import Log
from flux_ensemble.runtime.ports import Queue

#: An event of a job, or several at once.
OfJob = JobEvent | JobEvents

_NO_CONTEXT: Mapping[str, Any] = {}


class Taker(Protocol):
    """An ensemble as this module uses it: see `runtime.ensemble.Ensemble`."""

    engine: Engine
    log: Log
    member: Queue

    def violation(self, event: OfJob) -> None:
        """Handle a job that has the tag of another job, or a tag that the ensemble never gave."""
        ...


def is_wanted(taker: Taker, event: JobEvent) -> bool:
    """Return whether an event is for the engine; handle its other effects."""
    if event.tag is not None and not _is_expected(taker, event):
        return False
    wanted = _is_needed(taker, event.t, event.job, event.name, event.context)
    return wanted and (not event.foreign or taker.engine.wants_job(event.job_name))


def wanted(taker: Taker, event: OfJob) -> OfJob | None:
    """Return the part of an event, or of several of a job, for the engine, or None: `is_wanted`."""
    if not isinstance(event, JobEvents):
        return event if is_wanted(taker, event) else None
    if event.tag is not None and not _is_expected(taker, event):
        return None
    needed = [one for one in event.events if _is_needed(taker, one[0], event.job, *one[1:])]
    if len(needed) == len(event.events):
        return event
    return replace(event, events=needed) if needed else None


def _is_expected(taker: Taker, event: OfJob) -> bool:
    """Return whether a job with a tag is the one that was sent; any other is a violation."""
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
    """Return whether the engine needs an event; pass it on to followers that want job events."""
    engine = taker.engine
    if name == "invalidate":
        taker.member.refused(job)
    if taker.log.wants_events:
        taker.log.job_event(t, engine.named(job), name, context)
    return name in engine.wants_events
