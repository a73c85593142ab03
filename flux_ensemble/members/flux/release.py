"""Strict durability: no job can start before the queue's record of it is on disk.

With `durability: strict` jobs are submitted held, with urgency 0. When all jobs of a command
have been accepted, a flush has the job manager bring their events into the KVS: a job is
accepted before its `validate` event is there, and without that event a broker that restarts
forgets it (flux-core `job-manager/job.c`, "invalid after replay"). Then a commit with
FLUX_KVS_SYNC puts all that is in the KVS on disk, and only then are they given their urgency.
"""

from __future__ import annotations

import errno
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from flux.constants import FLUX_KVS_SYNC
from flux.kvs import KVSTxn, commit_async

from flux_ensemble.members.flux.delivery import RESPONSE_SECONDS, Attempts, is_unknown
from flux_ensemble.members.flux.fence import flush
from flux_ensemble.members.flux.pipeline import Batch, Report

if TYPE_CHECKING:
    from flux_ensemble.members.flux.queue import FluxQueue


class Release:
    """Releases held jobs, when all events that they had at its beginning are on disk.

    Args:
        queue: where they are.
        lane: of the pipeline of calls.
        held: the urgency that each held job is to have; a job is taken out when it is released.
        jobs: those to release; one that is not in `held` is left alone.
        known: those of them that may have been released before, with the urgency that they were
            to have then: they are released only if their urgency is still 0.
        done: gets None, or why they are still held.
    """

    def __init__(
        self,
        queue: FluxQueue,
        lane: Hashable,
        held: MutableMapping[int, int],
        jobs: Sequence[int],
        known: Mapping[int, int],
        done: Report,
    ) -> None:
        self._queue = queue
        self._lane = lane
        self._held = held
        self._jobs = jobs
        self._known = known
        self._done = done
        Attempts(self._commit, queue.loop.timer, queue.patience, self._committed)

    def _commit(self, report: Report) -> None:
        def flushed(error: Exception | None) -> None:
            if error is None:
                self._sync(report)
            else:
                report(error)

        flush(self._queue, flushed)

    def _sync(self, report: Report) -> None:
        # A transaction that changes nothing is good enough. It has to outlive the call.
        transaction = KVSTxn()
        future = commit_async(self._queue.handle, FLUX_KVS_SYNC, "primary", transaction)
        self._queue.call(future, lambda future: future.get(), report, RESPONSE_SECONDS)

    def _committed(self, error: Exception | None) -> None:
        if error is not None:
            self._done(error)
            return
        Attempts(self._release, self._queue.loop.timer, self._queue.patience, self._done)

    def _release(self, report: Report) -> None:
        """Release those that are held; report an unknown outcome before other errors."""
        jobs = [job for job in self._jobs if job in self._held]

        def start(call: int, report: Report) -> None:
            job = jobs[call]
            if job in self._known:
                self._look(job, report)
            else:
                self._raise(job, report)

        def finish(batch: Batch) -> None:
            errors = [error for _, error in batch.errors]
            report(next(filter(is_unknown, errors), errors[0] if errors else None))

        self._queue.calls.add(self._lane, Batch(len(jobs), start, finish, stop_at_error=False))

    def _look(self, job: int, report: Report) -> None:
        """Release a job if its urgency is 0, or is to be another one meanwhile."""
        urgency: list[Any] = []

        def receive(future: Any) -> None:
            try:
                urgency.append(future.get()["job"].get("urgency"))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise

        def looked(error: Exception | None) -> None:
            if error is not None:
                report(error)
            elif urgency == [0]:
                self._raise(job, report)
            elif urgency and self._held.get(job) != self._known[job]:
                self._change(job, self._held.pop(job), report)
            else:
                self._held.pop(job, None)
                report(None)

        future = self._queue.handle.rpc("job-list.list-id", {"id": job, "attrs": ["urgency"]})
        self._queue.call(future, receive, looked)

    def _raise(self, job: int, report: Report) -> None:
        """Give a job its urgency, if it is to have one."""
        # Taken out first: an update from now on is sent after this.
        urgency = self._held.pop(job, 0)
        if urgency:
            self._change(job, urgency, report)
        else:
            report(None)

    def _change(self, job: int, urgency: int, report: Report) -> None:
        def changed(error: Exception | None) -> None:
            if error is not None and is_unknown(error):
                self._held.setdefault(job, urgency)
            report(error)

        self._queue.change(job, "job-manager.urgency", {"urgency": urgency}, changed)
