"""The contract of an ensemble's write-ahead log: see `runtime.durability.wal`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ports import WriteAhead


class Ahead(WriteAhead, Protocol):
    """A log of the events of an ensemble, and of entries of its host.

    Attributes:
        timers: the state of timers after the events that were written.
    """

    timers: Timers

    def note(
        self,
        t: float,
        name: str,
        context: Mapping[str, Any],
        then: Callable[[], None],
        *,
        sync: bool = False,
    ) -> None:
        """Write an entry for people; `then` is called when it is durable."""
        ...

    def barrier(self, then: Callable[[], None]) -> None:
        """Call back when everything written so far is durable."""
        ...

    def close(self) -> None:
        """Stop writing."""
        ...
