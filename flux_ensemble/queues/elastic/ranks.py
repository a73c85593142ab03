"""The ranks of a Flux instance that are in use, and the choice of those that come and go.

A rank is *in use* if its broker is online and the rank is not drained. A shrink drains a rank
with `REASON`; a rank that is drained with any other reason belongs to somebody else, and is
left as it is.

This module does not use Flux: `queues.elastic.watcher` provides the numbers.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from flux_ensemble.engine.intervals import joined

#: Reason with which a shrink drains a rank.
REASON = "ensemble: shrink"

#: The parent of each rank in the tree of brokers; that of rank 0 is -1.
Parents = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of an instance at one time.

    Attributes:
        usable: ranks that have resources for jobs, and are not excluded by the configuration.
        online: ranks whose broker is connected.
        torpid: ranks whose broker does not respond.
        drained: the reason of each drained rank.
        allocated: ranks with jobs, or with work after a job (housekeeping).
    """

    usable: frozenset[int] = frozenset()
    online: frozenset[int] = frozenset()
    torpid: frozenset[int] = frozenset()
    drained: Mapping[int, str] = field(default_factory=dict)
    allocated: frozenset[int] = frozenset()

    @property
    def in_use(self) -> frozenset[int]:
        """The ranks that count for the size."""
        return (self.usable & self.online) - self.drained.keys()

    @property
    def up(self) -> frozenset[int]:
        """The ranks in use that respond."""
        return self.in_use - self.torpid

    @property
    def free(self) -> frozenset[int]:
        """The ranks that are up and have no job on them."""
        return self.up - self.allocated

    @property
    def ours(self) -> frozenset[int]:
        """The ranks that a shrink has taken out of use."""
        return self.usable & {rank for rank, why in self.drained.items() if why == REASON}

    @property
    def theirs(self) -> frozenset[int]:
        """The ranks that somebody else has drained."""
        return (self.usable & self.drained.keys()) - self.ours

    @property
    def leaving(self) -> frozenset[int]:
        """The ranks that were taken out of use, and whose brokers are still online."""
        return self.ours & self.online


def to_grow(ranks: Ranks, parents: Parents, size: int) -> frozenset[int]:
    """Choose the ranks to bring into use; those taken out of use but still online come first.

    Args:
        ranks: their present state.
        parents: the tree of brokers: a broker comes up only below one that is up.
        size: number of ranks that are to be in use, more than are now.

    Raises:
        OSError: there are not enough ranks; EBUSY if somebody else has drained some.
    """
    missing = size - len(ranks.in_use)
    chosen = set(sorted(ranks.leaving)[:missing])
    there = set(ranks.online)
    asleep = sorted(ranks.usable - ranks.online - ranks.theirs)
    while len(chosen) < missing:
        # A parent may have the higher rank of the two.
        ready = (rank for rank in asleep if rank not in there and parents.get(rank, -1) in there)
        rank = next(ready, -1)
        if rank == -1:
            raise _cannot_grow(ranks, len(ranks.in_use) + len(chosen), size)
        chosen.add(rank)
        there.add(rank)
    return frozenset(chosen)


def _cannot_grow(ranks: Ranks, most: int, size: int) -> OSError:
    text = f"cannot grow to {nodes(size)}: there are {most} that can be used"
    if ranks.theirs:
        named = ", ".join(f"{rank} ({ranks.drained[rank]!r})" for rank in sorted(ranks.theirs))
        text += f"; drained by somebody else: rank {named}, see 'flux resource undrain'"
        return OSError(errno.EBUSY, text)
    return OSError(errno.EINVAL, text)


def to_shrink(ranks: Ranks, parents: Parents, size: int) -> frozenset[int]:
    """Choose the ranks that are to go: the highest in use, and those taken out of use before.

    Rank 0 never goes.

    Args:
        ranks: their present state.
        parents: the tree of brokers: a broker that stops takes those below it along.
        size: number of ranks that are to be in use, at most as many as are now.

    Raises:
        OSError: there are not enough ranks that can go (EBUSY).
    """
    staying_below = dict.fromkeys(parents, 0)

    def count(rank: int, by: int) -> None:
        while (rank := parents.get(rank, -1)) != -1:
            staying_below[rank] += by

    # Rank 0 is among them only if somebody has drained it with our reason.
    leaving = ranks.leaving - {0}
    for rank in ranks.online - leaving:
        count(rank, 1)
    candidates = sorted(ranks.in_use - {0}, reverse=True)
    chosen: set[int] = set()
    while len(chosen) < len(ranks.in_use) - size:
        ready = (rank for rank in candidates if rank not in chosen and not staying_below[rank])
        rank = next(ready, -1)
        if rank == -1:
            raise OSError(
                errno.EBUSY,
                f"cannot shrink to {nodes(size)}: rank {joined(ranks.in_use - chosen)} cannot go; "
                "rank 0 never does, nor does one with brokers below it that stay",
            )
        chosen.add(rank)
        count(rank, -1)
    return frozenset(rank for rank in leaving | chosen if not staying_below[rank])


def check_highest(going: Set[int], ranks: Ranks) -> None:
    """Check that no rank stays that is higher than a rank that goes.

    Raises:
        OSError: such a rank stays (EBUSY).
    """
    above = {rank for rank in ranks.online - going if going and rank > min(going)}
    if above:
        raise OSError(
            errno.EBUSY,
            f"cannot take rank {joined(going)} away: only the highest ranks can go, and rank "
            f"{joined(above)} stays; see 'flux resource status'",
        )


def tree(topology: Mapping[str, object]) -> dict[int, int]:
    """Return the parent of each rank from an `overlay.topology` response (flux-core overlay.c).

    Args:
        topology: {"rank", "children": [topology, ...]}.
    """
    parents = {}
    stack: list[tuple[Mapping[str, object], int]] = [(topology, -1)]
    while stack:
        node, parent = stack.pop()
        rank = node["rank"]
        assert isinstance(rank, int)
        parents[rank] = parent
        children = node["children"]
        assert isinstance(children, list)
        stack.extend((child, rank) for child in children)
    return parents


def check_bounds(low: int, high: int, most: int) -> None:
    """Check the bounds of a size.

    Args:
        low: the least size.
        high: the greatest size.
        most: number of hosts of the instance.

    Raises:
        ValueError: a sentence.
    """
    if low < 1:
        raise ValueError(f"min-nodes: expected 1 or more, not {low}")
    if high < low:
        raise ValueError(f"max-nodes: expected {low} (min-nodes) or more, not {high}")
    if high > most:
        raise ValueError(f"max-nodes: the instance has {most} hosts, expected no more, not {high}")


def nodes(count: int) -> str:
    """Return a number of nodes in words."""
    return f"{count} node" if count == 1 else f"{count} nodes"
