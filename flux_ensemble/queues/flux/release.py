"""Strict durability: no job can start before the queue's record of it is on disk.

With `durability: strict` jobs are submitted held, with urgency 0. When all jobs of a command have
been accepted, a flush has the job manager write their events to the KVS: a job is accepted before
its `validate` event is there, and without that event a broker that restarts forgets the job
(flux-core `job-manager/job.c`, "invalid after replay"). Then a commit with FLUX_KVS_SYNC puts the
KVS on disk, and only then are the jobs given their urgency.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Generator, Hashable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from flux.constants import FLUX_KVS_SYNC
from flux.kvs import KVSTxn, commit_async

from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.fence import flush
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.refusals import NotOnDiskError, is_lost
from flux_ensemble.queues.flux.steps import Step, Steps, attempts, run


class Release:
    """A release of held jobs, once all their events up to its beginning are on disk.

    Args:
        broker: of the instance.
        lane: of the pipeline of calls.
        held: the urgency that each held job is to have; a job is removed when it is released.
        jobs: those to release; a job that is not in `held` is left alone.
        known: those of them that may have been released before, with the urgency that they were
            to have then: they are released only if their urgency is still 0.
    """

    def __init__(
        self,
        broker: Broker,
        lane: Hashable,
        held: MutableMapping[int, int],
        jobs: Sequence[int],
        known: Mapping[int, int],
    ) -> None:
        self._broker = broker
        self._lane = lane
        self._held = held
        self._jobs = jobs
        self._known = known

    def begin(self, done: Report, trouble: Callable[[Exception], None]) -> None:
        """Begin the release.

        Args:
            done: receives None, or the reason why jobs are still held.
            trouble: receives the error of each failed attempt, for instance if the disk is full;
                attempts are repeated for as long as the error may pass.
        """
        run(self._steps(trouble), done)

    def _steps(self, trouble: Callable[[Exception], None]) -> Steps:
        timer = self._broker.loop.timer
        yield attempts(self._to_disk, timer, math.inf, trouble)
        yield attempts(self._release, timer, math.inf, trouble)

    def _to_disk(self) -> Steps:
        yield partial(flush, self._broker)
        # A transaction that changes nothing is good enough. It has to outlive the call.
        transaction = KVSTxn()
        future = commit_async(self._broker.handle, FLUX_KVS_SYNC, "primary", transaction)
        try:
            yield self._broker.response(future)
        except OSError as error:
            text = f"cannot put the KVS on disk: {sentence(error)}"
            raise NotOnDiskError(error.errno, text) from error

    def _release(self) -> Steps:
        """Release the held jobs; raise an error of unknown outcome before any other."""
        jobs = [job for job in self._jobs if job in self._held]

        def start(call: int, report: Report) -> None:
            run(self._release_one(jobs[call]), report)

        calls = yield self._broker.calls.step(self._lane, len(jobs), start)
        errors = [error for _, error in calls.errors]
        if errors:
            raise next(filter(is_lost, errors), errors[0])

    def _release_one(self, job: int) -> Steps:
        """Release a job; if it is known, only if its urgency is 0 or is to be another one now."""
        if job in self._known:
            urgency = yield from self._urgency(job)
            if urgency is None or (urgency != 0 and self._held.get(job) == self._known[job]):
                self._held.pop(job, None)
                return
        else:
            urgency = 0
        # Removed first: an update from now on is sent after this.
        wanted = self._held.pop(job, 0)
        if wanted != urgency:
            yield from self._change(job, wanted)

    def _urgency(self, job: int) -> Generator[Step, Any, int | None]:
        """Return the urgency of a job; None if the queue does not have the job any more."""
        request = {"id": job, "attrs": ["urgency"]}
        future = self._broker.handle.rpc("job-list.list-id", request)
        try:
            response = yield self._broker.response(future)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        urgency: int | None = response["job"].get("urgency")
        return urgency

    def _change(self, job: int, urgency: int) -> Steps:
        """Set the urgency of a job; put it back into `held` if the outcome is unknown."""
        request = {"urgency": urgency}
        try:
            yield partial(self._broker.change, job, "job-manager.urgency", request)
        except OSError as error:
            if is_lost(error):
                self._held.setdefault(job, urgency)
            raise
