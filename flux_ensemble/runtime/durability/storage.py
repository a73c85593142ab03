"""The contracts of a write-ahead log: its storage, its source of snapshots, and a gate for jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from flux_ensemble.runtime.durability.batches import Batch


class Store(Protocol):
    """A storage in which batches become durable."""

    def commit(self, batches: Sequence[Batch], done: Callable[[Exception | None], None]) -> None:
        """Make batches durable, all or none; several commits may be in progress at once.

        Commits happen in the order of the calls, and before anything that is sent elsewhere
        later.

        Args:
            batches: all that are not known to be durable, in order.
            done: called once, with None, or with the reason why the outcome is unknown.
        """
        ...


class Gate(Protocol):
    """A gate that holds back jobs which have not been sent yet; holds are counted."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class State(Protocol):
    """The state of which snapshots are taken."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return the state as JSON."""
        ...

    def take_beside(self) -> str:
        """Return, as JSON, the chunk beside the snapshot, with the data since the last call."""
        ...
