"""Shrinking a Flux instance without losing a job; see `queues.elastic.scaler`."""

from __future__ import annotations

import errno
from collections.abc import Set
from functools import partial

from flux.job import JobID

from flux_ensemble.engine.intervals import joined
from flux_ensemble.queues.elastic.ranks import REASON, Ranks, check_highest, to_shrink
from flux_ensemble.queues.elastic.resize import Resize, because, cannot
from flux_ensemble.queues.flux.delivery import PATIENCE
from flux_ensemble.queues.flux.steps import Steps

#: Seconds between looks at busy ranks: work after a job (housekeeping) has no journal.
RECHECK_SECONDS = 5.0


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
