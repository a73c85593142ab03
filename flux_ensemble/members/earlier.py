"""What an earlier run tells a simulation: how long the jobs of each group took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flux_ensemble.engine.events import JobEvent
from flux_ensemble.engine.record import event_from_json
from flux_ensemble.members.recording import RecordingError, read_lines


def durations(path: str | Path) -> Mapping[str, tuple[float, ...]]:
    """Seconds from start to finish by group, of the jobs that ended by themselves.

    Args:
        path: a recording; see `members.recording`.

    Raises:
        RecordingError: the file is no whole recording of this version.
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
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordingError(f"{path}:{number}: not an event: {error}") from None
        if not isinstance(event, JobEvent) or event.foreign:
            continue
        if event.tag is not None:
            groups[event.job] = event.tag.group
        elif event.name == "start":
            started[event.job] = event.t
        elif event.name == "exception":
            started.pop(event.job, None)
        elif event.name == "finish" and event.job in started and event.job in groups:
            seconds = max(0.0, event.t - started.pop(event.job))
            found.setdefault(groups[event.job], []).append(seconds)
    return {group: tuple(values) for group, values in found.items()}
