"""The firings with jobs to send: by urgency, then first in first out.

The firings of groups with a `max-active`, or with a time limit, are in queues of their own, so that
those of a group whose jobs cannot be sent now are passed over at once, however many they are. So
are those of groups with an `order`, whose jobs change places with each other and with no others,
and those that are to run on one member, or not on some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter

from flux_ensemble.document.job_sets import Group
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.longest_first import LongestFirst
from flux_ensemble.engine.predictions import Predictions

#: In place of the name of a group whose jobs can always be sent.
_ANY = ""

#: Urgency, name of the group if that can be passed over, and the members that are wanted or not.
_Key = tuple[int, str, tuple[int, ...]]

_ANYWHERE: tuple[int, ...] = ()


class Backlog:
    """The firings with jobs to send.

    Args:
        groups: the job groups, by name.
        predictions: of how long their jobs take.
        apart: the firings of each group are in queues of their own, bounds or not.

    Attributes:
        queues: firings that can be sent or not together -> these with their numbers; none is empty.
        bounds: how many jobs of a group may be active at once, for the groups with a bound.
        ordered: the groups with an `order`.
    """

    def __init__(
        self, groups: Mapping[str, Group], predictions: Predictions, apart: bool = False
    ) -> None:
        self._predictions = predictions
        self.ordered = frozenset(
            name
            for name, group in groups.items()
            if any(job_set.order is not None for job_set in group.sets)
        )
        #: Of groups with an `order`, in which order the jobs of their queues are sent.
        self._orders: dict[_Key, LongestFirst] = {}
        self._urgency = {
            # Where the urgency differs from job to job, it is not known before a job is sent.
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
        """The firings in order, as if no group had a bound."""
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
        """The firing whose jobs are next; None if there is none.

        Args:
            room: how many more jobs may be active of one whose group can be passed over.
        """
        # In order, as `room` may log why there is none.
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
        """The job that is next of the queue of a firing: its firing, and its index there.

        Args:
            firing: the first of a queue.
        """
        if firing.group not in self.ordered:
            return firing, firing.next
        key = self._key(firing)
        return self._order(key).head(self.queues[key])

    def longest(self, firing: Firing, room: int) -> tuple[Firing, int, int]:
        """The jobs that are next where they change places.

        Args:
            firing: what `next` returned, of a group with an `order`.
            room: the most jobs.

        Returns:
            Their firing, the index of the first, and how many there are.
        """
        key = self._key(firing)
        return self._order(key).next(self.queues[key], room)

    def _order(self, key: _Key) -> LongestFirst:
        order = self._orders.get(key)
        if order is None:
            model, rank = self._predictions.models[key[1]], self._predictions.rank
            order = self._orders[key] = LongestFirst(rank, lambda: model.version)
        return order

    def remove(self, firing: Firing, *, dropped: bool = False) -> None:
        """Remove a firing.

        Args:
            firing: one that is in it.
            dropped: its jobs are not sent; else they are now, all that were left.
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
        """Whether jobs wait of a group that can be passed over."""
        return any(name == group for _, name, _ in self.queues)
