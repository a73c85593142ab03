"""Going on with an ensemble whose run was killed: its events, in a file, and their fold.

`EventFile` takes down each event before its commands are performed. `recover` feeds them to
a fresh engine, which then stands where the killed one stood, and finds what that had still
to do: timers that run, and jobs in the queue. A command that was being performed is performed
again, so a custom function can be called twice. A job is never started twice: one that had
been given its nodes has failed, one that waited waits again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flux_ensemble.engine.commands import Command, Record, UpdateJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event, JobEvent, Tag
from flux_ensemble.engine.record import encode, event_from_json
from flux_ensemble.members.agenda import Agenda
from flux_ensemble.spec.model import JobSet


class EventFile:
    """A file of events, a line of JSON each; a `members.base.WriteAhead`.

    Args:
        path: the file, which is appended to.
        agenda: as it was recovered.

    Attributes:
        agenda: what is to be known of the events taken down.
    """

    def __init__(self, path: Path, agenda: Agenda) -> None:
        self.agenda = agenda
        # Unbuffered: an event is in the file before what it brings about is done.
        self._file = path.open("ab", buffering=0)

    def write(self, event: Event, commands: list[Command], then: Callable[[], None]) -> bool:
        """Take down an event; it is durable at once."""
        self.agenda.take(event, commands)
        self.take_down(event)
        return True

    def take_down(self, event: Event) -> None:
        """Take down an event that the engine may not get."""
        self._file.write(encode(event).encode() + b"\n")

    def note(
        self,
        t: float,
        name: str,
        context: Mapping[str, Any],
        then: Callable[[], None],
        *,
        sync: bool = False,
    ) -> None:
        """Entries for people are in the eventlog alone."""
        then()

    def barrier(self, then: Callable[[], None]) -> None:
        """All is durable."""
        then()

    def close(self) -> None:
        """Take down no more."""
        self._file.close()


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
    """What a run that was killed had in its queue.

    Args:
        last_id: the last job id that was used.
        placed: jobs that had been given their nodes.
        changed: the urgency and duration that jobs were given since their submission.
    """

    last_id: int = 0
    placed: set[int] = field(default_factory=set)
    changed: dict[int, dict[str, Any]] = field(default_factory=dict)

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

    def events(self, engine: Engine, now: float) -> Iterator[JobEvent]:
        """What is to be said of the jobs that were in the queue: those placed have failed."""
        note = "lost when the run was killed"
        for id in [id for id in engine.workload.jobs if id <= self.last_id]:
            yield JobEvent(now, id, "validate")
            if id in self.placed:
                yield JobEvent(now, id, "exception", {"type": "lost", "severity": 0, "note": note})
                yield JobEvent(now, id, "clean")

    def take(self, event: JobEvent) -> None:
        """Take a job's event into account."""
        if event.tag is not None:
            self.last_id = max(self.last_id, event.job)
        elif event.name == "alloc":
            self.placed.add(event.job)
        elif event.name == "clean":
            self.placed.discard(event.job)
            self.changed.pop(event.job, None)

    def change(self, command: UpdateJobs) -> None:
        """Take into account that jobs were changed."""
        values = {"urgency": command.urgency, "duration": command.duration}
        for job in command.jobs:
            self.changed.setdefault(job, {}).update(
                (name, value) for name, value in values.items() if value is not None
            )


def recover(
    engine: Engine, agenda: Agenda, events: Iterator[Event], record: Callable[[Record], None]
) -> Recovered:
    """Feed the events of a run to a fresh engine.

    Args:
        engine: has taken in no event.
        agenda: a fresh one.
        events: all events of the run, in order.
        record: gets each entry of the eventlog again.
    """
    found = Recovered()
    for event in events:
        if isinstance(event, JobEvent):
            found.take(event)
        commands = engine.handle(event)
        agenda.take(event, commands)
        for command in commands:
            if isinstance(command, UpdateJobs):
                found.change(command)
            elif isinstance(command, Record):
                record(command)
    return found
