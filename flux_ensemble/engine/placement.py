"""Placement: the choice of the member for a job, from the members' reported state alone.

A member is *feasible* for a job if it is open, is large enough, and its time left is at least
`TIME_MARGIN` times the job's time limit. Among the feasible members with room, the job is sent to
the one with the least load; among equal ones, to the first. The load is the share of the member's
cores that its jobs take.

Binding is late: a member has room for its window only, and other jobs wait in the service. The
window is a number of cores: the member's own plus those of the jobs that ended there in a second,
up to twice its own; or those that ended in a second, if they are more. So a job waits on a member
for about a second, and not for hours while another member is idle. A member with its own service
reports its jobs only once a second. Its window is twice its cores, or the cores of the jobs that
ended in `BULK_SECONDS`, if they are more; a worker's is the greater of that and the one above.

A heap for each pool and need holds the loads. An outdated entry is dropped when it comes to the
top, so a choice costs the logarithm of the number of members. It depends only on the loads and not
on their history, so a restored engine makes the same choices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from flux_ensemble.document.members import TIME_MARGIN

#: The window's bound, in multiples of the member's cores, unless more ended in a second.
WINDOW = 2

#: The most heaps that are kept; there is one for each pool and need.
KEPT = 64

#: A member with its own service gets jobs when at least 1 / BULK of its window is free. The window
#: is at least what ended in BULK_SECONDS, since the member reports its jobs once a second.
BULK = 4
BULK_SECONDS = 4


class Need(NamedTuple):
    """The needs of a job.

    Args:
        nodes, cores, gpus: the job's totals; `exclusive` jobs take whole nodes.
        seconds: the job's time limit, 0 for none.
    """

    nodes: int = 1
    cores: int = 1
    gpus: int = 0
    seconds: float = 0.0
    exclusive: bool = False

    def __str__(self) -> str:
        """Return the size in words.

        >>> str(Need(nodes=1, cores=64, gpus=2))
        '1 node, 64 cores, 2 GPUs'
        """
        sizes = (self.nodes, "node"), (self.cores, "core"), (self.gpus, "GPU")
        return ", ".join(f"{number} {name}{'s'[: number != 1]}" for number, name in sizes if number)


class Place:
    """A member's data for placement.

    Args:
        ordinal: the number of the member.
        pool: the name of its pool.
        nodes, cores, gpus: the totals of the member.
        t_expires: when the member's time is up; infinity if it has no limit.
        bulk: the member gets jobs in bulk: a request to its own service costs as much for one job
            as for many.
        worker: it is a worker: jobs that take longer than a report do not wait there while another
            worker has free cores.

    Attributes:
        open: True if jobs may be placed on the member.
        taken: the cores that the jobs on the member take, or will take when they start.
    """

    def __init__(
        self,
        ordinal: int,
        pool: str,
        nodes: int,
        cores: int,
        gpus: int = 0,
        t_expires: float = math.inf,
        bulk: bool = False,
        worker: bool = False,
    ) -> None:
        self.ordinal = ordinal
        self.pool = pool
        self.nodes = nodes
        self.cores = cores
        self.gpus = gpus
        self.t_expires = t_expires
        self.bulk = bulk
        self.worker = worker
        self.open = True
        self.taken = 0
        #: Cores of the jobs that ended in the latest second and in the second before it, and the
        #: number of the latest second.
        self.rate = [0, 0, 0]

    @property
    def load(self) -> float:
        """The share of the cores that is taken; above 1 if jobs wait for cores."""
        return self.taken / self.cores

    @property
    def t_ended(self) -> float:
        """When the latest job ended, to the second; 0 if none has."""
        return float(self.rate[2])

    def weight(self, need: Need) -> int:
        """Return the cores that a job takes, or the equivalent of its share of nodes or GPUs."""
        cores = need.cores
        if need.exclusive:
            cores = max(cores, self.cores * need.nodes // self.nodes)
        if need.gpus and self.gpus:
            cores = max(cores, -(-self.cores * need.gpus // self.gpus))
        return cores

    def feasible(self, need: Need, t: float) -> bool:
        """Return whether a job can run on the member, now or later."""
        return self.open and self.holds(need) and t + TIME_MARGIN * need.seconds <= self.t_expires

    def holds(self, need: Need) -> bool:
        """Return whether the member is large enough for a job."""
        return need.nodes <= self.nodes and need.cores <= self.cores and need.gpus <= self.gpus

    def room(self, need: Need, t: float) -> int:
        """Return how many more jobs with this need the window of the member has room for."""
        now, before, latest = self.rate
        ran = max(now, before) if t < latest + 2 else 0
        window = WINDOW * self.cores
        if not self.bulk or self.worker:
            window = max(min(window, self.cores + ran), ran)
        if self.bulk:
            window = max(window, BULK_SECONDS * ran)
            # A worker with few jobs would have idle cores.
            many = not self.worker or window > WINDOW * self.cores
            if many and BULK * (window - self.taken) < window:
                return 0
        return max(0, (window - self.taken) // self.weight(need))

    def slice(self, need: Need, t: float, waiting: int, members: int) -> int:
        """Return how many of the jobs that wait to send to the member at once.

        The number is the member's share of the jobs and at most its room. While cores are free, it
        is also at most what fills them.

        Args:
            need: the need of each job.
            t: the time.
            waiting: the number of jobs that wait.
            members: the number of members that share the jobs.
        """
        room = self.room(need, t)
        if self.taken < self.cores:
            room = min(room, max(1, (self.cores - self.taken) // self.weight(need)))
        return max(0, min(room, -(-waiting // max(1, members))))

    def ended(self, cores: int, t: float) -> None:
        """Note that a job on the member, which took some cores, has ended at time `t`."""
        self.taken -= cores
        second = int(t)
        now, _, latest = self.rate
        if second != latest:
            self.rate = [0, now if second == latest + 1 else 0, second]
        self.rate[0] += cores


class Placement:
    """Chooses members.

    >>> placement = Placement()
    >>> for ordinal in (1, 2):
    ...     placement.add(Place(ordinal, "pool", nodes=1, cores=4))
    >>> place = placement.choose(["pool"], Need(), t=0.0)
    >>> placement.take(place, 3)
    >>> placement.choose(["pool"], Need(), t=0.0).ordinal
    2
    """

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        #: Pool -> the number of its open members.
        self.open: dict[str, int] = {}
        #: (pool, need) -> a heap of (load, ordinal); some entries are outdated.
        self._heaps: dict[tuple[str, Need], list[tuple[float, int]]] = {}
        #: (pools, need) -> True if an open member is large enough; dropped when members change.
        self._held: dict[tuple[tuple[str, ...], Need], bool] = {}

    def add(self, place: Place) -> None:
        """Add a member that is up."""
        self.places[place.ordinal] = place
        self.open[place.pool] = self.open.get(place.pool, 0) + 1
        self._held.clear()
        self.changed(place)

    def number(self, pools: Iterable[str]) -> int:
        """Return the number of open members of some pools."""
        return sum(self.open.get(pool, 0) for pool in pools)

    def limit(self, place: Place, t_expires: float) -> None:
        """Change the time limit of a member."""
        place.t_expires = t_expires
        # The member can be feasible again for jobs for which it was not.
        self.changed(place)

    def close(self, place: Place) -> None:
        """Close a member, so that it gets no more jobs; a closed one is no error."""
        if place.open:
            place.open = False
            self.open[place.pool] -= 1
            self._held.clear()

    def remove(self, place: Place) -> None:
        """Remove a member that is gone."""
        self.close(place)
        del self.places[place.ordinal]

    def choose(
        self, pools: Iterable[str], need: Need, t: float, avoid: Collection[int] = ()
    ) -> Place | None:
        """Return the member for the next job; None if none has room.

        Args:
            pools: the names of the pools on which the job may run.
            need: the need of the job.
            t: the time.
            avoid: numbers of members on which the job is not to run.
        """
        best: tuple[float, int] | None = None
        for pool in pools:
            first = self._first(pool, need, t, avoid)
            if first is not None and (best is None or first < best):
                best = first
        return None if best is None else self.places[best[1]]

    def feasible(
        self, pools: Collection[str], need: Need, t: float, avoid: Collection[int]
    ) -> bool:
        """Return whether any member is feasible, with room or not; arguments as for `choose`."""
        return any(
            place.pool in pools and place.ordinal not in avoid and place.feasible(need, t)
            for place in self.places.values()
        )

    def holds(self, pools: tuple[str, ...], need: Need) -> bool:
        """Return whether an open member is large enough for a job, with time for it or not."""
        held = self._held.get((pools, need))
        if held is None:
            if len(self._held) >= KEPT:
                self._held.clear()
            held = self._held[pools, need] = any(
                place.open and place.pool in pools and place.holds(need)
                for place in self.places.values()
            )
        return held

    def take(self, place: Place, cores: int) -> None:
        """Note that jobs with so many cores in all are sent to a member."""
        place.taken += cores
        self.changed(place)

    def give(self, place: Place, cores: int, t: float) -> None:
        """Note that a job on a member has ended."""
        place.ended(cores, t)
        self.changed(place)

    def changed(self, place: Place) -> None:
        """Add an entry to the heaps for a member whose load or feasibility has changed."""
        if not place.open:
            return
        entry = place.load, place.ordinal
        for (pool, _), heap in self._heaps.items():
            if pool == place.pool:
                heappush(heap, entry)

    def _first(
        self, pool: str, need: Need, t: float, avoid: Collection[int]
    ) -> tuple[float, int] | None:
        heap = self._heap(pool, need)
        passed: list[tuple[float, int]] = []
        first: tuple[float, int] | None = None
        while heap:
            load, ordinal = heap[0]
            place = self.places.get(ordinal)
            # Dropping is safe: `changed` adds a member again when its time limit changes or when it
            # has room again.
            if (
                place is not None
                and place.load == load
                and place.feasible(need, t)
                and place.room(need, t)
            ):
                if ordinal not in avoid:
                    first = heap[0]
                    break
                passed.append(heap[0])
            heappop(heap)
        for entry in passed:
            heappush(heap, entry)
        return first

    def _heap(self, pool: str, need: Need) -> list[tuple[float, int]]:
        key = pool, need
        heap = self._heaps.get(key)
        if heap is None or len(heap) > 64 + 4 * len(self.places):
            if heap is None and len(self._heaps) >= KEPT:
                del self._heaps[next(iter(self._heaps))]
            heap = self._heaps[key] = [
                (place.load, place.ordinal)
                for place in self.places.values()
                if place.open and place.pool == pool
            ]
            heapify(heap)
        return heap
