"""An ensemble from a recording of its events, which a fresh engine replays.

recording ──events──► Engine ──► status, metrics, jobs, log
"""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from flux_ensemble.document.loading import load_mapping, load_text
from flux_ensemble.engine.codec import event_from_json
from flux_ensemble.engine.commands import Command, Record
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.rule_reasons import why
from flux_ensemble.engine.status import status
from flux_ensemble.eventlog import Stored
from flux_ensemble.report.source import Job, Source
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.recording import MAX_QUOTE, RecordingError, read_lines

#: Number of jobs that are kept unpacked, before they are packed together.
CHUNK = 4000


class Spool:
    """The entries of a log, in a temporary file."""

    def __init__(self) -> None:
        self._file: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def add(self, t: float, name: str, context: Any) -> None:
        """Add an entry."""
        entry = {"timestamp": t, "name": name, "context": context}
        self._file.write(json.dumps(entry) + "\n")

    def __iter__(self) -> Iterator[Stored]:
        self._file.seek(0)
        # Line by line, so that the file is not closed before it is read.
        for line in self._file:
            yield json.loads(line)


class RecordingTap:
    """Keeps what an engine has recorded; a `runtime.ports.Tap`.

    Args:
        engine: has not handled any event yet.
        document: of its ensemble, text or mapping.
    """

    def __init__(self, engine: Engine, document: str | Mapping[str, Any]) -> None:
        self._engine = engine
        self._document = document
        self._records = Records()
        self._records.follow(engine.records)
        self._entries = Spool()
        self._begun = False

    def __call__(self, event: Event, commands: Sequence[Command]) -> None:
        """Store the result of an event."""
        if not self._begun:
            self._begun = True
            self._entries.add(event.t, "load", {"document": self._document})
        for command in commands:
            if isinstance(command, Record):
                self._entries.add(command.t, command.name, command.context)
        if len(self._engine.records.waiting) >= CHUNK:
            self._records.take()

    def source(self, now: float, kind: str, size: tuple[int, int] | None = None) -> Source:
        """Return the source of a report.

        Args:
            now: the time, in seconds.
            kind, size: as in `Source`.
        """
        engine = self._engine
        return Source(
            kind=kind,
            status={**status(engine), "errors": []},
            metrics=engine.metrics(now),
            jobs=self._jobs(now),
            entries=self._entries,
            label=str,
            now=now,
            dropped=lambda: engine.records.dropped,
            why={rule["id"]: rule for rule in why(engine, now)},
            size=size,
        )

    def _jobs(self, now: float) -> Iterator[Job]:
        spec = self._engine.spec
        members = self._engine.members
        named = str if members is None else members.name_of
        absences = self._engine.workload.absences
        describer = Describer(spec, spec.directory, str, named, absences=absences)
        position = 0
        while position < len(self._records):
            for job in self._records.jobs(position):
                yield describer.describe(job, now)
                position += 1
        for job in self._engine.workload.jobs.values():
            if job.firing is not None:
                yield describer.describe(job, now)


def recorded(path: Path) -> Source:
    """Return the ensemble of a recording.

    Raises:
        RecordingError: it is no complete recording of this version.
        DocumentError: its document is not valid any more.
        OSError: it cannot be read.
    """
    lines = read_lines(path)
    _, header = next(lines)
    document = header["document"]
    load = load_text if isinstance(document, str) else load_mapping
    engine = Engine(load(document, name=header["name"], directory=header["directory"]))
    keeper, now = RecordingTap(engine, document), 0.0
    for number, line in lines:
        try:
            event = event_from_json(line["event"])
            keeper(event, engine.handle(event))
            now = event.t
        except Exception as error:
            # Only a forged recording can have such an event.
            what = repr(error)[:MAX_QUOTE]
            raise RecordingError(f"{path}:{number}: not an event of a run: {what}") from None
    # Virtual time begins at 0, real time long after that.
    simulated = engine.t_start is not None and engine.t_start < 1.0
    return keeper.source(now, "simulation" if simulated else "recording")
