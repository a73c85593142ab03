"""Placement: on which member a job is sent to, from what is known and nothing else.

A member is *feasible* for a job if it is open, is large enough, and its time left is at least
`TIME_MARGIN` times the job's time limit. Of the feasible ones with room the job gets the one with
the least load, the share of its cores that jobs on it take; of equal ones the first. Binding is
late: a member has room for no more than its window; the rest waits in the service. The window is
its cores and what it ran in a second, up to twice its cores, or what it ran in a second if that is
more. So a job waits on a member for about a second, and not for hours while another one is idle. A
member with a service of its own tells of its jobs once a second only: its window is twice its
cores, or what it ran in some seconds.

The least is found in a heap for each pool and each need. An entry that is not so any more is
dropped when it comes to the top, so a choice costs the logarithm of the number of members. It
depends on the loads alone and not on how they came about, so a restored engine chooses alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from flux_ensemble.document.members import TIME_MARGIN

#: A window is so many times the cores of a member where it runs that much in a second.
WINDOW = 2

#: How many heaps are kept: one for each need, and pool.
KEPT = 64

#: A member with a service of its own gets jobs when one in so many of its window is free, which is
#: what it ran in so many seconds: it tells of its jobs once a second.
BULK = 4
BULK_SECONDS = 4


class Need(NamedTuple):
    """What a job needs of a member.

    Args:
        nodes, cores, gpus: in all; `exclusive` jobs take whole nodes.
        seconds: its time limit, 0 for none.
    """

    nodes: int = 1
    cores: int = 1
    gpus: int = 0
    seconds: float = 0.0
    exclusive: bool = False

    def __str__(self) -> str:
        """The size, in words.

        >>> str(Need(nodes=1, cores=64, gpus=2))
        '1 node, 64 cores, 2 GPUs'
        """
        sizes = (self.nodes, "node"), (self.cores, "core"), (self.gpus, "GPU")
        return ", ".join(f"{number} {name}{'s'[: number != 1]}" for number, name in sizes if number)


class Place:
    """A member, as far as placement needs to know it.

    Args:
        ordinal: its number.
        pool: the name of its pool.
        nodes, cores, gpus: what it has in all.
        t_expires: when its time is up; infinity where it has no limit.
        bulk: it gets jobs in bulk: what is asked of a service there costs as much for one as for
            many.

    Attributes:
        open: jobs may be placed on it.
        taken: the cores that the jobs on it take, or will take when they start.
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
    ) -> None:
        self.ordinal = ordinal
        self.pool = pool
        self.nodes = nodes
        self.cores = cores
        self.gpus = gpus
        self.t_expires = t_expires
        self.bulk = bulk
        self.open = True
        self.taken = 0
        #: Cores of the jobs that ended in the latest second, in the one before it, and which it is.
        self.rate = [0, 0, 0]

    @property
    def load(self) -> float:
        """The share of its cores that is taken; above 1 where jobs wait for them."""
        return self.taken / self.cores

    def weight(self, need: Need) -> int:
        """The cores that a job takes, or that its share of the nodes or GPUs amounts to."""
        cores = need.cores
        if need.exclusive:
            cores = max(cores, self.cores * need.nodes // self.nodes)
        if need.gpus and self.gpus:
            cores = max(cores, -(-self.cores * need.gpus // self.gpus))
        return cores

    def feasible(self, need: Need, t: float) -> bool:
        """Whether a job can run on it, if not at once."""
        return self.open and self.holds(need) and t + TIME_MARGIN * need.seconds <= self.t_expires

    def holds(self, need: Need) -> bool:
        """Whether it is large enough for a job."""
        return need.nodes <= self.nodes and need.cores <= self.cores and need.gpus <= self.gpus

    def room(self, need: Need, t: float) -> int:
        """How many more jobs it gets now."""
        now, before, latest = self.rate
        ran = max(now, before) if t < latest + 2 else 0
        window = WINDOW * self.cores
        if not self.bulk:
            window = max(min(window, self.cores + ran), ran)
        else:
            window = max(window, BULK_SECONDS * ran)
            if BULK * (window - self.taken) < window:
                return 0
        return max(0, (window - self.taken) // self.weight(need))

    def slice(self, need: Need, t: float, waiting: int, members: int) -> int:
        """How many of the jobs that wait it gets at once: its share, and first to fill its cores.

        Args:
            need: of each.
            t: the time.
            waiting: how many wait.
            members: over how many members they are shared out.
        """
        room = self.room(need, t)
        if self.taken < self.cores:
            room = min(room, max(1, (self.cores - self.taken) // self.weight(need)))
        return max(0, min(room, -(-waiting // max(1, members))))

    def ended(self, cores: int, t: float) -> None:
        """A job on it that took some cores has ended at time `t`."""
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
        #: pool -> how many of its members are open.
        self.open: dict[str, int] = {}
        #: (pool, need) -> (load, ordinal), the least first; some are not so any more.
        self._heaps: dict[tuple[str, Need], list[tuple[float, int]]] = {}
        #: (pools, need) -> whether an open member is large enough, until there are others.
        self._held: dict[tuple[tuple[str, ...], Need], bool] = {}

    def add(self, place: Place) -> None:
        """A member is up."""
        self.places[place.ordinal] = place
        self.open[place.pool] = self.open.get(place.pool, 0) + 1
        self._held.clear()
        self.changed(place)

    def number(self, pools: Iterable[str]) -> int:
        """How many members of some pools are open."""
        return sum(self.open.get(pool, 0) for pool in pools)

    def limit(self, place: Place, t_expires: float) -> None:
        """The time of a member is up at another time than before."""
        place.t_expires = t_expires
        # It can be feasible again for what it was not.
        self.changed(place)

    def close(self, place: Place) -> None:
        """No more jobs go to a member; one that is closed already is no error."""
        if place.open:
            place.open = False
            self.open[place.pool] -= 1
            self._held.clear()

    def remove(self, place: Place) -> None:
        """A member is gone."""
        self.close(place)
        del self.places[place.ordinal]

    def choose(
        self, pools: Iterable[str], need: Need, t: float, avoid: Collection[int] = ()
    ) -> Place | None:
        """The member that the next job goes to; None if none has room.

        Args:
            pools: the names of those that it may run on.
            need: of the job.
            t: the time.
            avoid: numbers of members that it is not to run on.
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
        """Whether a job can run on a member, with room or not; for the arguments see `choose`."""
        return any(
            place.pool in pools and place.ordinal not in avoid and place.feasible(need, t)
            for place in self.places.values()
        )

    def holds(self, pools: tuple[str, ...], need: Need) -> bool:
        """Whether a member that is open is large enough for a job, with time for it or not."""
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
        """Jobs go to a member."""
        place.taken += cores
        self.changed(place)

    def give(self, place: Place, cores: int, t: float) -> None:
        """A job on a member has ended."""
        place.ended(cores, t)
        self.changed(place)

    def changed(self, place: Place) -> None:
        """The load of a member has changed, or what it is feasible for."""
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
            # What is not feasible now comes back with another time limit, what has no room with it.
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
