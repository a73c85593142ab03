"""Changes the size of a Flux instance without losing a job.

A provisioner starts and stops brokers (`queues.elastic.provisioner`). This module has what all
provisioners share:

    grow    brokers start ──► online ──► undrain those that a shrink had drained ──► in use
    shrink  drain ──► jobs end, or are canceled after a grace period ──► stop ──► offline

There is no state but the instance's own. Each step follows from the state of the ranks
(`queues.elastic.ranks`), so a change that was cut short, by a crash or by another change, is
resumed when the same size is requested again.
"""

from __future__ import annotations

import errno
from collections.abc import Set
from functools import partial
from typing import Any

from flux.hostlist import Hostlist

from flux_ensemble.queues.elastic.provisioner import GOING_SECONDS, Provisioner
from flux_ensemble.queues.elastic.ranks import Parents, Ranks, check_bounds, nodes
from flux_ensemble.queues.elastic.resize import Growth, Resize, Shrink
from flux_ensemble.queues.elastic.watcher import Resources
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.steps import Steps
from flux_ensemble.runtime.ports import Resized, SizeSeen

#: Seconds within which brokers have to come up.
START_SECONDS = 300.0


class ElasticInstance:
    """An instance whose size can change: a `runtime.ports.Scaler`.

    Args:
        broker: of the instance; its handle has to be one of rank 0.
        provisioner: starts and stops brokers; `close` closes it.
        low, high: bounds of the size; by default all hosts that the instance has.
        grace: seconds after which jobs on ranks that are to go are canceled; with None they
            are waited for.
        start_seconds: that brokers may take to come up.

    Attributes:
        low, high: bounds of the size. `high` falls if fewer ranks have resources for jobs.
        hosts: by rank.
        resources: the watcher of the ranks.
        stopping: ranks that were told to stop and are still online, each with the time until
            which this counts.

    Raises:
        ValueError: the bounds are wrong; the text is a sentence.
    """

    def __init__(
        self,
        broker: Broker,
        provisioner: Provisioner,
        *,
        low: int = 1,
        high: int | None = None,
        grace: float | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.broker = broker
        self.provisioner = provisioner
        self.hosts = [str(host) for host in Hostlist(broker.handle.attr_get("hostlist"))]
        high = len(self.hosts) if high is None else high
        check_bounds(low, high, len(self.hosts))
        self.low = low
        self.high = high
        self._grace = grace
        self._start_seconds = start_seconds
        self._watching: list[SizeSeen] = []
        self._told: tuple[int, ...] = ()
        self._resize: Resize | None = None
        self._closed = False
        self.stopping: dict[int, float] = {}
        self.resources = Resources(broker, self._looked)

    # -- the scaler ------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return the scaler's part of `ensemble.status` (docs/rpc.md)."""
        return {
            "kind": self.provisioner.kind,
            "low": self.low,
            "high": self.high,
            "changing_to": None if self._resize is None else self._resize.to,
            "trouble": self.provisioner.trouble,
            **self.provisioner.report(),
        }

    def scale(self, to: int, done: Resized) -> None:
        """Change the size; another change in progress ends with ECANCELED.

        Args:
            to: the size to reach. A request for the size of the change in progress joins this.
            done: called once, from the loop or at once, with the size or the error: EINVAL (not
                within the bounds, or no such rank), EBUSY (ranks that somebody else has drained),
                EIO (brokers do not start), ETIMEDOUT, and the errors of Flux.
        """
        if self._closed:
            done(OSError(errno.ESHUTDOWN, "the service is shutting down"))
            return
        resize = self._resize
        if resize is not None and resize.to == to:
            resize.dones.append(done)
            return
        if resize is not None:
            resize.end(OSError(errno.ECANCELED, f"overtaken by a change to {nodes(to)}"))
        resize = self._resize = Resize(self, to, done)
        resize.run(self._begin(resize))

    def watch(self, changed: SizeSeen) -> None:
        """Report the size (ranks in use), and the numbers of ranks up and free (without a job).

        Args:
            changed: called when the numbers are known, and when they or the bounds have changed.
        """
        self._watching.append(changed)
        if self._told:
            changed(*self._told[:3])

    def close(self) -> None:
        """Abandon the change in progress: ranks stay as they are."""
        self._closed = True
        self.resources.close()
        if self._resize is not None:
            self._resize.end(OSError(errno.ESHUTDOWN, "the service is shutting down"))
        self.provisioner.close()

    # -- changes ----------------------------------------------------------------------

    @property
    def parents(self) -> Parents:
        """The tree of brokers."""
        return self.resources.parents

    @property
    def changing(self) -> bool:
        """True while a change is in progress."""
        return self._resize is not None

    def ended(self, resize: Resize) -> None:
        """Note that a change is over."""
        self.provisioner.abandon()
        if resize is self._resize:
            self._resize = None

    def _begin(self, resize: Resize) -> Steps:
        ranks = yield from resize.look()
        if not self.low <= resize.to <= self.high:
            raise OSError(
                errno.EINVAL,
                f"a size of {nodes(resize.to)} is not within {self.low} to {self.high}",
            )
        if resize.to > len(ranks.in_use):
            resize.work = Growth(resize, ranks, self._start_seconds)
        else:
            resize.work = Shrink(resize, ranks, self._grace)
        resize.work.step(ranks)

    def stops(self, ranks: Set[int]) -> None:
        """Note that ranks are told to stop now: no change brings them back into use meanwhile.

        Ranks that are still online after `GOING_SECONDS` have missed the request.
        """
        if not ranks:
            return
        t_end = self.broker.loop.now() + GOING_SECONDS
        self.stopping.update(dict.fromkeys(ranks, t_end))
        self.broker.loop.timer(GOING_SECONDS, partial(self._forget, ranks, t_end))

    def _forget(self, ranks: Set[int], t_end: float) -> None:
        self.stays({rank for rank in ranks if self.stopping.get(rank) == t_end})

    def stays(self, ranks: Set[int]) -> None:
        """Note that ranks that were told to stop do not stop."""
        known = self.stopping.keys() & ranks
        for rank in known:
            del self.stopping[rank]
        if known:
            self.resources.look(lambda ranks: None)

    def _looked(self, ranks: Ranks) -> None:
        for rank in self.stopping.keys() - ranks.online:
            del self.stopping[rank]
        if ranks.usable:
            self.high = min(self.high, len(ranks.usable))
        numbers = (len(ranks.in_use), len(ranks.up), len(ranks.free), self.low, self.high)
        if numbers != self._told:
            self._told = numbers
            for changed in self._watching:
                self.broker.guard(changed)(*numbers[:3])
        resize = self._resize
        if resize is not None and resize.work is not None:
            resize.guarded(resize.work.step, ranks)
