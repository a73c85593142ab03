"""What a write-ahead log needs: where it is kept, what it is of, and how jobs are held back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from flux_ensemble.runtime.durability.batches import Batch


class Store(Protocol):
    """Where batches become durable."""

    def commit(self, batches: Sequence[Batch], done: Callable[[Exception | None], None]) -> None:
        """Make batches durable, all or none; several commits may run at once.

        Commits happen in the order of the calls, and before anything that is sent elsewhere
        later.

        Args:
            batches: all that are not known to be durable, in order.
            done: called once, with None or with the reason why the outcome is unknown.
        """
        ...


class Gate(Protocol):
    """Holds back jobs that are not sent yet; holds are counted."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class State(Protocol):
    """The state of which snapshots are taken."""

    def snapshot(self) -> Mapping[str, Any]:
        """Its state as JSON."""
        ...

    def take_beside(self) -> str:
        """What is stored beside the snapshot, of the time since the last call, as JSON."""
        ...
