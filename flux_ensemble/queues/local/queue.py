"""The local queue: the jobs of one ensemble as processes of this machine.

It has a virtual cluster of a few nodes, all of them this machine, which serves jobs first come,
first served with backfill, and posts the events of a real job (RFC 21). Job ids are 1, 2, 3. It
knows no Flux, and serves a worker in a Flux job as well (`service.task_queue`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Container

from flux_ensemble.document.keys.rules import JOB_EVENTS
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.queues.local.leftovers import remember
from flux_ensemble.queues.local.processes import ProcessRunner
from flux_ensemble.queues.local.recovery import Recovered
from flux_ensemble.queues.local.run_queue import RunSide
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.queues.virtual.queue import VirtualMember, VirtualQueue
from flux_ensemble.queues.virtual.scheduler import Scheduler
from flux_ensemble.queues.virtual.shapes import Shapes
from flux_ensemble.runtime.ports import Handle, Loop


class LocalQueue:
    """A queue of processes, and the member on it.

    Args:
        spec: the ensemble's document.
        cluster: the virtual cluster.
        loop: of the run.
        runner: of the processes; the queue closes it.
        post: receives each job event.
        wants: names of the events that are posted.

    Raises:
        UnsatisfiableError: a job group requests a form of resources that the cluster lacks.
    """

    def __init__(
        self,
        spec: Spec,
        cluster: VirtualCluster,
        loop: Loop,
        runner: ProcessRunner,
        post: Callable[[JobEvent], None],
        wants: Container[str] = frozenset(JOB_EVENTS),
    ) -> None:
        self._shape = Shapes(spec)
        self._loop = loop
        self._pass: Handle | None = None
        self._drained = self._resting = False
        self._runner = runner
        self._queue = VirtualQueue(
            Scheduler(cluster),
            now=loop.now,
            post=post,
            runner=self._runner,
            wake=self._wake,
            wants=wants,
        )
        self._runner.attach(self._queue)
        self.member = VirtualMember(
            spec,
            self._queue,
            shape=self._shape,
            now=loop.now,
        )

    @classmethod
    def of_run(cls, side: RunSide) -> LocalQueue:
        """Return the queue of a run: see `run_queue.make_queue`."""
        runner = ProcessRunner(
            side.loop,
            environment=side.environment,
            cwd=side.cwd,
            output=side.log.output,
            ready=side.flush,
            lost=side.lost,
            warn=side.warn,
            full=side.full,
            prefix=side.spec.job_prefix,
            hold=side.log.jobs_lock,
        )
        side.stack.callback(runner.close)
        remember(side.log.directory, runner.scratch)
        return cls(side.spec, side.cluster, side.loop, runner, side.post)

    @property
    def active(self) -> int:
        """Number of jobs that wait or run."""
        return len(self._queue.jobs)

    def adopt(self, recovered: Recovered, engine: Engine) -> None:
        """Take over the jobs that waited in the queue of a run that was killed."""
        self._queue.last_id = recovered.last_id
        for id, tag, job_set, params in recovered.waiting(engine):
            self._queue.adopt(id, tag, job_set, params, self._shape(job_set))

    @property
    def running(self) -> int:
        """Number of jobs that have processes."""
        return self._runner.running

    def halt(self) -> None:
        """Start no more jobs."""
        self._runner.halt()

    def drain(self) -> None:
        """Start none of the jobs that wait; they can be cancelled."""
        self._drained = True

    def rest(self) -> None:
        """Start none of the jobs that wait until `go_on`."""
        self._resting = True

    def go_on(self) -> None:
        """Start the jobs that wait again."""
        self._resting = False
        self._wake()

    def stop(self) -> None:
        """Start no more jobs, and end the running ones: SIGTERM, and SIGKILL after a while."""
        self.halt()
        for job in list(self._queue.jobs.values()):
            if job.state == "running":
                self._runner.stop(job)

    def abandon(self, reason: str) -> None:
        """Kill all running jobs, wait until they are gone, and post all jobs as canceled."""
        self.halt()
        self._runner.close()
        for job in list(self._queue.jobs.values()):
            if job.state == "running":
                self._queue.exception(job, "cancel", reason)
                self._queue.ended(job, signal.SIGKILL)
            else:
                self._queue.cancel(job.id, reason)

    def close(self) -> None:
        """Kill all running jobs, and wait until they are gone."""
        if self._pass is not None:
            self._pass.cancel()
        self._runner.close()

    def _wake(self) -> None:
        # Once for all jobs that are submitted or end together.
        if self._pass is None:
            self._pass = self._loop.timer(0.0, self._schedule)

    def _schedule(self) -> None:
        self._pass = None
        if not (self._drained or self._resting):
            self._queue.schedule()
            # At once: slots stay empty until then, and a turn of the loop can be long.
            self._runner.flush()
