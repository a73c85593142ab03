"""Events of jobs that are held back for a while, to be told together.

    events, one by one ──add──► Held ──take──► one item for each job

To tell, write down and handle several events of a job at once costs little more than one does.
Those of each job stay in their order, and jobs are told in the order of their latest events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Held:
    """Events that are held back.

    >>> held = Held()
    >>> held.add(7, 1.0, "submit", {"userid": 1}, ["g", "r", 1, 0])
    >>> held.add(8, 1.5, "clean")
    >>> held.add(7, 2.0, "validate")
    >>> len(held)
    2
    >>> for item in held.take():
    ...     print(item)
    [1.5, 8, 'clean']
    [2.0, 7, [[1.0, 'submit', {'userid': 1}], [2.0, 'validate']], ['g', 'r', 1, 0]]
    """

    def __init__(self) -> None:
        self._events: dict[int, list[list[Any]]] = {}
        self._tags: dict[int, Sequence[Any]] = {}

    def __len__(self) -> int:
        """Of how many jobs there are events."""
        return len(self._events)

    def add(
        self, job: int, t: float, name: str, context: Any = None, tag: Sequence[Any] | None = None
    ) -> None:
        """Add an event of a job; `tag` is that of the job, with its first event."""
        events = self._events.pop(job, None)
        if events is None:
            events = []
        self._events[job] = events
        events.append([t, name, context] if context else [t, name])
        if tag is not None:
            self._tags[job] = tag

    def take(self) -> list[list[Any]]:
        """The items for all, which are held no more: see `members.nested.attached`."""
        items = [_item(job, events, self._tags.get(job)) for job, events in self._events.items()]
        self._events.clear()
        self._tags.clear()
        return items


def _item(job: int, events: list[list[Any]], tag: Sequence[Any] | None) -> list[Any]:
    if len(events) > 1:
        item = [max(event[0] for event in events), job, events]
        return item if tag is None else [*item, tag]
    t, name, *context = events[0]
    if tag is None:
        return [t, job, name, *context]
    return [t, job, name, context[0] if context else {}, tag]
