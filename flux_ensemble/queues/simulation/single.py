"""What a simulation runs its jobs on: one virtual cluster with one queue."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from flux_ensemble.document.distributions import Simulated
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.queues.simulation.runner import SimulatedRunner, VirtualLoop
from flux_ensemble.queues.simulation.uniforms import Uniforms
from flux_ensemble.queues.virtual.cluster import Shape, VirtualCluster
from flux_ensemble.queues.virtual.queue import VirtualMember, VirtualQueue
from flux_ensemble.queues.virtual.scheduler import Scheduler


class Single:
    """A virtual cluster in virtual time.

    Args:
        spec: the ensemble's document.
        cluster: its nodes.
        loop: the virtual time.
        behaviour: how the jobs of each group behave.
        uniforms: what all draws come from.
        shape: gives the shape of a job set.
        post: gets each job event.
        wants: names of the events that are posted.
        after: what the ids of its jobs come after.

    Attributes:
        queue: of the cluster.
        member: the queue, as the ensemble sees it.
        draining: no more jobs are started.
    """

    def __init__(
        self,
        spec: Spec,
        cluster: VirtualCluster,
        loop: VirtualLoop,
        behaviour: Mapping[str, Simulated],
        uniforms: Uniforms,
        shape: Callable[[JobSet], Shape],
        post: Callable[[JobEvent], None],
        wants: Container[str],
        after: int = 0,
    ) -> None:
        self._loop = loop
        self._cluster = cluster
        self._runner = SimulatedRunner(loop, behaviour, uniforms)
        self.queue = self._runner.queue = VirtualQueue(
            Scheduler(cluster),
            now=loop.now,
            post=post,
            runner=self._runner,
            wake=self._wake,
            wants=wants,
            after=after,
        )
        self.member = VirtualMember(spec, self.queue, shape=shape, now=loop.now)
        self.draining = False
        self._waking = False

    def _wake(self) -> None:
        # Once for all that happens at one time.
        if not self._waking:
            self._waking = True
            self._loop.soon(self._schedule)

    def _schedule(self) -> None:
        self._waking = False
        if not self.draining:
            self.queue.schedule()

    def abandon(self) -> None:
        """Nothing is heard of it any more."""
        self.draining = True
        self._runner.abandon()
        self._cluster.abandon()

    @property
    def active(self) -> bool:
        """Whether it has jobs."""
        return bool(self.queue.jobs)

    @property
    def t_gone(self) -> float:
        """When a job left last."""
        return self.queue.t_gone

    @property
    def notes(self) -> Mapping[str, str]:
        """Why jobs of a group cannot run, by the name of each such group."""
        return self.queue.refused
