"""A change of a Flux instance's size in progress, for `queues.elastic.scaler`.

    Resize ──► Growth: brokers start, come online, and are used
          └──► Shrink: ranks are drained, their jobs end, and their brokers stop

`Resize` has what both need: requests, timers, one end. The other takes a step each time when the
state of the ranks is known.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Set
from functools import partial
from typing import Any, Protocol

from flux.job import JobID

from flux_ensemble.engine.intervals import joined
from flux_ensemble.queues.elastic.provisioner import BrokerFleet, Provisioner
from flux_ensemble.queues.elastic.ranks import (
    REASON,
    Parents,
    Ranks,
    check_highest,
    to_grow,
    to_shrink,
)
from flux_ensemble.queues.elastic.watcher import Resources
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.delivery import PATIENCE
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.steps import Step, Steps, run
from flux_ensemble.runtime.ports import Handle, Resized

#: Seconds between looks at busy ranks: work after a job (housekeeping) has no journal.
RECHECK_SECONDS = 5.0


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
        self.work: Growth | Shrink | None = None
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


class Growth:
    """A growing instance: offline brokers are started, and undrained when they are online.

    A rank is drained before its broker is started, unless it is drained already. So a broker
    that comes up after the change has ended is not used until it is requested again.

    Args:
        resize: the change to carry out.
        ranks: their present state.
        limit: seconds that the change may take.

    Raises:
        OSError: the instance cannot grow with these ranks.
    """

    def __init__(self, resize: Resize, ranks: Ranks, limit: float) -> None:
        self._resize = resize
        self._limit = limit
        self._coming = to_grow(ranks, resize.parents, resize.to)
        self._started: set[int] = set()
        self._failed: dict[int, str] = {}
        self._draining = self._undraining = False
        self._in_use = ranks.in_use
        self._online = ranks.online
        resize.timer("limit", limit, self._late)

    def step(self, ranks: Ranks) -> None:
        """Do what the present state of the ranks requires.

        Raises:
            OSError: the change cannot go on; its results so far stay.
        """
        resize = self._resize
        self._in_use = ranks.in_use
        self._online = ranks.online
        missing = self._coming - ranks.in_use
        if not missing:
            resize.end(len(ranks.in_use))
            return
        taken = missing & ranks.theirs
        if taken:
            raise OSError(
                errno.EBUSY,
                f"{resize.named(taken)} was drained by somebody else meanwhile "
                f"({ranks.drained[min(taken)]!r}); the size is {len(ranks.in_use)}",
            )
        failed = missing & self._failed.keys()
        if missing <= self._lost(ranks):
            raise OSError(
                errno.EIO,
                f"cannot start {resize.named(missing)}: {self._failed[min(failed)]}; "
                f"the size is {len(ranks.in_use)}",
            )
        new = missing - ranks.ours - self._started
        if new and not self._draining:
            self._draining = True
            resize.run(self._drain(new))
        start = (missing & ranks.ours) - self._started
        if not resize.instance.provisioner.together:
            # A broker whose parent is just ending would end with it.
            there = ranks.online - resize.instance.stopping.keys()
            start = frozenset(
                rank for rank in start - ranks.online if resize.parents.get(rank, -1) in there
            )
        if start:
            self._started |= start
            resize.instance.provisioner.start(
                resize.instance, start, ranks.online | self._coming, self._not_started
            )
        # A broker that was told to stop goes offline first, and is started after that.
        back = (missing & ranks.leaving) - resize.instance.stopping.keys()
        if back and not self._undraining:
            self._undraining = True
            resize.run(self._undrain(back))

    def _lost(self, ranks: Ranks) -> Set[int]:
        """Return the missing ranks that will not come up: failed ones, and those below them."""
        # A broker that failed to start may still be online: it was started before.
        lost = self._failed.keys() - ranks.online
        parents = self._resize.parents
        while below := {rank for rank in self._coming - lost if parents.get(rank, -1) in lost}:
            lost |= below
        return lost

    def _drain(self, ranks: Set[int]) -> Steps:
        request = {"targets": joined(ranks), "reason": REASON}
        what = f"drain {self._resize.named(ranks)}"
        yield from self._resize.ask("resource.drain", request, what)
        self._draining = False
        yield from self._resize.look()

    def _undrain(self, ranks: Set[int]) -> Steps:
        # In this mode, a rank that was undrained meanwhile is no error.
        request = {"targets": joined(ranks), "mode": "update"}
        what = f"undrain {self._resize.named(ranks)}"
        yield from self._resize.ask("resource.undrain", request, what)
        self._undraining = False
        yield from self._resize.look()

    def _not_started(self, ranks: Set[int], reason: str) -> None:
        self._failed.update(dict.fromkeys(ranks, reason))
        self._resize.look_again()

    def _late(self) -> None:
        missing = self._coming - self._in_use
        reasons = sorted({self._failed[rank] for rank in missing & self._failed.keys()})
        provisioner = self._resize.instance.provisioner
        self._resize.end(
            OSError(
                errno.ETIMEDOUT,
                f"{self._resize.named(missing)} did not come up within {self._limit:g} s; "
                f"{because(*reasons, provisioner.trouble)}"
                f"the size is {len(self._in_use)}",
            )
        )
        # After the end, which abandons all requests; skipped if a new change has begun already.
        if not self._resize.instance.changing:
            provisioner.withdraw(max(self._online - missing, default=0) + 1)


class Shrink:
    """A shrinking instance: ranks are drained, their jobs end, and their brokers stop.

    Args:
        resize: the change to carry out.
        ranks: their present state.
        grace: seconds after which jobs on ranks that are to go are canceled; with None they
            are waited for.

    Raises:
        OSError: the instance cannot shrink with these ranks.
    """

    def __init__(self, resize: Resize, ranks: Ranks, grace: float | None) -> None:
        self._resize = resize
        self._grace = grace
        self._together = resize.instance.provisioner.together
        self._going = to_shrink(ranks, resize.parents, resize.to)
        if self._together:
            check_highest(self._going, ranks)
        #: Ranks that were to go, but that somebody else has undrained.
        self._kept: frozenset[int] = frozenset()
        self._stopped: set[int] = set()
        self._vacating = False
        resize.run(self._begin(ranks))

    def _begin(self, ranks: Ranks) -> Steps:
        resize = self._resize
        drain = self._going - ranks.ours
        if drain:
            # Fails for all ranks if somebody else has drained one of them meanwhile.
            request = {"targets": joined(drain), "reason": REASON}
            yield from resize.ask("resource.drain", request, f"drain {resize.named(drain)}")
        yield from self._hear_scheduler()
        ranks = yield from resize.look()
        self._vacating = True
        if self._grace is not None:
            resize.timer("grace", self._grace, lambda: resize.run(self._cancel_jobs()))
        self.step(ranks)

    def _hear_scheduler(self) -> Steps:
        """Wait for the scheduler, so that no job that is just starting is overlooked.

        The scheduler received the drain before this request. When it answers, or does not know the
        request, the job manager has received all allocations that the scheduler made before.
        """
        broker = self._resize.broker
        future = broker.handle.rpc("sched.resource-status", nodeid=0)
        try:
            yield broker.response(future, seconds=PATIENCE)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ETIMEDOUT:
                raise cannot("hear from the scheduler", error) from None

    def step(self, ranks: Ranks) -> None:
        """Do what the present state of the ranks requires.

        Raises:
            OSError: the change cannot go on; its results so far stay.
        """
        if not self._vacating:
            return
        resize = self._resize
        self._kept |= self._going & ranks.in_use
        # A rank that was seen offline has gone, even if the site starts its broker again.
        self._going = (self._going & ranks.online) - self._kept
        if not self._going:
            if self._kept:
                raise OSError(
                    errno.EBUSY,
                    f"{resize.named(self._kept)} was undrained by somebody else meanwhile; "
                    f"the size is {len(ranks.in_use)}",
                )
            resize.end(len(ranks.in_use))
            return
        idle = self._going - ranks.allocated
        if self._together:
            ready = idle if idle == self._going else frozenset()
        else:
            ready = idle - {resize.parents.get(rank, -1) for rank in ranks.online}
        stop = ready - self._stopped
        if stop:
            self._stopped |= stop
            resize.timer("limit", resize.instance.provisioner.stop_seconds, self._late)
            report = partial(resize.guarded, self._reported, stop)
            resize.instance.provisioner.stop(
                resize.instance, stop, ranks.online - self._going, report
            )
        if idle != self._going:
            resize.timer("recheck", RECHECK_SECONDS, resize.look_again)

    def _reported(self, ranks: Set[int], error: Exception | None) -> None:
        if error is not None:
            self._resize.run(self._not_stopped(ranks, error))

    def _not_stopped(self, ranks: Set[int], error: Exception) -> Steps:
        """Raise if brokers are still online; a broker that has gone by itself is no error."""
        now = yield from self._resize.look()
        staying = ranks & self._going & now.online
        if staying:
            raise cannot(f"stop {self._resize.named(staying)}", error)

    def _late(self) -> None:
        staying = self._going & self._stopped
        if staying:
            provisioner = self._resize.instance.provisioner
            raise OSError(
                errno.ETIMEDOUT,
                f"{self._resize.named(staying)} was told to stop, and is still there after "
                f"{provisioner.stop_seconds:g} s; {because(provisioner.trouble)}it stays drained",
            )

    def _cancel_jobs(self) -> Steps:
        """Cancel the jobs on the ranks that are to go."""
        constraint = {"and": [{"states": ["running"]}, {"ranks": [joined(self._going)]}]}
        request = {"max_entries": 0, "attrs": [], "constraint": constraint}
        what = "list the jobs of ranks that are to go"
        response = yield from self._resize.ask("job-list.list", request, what)
        for job in response["jobs"]:
            self._resize.run(self._cancel(job["id"]))

    def _cancel(self, job: int) -> Steps:
        cancel = {"severity": 0, "type": "cancel", "note": REASON}
        try:
            yield partial(self._resize.broker.change, job, "job-manager.raise", cancel)
        except Exception as error:
            raise cannot(f"cancel {JobID(job).f58}", error) from None


def cannot(what: str, error: Exception) -> OSError:
    """Make the error for an action that failed, with the reason."""
    return OSError(getattr(error, "errno", None) or errno.EIO, f"cannot {what}: {sentence(error)}")


def because(*reasons: str | None) -> str:
    """Join the reasons that are present, for use within a sentence."""
    return "".join(f"{reason}; " for reason in reasons if reason)
