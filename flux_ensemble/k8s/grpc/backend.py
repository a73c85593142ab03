"""The contract of a back end for scaling, and the arithmetic of sizes that all of them share.

A back end blocks, may be called from several threads at once, and keeps no state that outlives it:
the size of a cluster is the one that the back end reads. All sizes are in nodes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger(__name__)

#: Numbers of a Flux instance by "nodes" and "queue", as in the response to `ensemble.status`.
Report = Mapping[str, Mapping[str, int]]


class DryRun:
    """The back end `dry-run`: logs requests, and responds as if it had performed them.

    Its clusters are only numbers; each starts with `minimum` nodes.

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

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        """Ignore the report: nobody reads it."""


class BackendError(Exception):
    """A back end failed; the text is one sentence."""


class Refused(BackendError):
    """The size cannot be changed that way; retrying does not help."""


class BadSize(BackendError):
    """The requested size or change is invalid for any cluster."""


class UnknownCluster(BackendError):
    """The back end knows no cluster of that name."""


class Unavailable(BackendError):
    """A service that the back end needs does not answer; the outcome is unknown."""


class Contended(BackendError):
    """Others kept changing the cluster at the same time; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Size:
    """The intended number of nodes of a cluster, and its bounds."""

    nodes: int
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A granted change; `size` is within the bounds, so it may be less than requested."""

    before: int
    size: int


class Backend(Protocol):
    """A back end, which changes the size of clusters."""

    #: Its name on the command line.
    name: str

    #: True if it finds clusters by itself; the service then needs no list of them.
    discovers: bool

    def canonical(self, cluster: str) -> str:
        """Return the full name of a cluster; names of the same cluster have the same full name."""
        ...

    def size(self, cluster: str, deadline: float) -> Size:
        """Return the intended size of a cluster.

        Args:
            cluster: a canonical name.
            deadline: when to give up, on the clock of `time.monotonic`.

        Raises:
            BackendError: UnknownCluster, Unavailable or Refused (contradictory bounds).
        """
        ...

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        """Change the size of a cluster, within its bounds.

        Args:
            cluster: a canonical name.
            deadline: when to give up, on the clock of `time.monotonic`.
            to: the size to change to, or
            by: the change, not 0; negative shrinks.

        Raises:
            BackendError: nothing was changed, except that this is unknown after Unavailable.
        """
        ...

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        """Pass on the numbers of the cluster's Flux instance, if somebody reads them.

        Args:
            cluster: a canonical name.
            report: what the cluster says of its nodes and its queue.
            deadline: when to give up, on the clock of `time.monotonic`.

        Raises:
            BackendError: they were not passed on.
        """
        ...


def check_bounds(cluster: str, minimum: int, maximum: int) -> None:
    """Check the bounds of a cluster.

    Raises:
        Refused: the minimum is below 1, or above the maximum.
    """
    if minimum < 1:
        raise Refused(f"cluster {cluster!r} has a minimum size of {minimum}: expected 1 or more")
    if minimum > maximum:
        raise Refused(
            f"cluster {cluster!r} has a minimum size of {minimum}, above its maximum of {maximum}"
        )


def target(cluster: str, now: Size, *, to: int | None = None, by: int | None = None) -> int:
    """Return the new size: the requested one, clamped to the bounds.

    Args:
        cluster: its name, for messages.
        now: its size and bounds, as checked by `check_bounds`.
        to: the requested size, or
        by: the requested change.

    Raises:
        BadSize: `to` is below 1, or `by` is 0.
        Refused: the bounds allow no change in the requested direction.
    """
    if to is not None:
        if to < 1:
            raise BadSize(f"a size must be 1 or more, not {to}")
        wanted = to
    elif by:
        wanted = now.nodes + by
    else:
        raise BadSize("a change of size must not be 0")
    clamped = min(max(wanted, now.minimum), now.maximum)
    # The bounds may lie on the other side of the size, after somebody has changed them. Then a
    # request to grow must not shrink the cluster, nor the other way round.
    change, granted = wanted - now.nodes, clamped - now.nodes
    if change and change * granted <= 0:
        side, bound = ("maximum", now.maximum) if change > 0 else ("minimum", now.minimum)
        verb = "grow" if change > 0 else "shrink"
        raise Refused(
            f"cluster {cluster!r} cannot {verb}: its size is {now.nodes}, and its {side} is {bound}"
        )
    return clamped
