"""The contract for starting and stopping brokers, between a change of size and the site.

`site_command` runs a command of the site for each broker; `k8s.scaler` requests a size.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Protocol

from flux_ensemble.queues.elastic.ranks import Parents
from flux_ensemble.queues.flux.pipeline import Report

#: Seconds within which a broker that was told to stop goes offline.
GOING_SECONDS = 60.0


class BrokerFleet(Protocol):
    """The brokers of an instance as a provisioner sees them.

    Attributes:
        hosts: by rank.
    """

    hosts: list[str]

    @property
    def parents(self) -> Parents:
        """The tree of brokers."""
        ...

    def stops(self, ranks: Set[int]) -> None:
        """Note that ranks are told to stop now."""
        ...

    def stays(self, ranks: Set[int]) -> None:
        """Note that ranks that were told to stop do not stop."""
        ...


class Provisioner(Protocol):
    """A way to start and stop brokers.

    Attributes:
        kind: as [ensemble] names it.
        together: brokers come and go by their number. Those that go are the highest ranks, and
            go all at once, when none of them has a job; those that come may be online already.
        stop_seconds: within which brokers that were told to stop have to be offline.
        trouble: a sentence: the reason why brokers cannot start or stop now, although the
            attempt is repeated.
    """

    kind: str
    together: bool
    stop_seconds: float
    trouble: str | None

    def start(
        self,
        fleet: BrokerFleet,
        ranks: Set[int],
        after: Set[int],
        failed: Callable[[Set[int], str], None],
    ) -> None:
        """Start brokers; the caller watches for them to come online.

        Args:
            fleet: the instance.
            ranks: of the brokers.
            after: the ranks whose brokers will run afterwards.
            failed: called for ranks that did not start, with the reason.
        """
        ...

    def stop(self, fleet: BrokerFleet, ranks: Set[int], after: Set[int], report: Report) -> None:
        """Stop brokers without a job and without a broker below; call `BrokerFleet.stops`.

        Args:
            fleet: the instance.
            ranks: of the brokers.
            after: the ranks whose brokers will still run.
            report: called with the error if it is known that the brokers do not stop.
        """
        ...

    def abandon(self) -> None:
        """Stop requesting brokers: the change is over."""
        ...

    def withdraw(self, size: int) -> None:
        """Give up the brokers that did not come up in time.

        Args:
            size: number of brokers that are to run, those of the lowest ranks.
        """
        ...

    def report(self) -> dict[str, Any]:
        """Return what `ensemble.status` has about this kind of scaler in particular."""
        ...

    def close(self) -> None:
        """Abandon all work in progress, and release what it holds."""
        ...
