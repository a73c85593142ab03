"""The eventlog of one ensemble, and those who follow it.

Entries are RFC 18 objects: `timestamp`, `name`, `context`. An entry gets here when it is
durable (`runtime.durability.wal`), and the newest `KEPT` are held in memory for those who ask. When
the log closes they are packed: ensembles that have ended stay for a while, and few ask for them.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

#: How many entries are held.
KEPT = 10_000

Entry = Mapping[str, Any]

#: Entries that an engine does not write: a replay of its events cannot know them.
NOTES = frozenset(
    {"load", "epoch", "shutdown", "error", "violation", "held", "go-on", "stopped", "custom-output"}
)


def is_note(entry: Entry) -> bool:
    """Whether an entry was written by what drives the engine, and not by the engine."""
    return entry["name"] in NOTES or "stopped" in entry["context"]


class Follower(Protocol):
    """Somebody who gets entries as they are appended.

    Attributes:
        events: it also wants the events of jobs.
    """

    events: bool

    def send(self, entry: Entry) -> None:
        """Take an entry."""
        ...

    def end(self) -> None:
        """There will be no more entries."""
        ...


class Log:
    """An eventlog.

    Args:
        entries: those that are there already, as far as they are kept.
        total: how many there have been, those included.

    Attributes:
        wants_events: a follower wants the events of jobs.
    """

    def __init__(self, entries: Iterable[Entry] = (), total: int = 0) -> None:
        self._entries: deque[Entry] = deque(entries, maxlen=KEPT)
        self._packed = b""
        self._appended = total
        self._followers: list[Follower] = []
        self._closed = False
        self.wants_events = False

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        self._entries.append(entry)
        self._appended += 1
        for follower in list(self._followers):
            follower.send(entry)

    def job_event(self, t: float, job: Mapping[str, Any], name: str, context: Any) -> None:
        """Show a job's event to those who want them; it is not kept.

        Args:
            t: its time.
            job: the `id` of the job, and its `member` if it has one.
            name, context: of the event.
        """
        entry = {
            "timestamp": t,
            "name": "job-event",
            "context": {**job, "name": name, "context": context},
        }
        for follower in list(self._followers):
            if follower.events:
                follower.send(entry)

    def read(self, follower: Follower, *, follow: bool, skip: int = 0) -> None:
        """Give the entries there are, and with `follow` those to come until `close`.

        Args:
            follower: gets them.
            follow: it wants those to come, too.
            skip: how many of the entries there ever were it has already.
        """
        entries = self._unpacked()
        dropped = self._appended - len(entries)
        for entry in entries[max(0, skip - dropped) :]:
            follower.send(entry)
        if follow and not self._closed:
            self._followers.append(follower)
            self._update()
        else:
            follower.end()

    def leave(self, follower: Follower) -> None:
        """A follower has gone; it gets no more."""
        if follower in self._followers:
            self._followers.remove(follower)
            self._update()

    def close(self) -> None:
        """Nothing more will be appended: end the followers."""
        self._closed = True
        self._packed = zlib.compress(json.dumps(self._unpacked()).encode(), level=1)
        self._entries.clear()
        followers, self._followers = self._followers, []
        self._update()
        for follower in followers:
            follower.end()

    def _unpacked(self) -> list[Entry]:
        packed: list[Entry] = json.loads(zlib.decompress(self._packed)) if self._packed else []
        return [*packed, *self._entries]

    def _update(self) -> None:
        self.wants_events = any(follower.events for follower in self._followers)
