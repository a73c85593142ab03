"""A virtual cluster: nodes with cores and gpus, and who has them.

Nodes are kept in buckets by their number of free cores, and a bit mask tells which
buckets are not empty, so that finding room for a job costs the nodes that it gets and
not the nodes that there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job asks for.

    Args:
        chunks: how many pieces; a piece is on one node.
        cores: cores of each piece.
        gpus: gpus of each piece.
        distinct: each piece is on a node of its own.
        exclusive: the job's nodes run nothing else.
    """

    chunks: int
    cores: int
    gpus: int = 0
    distinct: bool = True
    exclusive: bool = False
    #: Every job is looked up by its shape some times.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = self.chunks, self.cores, self.gpus, self.distinct, self.exclusive
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


class UnsatisfiableError(ValueError):
    """A job asks for what the cluster does not have, whoever else runs."""


def shape_of(jobspec: Mapping[str, Any]) -> Shape:
    """The shape of a canonical V1 jobspec (RFC 25).

    Raises:
        UnsatisfiableError: the resources have a form that a virtual cluster does not have.
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


class Cluster:
    """Nodes 0 to `nodes - 1`, all alike.

    Args:
        nodes: how many nodes.
        cores: cores of each.
        gpus: gpus of each.
    """

    def __init__(self, nodes: int, cores: int, gpus: int = 0) -> None:
        for name, value, least in (("nodes", nodes, 1), ("cores", cores, 1), ("gpus", gpus, 0)):
            if value < least:
                raise ValueError(f"a cluster has at least {least} {name}, not {value}")
        self.nodes, self.cores, self.gpus = nodes, cores, gpus
        self.free_cores = [cores] * nodes
        self.free_gpus = [gpus] * nodes
        # Dictionaries as ordered sets: a node that was freed last is taken last.
        self._buckets: list[dict[int, None]] = [{} for _ in range(cores + 1)]
        self._buckets[cores] = dict.fromkeys(range(nodes))
        self._mask = 1 << cores
        #: Cores in use, for utilisation.
        self.busy_cores = 0

    def check(self, shape: Shape) -> None:
        """The cluster could hold the shape if it were empty.

        Raises:
            UnsatisfiableError: it could not.
        """
        if shape.cores > self.cores or shape.gpus > self.gpus:
            raise UnsatisfiableError(
                f"a node has {self.cores} cores and {self.gpus} gpus, "
                f"not {shape.cores} cores and {shape.gpus} gpus"
            )
        room = self.nodes * self.capacity(shape)
        if shape.chunks > room:
            raise UnsatisfiableError(f"the cluster has room for {room} of {shape.chunks} pieces")

    def capacity(self, shape: Shape) -> int:
        """How many pieces of a shape an empty node holds."""
        return self._pieces(shape, self.cores, self.gpus)

    def fits(self, shape: Shape) -> bool:
        """There may be room for one piece of the shape; False is certain."""
        return bool(self._mask >> (self.cores if shape.exclusive else shape.cores))

    def place(self, shape: Shape, without: Collection[int] = ()) -> list[int] | None:
        """Take the resources of a job.

        Args:
            shape: what it asks for.
            without: nodes to leave alone.

        Returns:
            The node of each piece, or None if there is no room.
        """
        found: list[int] = []
        for node in self._candidates(shape):
            if node in without:
                continue
            pieces = self._pieces(shape, self.free_cores[node], self.free_gpus[node])
            found += [node] * min(pieces, shape.chunks - len(found))
            if len(found) == shape.chunks:
                for used, cores, gpus in self.use(shape, found):
                    self._move(used, -cores, -gpus)
                return found
        return None

    def release(self, shape: Shape, placed: Sequence[int]) -> None:
        """Give back what `place` took."""
        for node, cores, gpus in self.use(shape, placed):
            self._move(node, cores, gpus)

    @property
    def busy_nodes(self) -> int:
        """How many nodes have cores in use."""
        return self.nodes - len(self._buckets[self.cores])

    def emptiest(self) -> Iterator[int]:
        """All nodes, those with the most free cores first."""
        for bucket in reversed(self._buckets):
            yield from bucket

    def _candidates(self, shape: Shape) -> Iterator[int]:
        """Nodes with room for a piece, the fullest first."""
        least = self.cores if shape.exclusive else shape.cores
        gpus = self.gpus if shape.exclusive else shape.gpus
        mask = self._mask >> least << least
        while mask:
            free = (mask & -mask).bit_length() - 1
            mask &= mask - 1
            for node in self._buckets[free]:
                if self.free_gpus[node] >= gpus:
                    yield node

    @staticmethod
    def _pieces(shape: Shape, cores: int, gpus: int) -> int:
        if shape.distinct:
            return 1
        if not shape.gpus:
            return cores // shape.cores if shape.cores else shape.chunks
        pieces = gpus // shape.gpus
        return min(pieces, cores // shape.cores) if shape.cores else pieces

    def use(self, shape: Shape, placed: Sequence[int]) -> list[tuple[int, int, int]]:
        """What a placed job uses: (node, cores, gpus), a node perhaps several times."""
        if shape.exclusive:
            return [(node, self.cores, self.gpus) for node in dict.fromkeys(placed)]
        return [(node, shape.cores, shape.gpus) for node in placed]

    def _move(self, node: int, cores: int, gpus: int) -> None:
        """Change a node's free cores and gpus by so many."""
        self.free_gpus[node] += gpus
        if not cores:
            return
        before = self.free_cores[node]
        after = before + cores
        bucket = self._buckets[before]
        del bucket[node]
        if not bucket:
            self._mask &= ~(1 << before)
        self._buckets[after][node] = None
        self._mask |= 1 << after
        self.free_cores[node] = after
        self.busy_cores -= cores
