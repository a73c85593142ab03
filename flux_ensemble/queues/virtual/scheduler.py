"""First come, first served with backfill: which waiting jobs start now.

Jobs are considered by urgency, then in the order of their submission. The first that
does not fit, the head, reserves the emptiest nodes that it needs; its turn comes when
the last job on these has reached its time limit, or before. A job behind the head may
start on other nodes, or on these if its own time limit ends before the head's turn. So
a job waits for those before it, never for those behind. This is EASY backfill (Lifka
1995), with nodes reserved rather than counted, because jobs without a limit have no end
to count on.

Waiting jobs are kept in lines of equal jobs, and of each line only the first is looked
at, so a pass costs the kinds of jobs that wait and the jobs that start, whatever the
length of the queue.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

from flux_ensemble.queues.virtual.cluster import Shape, VirtualCluster

#: The urgency of a job that is not to start (RFC 30).
HELD = 0


class Claim:
    """A job's place in the queue, and then in the cluster.

    Not a dataclass: see `engine.jobs.RunningJob`.

    Args:
        job: whatever the owner calls the job by.
        shape: what it asks for.
        urgency: 0 (held) to 31.
        limit: its time limit in seconds, 0 for none.

    Attributes:
        order: its place among those of the same urgency.
        placed: the nodes that it has, or None while it waits.
    """

    def __init__(self, job: Any, shape: Shape, urgency: int = 16, limit: float = 0.0) -> None:
        self.job = job
        self.shape = shape
        self.urgency = urgency
        self.limit = limit
        self.order = 0
        self.placed: list[int] | None = None


#: What the claims of a line have in common: urgency, shape, limit.
Key = tuple[int, Shape, float]


class _Line:
    """Waiting claims of one urgency, shape and limit: a heap of (order, claim)."""

    __slots__ = ("claims", "key", "limit", "shape", "urgency")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.urgency, self.shape, self.limit = key
        self.claims: list[tuple[int, Claim]] = []

    def remove(self, claim: Claim) -> None:
        self.claims.remove((claim.order, claim))
        heapify(self.claims)


class Scheduler:
    """Decides who gets the nodes of a cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        #: An empty line stays until the next pass: often the next job is like the last one.
        self._lines: dict[Key, _Line] = {}
        #: Shapes that the cluster has been found to have room for when it is empty.
        self._possible: set[Shape] = set()
        #: When the jobs of each node have all reached their limits; may be too late.
        self._ends = [0.0] * cluster.nodes
        self._head: Claim | None = None
        self._reserved: frozenset[int] = frozenset()
        self._turn = math.inf
        self._orders = 0
        self.waiting = 0

    def add(self, claim: Claim) -> None:
        """A job waits.

        Raises:
            UnsatisfiableError: it asks for what there is not.
        """
        if claim.shape not in self._possible:
            self.cluster.check(claim.shape)
            self._possible.add(claim.shape)
        self._orders += 1
        claim.order = self._orders
        self._push(claim)

    def _push(self, claim: Claim) -> None:
        key = (claim.urgency, claim.shape, claim.limit)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
        heappush(line.claims, (claim.order, claim))
        self.waiting += 1

    def remove(self, claim: Claim) -> None:
        """A job waits no more."""
        key = (claim.urgency, claim.shape, claim.limit)
        self._lines[key].remove(claim)
        self.waiting -= 1

    def change(self, claim: Claim, urgency: int | None, limit: float | None, now: float) -> None:
        """Change urgency or time limit of a job that waits, or the limit of one that runs."""
        waits = claim.placed is None
        if waits:
            self.remove(claim)
        if urgency is not None:
            claim.urgency = urgency
        if limit is not None:
            claim.limit = limit
        if waits:
            self._push(claim)
        elif limit is not None:
            self._set_end(claim, now)

    def release(self, claim: Claim) -> None:
        """A job that ran gives back its nodes."""
        assert claim.placed is not None
        cluster, ends = self.cluster, self._ends
        cluster.release(claim.shape, claim.placed)
        for node in claim.placed:
            if ends[node] and cluster.free_cores[node] == cluster.cores:
                ends[node] = 0.0
        claim.placed = None

    def start(self, now: float) -> list[Claim]:
        """Start what can start now; each claim comes with its `placed` nodes."""
        cluster = self.cluster
        started: list[Claim] = []
        lines: list[tuple[int, int, _Line]] = []
        unused: list[Key] = []
        for line in self._lines.values():
            if not line.claims:
                unused.append(line.key)
            elif line.urgency > HELD:
                lines.append((-line.urgency, line.claims[0][0], line))
        for key in unused:
            del self._lines[key]
        if len(lines) > 1:
            if not any(cluster.fits(line.shape) for _, _, line in lines):
                return started
            heapify(lines)
        head: Claim | None = None
        blocked: set[Shape] = set()
        while lines:
            line = heappop(lines)[2]
            shape, limit = line.shape, line.limit
            if blocked and shape in blocked:
                continue
            free = head is None or (limit and now + limit <= self._turn)
            placed = cluster.place(shape, () if free else self._reserved)
            if placed is None:
                if free:
                    blocked.add(shape)
                if head is None:
                    head = line.claims[0][1]
                    self._reserve(head)
                if not any(cluster.fits(other.shape) for _, _, other in lines):
                    break
                continue
            claim = heappop(line.claims)[1]
            self.waiting -= 1
            claim.placed = placed
            self._set_end(claim, now)
            started.append(claim)
            if line.claims:
                heappush(lines, (-line.urgency, line.claims[0][0], line))
        return started

    def _set_end(self, claim: Claim, now: float) -> None:
        until, ends = now + claim.limit if claim.limit else math.inf, self._ends
        for node in claim.placed or ():
            if until > ends[node]:
                ends[node] = until

    def _reserve(self, head: Claim) -> None:
        """Choose the nodes that `head` will get, and when at the latest, unless it has."""
        if self._head is head:
            return
        self._head = head
        wanted = -(-head.shape.chunks // self.cluster.capacity(head.shape))
        nodes = list(islice(self.cluster.emptiest(), wanted))
        self._reserved = frozenset(nodes)
        self._turn = max(self._ends[node] for node in nodes)
