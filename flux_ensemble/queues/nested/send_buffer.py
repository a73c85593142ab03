"""Reports of a member's service that are held back for a while, to be sent together.

    events, one by one ──add──► Held ──take──► one item for each job ──► Link

Sending, writing down and handling several events of a job at once costs little more than one of
them, and a report with many jobs as much as one with a few. The events of each job stay in their
order, and jobs are reported in the order of their latest events. Jobs with the same events are one
item, at the place of the last of them (`queues.nested.job_columns`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flux_ensemble.queues.nested.job_columns import JobColumns, kind

#: Least seconds between two reports, unless there is enough for a whole message: each report costs
#: the service of the ensemble as much as some ten jobs. A report after a silence is sent at once.
PACE_SECONDS = 0.02

#: Seconds after which the outcome of a command is reported at the latest.
OWED_SECONDS = 0.25

#: Seconds that events may wait if something reacts to the events of single jobs.
QUICK_SECONDS = 0.1

#: Seconds that events may wait otherwise, at least and at most: chosen such that all members
#: together send this many reports a second. The first event after a silence waits for a share of
#: that time.
HOLD_SECONDS, HOLD_LIMIT = 1.0, 4.0
REPORTS = 200
COMPANY = 0.25

#: When one in this many jobs has ended nothing waits for more: the member needs further jobs.
SHARE = 4


def hold_seconds(members: int, reacts: bool) -> float:
    """Return how many seconds events of jobs may wait for others.

    Args:
        members: number of members.
        reacts: something reacts to the events of single jobs.

    >>> [hold_seconds(members, False) for members in (1, 200, 201, 1000, 5000)]
    [1.0, 1.0, 2.0, 4.0, 4.0]
    """
    if reacts:
        return QUICK_SECONDS
    # In steps, since all members are informed of each change.
    return min(max(HOLD_SECONDS, math.ceil(members / REPORTS) * HOLD_SECONDS), HOLD_LIMIT)


class Held:
    """Reports that are held back.

    Attributes:
        seconds: that events may wait for others.

    >>> held = Held()
    >>> held.add(7, 1.0, "submit", {"userid": 1}, ["g", "r", 1, 0])
    >>> held.add(8, 1.5, "finish", {"status": 256})
    >>> held.add(7, 2.0, "memo", {"x": 1})
    >>> len(held)
    2
    >>> for item in held.take():
    ...     print(item)
    [1.5, 8, 'finish', {'status': 256}]
    [2.0, 7, [[1.0, 'submit', {'userid': 1}], [2.0, 'memo', {'x': 1}]], ['g', 'r', 1, 0]]
    """

    def __init__(self) -> None:
        self.seconds = PACE_SECONDS
        self._events: dict[int, list[list[Any]]] = {}
        self._tags: dict[int, Sequence[Any]] = {}
        self._outcomes: list[list[Any]] = []
        self._ended = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._events) + len(self._outcomes)

    def add(
        self, job: int, t: float, name: str, context: Any = None, tag: Sequence[Any] | None = None
    ) -> None:
        """Add an event of a job; `tag` is that of the job, with its first event."""
        events = self._events.pop(job, [])
        events.append([t, name, context] if context else [t, name])
        self._events[job] = events
        if tag is not None:
            self._tags[job] = tag

    def ended(self) -> None:
        """Note that a job has had its last event."""
        self._ended += 1

    def add_outcome(self, item: list[Any]) -> None:
        """Add an item that may be sent before the events that are held back."""
        self._outcomes.append(item)

    def patience(self, active: int) -> float:
        """Return the seconds from the latest report after which the present items are sent.

        Args:
            active: number of jobs that have not ended.
        """
        if self._ended and SHARE * self._ended >= self._ended + active:
            return PACE_SECONDS
        return min(self.seconds, OWED_SECONDS) if self._outcomes else self.seconds

    @property
    def share(self) -> float:
        """Share of its patience for which the first event after a silence waits for others."""
        return 0.0 if self.seconds <= QUICK_SECONDS else COMPANY

    def take(self) -> list[list[Any]]:
        """Return the items for all, and forget them: see `queues.nested.service_handle`."""
        found: dict[Any, list[Any] | JobColumns] = {}
        for job, events in self._events.items():
            tag = self._tags.get(job)
            key = kind(events, tag)
            if key is None:
                found[job] = _item(job, events, tag)
                continue
            # The item moves to the place of the last of its jobs.
            alike = found.pop(key, None) or JobColumns(events, tag)
            assert isinstance(alike, JobColumns)
            alike.add(job, events, tag)
            found[key] = alike
        items = [one.item() if isinstance(one, JobColumns) else one for one in found.values()]
        items[:0] = self._outcomes
        self._events.clear()
        self._tags.clear()
        self._outcomes.clear()
        self._ended = 0
        return items


def _item(job: int, events: list[list[Any]], tag: Sequence[Any] | None) -> list[Any]:
    if len(events) > 1:
        item = [max(event[0] for event in events), job, events]
        return item if tag is None else [*item, tag]
    t, name, *context = events[0]
    if tag is None:
        return [t, job, name, *context]
    return [t, job, name, context[0] if context else {}, tag]
