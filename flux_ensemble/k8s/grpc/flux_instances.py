"""The back end `instance`: the size of Flux instances, by scalers of their ensemble services.

    size    ensemble.status ──► size, bounds and current change of the scaler
    scale   ensemble.scale  ──► the scaler begins; brokers start and end after the response

An instance has a scaler if its [ensemble] configures one (docs/elastic.md). The scaler has the
bounds and does the work. Each thread has its own connection to a cluster's ensemble service
(`flux_ensemble.k8s.grpc.instances`).
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.k8s.grpc.backend import (
    Contended,
    Grant,
    Refused,
    Report,
    Size,
    Unavailable,
    UnknownCluster,
    check_bounds,
    target,
)
from flux_ensemble.k8s.grpc.clusters import Cluster
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.instances import ClusterInstance

#: Errors of the ensemble service that a retry does not change.
_REFUSALS = (errno.EINVAL, errno.EPERM)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cluster's instance, with a lock that keeps two changes of it apart."""

    instance: ClusterInstance
    changing: threading.Lock = field(default_factory=threading.Lock)


class FluxInstances:
    """Flux instances that have a scaler.

    Args:
        clusters: those with a Flux instance, by their names in this service.
    """

    name = "instance"
    discovers = False

    def __init__(self, clusters: Iterable[Cluster]) -> None:
        self._table = {cluster.name: _Entry(ClusterInstance(cluster)) for cluster in clusters}

    def canonical(self, cluster: str) -> str:
        """Return the name unchanged."""
        return cluster

    def size(self, cluster: str, deadline: float) -> Size:
        """Return the size that the scaler is changing to, else the current one; and its bounds."""
        return _size(cluster, self._ask(cluster, "status", {}, deadline))

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        """Make the scaler start a change."""
        with self._alone(cluster, deadline):
            now = self.size(cluster, deadline)
            size = target(cluster, now, to=to, by=by)
            # Requested even if the size is the current one: a change that was cut short by a crash
            # of the ensemble service continues then.
            answer = self._ask(cluster, "scale", {"to": size}, deadline)
        return Grant(now.nodes, answer["size"])

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        """Ignore the report: who wants these numbers asks the instance."""

    @contextmanager
    def _alone(self, cluster: str, deadline: float) -> Iterator[None]:
        """Prevent other changes of the cluster between the reading and the change."""
        changing = self._entry(cluster).changing
        if not changing.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise Contended(
                f"cluster {cluster!r} was not changed: another change of it was not answered in "
                "time; try again"
            )
        try:
            yield
        finally:
            changing.release()

    def _ask(self, cluster: str, op: str, payload: dict[str, Any], deadline: float) -> Any:
        try:
            return self._entry(cluster).instance.ask(op, payload, deadline)
        except RequestProblem as exc:
            raise Unavailable(str(exc)) from exc
        except EnsembleError as exc:
            kind = Refused if exc.errno in _REFUSALS else Unavailable
            raise kind(f"cluster {cluster!r}: {exc}") from exc

    def _entry(self, cluster: str) -> _Entry:
        try:
            return self._table[cluster]
        except KeyError:
            raise UnknownCluster(f"there is no Flux instance of cluster {cluster!r}") from None


def _size(cluster: str, status: dict[str, Any]) -> Size:
    """Return the size and the bounds in the response to `status` (docs/rpc.md).

    Raises:
        Refused: there is no scaler that could change the size, or the bounds contradict each other.
        Unavailable: the scaler does not know the size yet.
    """
    own = status.get("instance")
    if own is None:
        raise Refused(
            f"the ensemble service of cluster {cluster!r} does not tell its size: it is of an "
            "older release, or the user of the gRPC service does not own the instance"
        )
    scaler = own["scaler"]
    if scaler is None:
        raise Refused(
            f"cluster {cluster!r} has a fixed size: configure a scaler in [ensemble] of its Flux "
            "instance (docs/elastic.md)"
        )
    if scaler["kind"] == "minicluster":
        raise Refused(
            f"cluster {cluster!r} has the scaler 'minicluster', which itself asks the gRPC "
            "service: run that with --backend kubernetes"
        )
    nodes = own["nodes"] if scaler["changing_to"] is None else scaler["changing_to"]
    if nodes is None:
        raise Unavailable(f"the size of cluster {cluster!r} is not known yet: try again")
    check_bounds(cluster, scaler["low"], scaler["high"])
    return Size(nodes, scaler["low"], scaler["high"])
