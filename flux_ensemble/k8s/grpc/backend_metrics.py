"""A back end whose changes are counted, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from flux_ensemble.k8s.grpc.backend import (
    Backend,
    BackendError,
    Grant,
    Report,
    Size,
    UnknownCluster,
)

registry = CollectorRegistry()

_GRANTS = Counter(
    "flux_ensemble_grants",
    "Changes of size that were granted, by direction.",
    ["member", "direction"],
    registry=registry,
)
_REFUSALS = Counter(
    "flux_ensemble_refusals",
    "Changes of size that were not made, by reason.",
    ["member", "reason"],
    registry=registry,
)
_SIZE = Gauge(
    "flux_ensemble_granted_size",
    "The size that was granted last.",
    ["member"],
    registry=registry,
)


class MeteredBackend:
    """A back end that delegates to another one, and counts the results.

    Args:
        backend: the other one.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name
        self.discovers = backend.discovers

    def canonical(self, cluster: str) -> str:
        return self._backend.canonical(cluster)

    def size(self, cluster: str, deadline: float) -> Size:
        return self._backend.size(cluster, deadline)

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        try:
            grant = self._backend.scale(cluster, deadline=deadline, to=to, by=by)
        except BackendError as exc:
            # Clients choose names, so unknown names share one label.
            known = "" if isinstance(exc, UnknownCluster) else cluster
            _REFUSALS.labels(known, type(exc).__name__).inc()
            raise
        change = grant.size - grant.before
        _GRANTS.labels(cluster, "grow" if change > 0 else "shrink" if change else "none").inc()
        _SIZE.labels(cluster).set(grant.size)
        return grant

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        self._backend.report(cluster, report, deadline)
