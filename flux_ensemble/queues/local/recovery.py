"""Resumption of an ensemble whose run was killed: a file of its events, and their replay.

`EventFile` stores each event before its commands are performed. `recover` feeds the events to a
fresh engine, which then has the state of the killed one, and finds the unfinished work: running
timers, and jobs in the queue. A command that was in progress is performed again, so a custom
function can be called twice. A job is never started twice: a job that had been given its nodes has
ended, a job that waited waits again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.engine.codec import encode, event_from_json
from flux_ensemble.engine.commands import Command, Record, UpdateJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event, JobEvent, Tag
from flux_ensemble.eventlog import Epoch, Shutdown, Stored, read
from flux_ensemble.queues.local.directory import Directory
from flux_ensemble.runtime.durability.lines import Lines, whole_lines
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ports import Unwritten

#: Most events that wait to be written.
MAX_WAITING = 64

#: An event and its checksum.
_LINE = re.compile(rb'(\{.*),"crc":"([0-9a-f]{8})"\}\n', re.DOTALL)


class EventFile:
    """A file of events, a line of JSON each; a `runtime.ports.WriteAhead`.

    The `crc` of a line is the CRC-32 of all events so far, so that damage is noticed, and so are
    events missing before the last line.

    An event is in the file before its commands are performed; an event without commands waits for
    the next one that has some, or for `flush`.

    Args:
        directory: for the file `events`.
        timers: a fresh one, or as it was recovered.
        failed: receives a sentence if an event cannot be written. After that no event is written,
            and no commands are performed.

    Attributes:
        timers: the state of the timers after the events written so far.
        count: number of events in the file.
        unwritten: always None, since a run whose events cannot be written ends.

    Raises:
        StateError: the file's name is taken by something else.
        OSError: the file cannot be opened.
    """

    def __init__(self, directory: Directory, timers: Timers, failed: Callable[[str], None]) -> None:
        self.timers = timers
        self.unwritten: Unwritten | None = None
        self.count = 0
        self._crc = 0
        self._path = directory.path / "events"
        self._failed = failed
        self._fd = directory.open_or_make("events", os.O_RDWR | os.O_APPEND)
        self._lines: Lines | None = Lines(self._fd)
        self._waiting: list[bytes] = []

    def read(self, known: int = 0) -> Iterator[Event]:
        """Yield the events in the file; further events are appended after them.

        The last line is cut off if the run was killed while writing it.

        Args:
            known: the least number of events that are known to be there.

        Raises:
            ValueError: a line is damaged, or events are missing.
            OSError: the file cannot be read.
        """
        assert self._lines is not None
        size = 0
        with os.fdopen(self._fd, "rb", closefd=False) as file:
            for line in whole_lines(file):
                self.count += 1
                size += len(line)
                yield self._parse(line)
        if self.count < known:
            raise ValueError(
                f"{self._path}: {self.count} events, where at least {known} were taken down"
            )
        self._lines.cut(size)

    def _parse(self, line: bytes) -> Event:
        found = _LINE.fullmatch(line)
        where = f"{self._path}:{self.count}: not an event"
        if found is None:
            raise ValueError(f"{where} with a checksum")
        text = found[1] + b"}"
        self._crc = crc32(text, self._crc)
        if int(found[2], 16) != self._crc:
            raise ValueError(f"{where} as it was taken down, or those before it are not")
        try:
            return event_from_json(json.loads(text))
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{where}: {error}") from None

    def write(self, event: Event, commands: list[Command], then: Callable[[], None]) -> bool:
        """Write an event; it is durable on return, or its commands are never performed."""
        self.timers.take(event, commands)
        self.take_down(event)
        return not commands or self.flush()

    def hold(self) -> None:
        """Do nothing: each event is written by itself."""

    def release(self) -> None:
        """Do nothing: no event was held."""

    def take_down(self, event: Event) -> None:
        """Add an event to those that wait to be written; the engine may not receive it."""
        if self._lines is None:
            return
        text = encode(event).encode()
        self._crc = crc32(text, self._crc)
        self._waiting.append(b'%b,"crc":"%08x"}\n' % (text[:-1], self._crc))
        if len(self._waiting) == MAX_WAITING:
            self.flush()

    def flush(self) -> bool:
        """Write the events that wait; return False if that failed, now or before."""
        if self._lines is None:
            return False
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            try:
                self._lines.append(b"".join(waiting))
            except OSError as error:
                with contextlib.suppress(OSError):
                    self.close()
                self._failed(f"cannot write {self._path}: {error.strerror}")
                return False
            self.count += len(waiting)
        return True

    def note(
        self,
        t: float,
        name: str,
        context: Mapping[str, Any],
        then: Callable[[], None],
        *,
        sync: bool = False,
    ) -> None:
        """Call `then`: entries for people are in the eventlog alone."""
        then()

    def barrier(self, then: Callable[[], None]) -> None:
        """Call `then` when all events are durable, which is at once."""
        if self.flush():
            then()

    def close(self) -> None:
        """Write the events that wait, and close the file."""
        self.flush()
        if self._lines is not None:
            lines, self._lines = self._lines, None
            lines.close()


def whole_log(before: Iterable[Stored], records: Iterable[Record]) -> Iterator[Stored]:
    """Yield the log of a run that goes on: the engine's entries again, and the notes between.

    Args:
        before: the log of the earlier run, which may be missing.
        records: the entries from the replay of its events. The log has most of them, but some of
            the last ones may be missing.
    """
    after: dict[int, list[Stored]] = {}
    count = 0
    for entry in before:
        if read(entry).is_note:
            after.setdefault(count, []).append(entry)
        else:
            count += 1
    for number, record in enumerate(records):
        yield from after.pop(number, ())
        yield {"timestamp": record.t, "name": record.name, "context": record.context}
    for number in sorted(after):
        yield from after[number]


def t_stopped(before: Iterable[Stored]) -> float | None:
    """Return the time of the earlier run's orderly end; None if it was killed.

    Args:
        before: its log.
    """
    t = None
    for stored in before:
        entry = read(stored)
        if isinstance(entry, Epoch):
            t = None
        elif isinstance(entry, Shutdown) and not entry.lost:
            t = stored["timestamp"]
    return t


@dataclass(slots=True)
class Recovered:
    """The jobs that a killed run had in its queue.

    Args:
        last_id: the last job id that was used.
        placed: jobs that had been given their nodes.
        changed: the urgency and duration that jobs were given after their submission.
    """

    last_id: int = 0
    placed: set[int] = field(default_factory=set)
    changed: dict[int, dict[str, Any]] = field(default_factory=dict)

    def waiting(self, engine: Engine) -> Iterator[tuple[int, Tag, JobSet, dict[str, Any]]]:
        """Yield the jobs that were waiting for nodes: id, tag, job set and parameters."""
        for id, job in engine.workload.jobs.items():
            firing = job.firing
            if id in self.placed or firing is None:
                continue
            job_set, params = engine.job_of(job)
            job_set = replace(job_set, **self.changed.get(id, {}))
            yield id, Tag(firing.group, firing.rule, firing.number, job.index), job_set, params

    def started(self, engine: Engine) -> tuple[int, ...]:
        """Return the jobs that are known to have run."""
        jobs = engine.workload.jobs
        return tuple(id for id in jobs if id in self.placed and jobs[id].t_start is not None)

    def events(
        self, engine: Engine, now: float, t_end: float | None, t_known: float
    ) -> Iterator[JobEvent]:
        """Yield the events of the jobs that were in the queue: those with nodes have ended.

        Args:
            engine: has replayed the events of the run.
            now: the time.
            t_end: as `t_stopped` returns it. A job that is not known to have started has no known
                outcome either: it is lost.
            t_known: when the run is last known to have gone on. Lost jobs are reported to have
                ended then, since nobody knows the time.
        """
        started = () if t_end is None else self.started(engine)
        for id in [id for id in engine.workload.jobs if id <= self.last_id]:
            yield JobEvent(now, id, "validate")
            if id not in self.placed:
                continue
            t, kind, note = t_known, "lost", "lost when the run was killed"
            if t_end is not None and id in started:
                t, kind, note = t_end, "cancel", "its run was interrupted"
            yield JobEvent(t, id, "exception", {"type": kind, "severity": 0, "note": note})
            yield JobEvent(t, id, "clean")

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
        """Take changes of jobs into account."""
        values = {"urgency": command.urgency, "duration": command.duration}
        for job in command.jobs:
            self.changed.setdefault(job, {}).update(
                (name, value) for name, value in values.items() if value is not None
            )


def recover(
    engine: Engine, timers: Timers, events: Iterator[Event], record: Callable[[Record], None]
) -> Recovered:
    """Feed the events of a run to a fresh engine.

    Args:
        engine: a fresh one.
        timers: a fresh one.
        events: all events of the run, in order.
        record: receives each entry of the eventlog again.
    """
    found = Recovered()
    for event in events:
        if isinstance(event, JobEvent):
            found.take(event)
        commands = engine.handle(event)
        timers.take(event, commands)
        for command in commands:
            if isinstance(command, UpdateJobs):
                found.change(command)
            elif isinstance(command, Record):
                record(command)
    return found
