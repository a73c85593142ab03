"""The order in which the jobs of a queue of the backlog are sent, if it is not the usual one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from flux_ensemble.engine.firings import Firing


class Order(Protocol):
    """The waiting jobs of one queue, in the order in which a feature has them sent.

    Firings have the numbers by which the backlog knows them.
    """

    def append(self, number: int, firing: Firing) -> None:
        """Add a firing behind the others."""

    def head(self, queue: Iterable[tuple[int, Firing]]) -> tuple[Firing, int]:
        """Return firing and index of the next job of a queue that is not empty."""

    def next(self, queue: Iterable[tuple[int, Firing]], room: int) -> tuple[Firing, int, int]:
        """Take the next jobs, `room` at most: the firing, the index of the first, their number."""

    def forget(self, number: int) -> None:
        """Forget a firing of which all jobs have been sent."""

    def drop(self) -> None:
        """Start anew, since waiting jobs were dropped."""
