"""Going on with an ensemble whose run was killed: its events, in a file, and their fold.

`EventFile` takes down each event before its commands are performed. `recover` feeds them to
a fresh engine, which then stands where the killed one stood, and finds what that had still
to do: commands without an outcome, timers that run, and jobs in the queue. A command that was
being performed is performed again, so a custom function can be called twice. A job is never
started twice: one that had been given its nodes has failed, one that waited waits again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flux_ensemble.engine.commands import (
    CallCustom,
    CancelJobs,
    Command,
    Finish,
    Record,
    StartTimer,
    StopTimer,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    Event,
    JobEvent,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.record import encode, event_from_json
from flux_ensemble.members.base import ClosingTap
from flux_ensemble.spec.model import JobSet

_WITH_OUTCOME = (SubmitJobs, CancelJobs, UpdateJobs, CallCustom)


class EventFile:
    """A file of events, a line of JSON each; a `members.base.ClosingTap`.

    Args:
        path: the file, which is appended to.
        also: a tap that gets the same.
    """

    def __init__(self, path: Path, also: ClosingTap | None = None) -> None:
        self._also = also
        # Unbuffered: an event is in the file before what it brings about is done.
        self._file = path.open("ab", buffering=0)

    def __call__(self, event: Event, commands: list[Command], /) -> None:
        """Take down an event."""
        self._file.write(encode(event).encode() + b"\n")
        if self._also is not None:
            self._also(event, commands)

    def note(self, event: JobEvent) -> None:
        """Take down an event that the engine does not get."""
        self._file.write(encode(event).encode() + b"\n")

    def close(self) -> None:
        """Take down no more."""
        self._file.close()
        if self._also is not None:
            self._also.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events in a file; the last line is cut off where the run was killed in writing it.

    Raises:
        ValueError: a line before the last is damaged.
        OSError: the file cannot be read.
    """
    whole = 0
    with path.open("r+b") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                file.truncate(whole)
                return
            whole += len(line)
            try:
                event = event_from_json(json.loads(line))
            except (ValueError, AttributeError) as error:
                raise ValueError(f"{path}:{number}: not an event: {error}") from None
            yield event


@dataclass(slots=True)
class Recovered:
    """What a run that was killed had still to do.

    Args:
        pending: commands without an outcome, by id, in the order of the engine.
        timers: those that run, with the time at which each comes due.
        seen: the job of each tag.
        placed: jobs that had been given their nodes.
        changed: the urgency and duration that jobs were given since their submission.
    """

    pending: dict[int, Command] = field(default_factory=dict)
    timers: dict[str, tuple[float, StartTimer]] = field(default_factory=dict)
    seen: dict[Tag, int] = field(default_factory=dict)
    placed: set[int] = field(default_factory=set)
    changed: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def last_id(self) -> int:
        """The last job id that was used."""
        return max(self.seen.values(), default=0)

    def waiting(self, engine: Engine) -> Iterator[tuple[int, Tag, JobSet, dict[str, Any]]]:
        """The jobs that were waiting for nodes: id, tag, job set and parameters."""
        for id, job in engine.workload.jobs.items():
            firing = job.firing
            if id in self.placed or firing is None:
                continue
            group = engine.spec.groups[firing.group]
            one, params = group.submission(firing.each, firing.params)[job.index]
            one = replace(one, **self.changed.get(id, {}))
            yield id, Tag(firing.group, firing.rule, firing.number, job.index), one, params

    def commands(self, now: float) -> Iterator[Command]:
        """What is to be performed."""
        for t, timer in self.timers.values():
            yield replace(timer, after=max(0.0, t - now))
        for command in self.pending.values():
            yield self._rest(command) if isinstance(command, SubmitJobs) else command

    def events(self, engine: Engine, now: float) -> Iterator[JobEvent]:
        """What is to be said of the jobs that were in the queue: those placed have failed."""
        note = "lost when the run was killed"
        for id in [id for id in engine.workload.jobs if id <= self.last_id]:
            yield JobEvent(now, id, "validate")
            if id in self.placed:
                yield JobEvent(now, id, "exception", {"type": "lost", "severity": 0, "note": note})
                yield JobEvent(now, id, "clean")

    def change(self, command: UpdateJobs) -> None:
        """Take into account that jobs were changed."""
        values = {"urgency": command.urgency, "duration": command.duration}
        for job in command.jobs:
            self.changed.setdefault(job, {}).update(
                (name, value) for name, value in values.items() if value is not None
            )

    def _rest(self, command: SubmitJobs) -> SubmitJobs:
        """The jobs of a submission that never showed; they show in order."""
        first = command.first
        end = first + command.count
        while first < end and Tag(command.group, command.rule, command.firing, first) in self.seen:
            first += 1
        return replace(command, first=first, count=end - first)


def recover(engine: Engine, events: Iterator[Event], record: Callable[[Record], None]) -> Recovered:
    """Feed the events of a run to a fresh engine.

    Args:
        engine: has taken in no event.
        events: all events of the run, in order.
        record: gets each entry of the eventlog again.
    """
    found = Recovered()
    for event in events:
        if isinstance(event, (CommandDone, CommandFailed)):
            found.pending.pop(event.command, None)
        elif isinstance(event, TimerFired) and event.key in found.timers:
            _, timer = found.timers.pop(event.key)
            if timer.every:
                found.timers[event.key] = (event.t + timer.every, timer)
        elif isinstance(event, JobEvent):
            if event.tag is not None:
                found.seen[event.tag] = event.job
            elif event.name == "alloc":
                found.placed.add(event.job)
        for command in engine.handle(event):
            if isinstance(command, _WITH_OUTCOME):
                found.pending[command.id] = command
                if isinstance(command, UpdateJobs):
                    found.change(command)
            elif isinstance(command, StartTimer):
                found.timers[command.key] = (event.t + command.after, command)
            elif isinstance(command, StopTimer):
                found.timers.pop(command.key, None)
            elif isinstance(command, Record):
                record(command)
            elif isinstance(command, Finish):
                found.timers.clear()
    return found
