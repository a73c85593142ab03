"""The cluster of a simulation without members: one virtual cluster with one queue."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from flux_ensemble.document.distributions import Simulated
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.events import Event
from flux_ensemble.queues.simulation.runner import SimulatedRunner, VirtualLoop
from flux_ensemble.queues.simulation.uniforms import Uniforms
from flux_ensemble.queues.virtual.cluster import Shape, VirtualCluster
from flux_ensemble.queues.virtual.queue import VirtualMember, VirtualQueue
from flux_ensemble.queues.virtual.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class World:
    """The parts that all clusters of a simulation share.

    Args:
        spec: the ensemble's document.
        loop: the virtual time.
        behaviour: the behaviour of each group's jobs.
        uniforms: the source of all draws.
        shape: returns the shape of a job set.
        post: receives each event.
        wants: names of the job events that are posted.
    """

    spec: Spec
    loop: VirtualLoop
    behaviour: Mapping[str, Simulated]
    uniforms: Uniforms
    shape: Callable[[JobSet], Shape]
    post: Callable[[Event], None]
    wants: Container[str]


class Single:
    """A virtual cluster in virtual time.

    Args:
        world: of the simulation.
        cluster: its nodes.
        behaviour: of its jobs, if that is not that of the world.
        after: the ids of its jobs begin after this one.

    Attributes:
        queue: of the cluster.
        member: the queue, as the ensemble uses it.
        draining: if True, no more jobs are started.
    """

    def __init__(
        self,
        world: World,
        cluster: VirtualCluster,
        behaviour: Mapping[str, Simulated] | None = None,
        after: int = 0,
    ) -> None:
        self._loop = loop = world.loop
        self._cluster = cluster
        self._runner = SimulatedRunner(
            loop, world.behaviour if behaviour is None else behaviour, world.uniforms
        )
        self.queue = self._runner.queue = VirtualQueue(
            Scheduler(cluster),
            now=loop.now,
            post=world.post,
            runner=self._runner,
            wake=self._wake,
            wants=world.wants,
            after=after,
        )
        self.member = VirtualMember(world.spec, self.queue, shape=world.shape, now=loop.now)
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
        """Drop all jobs without a further event: the cluster is lost."""
        self.draining = True
        self._runner.abandon()
        self._cluster.abandon()

    @property
    def active(self) -> bool:
        """True if the queue has jobs."""
        return bool(self.queue.jobs)

    @property
    def t_gone(self) -> float:
        """The time when the latest job ended."""
        return self.queue.t_gone

    @property
    def notes(self) -> Mapping[str, str]:
        """The reason why jobs of a group cannot run, by group."""
        return self.queue.refused
