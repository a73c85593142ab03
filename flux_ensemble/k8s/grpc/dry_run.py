"""The back end `dry-run`: logs requests, and responds as if it had performed them."""

from __future__ import annotations

import logging
import threading

from flux_ensemble.k8s.grpc.backend import Grant, Size, check_bounds, target

log = logging.getLogger(__name__)


class DryRun:
    """Clusters that are only numbers; each starts with `minimum` nodes.

    Args:
        minimum: the least nodes that a cluster can have.
        maximum: the most.

    Raises:
        Refused: the minimum is below 1, or above the maximum.
    """

    name = "dry-run"
    discovers = False

    def __init__(self, minimum: int = 1, maximum: int = 16) -> None:
        check_bounds("dry-run", minimum, maximum)
        self._minimum = minimum
        self._maximum = maximum
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def canonical(self, cluster: str) -> str:
        """Return the name unchanged."""
        return cluster

    def size(self, cluster: str, deadline: float) -> Size:
        """Return the size that the cluster would have."""
        return Size(self._sizes.get(cluster, self._minimum), self._minimum, self._maximum)

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        """Log the change and store the size."""
        with self._lock:
            now = self.size(cluster, deadline)
            size = target(cluster, now, to=to, by=by)
            self._sizes[cluster] = size
        log.info(
            "dry run: the size of cluster %r would change from %d to %d", cluster, now.nodes, size
        )
        return Grant(now.nodes, size)
