"""The firings with jobs to send: by urgency, then first in first out.

Each group with a `max-active` or a time limit has queues of its own, so that a group whose jobs
cannot be sent now is passed over in one step, however many its firings are. The same holds for
groups with an `order`, whose jobs change places among themselves only, and for firings whose jobs
are to run on one member, or not on some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Protocol

from flux_ensemble.document.job_sets import Group
from flux_ensemble.engine.firings import Firing

#: Stands for the names of all groups that are never passed over.
_ANY = ""

#: Urgency; name of the group if it can be passed over; and members: the one where the jobs are to
#: run (negative if they are bound to it), then those to avoid.
_Key = tuple[int, str, tuple[int, ...]]

_ANYWHERE: tuple[int, ...] = ()


class Order(Protocol):
    """The waiting jobs of one queue, in the order in which a feature has them sent.

    Firings have the numbers by which the backlog knows them.
    """

    def append(self, number: int, firing: Firing) -> None:
        """Add a firing behind the others."""

    def head(self, queue: Iterable[tuple[int, Firing]]) -> tuple[Firing, int]:
        """Return firing and index of the next job of a queue that is not empty."""

    def next(self, queue: Iterable[tuple[int, Firing]], room: int) -> tuple[Firing, int, int]:
        """Take the next jobs, `room` at most: the firing, the index of the first, their number."""

    def forget(self, number: int) -> None:
        """Forget a firing of which all jobs have been sent."""

    def drop(self) -> None:
        """Start anew, since waiting jobs were dropped."""


class Backlog:
    """The queues of firings with jobs to send.

    Args:
        groups: the job groups, by name.
        apart: keep the firings of each group in queues of their own, with bounds or without.

    Attributes:
        queues: key -> the firings that can be sent or not together, with their numbers; no queue
            is empty.
        bounds: group -> the most jobs that may be active at once, for groups with a bound.
        ordered: group -> makes the order of the jobs in a queue of it, for groups that a feature
            orders.
    """

    def __init__(self, groups: Mapping[str, Group], apart: bool = False) -> None:
        self.ordered: dict[str, Callable[[], Order]] = {}
        #: Queue -> the order in which its jobs are sent, for groups that have one.
        self._orders: dict[_Key, Order] = {}
        self._urgency = {
            # If the urgency differs from job to job, it is not known before a job is sent.
            name: max((job_set.urgency for job_set in group.sets), default=16)
            for name, group in groups.items()
        }
        self.bounds = {
            name: min(bounds)
            for name, group in groups.items()
            if (bounds := [one.max_active for one in group.sets if one.max_active is not None])
        }
        self._timed = frozenset(name for name, group in groups.items() if group.longest or apart)
        self._apart = apart
        self.queues: dict[_Key, deque[tuple[int, Firing]]] = {}
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __iter__(self) -> Iterator[Firing]:
        """Yield the firings in order, as if no group had a bound."""
        entries = [
            (-urgency, number, firing)
            for (urgency, _, _), queue in self.queues.items()
            for number, firing in queue
        ]
        entries.sort(key=lambda entry: entry[:2])
        for _, _, firing in entries:
            yield firing

    def append(self, firing: Firing) -> None:
        """Add a firing behind those of its urgency."""
        self._number += 1
        key = self._key(firing)
        self.queues.setdefault(key, deque()).append((self._number, firing))
        if firing.group in self.ordered:
            self._order(key).append(self._number, firing)

    def next(self, room: Callable[[Firing], int]) -> Firing | None:
        """Return the firing whose jobs are next; None if there is none.

        Args:
            room: returns how many more jobs of a firing may be active; called for firings whose
                group can be passed over.
        """
        # The order matters even for firings without room: `room` may log the reason.
        heads = [
            (-urgency, queue[0][0], group, queue[0][1])
            for (urgency, group, _), queue in self.queues.items()
        ]
        if len(heads) > 1:
            heads.sort(key=itemgetter(0, 1))
        for _, _, group, firing in heads:
            if group == _ANY or room(firing) > 0:
                return firing
        return None

    def head(self, firing: Firing) -> tuple[Firing, int]:
        """Return the next job of the queue of a firing, as the job's own firing and index.

        Args:
            firing: the first of a queue.
        """
        if firing.group not in self.ordered:
            return firing, firing.upcoming
        key = self._key(firing)
        return self._order(key).head(self.queues[key])

    def longest(self, firing: Firing, room: int) -> tuple[Firing, int, int]:
        """Return the next jobs of a group with an `order`.

        Args:
            firing: the result of `next`, of a group with an `order`.
            room: the most jobs.

        Returns:
            The jobs' firing, the index of the first, and their number.
        """
        key = self._key(firing)
        return self._order(key).next(self.queues[key], room)

    def _order(self, key: _Key) -> Order:
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = self.ordered[key[1]]()
        return order

    def remove(self, firing: Firing, *, dropped: bool = False) -> None:
        """Remove a firing.

        Args:
            firing: a firing in the backlog.
            dropped: the jobs that wait are not sent; else they have all been sent now.
        """
        key = self._key(firing)
        queue = self.queues[key]
        number = queue[0][0]
        if queue[0][1] is firing:
            queue.popleft()
        else:
            entry = next(entry for entry in queue if entry[1] is firing)
            number = entry[0]
            queue.remove(entry)
        if not queue:
            del self.queues[key]
        if self._orders and (order := self._orders.get(key)) is not None:
            if not queue:
                del self._orders[key]
            elif dropped:
                order.drop()
            else:
                order.forget(number)

    def _key(self, firing: Firing) -> _Key:
        group, urgency = firing.group, self._urgency[firing.group]
        if firing.overrides is not None:
            urgency = firing.overrides.get("urgency", urgency)
        own = group in self.bounds or group in self._timed or group in self.ordered
        where = _ANYWHERE
        if self._apart and (firing.near or firing.avoid):
            where = (-firing.near if firing.bound else firing.near, *firing.avoid)
        return urgency, group if own else _ANY, where

    def holds(self, group: str) -> bool:
        """Return whether jobs of a group that can be passed over wait."""
        return any(name == group for _, name, _ in self.queues)
