"""A bound on the nodes of the clusters of a namespace, which get fair parts of them.

Each cluster that asks to grow gets what is free up to its part of the nodes: those are divided as
ensembles divide cores (weighted max-min, `service.shares`), each with the same weight, and what one
does not need goes to the others. So while one waits, another does not grow beyond its part, whoever
asks more often. No cluster is made to shrink.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from flux_ensemble.k8s.grpc.backend import (
    Backend,
    BackendError,
    Grant,
    Refused,
    Report,
    Size,
    target,
)
from flux_ensemble.texts import listed
from flux_ensemble.words import counted

log = logging.getLogger(__name__)

#: Seconds for which a cluster waits that was granted less than it asked for: who still needs nodes
#: asks again.
WAIT_SECONDS = 120.0


def divide(nodes: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return the part of each: the same for all, and what one does not need goes to the others.

    >>> divide(10, {"a": 9, "b": 2, "c": 9})
    {'b': 2, 'a': 4, 'c': 4}
    """
    parts: dict[str, int] = {}
    for name in sorted(wanted, key=lambda name: (wanted[name], name)):
        parts[name] = min(wanted[name], nodes // (len(wanted) - len(parts)))
        nodes -= parts[name]
    return parts


class SharedNodes:
    """A back end whose clusters share a number of nodes in each namespace.

    Args:
        backend: changes the sizes.
        nodes: the most that the clusters of a namespace have together; those without a namespace
            are of one.
        clusters: canonical names of clusters that there are; others are known when they ask.
        clock: seconds that only grow.

    Raises:
        Refused: the number is below 1.
    """

    def __init__(
        self,
        backend: Backend,
        nodes: int,
        clusters: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if nodes < 1:
            raise Refused(f"the clusters of a namespace share {nodes} nodes: expected 1 or more")
        self.name = backend.name
        self.discovers = backend.discovers
        self._backend = backend
        self._nodes = nodes
        self._clock = clock
        self._known = set(clusters)
        #: The sizes for which clusters wait, and when each asked last.
        self._waiting: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    def canonical(self, cluster: str) -> str:
        """See `Backend`."""
        return self._backend.canonical(cluster)

    def size(self, cluster: str, deadline: float) -> Size:
        """See `Backend`."""
        return self._backend.size(cluster, deadline)

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        """See `Backend`."""
        self._backend.report(cluster, report, deadline)

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        """See `Backend`: grow as far as the cluster's part of the nodes allows.

        Raises:
            BackendError: as there; Refused also says for whom the cluster waits.
        """
        with self._lock:
            now = self._backend.size(cluster, deadline)
            wanted = target(cluster, now, to=to, by=by)
            self._known.add(cluster)
            if wanted <= now.nodes:
                self._waiting.pop(cluster, None)
                return self._backend.scale(cluster, deadline=deadline, to=to, by=by)
            size = self._allowed(cluster, now.nodes, wanted, deadline)
            grant = self._backend.scale(cluster, deadline=deadline, to=size)
            if grant.size >= wanted:
                self._waiting.pop(cluster, None)
            return grant

    def _allowed(self, cluster: str, now: int, wanted: int, deadline: float) -> int:
        """Return the size that a cluster may grow to, and note that it waits for more.

        Raises:
            Refused: it may not grow now.
        """
        t = self._clock()
        sizes = self._sizes(cluster, deadline)
        self._waiting[cluster] = wanted, t
        self._waiting = {
            name: (most, since)
            for name, (most, since) in self._waiting.items()
            if t - since < WAIT_SECONDS
        }
        needs = {
            name: max(size, self._waiting.get(name, (0, t))[0]) for name, size in sizes.items()
        }
        needs[cluster] = wanted
        part = divide(self._nodes, needs)[cluster]
        free = self._nodes - sum(sizes.values()) - now
        allowed = min(wanted, now + max(free, 0), max(part, now))
        if allowed > now:
            if allowed < wanted:
                log.info("cluster %r may have %d nodes, and waits for %d", cluster, allowed, wanted)
            return allowed
        others = sorted(name for name in self._waiting if name in sizes) if free > 0 else [*sizes]
        log.info("cluster %r waits for %d nodes, beside %s", cluster, wanted, listed(others))
        raise Refused(self._why(cluster, now, part, free, sum(sizes.values()), len(others)))

    def _sizes(self, cluster: str, deadline: float) -> dict[str, int]:
        """Return the sizes of the other clusters of the namespace."""
        namespace = _namespace(cluster)
        sizes = {}
        for name in sorted(self._known):
            if name == cluster or _namespace(name) != namespace:
                continue
            try:
                sizes[name] = self._backend.size(name, deadline).nodes
            except Refused:
                continue
            except BackendError as error:
                log.info("the size of cluster %r is unknown, and counts as none: %s", name, error)
                self._known.discard(name)
        return sizes

    def _why(self, cluster: str, now: int, part: int, free: int, taken: int, others: int) -> str:
        """Return why a cluster waits; who may not know of the others does not read their names."""
        begin = f"cluster {cluster!r} cannot grow now: its size is {now}, and of the {self._nodes} "
        begin += f"nodes that the clusters of {_whose(cluster)} share "
        many = counted(others, "other cluster")
        if free > 0:
            return f"{begin}{part} are its part while {many} {'waits' if others == 1 else 'wait'}"
        return f"{begin}{many} {'has' if others == 1 else 'have'} {taken}: retry later"


def _whose(cluster: str) -> str:
    namespace = _namespace(cluster)
    return f"namespace {namespace!r}" if namespace else "this service"


def _namespace(cluster: str) -> str:
    namespace, slash, _ = cluster.partition("/")
    return namespace if slash else ""
