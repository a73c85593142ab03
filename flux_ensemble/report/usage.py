"""The share of time in which something ran on each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flux_ensemble.engine.intervals import ids
from flux_ensemble.report.columns import Codes

#: Most pairs of a job and a node that are examined.
MAX_PAIRS = 20_000_000

#: A node: its rank, preceded by its member if the ensemble has members.
Node = int | tuple[str, int]


@dataclass(frozen=True)
class Usage:
    """The seconds in which jobs ran on each node, and the number of nodes of the cluster."""

    busy: dict[Node, float]
    nodes: int

    def share(self, span: float) -> float:
        """Return the mean share of `span` seconds in which something ran on a node."""
        return sum(self.busy.values()) / (span * self.nodes) if span and self.nodes else 0.0


def usage(
    begins: Sequence[float], ends: Sequence[float], ranks: Codes, end: float, nodes: int | None
) -> Usage | None:
    """Compute for how long something ran on each node.

    Args:
        begins, ends: when each job began and ended; NaN if it did not.
        ranks: of the jobs.
        end: the time used for jobs that have not ended.
        nodes: number of nodes; None: as many as jobs ran on.

    Returns:
        None if there are too many jobs on too many nodes.

    >>> ranks = Codes()
    >>> for value in ("0", "0-1", "0"):
    ...     ranks.add(value)
    >>> usage([0, 2, 3], [2, 4, float("nan")], ranks, 8, 4)
    Usage(busy={0: 8.0, 1: 2.0}, nodes=4)
    """
    places = [() if value is None else _nodes(value) for value in ranks.values]
    rows = ranks.rows
    if sum(map(len, map(places.__getitem__, rows))) > MAX_PAIRS:
        return None
    busy: dict[Node, float] = {}
    until: dict[Node, float] = {}
    ran = [row for row, begin in enumerate(begins) if begin == begin]
    for row in sorted(ran, key=begins.__getitem__):
        begin, over = begins[row], ends[row]
        if over != over:
            over = end
        for node in places[rows[row]]:
            start = max(begin, until.get(node, begin))
            if over > start:
                busy[node] = busy.get(node, 0.0) + over - start
                until[node] = over
    return Usage(busy, nodes or len(busy))


def _nodes(place: str) -> tuple[Node, ...]:
    """Return the nodes of `place_of`.

    >>> _nodes("0-1"), _nodes("pool.1:0-1")
    ((0, 1), (('pool.1', 0), ('pool.1', 1)))
    """
    member, _, ranks = place.rpartition(":")
    return tuple((member, rank) if member else rank for rank in ids(ranks))
