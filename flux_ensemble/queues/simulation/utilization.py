"""The use of a cluster over time."""

from __future__ import annotations

from flux_ensemble.queues.virtual.cluster import Capacity

#: The course over time has at most twice this many points; and at least this many, after the start.
POINTS = 40

#: Initial seconds of a point; a power of two, so that doubling it is exact.
FIRST_LENGTH = 2.0**-10


class Usage:
    """Sums of the nodes and cores in use, in points of equal length.

    The length of the simulation is not known in advance, so the points become twice as long, and
    half as many, whenever they are too many.

    Args:
        cluster: the cluster.

    Attributes:
        length: seconds of one point.
        cores: core-seconds in use in each point.
        node_seconds, core_seconds: the totals.
    """

    def __init__(self, cluster: Capacity) -> None:
        self._cluster = cluster
        self.length = FIRST_LENGTH
        self._covered = 2 * POINTS * self.length
        self.cores: list[float] = []
        self.node_seconds = 0.0
        self.core_seconds = 0.0

    def advance(self, before: float, after: float) -> None:
        """Add the present use for the time from `before` to `after`, in seconds from 0."""
        cluster, seconds = self._cluster, after - before
        used = cluster.busy_cores * seconds
        self.node_seconds += cluster.busy_nodes * seconds
        self.core_seconds += used
        while after > self._covered:
            self._coarsen()
        point = int(before / self.length)
        if point < len(self.cores) and after <= (point + 1) * self.length:
            self.cores[point] += used
            return
        while before < after:
            end = min(after, (point + 1) * self.length)
            while len(self.cores) <= point:
                self.cores.append(0.0)
            self.cores[point] += cluster.busy_cores * max(0.0, end - before)
            before = end
            point += 1

    def course(self, until: float) -> list[float]:
        """Return the share of the cores in use in each point up to the time `until`, 0 to 1."""
        shares = []
        for point, cores in enumerate(self.cores):
            length = min(self.length, until - point * self.length)
            if length > 0:
                shares.append(min(1.0, cores / length / self._total))
        return shares

    @property
    def _total(self) -> int:
        return self._cluster.nodes * self._cluster.cores

    def averages(self, until: float) -> tuple[float, float]:
        """Return the mean shares of nodes and cores in use from 0 to `until`, each 0 to 1."""
        if not until:
            return 0.0, 0.0
        return (
            self.node_seconds / until / self._cluster.nodes,
            self.core_seconds / until / self._total,
        )

    def _coarsen(self) -> None:
        pairs = self.cores + [0.0] * (len(self.cores) % 2)
        self.cores = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        self.length *= 2
        self._covered *= 2
