"""Changes the size of a Flux instance without losing a job.

How brokers are started and stopped is the business of subclasses (`members.elastic.site_command`,
`members.elastic.minicluster`); what is the same everywhere is here:

    grow    brokers start ──► online ──► undrain those that a shrink had drained ──► in use
    shrink  drain ──► jobs end, or are canceled after a grace period ──► stop ──► offline

There is no state but the instance's own. Each step is taken because of how the ranks are
(`members.elastic.ranks`), so that a change that was cut short by a crash, or by another change,
goes on when it is asked for again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Set
from functools import partial
from typing import Any

from flux.hostlist import Hostlist

from flux_ensemble.members.elastic.grow import Growth
from flux_ensemble.members.elastic.ranks import Ranks, check_bounds, nodes
from flux_ensemble.members.elastic.resize import Change
from flux_ensemble.members.elastic.shrink import Shrink
from flux_ensemble.members.elastic.watcher import Resources
from flux_ensemble.members.flux.pipeline import Report
from flux_ensemble.members.flux.queue import FluxQueue
from flux_ensemble.runtime.ports import Resized, SizeSeen

#: Seconds in which brokers have to come up.
START_SECONDS = 300.0

#: Seconds in which a broker that has heard that it has to stop goes offline.
GOING_SECONDS = 60.0


class ElasticInstance:
    """The size of an instance: a `runtime.ports.Scaler` but for `start` and `stop`.

    Args:
        queue: the queue of the instance; its handle has to be one of rank 0.
        low, high: bounds of the size; by default all hosts that the instance has.
        grace: seconds after which jobs on ranks that are to go are canceled; None waits.
        start_seconds: how long brokers may take to come up.

    Attributes:
        kind: as [ensemble] names it.
        low, high: bounds of the size. `high` falls if fewer ranks have resources for jobs.
        hosts: by rank.
        resources: how the ranks are.
        stopping: ranks that were told to stop and are still there, and until when that counts.

    Raises:
        ValueError: the bounds are wrong; a sentence.
    """

    kind = ""

    #: Brokers come and go by their number: those that go are the highest ranks, and go all at
    #: once, when none of them has a job; those that come may be online already.
    together = False

    #: Seconds in which brokers that were told to stop have to go.
    stop_seconds = GOING_SECONDS

    def __init__(
        self,
        queue: FluxQueue,
        *,
        low: int = 1,
        high: int | None = None,
        grace: float | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.queue = queue
        self.hosts = [str(host) for host in Hostlist(queue.handle.attr_get("hostlist"))]
        high = len(self.hosts) if high is None else high
        check_bounds(low, high, len(self.hosts))
        self.low = low
        self.high = high
        self._grace = grace
        self._start_seconds = start_seconds
        self._watching: list[SizeSeen] = []
        self._told: tuple[int, ...] = ()
        self._change: Change | None = None
        self._closed = False
        self.stopping: dict[int, float] = {}
        self.resources = Resources(queue, self._looked)

    # -- how brokers come and go ---------------------------------------------------------

    def start(
        self, ranks: Set[int], after: Set[int], failed: Callable[[Set[int], str], None]
    ) -> None:
        """Start brokers; that they are up is seen elsewhere.

        Args:
            ranks: of the brokers.
            after: the ranks whose brokers will be there.
            failed: called for ranks that did not start, with the reason.
        """
        raise NotImplementedError

    def stop(self, ranks: Set[int], after: Set[int], report: Report) -> None:
        """Stop brokers that have no job and no broker below them, and say so to `stops`.

        Args:
            ranks: of the brokers.
            after: the ranks whose brokers will still be there.
            report: called with the error if it is known that they do not stop.
        """
        raise NotImplementedError

    def state(self) -> str | None:
        """What keeps brokers from starting or stopping now, and is tried again: a sentence."""
        return None

    # -- the scaler ------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """What `ensemble.status` says of it (docs/rpc.md)."""
        return {
            "kind": self.kind,
            "low": self.low,
            "high": self.high,
            "changing_to": None if self._change is None else self._change.to,
            "trouble": self.state(),
        }

    def scale(self, to: int, done: Resized) -> None:
        """Change the size; another change that is under way ends with ECANCELED.

        Args:
            to: the size to reach. Asking for the same one again joins the change under way.
            done: called once, from the loop or at once, with the size or why it was not
                reached: EINVAL (not within the bounds, or no such rank), EBUSY (ranks that
                somebody else has drained), EIO (brokers do not start), ETIMEDOUT, and
                whatever Flux says.
        """
        if self._closed:
            done(OSError(errno.ESHUTDOWN, "the service is shutting down"))
            return
        change = self._change
        if change is not None and change.to == to:
            change.dones.append(done)
            return
        if change is not None:
            change.end(OSError(errno.ECANCELED, f"overtaken by a change to {nodes(to)}"))
        change = self._change = Change(self, to, done)
        change.look(partial(self._begin, change))

    def watch(self, changed: SizeSeen) -> None:
        """Tell of the size (ranks in use), and of the ranks up and free (without a job).

        Args:
            changed: called when they are known, and when they or the bounds have changed.
        """
        self._watching.append(changed)
        if self._told:
            changed(*self._told[:3])

    def close(self) -> None:
        """Give up what is under way: ranks stay as they are."""
        self._closed = True
        self.resources.close()
        if self._change is not None:
            self._change.end(OSError(errno.ESHUTDOWN, "the service is shutting down"))

    # -- changes ----------------------------------------------------------------------

    def ended(self, change: Change) -> None:
        """A change is over."""
        if change is self._change:
            self._change = None

    def _begin(self, change: Change, ranks: Ranks) -> None:
        if not self.low <= change.to <= self.high:
            raise OSError(
                errno.EINVAL,
                f"a size of {nodes(change.to)} is not within {self.low} to {self.high}",
            )
        if change.to > len(ranks.in_use):
            change.work = Growth(change, ranks, self._start_seconds)
        else:
            change.work = Shrink(change, ranks, self._grace)
        change.work.step(ranks)

    def stops(self, ranks: Set[int]) -> None:
        """Ranks are told to stop now: no change brings back into use what is just going.

        Those that are still there after a while have not heard it.
        """
        if not ranks:
            return
        t_end = self.queue.loop.now() + GOING_SECONDS
        self.stopping.update(dict.fromkeys(ranks, t_end))

        def forget() -> None:
            self.stays({rank for rank in ranks if self.stopping.get(rank) == t_end})

        self.queue.loop.timer(GOING_SECONDS, forget)

    def stays(self, ranks: Set[int]) -> None:
        """Ranks that were told to stop do not."""
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
                self.queue.guard(changed)(*numbers[:3])
        change = self._change
        if change is not None and change.work is not None:
            change.guarded(change.work.step, ranks)
