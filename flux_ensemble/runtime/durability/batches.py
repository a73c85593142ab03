"""The format of an ensemble's log: batches, written by the log and read by recovery.

The log is text with one RFC 18 entry per line. A batch begins with a header,

    {"timestamp": t, "name": "batch", "context": {"digest": d, "number": n, "events": [...]}}

followed by the entries for people: the engine's records, and the service's notes. A batch can be in
the log several times.

The digest covers the batch (without its digest) and the digest before it. The chain begins with the
ensemble's identity. So a changed or misplaced batch is detected, and so is another ensemble's log.
Batches of older versions have no digest, and are not part of the chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.encoding import dumps
from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.events import Event, JobEvent, JobEvents, JobsAlike, Tag
from flux_ensemble.engine.fastclass import fastclass
from flux_ensemble.eventlog import Stored
from flux_ensemble.runtime.durability.format import NUMBERED, check_format

#: The entry that begins a batch, and the text before its digest.
BATCH = "batch"
_CONTEXT = '"context":{'

_OF_JOBS = (JobEvent, JobEvents, JobsAlike)


@fastclass
class Batch:
    """The events and entries that one commit makes durable.

    Args:
        number: 1, 2, 3 ... in the life of an ensemble.
        text: lines of RFC 18 entries, each with its newline.
        entries: number of lines that are entries for people.
        snapshot: the state after this batch, to replace the stored snapshot; or None.
        values: the values of streams since the snapshot before, as JSON.
        sync: it must survive a crash of the whole instance.
    """

    number: int
    text: str
    entries: int
    snapshot: str | None = None
    values: str | None = None
    sync: bool = False


def compact(event: Event) -> Any:
    """Encode an event as JSON: an array for an event of the ensemble's jobs, else an object."""
    if type(event) is JobEvents:
        several = [event.t, event.job, event.events]
        return several if event.tag is None else [*several, event.tag]
    if type(event) is not JobEvent or event.foreign:
        return to_json(event)
    if event.tag is not None:
        return [event.t, event.job, event.name, event.context, event.tag]
    if event.context:
        return [event.t, event.job, event.name, event.context]
    return [event.t, event.job, event.name]


def expand(value: Any) -> Event:
    """Decode an event that `compact` encoded.

    Raises:
        ValueError: the value is not an event.
    """
    if isinstance(value, Mapping):
        return event_from_json(value)
    try:
        t, job, name, *rest = value
        if type(name) is list and all(type(event[1]) is str for event in name):
            return JobEvents(t, job, name, Tag(*rest[0]) if rest else None)
        if type(name) is not str:
            raise ValueError
        context = rest[0] if rest else {}
        return JobEvent(t, job, name, context, Tag(*rest[1]) if len(rest) > 1 else None)
    except (TypeError, ValueError, LookupError):
        raise ValueError(f"{value!r} is not a job event") from None


class Waiting:
    """The events of the next batch, as text.

    Attributes:
        count: the number of events.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._values: list[Any] = []
        self.count = 0

    def add(self, event: Event) -> None:
        """Add an event; it is encoded now, so that a large batch needs no time at its end.

        Raises:
            ValueError: the event is not JSON.
        """
        if self._values:
            self.encode()
        self.count += 1
        self._texts.append(dumps(compact(event)))

    def add_several(self, event: Event) -> None:
        """Add one of several events that come together; `encode` has to be called after the last.

        Encoding many at once takes a third of the time.
        """
        if type(event) in _OF_JOBS:
            self.count += 1
            self._values.append(compact(event))
        else:
            self.add(event)

    def encode(self) -> None:
        """Encode the events that were added by `add_several`.

        Raises:
            ValueError: as for `add`.
        """
        values, self._values = self._values, []
        if values:
            self._texts.append(dumps(values)[1:-1])

    def take(self) -> list[str]:
        """Remove and return the texts; one text can have several events."""
        texts, self._texts, self.count = self._texts, [], 0
        return texts


def header(t: float, number: int, events: Iterable[str]) -> str:
    """Make the header of a batch; `events` are JSON, as `Waiting.take` returns them."""
    context = f'{{{NUMBERED},"number":{number},"events":[{",".join(events)}]}}'
    return f'{{"timestamp":{t},"name":"{BATCH}","context":{context}}}\n'


def identity(name: str, run: int) -> str:
    """Return the identity of an ensemble, with which the digests of its log begin."""
    return f"{name!r}, run {run}"


def follow(digest: str, text: str) -> str:
    """Return the next digest of a chain."""
    return hashlib.blake2b((digest + text).encode(), digest_size=16).hexdigest()


def sealed(text: str, digest: str) -> str:
    """Return the text of a batch with its digest."""
    return text.replace(_CONTEXT, f'{_CONTEXT}"digest":"{digest}",', 1)


def line(t: float, name: str, context: Mapping[str, Any]) -> str:
    """Format an entry (RFC 18) as a line of text."""
    return dumps({"timestamp": t, "name": name, "context": context}) + "\n"


@dataclass(slots=True)
class Written:
    """A batch that was read.

    Args:
        number: of the batch.
        events: its events.
        digest: as in its text, or None.
        entries: its entries for people.
        lines: of its text.
    """

    number: int
    events: list[Event]
    digest: str | None
    entries: list[Stored]
    lines: list[str]

    def plain(self) -> str:
        """Return the batch's text without the digest."""
        return "".join(self.lines).replace(f'"digest":"{self.digest}",', "", 1)


class Batches:
    """The batches in a log, each once.

    Args:
        lines: text of the log. A partial batch at the beginning is ignored.
        begin: the digest before the very first batch.
        after: batches up to this number are returned without events, for their entries.
        digest: the digest of batch `after`, if known.

    Attributes:
        digest: of the last batch that was read, else of the one before.
    """

    def __init__(
        self, lines: Iterable[str], *, begin: str, after: int = 0, digest: str | None = None
    ) -> None:
        self._lines = lines
        self._after = after
        self._known = {0: begin, after: digest if after else begin}
        self.digest: str | None = None

    def __iter__(self) -> Iterator[Written]:
        """Yield the batches.

        Raises:
            ValueError: a line is not of a log, a batch is missing, or was changed.
        """
        latest: int | None = None
        current: Written | None = None
        for text in self._lines:
            entry = json.loads(text)
            if entry["name"] != BATCH:
                if current is not None:
                    current.entries.append(entry)
                    current.lines.append(text)
                continue
            if current is not None:
                self._check(current)
                yield current
                current = None
            context = entry["context"]
            check_format(context, "a part of the log")
            number = context["number"]
            if latest is not None and number <= latest:
                continue  # committed twice
            expected = max(self._after, latest or 0) + 1
            if number > expected:
                raise ValueError(f"batches {expected} to {number - 1} are missing")
            if latest is None or number != latest + 1:
                self.digest = self._known.get(number - 1)
            latest = number
            events = [] if number <= self._after else [expand(event) for event in context["events"]]
            current = Written(number, events, context.get("digest"), [], [text])
        if current is not None:
            self._check(current)
            yield current
        if latest is None or latest < self._after:
            self.digest = self._known[self._after]

    def _check(self, batch: Written) -> None:
        """Compare the digest of a batch with its text, and with the batch before it."""
        if batch.digest is not None:
            right = self.digest is None or follow(self.digest, batch.plain()) == batch.digest
            known = self._known.get(batch.number)
            if not right or known not in (None, batch.digest):
                raise ValueError(
                    f"batch {batch.number} of the log is damaged: its digest is not that of its "
                    "text and of the batches before it"
                )
            self.digest = batch.digest
