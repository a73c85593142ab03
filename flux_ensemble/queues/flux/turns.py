"""The order in which ensembles that have jobs to send take turns at the queue."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple, Protocol


class Waiting(NamedTuple):
    """The reason why an ensemble sends no jobs for now.

    Args:
        reason: in words.
        t: since when, in seconds since the epoch.
    """

    reason: str
    t: float


class Turns(Protocol):
    """Decides whose job goes to the queue next."""

    def next(self, lanes: Collection[Hashable]) -> Hashable | None:
        """Return the lane whose turn it is, and count a job of it as sent; None if nobody's.

        Args:
            lanes: those with jobs to send, the one first that has waited longest.
        """
        ...

    def urgency(self, lane: Hashable, urgency: int) -> int:
        """Return the urgency in Flux of a job that is to have this one within its ensemble."""
        ...

    def waiting(self, lane: Hashable) -> Waiting | None:
        """Return why a lane waits for others; None if it does not."""
        ...


class InTurn:
    """The lane that has waited longest is next."""

    def next(self, lanes: Collection[Hashable]) -> Hashable | None:
        """See `Turns`."""
        return next(iter(lanes))

    def urgency(self, lane: Hashable, urgency: int) -> int:
        """See `Turns`."""
        return urgency

    def waiting(self, lane: Hashable) -> Waiting | None:
        """See `Turns`."""
        return None
