"""Simulated members: each is a virtual cluster of its own, which starts, ends and may be lost.

    StartMember ──line──► wait ──► startup ──► MemberUp ──duration──► MemberEnded
                                                  └──loss──► MemberLost ──FENCE_SECONDS──►┘

Members wait in line as long as the `limits` of their pool say, then in the queue of their site.
Jobs that run on one whose time is up time out.
All members number their jobs from 1, so an ensemble constantly has to cope with equal ids. The
seconds until a member begins, is up and is lost are drawn from a hash of the seed and its number,
and so is the choice whether it fails each of its jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from flux_ensemble.document.distributions import Constant, Drawable, Simulated
from flux_ensemble.document.members import STARTUP_SECONDS, Pool
from flux_ensemble.engine.commands import (
    CancelJobs,
    DrainMember,
    EndMember,
    Scale,
    StartMember,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    MemberEnded,
    MemberLost,
    MemberUp,
    Tag,
)
from flux_ensemble.engine.job_keys import make, ordinal_of
from flux_ensemble.queues.simulation.runner import Happening
from flux_ensemble.queues.simulation.single import Single, World
from flux_ensemble.queues.virtual.cluster import Capacity, VirtualCluster
from flux_ensemble.runtime.ports import Done

#: Seconds from the loss of a member until its nodes are clean, as measured with Flux 0.88.
FENCE_SECONDS = 25.0

#: Seconds that a job runs on a member that fails all its jobs.
BROKEN_SECONDS = 0.1


class _Member:
    """A simulated member."""

    def __init__(self, command: StartMember, pool: Pool, t_started: float) -> None:
        self.name = command.member
        self.ordinal = command.ordinal
        self.pool = pool
        #: None before it is up, and after it is lost.
        self.instance: Single | None = None
        self.nodes = 0
        #: The times when it was started, and when it came up; None before.
        self.t_started = t_started
        self.t_up: float | None = None
        #: Seconds that it waits in the queue of its site, takes to start, and is up.
        self.wait = self.startup = 0.0
        self.loss: float | None = None
        self.broken = False
        self.happenings: list[Happening] = []

    def cancel(self) -> None:
        """Cancel all its pending happenings."""
        for happening in self.happenings:
            happening.cancel()
        self.happenings.clear()


class _SiteLine:
    """The members of a pool that wait until the site may be asked for them, or in its queue."""

    def __init__(self) -> None:
        self.waiting: deque[_Member] = deque()
        self.asked: set[_Member] = set()
        self.t_next = 0.0
        self.look: Happening | None = None


class SimulatedFleet:
    """Members in virtual time: a `runtime.ports.Queue` and a `runtime.ports.Fleet`.

    Args:
        world: of the simulation.
        node: a cluster whose nodes are like those of the members.

    Attributes:
        capacity: the nodes of all members together, of which `nodes` is the most up at once.
        t_gone: the time when the latest job ended.
        node_seconds: the time that members had their nodes, by pool.
        waits: the seconds that each member waited until it began, by pool.
        notes: the reason why jobs of a group cannot run, by group.
    """

    elastic = False

    def __init__(self, world: World, node: VirtualCluster) -> None:
        spec = world.spec
        self._world = world
        self._node = node
        self._loop = world.loop
        self._post = world.post
        #: The behaviour of jobs on a broken member.
        self._failing = {group: Simulated(Constant(BROKEN_SECONDS), 1.0) for group in spec.groups}
        self._pools = {pool.name: pool for pool in spec.members}
        self._members: dict[int, _Member] = {}
        self._nodes_up = 0
        self.capacity = Capacity(1, node.cores)
        self.known: dict[Tag, int] = {}
        self.t_gone = 0.0
        self.node_seconds = dict.fromkeys(self._pools, 0.0)
        self.waits: dict[str, list[float]] = {name: [] for name in self._pools}
        self._lines = {name: _SiteLine() for name in self._pools}
        self.notes: dict[str, str] = {}

    # -- members --------------------------------------------------------------------

    def start(self, command: StartMember, done: Done) -> None:
        """Start a member."""
        pool = self._pools[command.pool]
        now = self._loop.now()
        member = self._members[command.ordinal] = _Member(command, pool, now)
        draws = self._world.uniforms.of(Tag("", f"member:{pool.name}", command.ordinal, 0))
        startup = self._draw(pool.startup, draws)
        member.startup = STARTUP_SECONDS if startup is None else startup
        member.loss = self._draw(pool.loss, draws)
        member.broken = bool(pool.broken) and next(draws) < pool.broken
        member.wait = self._draw(pool.wait, draws) or 0.0
        self._lines[pool.name].waiting.append(member)
        self._admit(pool)
        done(CommandDone(now, command.id))

    def _admit(self, pool: Pool) -> None:
        """Ask the site of a pool for as many members as its limits allow now."""
        line, limits, now = self._lines[pool.name], pool.limits, self._loop.now()
        while line.waiting and not (limits.queued and len(line.asked) >= limits.queued):
            if now < line.t_next:
                if line.look is None:
                    line.look = self._loop.timer(line.t_next - now, partial(self._look, pool))
                return
            line.t_next = now + limits.spacing
            member = line.waiting.popleft()
            if member.wait:
                line.asked.add(member)
                begins = partial(self._begin, member)
                member.happenings.append(self._loop.timer(member.wait, begins))
            else:
                self._begin(member)

    def _look(self, pool: Pool) -> None:
        self._lines[pool.name].look = None
        self._admit(pool)

    def _begin(self, member: _Member) -> None:
        self.waits[member.pool.name].append(self._loop.now() - member.t_started)
        member.happenings.clear()
        member.happenings.append(self._loop.timer(member.startup, partial(self._up, member)))
        self._leave(member)

    def _leave(self, member: _Member) -> None:
        """Take a member out of the queue of its site."""
        line = self._lines[member.pool.name]
        if member in line.asked:
            line.asked.remove(member)
            self._admit(member.pool)
        elif member in line.waiting:
            line.waiting.remove(member)

    def _draw(self, drawn: Drawable | None, draws: Iterator[float]) -> float | None:
        return None if drawn is None else max(0.0, float(drawn.draw(draws, {})))

    def _up(self, member: _Member) -> None:
        now, pool, node = self._loop.now(), member.pool, self._node
        member.happenings.clear()
        # The document does not have the size of an existing instance.
        member.nodes = pool.nodes if pool.uri is None else node.nodes
        member.t_up = now
        cluster = VirtualCluster(member.nodes, node.cores, node.gpus, self.capacity)
        behaviour = self._failing if member.broken else None
        member.instance = Single(self._world, cluster, behaviour, make(member.ordinal, 0))
        self._nodes_up += member.nodes
        self.capacity.nodes = max(self.capacity.nodes, self._nodes_up)
        t_expires = now + pool.duration if pool.duration else None
        self._post(
            MemberUp(
                now,
                member.name,
                member.ordinal,
                member.nodes,
                member.nodes * node.cores,
                member.nodes * node.gpus,
                t_expires,
            )
        )
        timer = self._loop.timer
        if pool.duration:
            member.happenings.append(timer(pool.duration, partial(self._expire, member)))
        if member.loss is not None:
            member.happenings.append(timer(member.loss, partial(self._lose, member)))

    def _lose(self, member: _Member) -> None:
        self._abandon(member)
        self._post(MemberLost(self._loop.now(), member.name, member.ordinal, "it was lost"))
        ended = partial(self._ended, member, "its nodes are clean")
        member.happenings.append(self._loop.timer(FENCE_SECONDS, ended))

    def _expire(self, member: _Member) -> None:
        """End a member whose time is up, with the jobs that run, as Flux does."""
        instance = member.instance
        assert instance is not None
        for job in list(instance.queue.jobs.values()):
            if job.state == "running":
                instance.queue.expire(job)
        self._abandon(member)
        self._ended(member, "its time is up")

    def _abandon(self, member: _Member) -> None:
        member.cancel()
        instance, member.instance = member.instance, None
        if instance is not None:
            self.t_gone = max(self.t_gone, instance.t_gone)
            self.notes.update(instance.notes)
            instance.abandon()
            self._nodes_up -= member.nodes

    def _ended(self, member: _Member, reason: str) -> None:
        self._charge(member)
        del self._members[member.ordinal]
        self._post(MemberEnded(self._loop.now(), member.name, member.ordinal, reason))

    def _charge(self, member: _Member) -> None:
        """Add the time that a member has had its nodes."""
        if member.t_up is not None:
            seconds = self._loop.now() - member.t_up
            self.node_seconds[member.pool.name] += member.nodes * seconds

    def drain(self, command: DrainMember, done: Done) -> None:
        """Have the queue of a member start no more jobs."""
        instance = self._instance(command.ordinal)
        if instance is not None:
            instance.draining = True
        done(CommandDone(self._loop.now(), command.id))

    def end(self, command: EndMember, done: Done) -> None:
        """End a member."""
        member = self._members.get(command.ordinal)
        done(CommandDone(self._loop.now(), command.id))
        if member is not None:
            self._abandon(member)
            self._leave(member)
            self._ended(member, "it was ended")

    def _instance(self, ordinal: int) -> Single | None:
        member = self._members.get(ordinal)
        return None if member is None else member.instance

    # -- jobs -----------------------------------------------------------------------

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs; a lost member does not answer."""
        instance = self._instance(command.ordinal)
        if instance is not None:
            instance.member.submit(command, done)

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Cancel jobs."""
        for key in command.jobs:
            instance = self._instance(ordinal_of(key))
            if instance is not None:
                instance.queue.cancel(key, command.reason)
        done(CommandDone(self._loop.now(), command.id))

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Change the urgency or the duration of jobs."""
        for key in command.jobs:
            instance = self._instance(ordinal_of(key))
            if instance is not None:
                instance.queue.update(key, command.urgency, command.duration)
        done(CommandDone(self._loop.now(), command.id))

    def scale(self, command: Scale, done: Done) -> None:
        """Refuse: the enclosing instance is not simulated."""
        reason = "the instance has a fixed size"
        done(CommandFailed(self._loop.now(), command.id, "EINVAL", reason))

    def seen(self, tag: Tag, job: int) -> None:
        """Do nothing: every submission gets its response."""

    def refused(self, job: int) -> None:
        """Do nothing: no job is refused after it was taken in."""

    def revoke(self) -> None:
        """Do nothing: submissions are immediate, so none is in progress."""

    @property
    def active(self) -> bool:
        """True if a member has jobs."""
        return any(
            member.instance is not None and member.instance.active
            for member in self._members.values()
        )

    def settle(self) -> None:
        """Take over, at the end, the figures of the members that are up."""
        for member in self._members.values():
            self._charge(member)
            if member.instance is not None:
                self.t_gone = max(self.t_gone, member.instance.t_gone)
                self.notes.update(member.instance.notes)
