"""The firings with jobs to send: by urgency, then first in first out.

The firings of groups with a `max-active`, or with a time limit, are in queues of their own, so that
those of a group whose jobs cannot be sent now are passed over at once, however many they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from flux_ensemble.document.job_sets import Group
from flux_ensemble.engine.firings import Firing

#: In place of the name of a group whose jobs can always be sent.
_ANY = ""


class Backlog:
    """The firings with jobs to send.

    Args:
        groups: the job groups, by name.
        apart: the firings of each group are in queues of their own, bounds or not.

    Attributes:
        queues: urgency, and name of the group if that can be passed over -> its firings with their
            numbers; none is empty.
        bounds: how many jobs of a group may be active at once, for the groups with a bound.
    """

    def __init__(self, groups: Mapping[str, Group], apart: bool = False) -> None:
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
        self.queues: dict[tuple[int, str], deque[tuple[int, Firing]]] = {}
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __iter__(self) -> Iterator[Firing]:
        """The firings in order, as if no group had a bound."""
        entries = [
            (-urgency, number, firing)
            for (urgency, _), queue in self.queues.items()
            for number, firing in queue
        ]
        entries.sort(key=lambda entry: entry[:2])
        for _, _, firing in entries:
            yield firing

    def append(self, firing: Firing) -> None:
        """Add a firing behind those of its urgency."""
        self._number += 1
        self.queues.setdefault(self._key(firing), deque()).append((self._number, firing))

    def next(self, room: Callable[[Firing], int]) -> Firing | None:
        """The firing whose jobs are next; None if there is none.

        Args:
            room: how many more jobs may be active of one whose group can be passed over.
        """
        first: tuple[int, int, Firing] | None = None
        for (urgency, group), queue in self.queues.items():
            number, firing = queue[0]
            if first is not None and (-urgency, number) > first[:2]:
                continue
            if group == _ANY or room(firing) > 0:
                first = -urgency, number, firing
        return None if first is None else first[2]

    def remove(self, firing: Firing) -> None:
        """Remove a firing that has no more jobs to send."""
        key = self._key(firing)
        queue = self.queues[key]
        if queue[0][1] is firing:
            queue.popleft()
        else:
            queue.remove(next(entry for entry in queue if entry[1] is firing))
        if not queue:
            del self.queues[key]

    def _key(self, firing: Firing) -> tuple[int, str]:
        group, urgency = firing.group, self._urgency[firing.group]
        if firing.overrides is not None:
            urgency = firing.overrides.get("urgency", urgency)
        own = group in self.bounds or group in self._timed
        return urgency, group if own else _ANY

    def holds(self, group: str) -> bool:
        """Whether jobs wait of a group that can be passed over."""
        return any(name == group for _, name in self.queues)
