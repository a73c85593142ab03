"""First come, first served with backfill: the choice of the waiting jobs that start now.

Jobs are considered by urgency, then in the order of their submission. The first that does not fit,
the head, reserves the emptiest nodes that it needs; its turn comes when the last job on these has
reached its time limit, or before. A job behind the head may start on other nodes, or on these if
its own time limit ends before the head's turn. So a job waits for those before it, never for those
behind. This is EASY backfill (Lifka 1995), except that nodes are reserved rather than counted,
because the end of a job without a limit is unknown.

Waiting jobs are kept in lines of equal jobs, and only the first job of each line is considered. So
the cost of a pass depends on the number of different jobs and of jobs that start, and not on the
length of the queue.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

from flux_ensemble.queues.virtual.cluster import Shape, VirtualCluster

#: The urgency of a job that must not start (RFC 30).
HELD = 0


class Claim:
    """The place of a job in the queue, and then on the cluster.

    Not a dataclass: see `engine.jobs.ActiveJob`.

    Args:
        job: the owner's key of the job.
        shape: the resources that it requests.
        urgency: 0 (held) to 31.
        limit: its time limit in seconds; 0 for none.

    Attributes:
        order: its place among jobs of the same urgency.
        placed: the nodes that it has; None while it waits.
    """

    def __init__(self, job: Any, shape: Shape, urgency: int = 16, limit: float = 0.0) -> None:
        self.job = job
        self.shape = shape
        self.urgency = urgency
        self.limit = limit
        self.order = 0
        self.placed: list[int] | None = None


#: The urgency, shape and limit that the claims of a line share.
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
    """The scheduler of a cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        #: An empty line stays until the next pass, since the next job is often like the last one.
        self._lines: dict[Key, _Line] = {}
        #: Shapes that are known to fit into the empty cluster.
        self._possible: set[Shape] = set()
        #: For each node the time when all its jobs have reached their limits; it may be too late.
        self._ends = [0.0] * cluster.nodes
        self._head: Claim | None = None
        self._reserved: frozenset[int] = frozenset()
        self._turn = math.inf
        self._orders = 0
        self.waiting = 0

    def add(self, claim: Claim) -> None:
        """Add a waiting job.

        Raises:
            UnsatisfiableError: it requests resources that the cluster does not have.
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
        """Remove a waiting job."""
        key = (claim.urgency, claim.shape, claim.limit)
        self._lines[key].remove(claim)
        self.waiting -= 1

    def change(self, claim: Claim, urgency: int | None, limit: float | None, now: float) -> None:
        """Change the urgency or the time limit of a waiting job, or the limit of a running one."""
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
        """Release the nodes of a job that ran."""
        assert claim.placed is not None
        cluster, ends = self.cluster, self._ends
        cluster.release(claim.shape, claim.placed)
        for node in claim.placed:
            if ends[node] and cluster.free_cores[node] == cluster.cores:
                ends[node] = 0.0
        claim.placed = None

    def start(self, now: float) -> list[Claim]:
        """Choose the jobs that start now; return their claims, which have their `placed` nodes."""
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
        """Choose the nodes that `head` will get and the latest time, unless done before."""
        if self._head is head:
            return
        self._head = head
        wanted = -(-head.shape.chunks // self.cluster.capacity(head.shape))
        nodes = list(islice(self.cluster.emptiest(), wanted))
        self._reserved = frozenset(nodes)
        self._turn = max(self._ends[node] for node in nodes)
