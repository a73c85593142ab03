"""The eventlog of one ensemble, and its followers.

Entries are RFC 18 objects: `timestamp`, `name`, `context`. An entry is added when it is durable
(`runtime.durability.wal`), and the newest `KEPT` entries are held in memory for readers. When the
log is closed they are compressed: ended ensembles stay for a while, and are rarely read.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from flux_ensemble.eventlog import Finish, JobEvent, Reopen, Rerun, Stored

#: Number of entries that are held.
KEPT = 10_000


class Follower(Protocol):
    """A receiver of entries when they are added.

    Attributes:
        events: True if the events of jobs are wanted, too.
    """

    events: bool

    def send(self, entry: Stored) -> None:
        """Receive an entry."""
        ...

    def end(self) -> None:
        """Note that no more entries will come."""
        ...


class Log:
    """An eventlog.

    Args:
        entries: earlier ones, as far as they are kept.
        total: number of all entries so far, including these.

    Attributes:
        wants_events: a follower wants the events of jobs.
    """

    def __init__(self, entries: Iterable[Stored] = (), total: int = 0) -> None:
        self._entries: deque[Stored] = deque(entries, maxlen=KEPT)
        self._packed = b""
        self._appended = total
        self._followers: list[Follower] = []
        self._closed = False
        self.wants_events = False

    @property
    def total(self) -> int:
        """Number of entries so far."""
        return self._appended

    def append(self, entry: Stored) -> None:
        """Add an entry."""
        self._entries.append(entry)
        self._appended += 1
        for follower in list(self._followers):
            follower.send(entry)

    def job_event(self, t: float, job: Mapping[str, Any], name: str, context: Any) -> None:
        """Send a job's event to the followers that want such events; it is not kept.

        Args:
            t: its time.
            job: the `id` of the job, and its `member` if it has one.
            name, context: of the event.
        """
        event = JobEvent(id=job["id"], member=job.get("member"), name=name, context=context)
        entry = event.stored(t)
        for follower in list(self._followers):
            if follower.events:
                follower.send(entry)

    def read(self, follower: Follower, *, follow: bool, skip: int = 0) -> None:
        """Send the kept entries, and with `follow` those to come until `close`.

        Args:
            follower: receives them.
            follow: send later entries, too.
            skip: number of entries, of all so far, that the follower has already.
        """
        entries = _with_reopened(self._unpacked())
        dropped = self._appended - len(entries)
        for entry in entries[max(0, skip - dropped) :]:
            follower.send(entry)
        if follow and not self._closed:
            self._followers.append(follower)
            self._update()
        else:
            follower.end()

    def leave(self, follower: Follower) -> None:
        """Remove a follower."""
        if follower in self._followers:
            self._followers.remove(follower)
            self._update()

    def reopen(self) -> None:
        """Expect more entries after `close`."""
        self._closed = False

    def close(self) -> None:
        """End the followers: no more entries will be added."""
        self._closed = True
        self._packed = zlib.compress(json.dumps(self._unpacked()).encode(), level=1)
        self._entries.clear()
        followers, self._followers = self._followers, []
        self._update()
        for follower in followers:
            follower.end()

    def _unpacked(self) -> list[Stored]:
        packed: list[Stored] = json.loads(zlib.decompress(self._packed)) if self._packed else []
        return [*packed, *self._entries]

    def _update(self) -> None:
        self.wants_events = any(follower.events for follower in self._followers)


def _with_reopened(entries: list[Stored]) -> list[Stored]:
    """Return the entries, with each end after which the ensemble went on marked as such."""
    reopened = False
    for position in range(len(entries) - 1, -1, -1):
        entry = entries[position]
        if entry["name"] in (Rerun.tag, Reopen.tag):
            reopened = reopened or "ended" in entry["context"]
        elif reopened and entry["name"] == Finish.tag:
            entries[position] = {**entry, "context": {**entry["context"], "reopened": True}}
    return entries
