"""What starts and stops brokers: the contract between a change of size and a site's way to do it.

`site_command` runs a command of the site for each broker, `minicluster` asks for a size.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Protocol

from flux_ensemble.queues.elastic.ranks import Parents
from flux_ensemble.queues.flux.pipeline import Report

#: Seconds in which a broker that has heard that it has to stop goes offline.
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
        """Ranks are told to stop now."""
        ...

    def stays(self, ranks: Set[int]) -> None:
        """Ranks that were told to stop do not."""
        ...


class Provisioner(Protocol):
    """Starts and stops brokers.

    Attributes:
        kind: as [ensemble] names it.
        together: brokers come and go by their number: those that go are the highest ranks, and go
            all at once, when none of them has a job; those that come may be online already.
        stop_seconds: in which brokers that were told to stop have to go.
        trouble: what keeps brokers from starting or stopping now, and is tried again: a sentence.
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
        """Start brokers; that they are up is seen elsewhere.

        Args:
            fleet: the instance.
            ranks: of the brokers.
            after: the ranks whose brokers will be there.
            failed: called for ranks that did not start, with the reason.
        """
        ...

    def stop(self, fleet: BrokerFleet, ranks: Set[int], after: Set[int], report: Report) -> None:
        """Stop brokers without a job and without a broker below; report to `BrokerFleet.stops`.

        Args:
            fleet: the instance.
            ranks: of the brokers.
            after: the ranks whose brokers will still be there.
            report: called with the error if it is known that they do not stop.
        """
        ...

    def abandon(self) -> None:
        """The change is over: nothing is asked for any more."""
        ...

    def withdraw(self, size: int) -> None:
        """Brokers that did not come in time are not wanted any more.

        Args:
            size: how many brokers are to be there, those of the lowest ranks.
        """
        ...

    def report(self) -> dict[str, Any]:
        """What `ensemble.status` says of it, beside what it says of every scaler."""
        ...

    def close(self) -> None:
        """Give up what is under way."""
        ...
