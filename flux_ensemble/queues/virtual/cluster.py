"""A virtual cluster: nodes with cores and gpus, and their use.

Nodes are kept in buckets by their number of free cores, and a bit mask has a bit for each bucket
that is not empty. So the cost of finding room for a job depends on the number of nodes that it
gets, and not on the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.words import counted


@dataclass(frozen=True, slots=True)
class Shape:
    """The resources that a job requests.

    Args:
        chunks: number of pieces; a piece is on one node.
        cores: cores of each piece.
        gpus: gpus of each piece.
        distinct: each piece is on a node of its own.
        exclusive: no other job runs on the job's nodes.
    """

    chunks: int
    cores: int
    gpus: int = 0
    distinct: bool = True
    exclusive: bool = False
    #: Stored, because every job is looked up by its shape several times.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = self.chunks, self.cores, self.gpus, self.distinct, self.exclusive
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


class UnsatisfiableError(ValueError):
    """A job requests resources that the cluster does not have, even when it is empty."""


def shape_of(jobspec: Mapping[str, Any]) -> Shape:
    """Return the shape of a canonical V1 jobspec (RFC 25).

    Raises:
        UnsatisfiableError: a virtual cluster has no resources of this form.
    """
    top = _only(jobspec["resources"])
    nodes, exclusive = 0, bool(top.get("exclusive"))
    if top["type"] == "node":
        nodes = top["count"]
        top = _only(top["with"])
    exclusive = exclusive or bool(top.get("exclusive"))
    if top["type"] != "slot":
        raise UnsatisfiableError(f"no resources of type {top['type']!r} in a virtual cluster")
    amounts = {"core": 0, "gpu": 0}
    for resource in top["with"]:
        if resource["type"] not in amounts:
            kind = resource["type"]
            raise UnsatisfiableError(f"no resources of type {kind!r} in a virtual cluster")
        amounts[resource["type"]] += resource["count"]
    if nodes:
        slots = top["count"]
        return Shape(nodes, slots * amounts["core"], slots * amounts["gpu"], True, exclusive)
    return Shape(top["count"], amounts["core"], amounts["gpu"], False, exclusive)


def _only(resources: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(resources) != 1:
        kinds = ", ".join(resource["type"] for resource in resources)
        raise UnsatisfiableError(f"a virtual cluster takes one resource there, not {kinds}")
    return resources[0]


class Capacity:
    """A number of nodes, and their use.

    Args:
        nodes: number of nodes.
        cores: cores of each.

    Attributes:
        busy_cores, busy_nodes: cores in use, and nodes with cores in use.
    """

    def __init__(self, nodes: int, cores: int) -> None:
        self.nodes = nodes
        self.cores = cores
        self.busy_cores = self.busy_nodes = 0


class VirtualCluster(Capacity):
    """A cluster of equal nodes, numbered from 0 to `nodes - 1`.

    Args:
        nodes: number of nodes.
        cores: cores of each.
        gpus: gpus of each.
        part_of: receives the use of several clusters in all, if given.
    """

    def __init__(
        self, nodes: int, cores: int, gpus: int = 0, part_of: Capacity | None = None
    ) -> None:
        super().__init__(nodes, cores)
        for name, value, least in (("nodes", nodes, 1), ("cores", cores, 1), ("gpus", gpus, 0)):
            if value < least:
                raise ValueError(f"a cluster has at least {counted(least, name[:-1])}, not {value}")
        self.gpus = gpus
        self._part_of = part_of
        self.free_cores = [cores] * nodes
        self.free_gpus = [gpus] * nodes
        # Dictionaries as ordered sets: the node that was released last is taken last.
        self._buckets: list[dict[int, None]] = [{} for _ in range(cores + 1)]
        self._buckets[cores] = dict.fromkeys(range(nodes))
        self._mask = 1 << cores

    def check(self, shape: Shape) -> None:
        """Check that the shape fits into the empty cluster.

        Raises:
            UnsatisfiableError: it does not.
        """
        if shape.cores > self.cores or shape.gpus > self.gpus:
            raise UnsatisfiableError(
                f"a node has {self.cores} cores and {self.gpus} gpus, "
                f"not {shape.cores} cores and {shape.gpus} gpus"
            )
        room = self.nodes * self.capacity(shape)
        if shape.chunks > room:
            what = "nodes" if shape.distinct else "tasks"
            raise UnsatisfiableError(f"the cluster has room for {room} of {shape.chunks} {what}")

    def capacity(self, shape: Shape) -> int:
        """Return the number of pieces of a shape that fit on an empty node."""
        return self._pieces(shape, self.cores, self.gpus)

    def fits(self, shape: Shape) -> bool:
        """Return whether there may be room for one piece of the shape; False is certain."""
        return bool(self._mask >> (self.cores if shape.exclusive else shape.cores))

    def place(self, shape: Shape, without: Collection[int] = ()) -> list[int] | None:
        """Take the resources of a job.

        Args:
            shape: of the job.
            without: nodes that must not be used.

        Returns:
            The node of each piece, or None if there is no room.
        """
        least, gpus = shape.cores, shape.gpus
        if shape.exclusive:
            least, gpus = self.cores, self.gpus
        found: list[int] = []
        mask = self._mask >> least << least
        while mask:
            # Fullest nodes first.
            free = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            for node in self._buckets[free]:
                if self.free_gpus[node] < gpus or node in without:
                    continue
                missing = shape.chunks - len(found)
                if missing == 1:
                    found.append(node)
                else:
                    pieces = self._pieces(shape, free, self.free_gpus[node])
                    found += [node] * min(pieces, missing)
                if len(found) == shape.chunks:
                    self._use(shape, found, 1)
                    return found
        return None

    def release(self, shape: Shape, placed: Sequence[int]) -> None:
        """Give back the resources that `place` took."""
        self._use(shape, placed, -1)

    def emptiest(self) -> Iterator[int]:
        """Yield all nodes, those with the most free cores first."""
        for bucket in reversed(self._buckets):
            yield from bucket

    @staticmethod
    def _pieces(shape: Shape, cores: int, gpus: int) -> int:
        if shape.distinct:
            return 1
        if not shape.gpus:
            return cores // shape.cores if shape.cores else shape.chunks
        pieces = gpus // shape.gpus
        return min(pieces, cores // shape.cores) if shape.cores else pieces

    def _use(self, shape: Shape, placed: Sequence[int], sign: int) -> None:
        """Take (1) or give back (-1) the resources of a job on its nodes."""
        cores, gpus = sign * shape.cores, sign * shape.gpus
        nodes: Iterable[int] = placed
        if shape.exclusive:
            cores, gpus, nodes = sign * self.cores, sign * self.gpus, dict.fromkeys(placed)
        for node in nodes:
            if gpus:
                self.free_gpus[node] -= gpus
            if cores:
                self._move(node, cores)

    def _move(self, node: int, cores: int) -> None:
        """Take a number of cores of a node, or give them back if the number is negative."""
        buckets, before = self._buckets, self.free_cores[node]
        self.free_cores[node] = after = before - cores
        self._count(cores, (before == self.cores) - (after == self.cores))
        bucket = buckets[before]
        del bucket[node]
        if not bucket:
            self._mask ^= 1 << before
        bucket = buckets[after]
        if not bucket:
            self._mask ^= 1 << after
        bucket[node] = None

    def _count(self, cores: int, nodes: int) -> None:
        """Add to the numbers of cores and nodes in use."""
        self.busy_cores += cores
        self.busy_nodes += nodes
        if self._part_of is not None:
            self._part_of.busy_cores += cores
            self._part_of.busy_nodes += nodes

    def abandon(self) -> None:
        """Stop counting the use of these nodes: they are lost, with all that runs on them."""
        self._count(-self.busy_cores, -self.busy_nodes)
