"""Restoration of an ensemble from its log: a snapshot, and the batches after it.

    snapshot, values ──restore──► engine ◄──handle── events of the batches after it

Digests prove that everything is unchanged and belongs to the same ensemble. A snapshot has its own
digest, and those of the values beside it and of the log up to it.

The replayed commands were performed before, or are pending. The entries for people among them must
equal those in the log. If they differ the engine has changed since, and continuing could perform
commands twice.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.model import Spec
from flux_ensemble.encoding import dumps
from flux_ensemble.engine.commands import Record
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.snapshot import restore
from flux_ensemble.eventlog import (
    Epoch,
    Error,
    Finish,
    Shutdown,
    Stopped,
    Stored,
    Violation,
    read,
)
from flux_ensemble.metrics.streams import Values
from flux_ensemble.runtime.durability.batches import BATCH, Batches, Written, follow, line
from flux_ensemble.runtime.durability.chunks import Beside, sorted_out
from flux_ensemble.runtime.durability.format import check_format, numbered
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ports import Marker

#: Number of errors that are kept for each ensemble.
KEPT_ERRORS = 20


@dataclass(slots=True)
class Facts:
    """Facts about an ensemble outside its engine, from the service's entries in its log.

    Args:
        epoch: of the service that wrote last.
        t_shutdown: the time when the instance began to shut down under that service, or None.
        stopped, t_stopped: the reason and the time of its engine's stop, or None.
        errors: errors about it, oldest first.
        violations: number of jobs with the tag of another job.
    """

    epoch: int = 0
    t_shutdown: float | None = None
    stopped: str | None = None
    t_stopped: float | None = None
    errors: list[str] = field(default_factory=list)
    violations: int = 0

    def take(self, stored: Stored) -> None:
        """Apply an entry of the service; entries of the engine are ignored."""
        match entry := read(stored):
            case Epoch():
                self.epoch = self.epoch if entry.epoch is None else entry.epoch
                self.t_shutdown = None
            case Shutdown():
                self.t_shutdown = stored["timestamp"]
            case Error():
                self.errors = [*self.errors, entry.text][-KEPT_ERRORS:]
            case Stopped() | Finish() if entry.stopped is not None:
                self.stopped, self.t_stopped = entry.reason, stored["timestamp"]
            case Violation():
                self.violations += 1

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Digests:
    """The last digests of the chains of batches and of values."""

    log: str
    values: str

    @classmethod
    def of(cls, identity: str) -> Digests:
        """Return the digests before anything is written."""
        begin = follow("", identity)
        return cls(begin, begin)

    def take(self, values: Iterable[Beside]) -> Iterator[Beside]:
        """Yield the chunks of values, and add them to the digest."""
        for chunk in values:
            self.values = follow(self.values, dumps(chunk))
            yield chunk


@dataclass(slots=True)
class Replayed:
    """The result of a replay.

    Args:
        engine: in its state after the last batch.
        timers: its timers.
        facts: of the time outside the engine.
        number: of the last batch.
        digests: of the log, and of the values.
        entries: the entries for people that are kept, oldest first.
        total: number of entries so far.
        records: the jobs that have ended.
    """

    engine: Engine
    timers: Timers
    facts: Facts
    number: int = 0
    digests: Digests = field(default_factory=lambda: Digests("", ""))
    entries: list[Stored] = field(default_factory=list)
    total: int = 0
    records: Records = field(default_factory=Records)


def replay(
    spec: Spec,
    identity: str,
    snapshot: Mapping[str, Any] | None,
    values: Iterable[Beside],
    lines: Iterable[str],
    marker: Marker | None = None,
) -> Replayed:
    """Replay a log.

    Args:
        spec: the document.
        identity: the expected identity of the log.
        snapshot: the stored snapshot, or None.
        values: the stored chunks beside snapshots, oldest first.
        lines: the text of the log; batches before the snapshot may be missing.
        marker: called with each replayed event, if given.

    Raises:
        ValueError: something is damaged, missing, or of another version.
    """
    steps = replaying(spec, identity, snapshot, values, lines, marker)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            replayed: Replayed = end.value
            return replayed


def count_events(lines: Iterable[str], after: int) -> int:
    """Return the number of events in the batches of a log after batch number `after`."""
    many, latest = 0, after
    for text in lines:
        entry = json.loads(text)
        if entry["name"] == BATCH and (context := entry["context"])["number"] > latest:
            latest = context["number"]
            many += len(context["events"])
    return many


def replaying(
    spec: Spec,
    identity: str,
    snapshot: Mapping[str, Any] | None,
    values: Iterable[Beside],
    lines: Iterable[str],
    marker: Marker | None = None,
) -> Generator[int, None, Replayed]:
    """Replay a log in steps, as `replay`; yield the number of events of each step."""
    begin = Digests.of(identity)
    digests = Digests(begin.log, begin.values)
    records = Records()
    chunks = sorted_out(digests.take(values), records)
    if snapshot is None:
        replayed = Replayed(Engine(spec), Timers(), Facts(), records=records)
        written = begin
    else:
        written = _verified(identity, snapshot)
        replayed = _restored(spec, snapshot, chunks, records)
        if written.values and digests.values != written.values:
            raise ValueError(
                "the values beside the snapshot are damaged: their digest is not that which the "
                "snapshot has of them"
            )
    # Chunks after the snapshot, of which there should be none: read for the digest.
    for _ in chunks:
        pass
    replayed.engine.stats.keep_values()
    records.follow(replayed.engine.records)
    start = replayed.number
    batches = Batches(lines, begin=begin.log, after=start, digest=written.log or None)
    try:
        for batch in batches:
            replayed.entries.extend(batch.entries)
            if batch.number > start:
                _replay(replayed, batch, marker)
                yield len(batch.events)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"the log cannot be replayed: {type(error).__name__}: {error}") from error
    replayed.digests = Digests(batches.digest or begin.log, digests.values)
    return replayed


def snapshot_text(state: Mapping[str, Any]) -> str:
    """Return the text of a snapshot: JSON of a state, with a digest of that."""
    text = dumps({**numbered(), **state})
    return f'{text[:-1]},"digest":"{follow("", text)}"}}'


def _verified(identity: str, snapshot: Mapping[str, Any]) -> Digests:
    """Check a snapshot and return its digests; they are empty for one of an earlier version."""
    check_format(snapshot, "the snapshot")
    digest = snapshot.get("digest")
    if digest is None:
        return Digests("", "")
    text = dumps({key: value for key, value in snapshot.items() if key != "digest"})
    if follow("", text) != digest or [*snapshot][-1] != "digest":
        raise ValueError("the snapshot is damaged: its digest is not that of its text")
    if snapshot["ensemble"] != identity:
        raise ValueError(f"the snapshot is of ensemble {snapshot['ensemble']}, not of {identity}")
    return Digests(snapshot["log"], snapshot["values"])


def _restored(
    spec: Spec, snapshot: Mapping[str, Any], values: Iterable[Values], records: Records
) -> Replayed:
    """Restore the ensemble from a snapshot."""
    try:
        return Replayed(
            restore(spec, snapshot["engine"], values),
            Timers.from_json(snapshot["agenda"]),
            # Those before 0.2.0 had the time without an instance, too.
            Facts(**{key: value for key, value in snapshot["facts"].items() if key != "away"}),
            snapshot["number"],
            total=snapshot["entries"],
            records=records,
        )
    except (AttributeError, LookupError, TypeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"the snapshot is damaged: {reason}") from error


def _replay(replayed: Replayed, batch: Written, marker: Marker | None) -> None:
    rest = iter(batch.entries)
    for event in batch.events:
        if marker is not None:
            marker.begin(event)
        commands = replayed.engine.handle(event)
        if marker is not None:
            marker.end()
        replayed.timers.take(event, commands)
        for command in commands:
            if type(command) is Record:
                entry = json.loads(line(command.t, command.name, command.context))
                if entry not in rest:
                    raise ValueError(
                        f"batch {batch.number} has no entry {entry['name']!r} where this version "
                        "would write one; go on with the version that wrote it"
                    )
    for entry in batch.entries:
        replayed.facts.take(entry)
    replayed.total += len(batch.entries)
    replayed.number = batch.number
