"""What a Flux member grows and shrinks by, and a scaler for an instance of configured hosts.

    scaler = InstanceScaler(queue, "ssh {host} systemctl start flux", low=1, high=8)
    scaler.watch(lambda size, up, free: ...)
    scaler.scale(4, lambda result: ...)

An instance that was started from the `hosts` of `[bootstrap]` (flux-config-bootstrap(5)) knows
all its ranks from the beginning, whether their brokers run or not. `InstanceScaler` starts
those that do not by a command of the site, and stops the others as `flux overlay disconnect`
does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

from flux_ensemble.members.elastic.commands import Commands
from flux_ensemble.members.elastic.scaler import START_SECONDS, ElasticInstance
from flux_ensemble.members.flux.pipeline import Report
from flux_ensemble.members.flux.queue import FluxQueue


class InstanceScaler(ElasticInstance):
    """Starts and stops the brokers of the hosts that an instance was configured with.

    Args:
        queue: the queue of the instance; its handle has to be one of rank 0.
        command: starts the broker of a host: see `members.elastic.commands`.
        low, high: bounds of the size; by default all hosts.
        grace: seconds after which jobs on ranks that are to go are canceled; None waits.
        start_seconds: how long brokers may take to come up; half of it is for the command.
        environment: of the command; by default that of this process.

    Raises:
        ValueError: the instance is not of this kind, or the arguments are wrong; a sentence.
    """

    kind = "instance"

    def __init__(
        self,
        queue: FluxQueue,
        command: str,
        *,
        low: int = 1,
        high: int | None = None,
        grace: float | None = None,
        start_seconds: float = START_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        method = queue.handle.attr_get("broker.boot-method")
        if method != "config":
            raise ValueError(
                "scaler: expected an instance that was started from the hosts in [bootstrap], "
                f"not by {method!r}"
            )
        # So that a command that hangs is told of, and not the broker that is not there.
        self._commands = Commands(
            queue.loop,
            command,
            os.environ if environment is None else environment,
            start_seconds / 2,
        )
        super().__init__(queue, low=low, high=high, grace=grace, start_seconds=start_seconds)

    def start(
        self, ranks: Set[int], after: Set[int], failed: Callable[[Set[int], str], None]
    ) -> None:
        """Run the command for each rank."""

        def ended(rank: int, reason: str | None) -> None:
            if reason is not None:
                failed({rank}, reason)

        for rank in sorted(ranks):
            self._commands.run(rank, self.hosts[rank], partial(ended, rank))

    def stop(self, ranks: Set[int], after: Set[int], report: Report) -> None:
        """Have each rank's parent disconnect it (flux-core, `overlay.disconnect-subtree`)."""

        def answered(future: Any) -> None:
            future.get()

        self.stops(ranks)
        for rank in sorted(ranks):
            future = self.queue.handle.rpc(
                "overlay.disconnect-subtree", {"rank": rank}, nodeid=self.resources.parents[rank]
            )
            self.queue.call(future, answered, report)

    def close(self) -> None:
        """Give up what is under way, and end the commands."""
        super().close()
        self._commands.close()
