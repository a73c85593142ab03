"""Which job events go to the engine of an ensemble, and what the others are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux_ensemble.engine.events import JobEvent

if TYPE_CHECKING:
    from flux_ensemble.runtime.ensemble import Ensemble


def is_wanted(ensemble: Ensemble, event: JobEvent) -> bool:
    """Whether an event is for the engine; what is not the engine's to see to is done."""
    engine, name = ensemble.engine, event.name
    if event.tag is not None:
        ensemble.member.seen(event.tag, event.job)
        if event.job not in engine.workload.jobs and not engine.expects(event.tag, event.job):
            ensemble.violation(event)
            return False
    if name == "invalidate":
        ensemble.member.refused(event.job)
    if ensemble.log.wants_events:
        ensemble.log.job_event(event.t, engine.named(event.job), name, event.context)
    wanted = name in engine.wants_events
    return wanted and (not event.foreign or engine.wants_job(event.job_name))
