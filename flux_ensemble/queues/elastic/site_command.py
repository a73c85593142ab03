"""The brokers of an instance with configured hosts, started by a command of the site.

    scaler = ElasticInstance(broker, SiteCommand(broker, "ssh {host} systemctl start flux"))
    scaler.watch(lambda size, up, free: ...)
    scaler.scale(4, lambda result: ...)

An instance that was started from the `hosts` of `[bootstrap]` (flux-config-bootstrap(5)) knows
all its ranks from the beginning, even if their brokers do not run. `SiteCommand` starts a broker
by a command of the site, and stops it as `flux overlay disconnect` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

from flux_ensemble.queues.elastic.commands import Commands
from flux_ensemble.queues.elastic.provisioner import GOING_SECONDS, BrokerFleet
from flux_ensemble.queues.elastic.scaler import START_SECONDS
from flux_ensemble.queues.flux.broker import Broker, check
from flux_ensemble.queues.flux.pipeline import Report


class SiteCommand:
    """A provisioner for the brokers of the configured hosts of an instance: a `Provisioner`.

    Args:
        broker: of the instance; its handle has to be one of rank 0.
        command: starts the broker of a host: see `queues.elastic.commands`.
        start_seconds: that brokers may take to come up; half of it is for the command.
        environment: of the command; by default that of this process.

    Raises:
        ValueError: the instance is not of this kind, or the command is wrong; a sentence.
    """

    kind = "instance"
    together = False
    stop_seconds = GOING_SECONDS
    trouble: str | None = None

    def __init__(
        self,
        broker: Broker,
        command: str,
        *,
        start_seconds: float = START_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        method = broker.handle.attr_get("broker.boot-method")
        if method != "config":
            raise ValueError(
                "scaler: expected an instance that was started from the hosts in [bootstrap], "
                f"not by {method!r}"
            )
        self._broker = broker
        # Half the time, so that a hanging command is reported, and not the broker that it starts.
        self._commands = Commands(
            broker.loop,
            command,
            os.environ if environment is None else environment,
            start_seconds / 2,
        )

    def start(
        self,
        fleet: BrokerFleet,
        ranks: Set[int],
        after: Set[int],
        failed: Callable[[Set[int], str], None],
    ) -> None:
        """Run the command for each rank."""

        def ended(rank: int, reason: str | None) -> None:
            if reason is not None:
                failed({rank}, reason)

        for rank in sorted(ranks):
            self._commands.run(rank, fleet.hosts[rank], partial(ended, rank))

    def stop(self, fleet: BrokerFleet, ranks: Set[int], after: Set[int], report: Report) -> None:
        """Have each rank's parent disconnect it (flux-core, `overlay.disconnect-subtree`)."""
        fleet.stops(ranks)
        for rank in sorted(ranks):
            future = self._broker.handle.rpc(
                "overlay.disconnect-subtree", {"rank": rank}, nodeid=fleet.parents[rank]
            )
            self._broker.call(future, report, check)

    def abandon(self) -> None:
        """Do nothing: the commands that run are not ended."""

    def withdraw(self, size: int) -> None:
        """Do nothing: a broker that comes up late stays drained, and costs nothing."""

    def report(self) -> dict[str, Any]:
        """Return nothing beyond what every scaler has."""
        return {}

    def close(self) -> None:
        """Kill the commands that run."""
        self._commands.close()
