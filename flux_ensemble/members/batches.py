"""The text of the log of one ensemble: batches, as the ledger writes them and recovery reads them.

The log is text, one RFC 18 entry a line. A batch begins with an entry of its own,

    {"timestamp": t, "name": "batch", "context": {"number": n, "events": [...]}}

and the entries for people follow: what the engine recorded, and what the service notes. A
batch can be in the log several times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.engine.events import Event, JobEvent, Tag
from flux_ensemble.engine.record import event_from_json, to_json

#: The entry that begins a batch.
BATCH = "batch"

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit makes durable.

    Args:
        number: 1, 2, 3 ... in the life of an ensemble.
        text: lines of RFC 18 entries, each with its newline.
        entries: how many of the lines are for people.
        snapshot: replaces the snapshot, if given: the state after this batch.
        values: what streams took in since the snapshot before, as JSON.
        sync: it is to survive a crash of the whole instance too.
    """

    number: int
    text: str
    entries: int
    snapshot: str | None = None
    values: str | None = None
    sync: bool = False


def compact(event: Event) -> Any:
    """An event as JSON: an array for the event of a job of the ensemble, else an object."""
    if type(event) is not JobEvent or event.foreign:
        return to_json(event)
    if event.tag is not None:
        return [event.t, event.job, event.name, event.context, event.tag]
    if event.context:
        return [event.t, event.job, event.name, event.context]
    return [event.t, event.job, event.name]


def expand(value: Any) -> Event:
    """The event of such JSON.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, Mapping):
        return event_from_json(value)
    try:
        t, job, name, *rest = value
        context = rest[0] if rest else {}
        return JobEvent(t, job, name, context, Tag(*rest[1]) if len(rest) > 1 else None)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a job event") from None


def header(t: float, number: int, events: Iterable[str]) -> str:
    """The line that begins a batch; the events are JSON by `compact`."""
    context = f'{{"number":{number},"events":[{",".join(events)}]}}'
    return f'{{"timestamp":{t},"name":"{BATCH}","context":{context}}}\n'


def line(t: float, name: str, context: Mapping[str, Any]) -> str:
    """An entry (RFC 18) as a line of text."""
    return dumps({"timestamp": t, "name": name, "context": context}) + "\n"


def dumps(value: Any) -> str:
    """A value as JSON, in one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Written:
    """A batch as it is read: its number, its events, and its entries for people."""

    number: int
    events: list[Event]
    entries: list[Entry]


def read_batches(lines: Iterable[str], after: int = 0) -> Iterator[Written]:
    """The batches in a log, each once.

    Args:
        lines: its text; it may begin within a batch, which is left out.
        after: batches up to this number are given with no events: their entries alone count.

    Raises:
        ValueError: a line is not of a log, or a batch is missing.
    """
    latest: int | None = None
    current: Written | None = None
    for text in lines:
        entry = json.loads(text)
        if entry["name"] != BATCH:
            if current is not None:
                current.entries.append(entry)
            continue
        if current is not None:
            yield current
            current = None
        number = entry["context"]["number"]
        if latest is not None and number <= latest:
            continue  # committed twice
        expected = max(after, latest or 0) + 1
        if number > expected:
            raise ValueError(f"batches {expected} to {number - 1} are missing")
        latest = number
        events = [] if number <= after else [expand(one) for one in entry["context"]["events"]]
        current = Written(number, events, [])
    if current is not None:
        yield current
