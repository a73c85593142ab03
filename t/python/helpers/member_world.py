"""A world of virtual time with several instances, all of which number their jobs from 1.

A service has an engine, a write-ahead log and connections that take time. It may be killed at any
moment: what is not durable is forgotten, what it has sent still arrives. Instances end with their
walltime, or are lost: nothing is heard of them then, and their jobs run on until their nodes are
clean. The world knows what really ran when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import encode, event_from_json
from flux_ensemble.engine.commands import (
    CancelJobs,
    Command,
    DrainMember,
    EndMember,
    Record,
    StartMember,
    StartTimer,
    StopTimer,
    SubmitJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    Event,
    JobEvent,
    MemberEnded,
    MemberLost,
    MemberUp,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make, split

#: Cores of an instance, and seconds until the nodes of a lost one are clean.
CORES = 3
CLEAN = 2.0

#: What a job of a firing is, whatever its attempts.
Intent = tuple[str, int, int]


@dataclass
class Job:
    """A job as its instance has it, and when it ran."""

    id: int
    tag: Tag
    events: list[JobEvent] = field(default_factory=list)
    state: str = "pending"
    began: float = 0.0
    ended: float | None = None


@dataclass
class Instance:
    """An instance, and how it is."""

    name: str
    ordinal: int
    state: str = "starting"
    t_up: float = 0.0
    stopped: bool = False
    jobs: dict[int, Job] = field(default_factory=dict)

    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "running"]


class World:
    """The world.

    Args:
        document: of the ensemble.
        seed: of all that is random.
        mean_life: seconds until a member is lost, on average.
        fence: the end of a lost member is told when its nodes are clean, not at once.
        awaited: commands are performed when what led to them is durable, not at once.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        seed: int,
        *,
        mean_life: float = 20.0,
        fence: bool = True,
        awaited: bool = True,
    ) -> None:
        self.spec = load_mapping(document)
        self.random = Random(seed)
        self.mean_life = mean_life
        self.fence = fence
        self.awaited = awaited
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        #: When the latest message on a lane arrives.
        self._lanes: dict[object, float] = {}
        self.instances: dict[int, Instance] = {}
        self.wal: list[str] = []
        self.service: Service | None = None
        self.crashes = 0
        self.losses = 0
        #: The intent of each tag that is a further attempt.
        self.intents: dict[Intent, Intent] = {}
        self.faults: list[str] = []

    # -- time -----------------------------------------------------------------------

    def after(self, seconds: float, happening: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now + seconds, self._sequence, happening))

    def soon(self, happening: Callable[[], None], lane: object = None) -> None:
        """After the time that a message takes, and after those before it on its lane."""
        t = self.now + self.random.uniform(0.001, 0.02)
        if lane is not None:
            t = self._lanes[lane] = max(t, self._lanes.get(lane, 0.0))
        self.after(t - self.now, happening)

    def run(self, crashes: int, mean: float) -> None:
        """Run to the end, with so many kills of the service, so many seconds apart on average."""
        self.begin_service()

        def strike() -> None:
            if self.service is not None and self.crashes < crashes:
                self.crashes += 1
                self.service = None
                # What was sent has arrived by then; that is what a fence waits for.
                self.after(self.random.uniform(0.03, 1.5), self.begin_service)
            self.after(self.random.expovariate(1 / mean), strike)

        self.after(self.random.expovariate(1 / mean), strike)
        while self.service is None or not self.service.engine.ended or self.service.buffer:
            assert self._heap, "nothing happens any more"
            assert self.now < 10_000, "there is no end"
            self.now, _, happening = heappop(self._heap)
            happening()

    def begin_service(self) -> None:
        self.service = Service(self)
        self.service.begin()

    # -- instances ------------------------------------------------------------------

    def tell(self, event: JobEvent | MemberUp | MemberLost | MemberEnded) -> None:
        """An instance says something; who is not there does not hear it."""
        service = self.service
        if service is not None:
            ordinal = split(event.job)[0] if isinstance(event, JobEvent) else event.ordinal
            self.soon(lambda: service.hear(event), (service, ordinal))

    def start(self, command: StartMember) -> None:
        if command.ordinal in self.instances:
            return
        instance = self.instances[command.ordinal] = Instance(command.member, command.ordinal)
        self.after(self.random.uniform(0.1, 2.0), lambda: self._up(instance))

    def _up(self, instance: Instance) -> None:
        if instance.state != "starting":
            return
        instance.state, instance.t_up = "up", self.now
        self.tell(self.is_up(instance))
        self.after(self.spec.members[0].duration, lambda: self._expire(instance))
        self.after(self.random.expovariate(1 / self.mean_life), lambda: self._lose(instance))

    def is_up(self, instance: Instance) -> MemberUp:
        t_expires = instance.t_up + self.spec.members[0].duration
        name, ordinal = instance.name, instance.ordinal
        return MemberUp(instance.t_up, name, ordinal, 1, CORES, 0, t_expires)

    def _expire(self, instance: Instance) -> None:
        if instance.state != "up":
            return
        for job in instance.running():
            self._post(instance, job, "exception", {"type": "timeout", "severity": 0, "note": ""})
            self._end(instance, job, 15)
        self._gone(instance, "its time is up")

    def _lose(self, instance: Instance) -> None:
        if instance.state != "up":
            return
        self.losses += 1
        instance.state = "lost"
        self.tell(MemberLost(self.now, instance.name, instance.ordinal, "it was lost"))
        if not self.fence:
            self.tell(MemberEnded(self.now, instance.name, instance.ordinal, "it was lost"))

        def clean() -> None:
            for job in instance.running():
                job.state, job.ended = "over", self.now
            self._gone(instance, "its nodes are clean")

        self.after(CLEAN, clean)

    def _gone(self, instance: Instance, reason: str) -> None:
        instance.state = "gone"
        self.tell(MemberEnded(self.now, instance.name, instance.ordinal, reason))

    def end(self, ordinal: int) -> None:
        instance = self.instances.get(ordinal)
        if instance is not None and instance.state in ("starting", "up"):
            for job in instance.running():
                self._end(instance, job, 15)
            self._gone(instance, "it was ended")

    # -- jobs -----------------------------------------------------------------------

    def submit(self, command: SubmitJobs) -> list[int] | None:
        """Take in the jobs of a command that are not there yet; None if nobody answers."""
        instance = self.instances.get(command.ordinal)
        if instance is None or instance.state != "up":
            return None
        there = {job.tag: job.id for job in instance.jobs.values()}
        keys = []
        for index in range(command.first, command.first + command.count):
            tag = Tag(command.group, command.rule, command.firing, index)
            id = there.get(tag)
            if id is None:
                id = len(instance.jobs) + 1
                job = instance.jobs[id] = Job(id, tag)
                self._post(instance, job, "submit", {}, tag)
                self._post(instance, job, "validate", {})
            keys.append(make(instance.ordinal, id))
        self._schedule(instance)
        return keys

    def cancel(self, key: int) -> None:
        ordinal, id = split(key)
        instance = self.instances[ordinal]
        job = instance.jobs.get(id)
        if instance.state != "up" or job is None or job.state == "over":
            return
        self._post(instance, job, "exception", {"type": "cancel", "severity": 0, "note": ""})
        if job.state == "running":
            self._end(instance, job, 15)
        else:
            job.state = "over"
            self._post(instance, job, "clean", {})

    def _schedule(self, instance: Instance) -> None:
        if instance.stopped or instance.state != "up":
            return
        free = CORES - len(instance.running())
        for job in [job for job in instance.jobs.values() if job.state == "pending"][:free]:
            job.state, job.began = "running", self.now
            self._check_alone(job)
            self._post(instance, job, "start", {})
            self.after(self.random.uniform(0.5, 3.0), partial(self._finish, instance, job))

    def _finish(self, instance: Instance, job: Job) -> None:
        if job.state == "running":
            self._end(instance, job, 0)
            self._schedule(instance)

    def _end(self, instance: Instance, job: Job, status: int) -> None:
        job.state, job.ended = "over", self.now
        self._post(instance, job, "finish", {"status": status})
        self._post(instance, job, "clean", {})

    def _post(
        self, instance: Instance, job: Job, name: str, context: Any, tag: Tag | None = None
    ) -> None:
        event = JobEvent(self.now, make(instance.ordinal, job.id), name, context, tag)
        job.events.append(event)
        # Of one that is lost nothing is heard.
        if instance.state == "up":
            self.tell(event)

    def intent(self, tag: Tag) -> Intent:
        found = tag.rule, tag.firing, tag.index
        while found in self.intents:
            found = self.intents[found]
        return found

    def _check_alone(self, job: Job) -> None:
        """No other attempt of the same intent runs."""
        for instance in self.instances.values():
            for other in instance.running():
                if other is not job and self.intent(other.tag) == self.intent(job.tag):
                    self.faults.append(f"{job.tag} and {other.tag} run at once")

    @property
    def jobs(self) -> list[Job]:
        return [job for instance in self.instances.values() for job in instance.jobs.values()]


