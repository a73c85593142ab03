"""Durations of the jobs of an earlier run by group, for a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path

from flux_ensemble.engine.codec import event_from_json
from flux_ensemble.engine.events import Event, JobEvent, JobEvents, JobsAlike
from flux_ensemble.runtime.recording import MAX_QUOTE, RecordingError, read_lines


def durations(path: str | Path) -> Mapping[str, tuple[float, ...]]:
    """Return the seconds from start to finish, by group, of the jobs that ended by themselves.

    Args:
        path: a recording; see `runtime.recording`.

    Raises:
        RecordingError: the file is not a complete recording of this version.
        OSError: the file cannot be read.
    """
    groups: dict[int, str] = {}
    started: dict[int, float] = {}
    found: dict[str, list[float]] = {}
    for number, line in read_lines(Path(path)):
        if number == 1:
            continue
        try:
            event = event_from_json(line["event"])
            events = list(_of_job(event))
            for job_event in events:
                _check(job_event)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            what = str(error)[:MAX_QUOTE]
            raise RecordingError(f"{path}:{number}: not an event: {what}") from None
        for job_event in events:
            if job_event.tag is not None:
                groups[job_event.job] = job_event.tag.group
            elif job_event.name == "start":
                started[job_event.job] = job_event.t
            elif job_event.name == "exception":
                started.pop(job_event.job, None)
            elif (
                job_event.name == "finish" and job_event.job in started and job_event.job in groups
            ):
                seconds = max(0.0, job_event.t - started.pop(job_event.job))
                found.setdefault(groups[job_event.job], []).append(seconds)
    return {group: tuple(values) for group, values in found.items()}


def _of_job(event: Event) -> Iterator[JobEvent]:
    """Yield the events of the ensemble's own jobs within an event."""
    if isinstance(event, JobsAlike):
        for events in event.each():
            yield from events.each()
    elif isinstance(event, JobEvents):
        yield from event.each()
    elif isinstance(event, JobEvent) and not event.foreign:
        yield event


def _check(event: JobEvent) -> None:
    """Check the values of an event, since `event_from_json` does not."""
    if not isfinite(event.t):
        raise ValueError(f"expected a time, not {event.t}")
    if type(event.job) is not int:
        raise ValueError(f"expected the id of a job, not {event.job!r}")
    if event.tag is not None and not isinstance(event.tag.group, str):
        raise ValueError(f"expected the name of a group, not {event.tag.group!r}")
