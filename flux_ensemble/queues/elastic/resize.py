"""A change of a Flux instance's size in progress, for `queues.elastic.scaler`."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Set
from functools import partial
from typing import Any, Protocol

from flux_ensemble.queues.elastic.provisioner import BrokerFleet, Provisioner
from flux_ensemble.queues.elastic.ranks import Parents, Ranks
from flux_ensemble.queues.elastic.watcher import Resources
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.delivery import PATIENCE
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.steps import Step, run
from flux_ensemble.runtime.ports import Handle, Resized


class Work(Protocol):
    """The steps of a change: `queues.elastic.grow`, `queues.elastic.shrink`."""

    def step(self, ranks: Ranks) -> None:
        """Do what the present state of the ranks requires.

        Raises:
            OSError: the change cannot go on; what it has reached stays.
        """
        ...


class ResizedInstance(BrokerFleet, Protocol):
    """An instance whose size changes: see `queues.elastic.scaler.ElasticInstance`.

    Attributes:
        broker: of the instance.
        provisioner: starts and stops brokers.
        resources: the watcher of the ranks.
        stopping: ranks that were told to stop and are still online, each with the time until
            which this counts.
    """

    broker: Broker
    provisioner: Provisioner
    resources: Resources
    stopping: dict[int, float]

    @property
    def changing(self) -> bool:
        """True while a change is in progress."""
        ...

    def ended(self, resize: Resize) -> None:
        """Note that a change is over."""
        ...


class Resize:
    """A change in progress.

    Args:
        instance: the instance that changes.
        to: the size to reach.
        done: receives the result.

    Attributes:
        dones: all callbacks that receive the result.
        work: None until the state of the ranks is known.
    """

    def __init__(self, instance: ResizedInstance, to: int, done: Resized) -> None:
        self.instance = instance
        self.to = to
        self.dones = [done]
        self.work: Work | None = None
        self._over = False
        self._timers: dict[str, Handle] = {}

    @property
    def broker(self) -> Broker:
        """The broker of the instance."""
        return self.instance.broker

    @property
    def parents(self) -> Parents:
        """The tree of brokers."""
        return self.instance.parents

    def end(self, result: int | Exception) -> None:
        """End the change with a result, and pass this on once to all who wait."""
        if self._over:
            return
        self._over = True
        self.instance.ended(self)
        for timer in self._timers.values():
            timer.cancel()
        for done in self.dones:
            self.broker.guard(done)(result)

    def guarded(self, step: Callable[..., None], *args: Any) -> None:
        """Take a step, unless the change is over; an exception ends the change."""
        if self._over:
            return
        try:
            step(*args)
        except Exception as error:
            self._ran(error)

    def run(self, steps: Generator[Step, Any, Any]) -> None:
        """Run a sequence of steps until the change is over; an exception ends the change."""
        run(steps, self._ran, over=lambda: self._over)

    def _ran(self, result: Any) -> None:
        if isinstance(result, Exception):
            if not isinstance(result, OSError):
                self.broker.report(result)
            self.end(result)

    def timer(self, name: str, after: float, step: Callable[[], None]) -> None:
        """Take a step after some time; a timer of the same name is set again."""
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self.broker.loop.timer(after, partial(self.guarded, step))

    def ask(
        self, topic: str, payload: dict[str, Any], what: str
    ) -> Generator[Step, Any, dict[str, Any]]:
        """Send a request to rank 0.

        Args:
            topic, payload: the request.
            what: the purpose of the request, for the error.

        Returns:
            The response; an empty mapping if the response has no payload.

        Raises:
            OSError: the request failed.
        """
        future = self.broker.handle.rpc(topic, payload, nodeid=0)
        try:
            response = yield self.broker.response(future, seconds=PATIENCE)
        except Exception as error:
            raise cannot(what, error) from None
        return response or {}

    def look(self) -> Generator[Step, Any, Ranks]:
        """Find out the state of the ranks; the work takes its step before the caller goes on.

        Raises:
            OSError: the state of the ranks cannot be found out.
        """
        try:
            ranks: Ranks = yield self.instance.resources.look
        except Exception as error:
            raise cannot("see the nodes of the instance", error) from None
        return ranks

    def look_again(self) -> None:
        """Find out the state of the ranks, and let the work take its step."""
        self.run(self.look())

    def named(self, ranks: Set[int]) -> str:
        """Return ranks with their hosts; of many, the first few."""
        some = [f"rank {rank} ({self.instance.hosts[rank]})" for rank in sorted(ranks)[:3]]
        more = len(ranks) - len(some)
        return ", ".join(some) + (f" and {more} more" if more else "")


def cannot(what: str, error: Exception) -> OSError:
    """Make the error for an action that failed, with the reason."""
    return OSError(getattr(error, "errno", None) or errno.EIO, f"cannot {what}: {sentence(error)}")


def because(*reasons: str | None) -> str:
    """Join the reasons that are present, for use within a sentence."""
    return "".join(f"{reason}; " for reason in reasons if reason)
