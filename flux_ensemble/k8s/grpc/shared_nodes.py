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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

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


class _Namespace:
    """The clusters of a namespace; only the holder of the lock may look at the rest.

    Attributes:
        lock: is held over requests to the back end, which may take long.
        known: canonical names of its clusters.
        waiting: the sizes for which clusters wait, and when each asked last.
        users: how many calls have it or wait for it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: set[str] = set()
        self.waiting: dict[str, tuple[int, float]] = {}
        self.users = 0


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
        self._namespaces: dict[str, _Namespace] = {}
        self._lock = threading.Lock()
        for cluster in clusters:
            of = self._namespaces.setdefault(_namespace(cluster), _Namespace())
            of.known.add(cluster)

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
        with self._alone(_namespace(cluster)) as of:
            now = self._backend.size(cluster, deadline)
            wanted = target(cluster, now, to=to, by=by)
            of.known.add(cluster)
            if wanted <= now.nodes:
                of.waiting.pop(cluster, None)
                return self._backend.scale(cluster, deadline=deadline, to=to, by=by)
            size = self._allowed(of, cluster, now.nodes, wanted, deadline)
            grant = self._backend.scale(cluster, deadline=deadline, to=size)
            if grant.size >= wanted:
                of.waiting.pop(cluster, None)
            return grant

    @contextmanager
    def _alone(self, namespace: str) -> Iterator[_Namespace]:
        """Have a namespace for oneself; the others go on meanwhile."""
        with self._lock:
            of = self._namespaces.setdefault(namespace, _Namespace())
            of.users += 1
        try:
            with of.lock:
                yield of
        finally:
            with self._lock:
                of.users -= 1
                # A namespace that somebody made up is not kept.
                if not of.users and not of.known:
                    del self._namespaces[namespace]

    def _allowed(self, of: _Namespace, cluster: str, now: int, wanted: int, deadline: float) -> int:
        """Return the size that a cluster may grow to, and note that it waits for more.

        Raises:
            Refused: it may not grow now.
        """
        t = self._clock()
        sizes = self._sizes(of, cluster, deadline)
        of.waiting[cluster] = wanted, t
        of.waiting = {
            name: (most, since)
            for name, (most, since) in of.waiting.items()
            if t - since < WAIT_SECONDS
        }
        needs = {name: max(size, of.waiting.get(name, (0, t))[0]) for name, size in sizes.items()}
        needs[cluster] = wanted
        part = divide(self._nodes, needs)[cluster]
        free = self._nodes - sum(sizes.values()) - now
        allowed = min(wanted, now + max(free, 0), max(part, now))
        if allowed > now:
            if allowed < wanted:
                log.info("cluster %r may have %d nodes, and waits for %d", cluster, allowed, wanted)
            return allowed
        others = sorted(name for name in of.waiting if name in sizes) if free > 0 else [*sizes]
        log.info("cluster %r waits for %d nodes, beside %s", cluster, wanted, listed(others))
        raise Refused(self._why(cluster, now, part, free, sum(sizes.values()), len(others)))

    def _sizes(self, of: _Namespace, cluster: str, deadline: float) -> dict[str, int]:
        """Return the sizes of the other clusters of the namespace."""
        sizes = {}
        for name in sorted(of.known - {cluster}):
            try:
                sizes[name] = self._backend.size(name, deadline).nodes
            except Refused:
                continue
            except BackendError as error:
                log.info("the size of cluster %r is unknown, and counts as none: %s", name, error)
                of.known.discard(name)
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