class Service:
    """One life of the service."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.engine = Engine(world.spec)
        self.buffer: list[tuple[Event, list[Command]]] = []
        self._inbox: list[Event] = []
        self._timers: dict[str, float] = {}

    @property
    def alive(self) -> bool:
        return self.world.service is self

    def begin(self) -> None:
        """Take in the log, then what the instances say, then perform what has no outcome yet."""
        world = self.world
        for text in world.wal:
            event = event_from_json(json.loads(text))
            for command in self.engine.handle(event):
                self._note(command, event.t)
        for key, t in self._timers.items():
            world.after(max(0.0, t - world.now), partial(self._fire, key))
        unperformed = [command.id for command in self.engine.pending]
        if self.engine.t_start is None:
            self.hear(Started(world.now))
        for instance in list(world.instances.values()):
            if instance.state in ("up", "lost", "gone"):
                self.hear(world.is_up(instance))
            if instance.state == "up":
                for job in instance.jobs.values():
                    for event in job.events:
                        self.hear(event)
            elif instance.state == "lost":
                self.hear(MemberLost(world.now, instance.name, instance.ordinal, "it was lost"))
            elif instance.state == "gone":
                self.hear(MemberEnded(world.now, instance.name, instance.ordinal, "it is gone"))
        for command in self.engine.pending:
            if command.id in unperformed:
                self._perform(command)

    def hear(self, event: Event) -> None:
        if not self.alive or self.engine.ended:
            return
        commands = self.engine.handle(event)
        self.engine.check()
        for command in commands:
            self._note(command, event.t)
            if isinstance(command, StartTimer):
                self.world.after(command.after, partial(self._fire, command.key))
        if not self.buffer:
            self.world.soon(self._commit)
        self.buffer.append((event, commands if self.world.awaited else []))
        if not self.world.awaited:
            for command in commands:
                self._perform(command)

    def _note(self, command: Command, t: float) -> None:
        if isinstance(command, StartTimer):
            self._timers[command.key] = t + command.after
        elif isinstance(command, StopTimer):
            self._timers.pop(command.key, None)
        elif isinstance(command, Record) and command.name == "retry":
            one = command.context
            again = "retry", one["retry"], one["index"]
            self.world.intents[again] = one["rule"], one["firing"], one["index"]

    def _fire(self, key: str) -> None:
        if self._timers.pop(key, None) is not None:
            self.hear(TimerFired(self.world.now, key))

    def _commit(self) -> None:
        if not self.alive:
            return
        batch, self.buffer = self.buffer, []
        self.world.wal += [encode(event) for event, _ in batch]
        for _, commands in batch:
            for command in commands:
                self._perform(command)

    def _perform(self, command: Command) -> None:
        """Send a command; it arrives though the service is killed meanwhile."""
        if hasattr(command, "id"):
            self.world.soon(lambda: self._arrive(command), self)

    def _arrive(self, command: Any) -> None:
        world = self.world
        result: dict[str, Any] = {}
        match command:
            case SubmitJobs():
                keys = world.submit(command)
                if keys is None:
                    return
                result["ids"] = keys
            case CancelJobs():
                for key in command.jobs:
                    world.cancel(key)
            case StartMember():
                world.start(command)
            case DrainMember():
                if command.ordinal in world.instances:
                    world.instances[command.ordinal].stopped = True
            case EndMember():
                world.end(command.ordinal)
        world.soon(lambda: self.hear(CommandDone(world.now, command.id, result)))
