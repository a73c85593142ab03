"""A Flux instance in virtual time, in which services die, responses are lost, and logs are not.

The service's own classes run here: journal, tracker, recovery, ensembles, logs, submission.
What they talk to is a model: a queue whose requests arrive in any order and late, a KVS that
applies commits in order, a network that loses requests and responses. A service is killed
between two of its callbacks, and what it has sent arrives all the same. A job is put down
in the same KVS, so it gets there after the commits that were sent before it, and not at all
if the KVS refuses the last of these.
"""

from __future__ import annotations

import errno
import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from fakes import Result

from flux_ensemble import eventlog
from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Ask, CancelJobs, Scale, UpdateJobs
from flux_ensemble.engine.events import CommandDone, Tag
from flux_ensemble.features.search.advisers import Advice
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.features.search.simulation import Consultant
from flux_ensemble.features.search.trials import Trials
from flux_ensemble.queues.flux.delivery import Answer, Fences, Outcomes, Report
from flux_ensemble.queues.flux.journal import Journal
from flux_ensemble.queues.flux.pipeline import Pipeline, Window
from flux_ensemble.queues.flux.submission import EnsembleRun, Submitter
from flux_ensemble.runtime.durability.batches import Batch, identity
from flux_ensemble.runtime.durability.replay import Replayed
from flux_ensemble.runtime.durability.wal import WriteAheadLog
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.ports import Done
from flux_ensemble.service.marks import Marks
from flux_ensemble.service.needs import Needs
from flux_ensemble.service.recovery.recovery import Recovery
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.tracker import Tracker

OWNER = 1000

#: Of the one ensemble.
IDENTITY = "'test', run 1"


class Stuck(AssertionError):
    """Nothing is left to happen, and the ensemble has not ended."""


@dataclass(order=True)
class Timer:
    t: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Virtual time: what is to happen, in order."""

    def __init__(self) -> None:
        self.t = 1000.0
        self._number = 0
        self._heap: list[Timer] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self._number += 1
        timer = Timer(self.t + seconds, self._number, callback)
        heapq.heappush(self._heap, timer)
        return timer

    def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        while self._heap:
            timer = heapq.heappop(self._heap)
            if not timer.cancelled:
                self.t = timer.t
                timer.callback()
                return True
        return False


@dataclass(frozen=True)
class Luck:
    """How often what goes wrong; each is a probability."""

    lost_request: float = 0.0
    lost_response: float = 0.0
    error: float = 0.0
    failing_commit: float = 0.0
    failing_job: float = 0.1
    disabled: float = 0.0


@dataclass
class Job:
    id: int
    jobspec: dict[str, Any]
    entries: list[dict[str, Any]] = field(default_factory=list)
    over: bool = False
    purged: bool = False
    outcome: str = ""

    @property
    def tag(self) -> Tag:
        user = self.jobspec["attributes"]["user"][TAG_KEY]
        return Tag(*(user[key] for key in Tag._fields))


class World:
    """What outlives a service: queue, KVS, time.

    Attributes:
        set_by: by how much the clock of the machine was set, in seconds; all times that are
            told are by that one.
        jobs: every job that was ever accepted.
        commits: how many have been applied.
    """

    def __init__(self, seed: int, luck: Luck) -> None:
        self.random = random.Random(seed)
        self.luck = luck
        self.clock = Clock()
        self.set_by = 0.0
        self.jobs: dict[int, Job] = {}
        self.service: Service | None = None
        self.fenced = True
        #: Whether a user waits for an answer.
        self.asked = False
        self.calls: Counter[str] = Counter()
        self.epoch = 0
        self.loads: dict[str, Any] = {}
        self.texts: dict[str, list[str]] = {}
        self.snapshots: dict[str, str] = {}
        self.values: dict[str, dict[int, str]] = {}
        self.commits = 0
        self.on_commit: Callable[[], None] = lambda: None
        self.job_manager_down = False
        self._under_way: list[Callable[[], None]] = []
        self._sent = 0
        self._refusing = 0
        self._last_arrival = 0.0
        self._last_delivery = 0.0

    @property
    def now(self) -> float:
        """The time by the clock of the machine."""
        return self.clock.t + self.set_by

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # -- the queue ------------------------------------------------------------------

    def send(self, service: Service, text: str, answer: Answer) -> None:
        """A service sends a job; requests overtake each other."""
        luck = self.luck
        if luck.disabled and self.chance(luck.disabled):
            refused = OSError(errno.EINVAL, "job submission is disabled: maintenance")
            self.deliver(service, lambda: answer(refused))
        elif self.chance(luck.error):
            if self.chance(0.5):
                self._arrives(service, text, lambda _: None)
            self.deliver(service, lambda: answer(OSError(errno.EHOSTUNREACH, "no route")))
        elif self.chance(luck.lost_request):
            pass
        elif self.chance(luck.lost_response):
            self._arrives(service, text, lambda _: None)
        else:
            self._arrives(service, text, answer)

    def _arrives(self, service: Service, text: str, answer: Answer) -> None:
        delay = self.random.uniform(0.0, 0.05)
        self._last_arrival = max(self._last_arrival, self.clock.t + delay)
        after = self._sent
        if self._refusing:
            self.deliver(service, lambda: answer(OSError(errno.EHOSTUNREACH, "no KVS")))
            return

        def accept() -> None:
            self._apply_until(after)
            job = Job(1 + len(self.jobs), json.loads(text))
            self.jobs[job.id] = job
            self.post(job, "submit", {"userid": OWNER, "urgency": 16})
            self.post(job, "validate")
            self.deliver(service, lambda: answer(job.id))
            self.clock.after(self.random.uniform(0.0, 0.3), lambda: self._start(job))

        self.clock.after(delay, accept)

    def fence(self, service: Service, report: Report) -> None:
        """It arrives after all that was sent before it, by whomever."""
        if self.chance(self.luck.error) or self.job_manager_down:
            self.deliver(service, lambda: report(OSError(errno.ENOSYS, "no service")))
            return
        after = max(0.0, self._last_arrival - self.clock.t) + 0.001
        self.clock.after(after, lambda: self.deliver(service, lambda: report(None)))

    def _start(self, job: Job) -> None:
        if not job.over:
            self.post(job, "start")
            self.clock.after(self.random.uniform(0.0, 0.5), lambda: self._finish(job))

    def _finish(self, job: Job) -> None:
        if job.over:
            return
        while self.chance(0.3):
            self.post(job, "memo", {"x": self.random.random()})
        status = 256 if self.chance(self.luck.failing_job) else 0
        job.outcome = "failed" if status else "success"
        self.post(job, "finish", {"status": status})
        self._clean(job)

    def cancel(self, id: int) -> None:
        job = self.jobs[id]
        if not job.over:
            self.post(job, "exception", {"type": "cancel", "severity": 0})
            job.outcome = "canceled"
            self._clean(job)

    def _clean(self, job: Job) -> None:
        job.over = True
        self.post(job, "clean")

    def post(self, job: Job, name: str, context: Mapping[str, Any] | None = None) -> None:
        # No two events have the same time.
        self.clock.t += 1e-6
        entry = {"timestamp": self.now, "name": name, "context": dict(context or {})}
        job.entries.append(entry)
        for stream in self.service.streams if self.service is not None else ():
            stream.show(job, entry)

    def reload_job_manager(self) -> None:
        """The job manager goes away, and comes back a little later."""
        self.job_manager_down = True
        for stream in self.service.streams if self.service is not None else ():
            stream.end()

        def back() -> None:
            self.job_manager_down = False

        self.clock.after(self.random.uniform(0.05, 0.5), back)

    # -- the KVS --------------------------------------------------------------------

    def commit(
        self, service: Service, store: Store, batches: Sequence[Batch], done: Report
    ) -> None:
        """Commits are applied in order, those of a dead service too."""
        if not self.chance(self.luck.failing_commit):
            self._apply_later(service, store, batches, done)
        elif self.chance(0.5):
            self._apply_later(service, store, batches, lambda _: None)
            self.deliver(service, lambda: done(OSError(errno.ETIMEDOUT, "no response")))
        else:
            self._refuse(service, done)

    def _refuse(self, service: Service, done: Report) -> None:
        """The KVS takes nothing, from anybody, until the service has heard of it."""
        self._refusing += 1

        def heard() -> None:
            self._refusing -= 1
            if service.alive:
                done(OSError(errno.EIO, "refused"))

        self.deliver(service, heard, dead_too=True)

    def _apply_later(
        self, service: Service, store: Store, batches: Sequence[Batch], done: Report
    ) -> None:
        def apply() -> None:
            name = store.name
            if store.load is not None:
                self.loads[name], store.load = store.load, None
            for batch in batches:
                self.texts.setdefault(name, []).append(batch.text)
                if batch.snapshot is not None:
                    self.snapshots[name] = batch.snapshot
                    self.values.setdefault(name, {})[batch.number] = batch.values or "[]"
            self.commits += 1
            self.deliver(service, lambda: done(None))
            self.on_commit()

        self._sent += 1
        self._under_way.append(apply)
        self.clock.after(self.random.uniform(0.0005, 0.003), self._apply_next)

    def _apply_next(self) -> None:
        if self._under_way:
            self._under_way.pop(0)()

    def _apply_until(self, sent: int) -> None:
        """Apply what is left of the first so many commits."""
        while self._sent - len(self._under_way) < sent:
            self._apply_next()

    def begin_epoch(self) -> int:
        """A commit that is synced: those before it are applied."""
        while self._under_way:
            self._apply_next()
        self.epoch += 1
        return self.epoch

    # -- the network ----------------------------------------------------------------

    def deliver(
        self, service: Service, callback: Callable[[], None], *, dead_too: bool = False
    ) -> None:
        """Messages to a service arrive in order, while it lives."""
        t = max(self.clock.t + self.random.uniform(0.0, 0.002), self._last_delivery)
        self._last_delivery = t

        def arrive() -> None:
            if service.alive or dead_too:
                callback()

        self.clock.after(t - self.clock.t, arrive)

    # -- services -------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the service, and begin another."""
        assert self.service is not None
        self.service.alive = False
        self.service = None
        self.clock.after(self.random.uniform(0.0, 0.2), self.begin_service)

    def begin_service(self) -> None:
        service = self.service = Service(self)
        service.begin()


@dataclass
class Store:
    """The log of one ensemble in the KVS of a world, as a service writes it."""

    service: Service
    name: str
    load: Any = None

    def commit(self, batches: Sequence[Batch], done: Report) -> None:
        self.service.world.commit(self.service, self, batches, done)


@dataclass
class Stored:
    load: Any
    snapshot: Any
    values: Iterator[Any]
    lines: Iterator[str]
    store: Store


class Loop:
    """The loop of one service: it ends with it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def now(self) -> float:
        return self._service.world.now

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Timer:
        service = self._service

        def fire() -> None:
            if not service.alive:
                return
            if every and not timer.cancelled:
                again = service.world.clock.after(every, fire)
                timer.cancel = again.cancel  # type: ignore[method-assign]
            callback()

        timer = service.world.clock.after(after, fire)
        return timer

    def reader(self, fd: int, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError


class Queue:
    """The queue as a service sees it: the counterpart of `queues.flux.queue.FluxQueue`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._world = service.world
        self.loop = service.loop
        self.broker = SimpleNamespace(loop=service.loop, report=self.report)
        self.submissions = Pipeline(Window(16), self._later, clock=lambda: 0.0)
        self.outcomes = Outcomes(lambda done: self.fence(done), self.loop.timer)
        self._fences = Fences(partial(self._world.fence, service), self.loop.timer)

    def _later(self, callback: Callable[[], None]) -> None:
        self.loop.timer(0.0, callback)

    def hold(self) -> None:
        self.submissions.hold()
        self._fences.hold()

    def go_on(self) -> None:
        self._fences.go_on()
        self.submissions.go_on()

    def suspend(self) -> None:
        self._fences.suspend()

    def resume(self) -> None:
        self._fences.resume()

    def fence(self, done: Report) -> None:
        if not self._world.fenced:
            done(None)
            return
        self.submissions.hold()

        def back(error: Exception | None) -> None:
            done(error)
            self.submissions.go_on()

        self._fences.wait(back)

    def newest(self, done: Callable[[int | Exception], None]) -> None:
        newest = len(self._world.jobs)
        self._world.deliver(self._service, lambda: done(newest))

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None:
        entries = json.loads(json.dumps(self._world.jobs[job].entries))
        self._world.deliver(self._service, lambda: done(entries))

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        self._world.send(self._service, text, answer)

    def report(self, error: Exception) -> None:
        raise error


def told(job: Job) -> list[dict[str, Any]]:
    """What the journal tells of a job afterwards: its first memo has what all memos come to."""
    memos = [entry for entry in job.entries if entry["name"] == "memo"]
    if not memos:
        return job.entries
    all_of_them = {key: value for memo in memos for key, value in memo["context"].items()}
    return [
        {**entry, "context": all_of_them} if entry is memos[0] else entry for entry in job.entries
    ]


class Member(Submitter):
    """The jobs of one ensemble in the queue of a world."""

    elastic = False

    def cancel(self, command: CancelJobs, done: Done) -> None:
        service: Service = self._queue._service  # type: ignore[attr-defined]
        world = service.world

        def arrive() -> None:
            for job in command.jobs:
                world.cancel(job)
            world.deliver(service, lambda: done(CommandDone(world.now, command.id)))

        world.clock.after(world.random.uniform(0.0, 0.01), arrive)

    def update(self, command: UpdateJobs, done: Done) -> None:
        raise NotImplementedError

    def scale(self, command: Scale, done: Done) -> None:
        raise NotImplementedError


class Caller:
    """Runs custom functions: each returns an action, after a while."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def call(
        self,
        function: str,
        kwargs: Mapping[str, Any],
        timeout: float,
        done: Callable[[Result], None],
    ) -> None:
        world = self._service.world
        world.calls[function] += 1
        action = {"kind": "action", "value": {"name": "submit", "label": function}}
        self._service.loop.timer(
            world.random.uniform(0.0, 0.2), lambda: done(Result(True, [action]))
        )

    def close(self) -> None:
        pass


class Adviser:
    """Gives the points of searches: those of the real samplers, after a while, or not.

    It does not fail three times in a row, which would end the search.
    """

    def __init__(self, service: Service, spec: Spec) -> None:
        self._service = service
        self._consultant = Consultant(searches_of(spec), spec.seed)

    def ask(self, command: Ask, trials: Trials, done: Callable[[Advice], None]) -> None:
        world = self._service.world
        advice: list[Advice] = []
        self._consultant.ask(command, trials, advice.append)
        world.calls["ask"] += 1
        if world.calls["ask"] % 3 == 0 and world.chance(0.5):
            advice = [Advice(False, reason="its sampler raised ValueError: no")]
        self._service.loop.timer(world.random.uniform(0.0, 0.1), lambda: done(advice[0]))

    def close(self) -> None:
        pass


class Stores:
    """The KVS of a world, as a service reads it when it begins."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._world = service.world

    def names(self) -> list[str]:
        return list(self._world.loads)

    def read(self, name: str) -> Stored:
        world = self._world
        snapshot = world.snapshots.get(name)
        return Stored(
            world.loads[name],
            None if snapshot is None else json.loads(snapshot),
            map(json.loads, world.values.get(name, {}).values()),
            iter("".join(world.texts[name]).splitlines(keepends=True)),
            Store(self._service, name),
        )


class Stream:
    """A journal stream of one service."""

    def __init__(
        self,
        service: Service,
        payload: Any,
        receive: Callable[[Any, str], None],
        ended: Callable[[Any, OSError], None],
    ) -> None:
        self._service = service
        self._world = world = service.world
        self._receive = receive
        self._ended = ended
        self._names = set(payload["allow"])
        self._full = payload["full"]
        self._over = False
        self.open = False
        world.clock.after(world.random.uniform(0.0, 0.02), self._arrives)

    def _arrives(self) -> None:
        """The job manager has the request."""
        world = self._world
        if self._over:
            return
        if world.job_manager_down:
            gone = OSError(errno.ENOSYS, "no service")
            world.deliver(self._service, lambda: self._ended(self, gone))
            return
        self.open = True
        jobs = list(world.jobs.values())
        world.random.shuffle(jobs)
        for job in jobs:
            if not job.purged and (self._full or not job.over):
                self._send(job, [one for one in told(job) if one["name"] in self._names])
        self._respond({"id": -1, "events": []})

    def cancel(self) -> None:
        self.open = False
        self._over = True

    def end(self) -> None:
        """The job manager goes away."""
        if self.open:
            self.open = False
            self._world.deliver(
                self._service, lambda: self._ended(self, OSError(errno.ENODATA, "gone"))
            )

    def show(self, job: Job, entry: Mapping[str, Any]) -> None:
        """An event is posted."""
        if self.open and entry["name"] in self._names:
            self._send(job, [entry])

    def _send(self, job: Job, entries: list[Any]) -> None:
        self._respond({"id": job.id, "events": entries, "jobspec": job.jobspec})

    def _respond(self, message: Mapping[str, Any]) -> None:
        text = json.dumps(message)
        self._world.deliver(self._service, lambda: self._receive(self, text))


@cache
def read(document: str) -> Spec:
    """The document of an ensemble."""
    return load_mapping(json.loads(document))


class Running:
    """The instance is not shutting down."""

    begun = False


class NoMembers:
    """No ensemble has members of its own."""

    needed = busy = False

    def history(self, *_: Any) -> None:
        """A job was there."""

    def caught_up(self) -> None:
        """All jobs have been told."""

    def settle(self) -> None:
        """All has shown."""


class Service:
    """One life of the service: the counterpart of `service.service.Service`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.loop = Loop(self)
        self.errors: list[str] = []
        self.ensembles = Ensembles()
        self.queue = Queue(self)
        self.tracker = Tracker(OWNER, self.ensembles.find, lambda: [])
        self.streams: list[Stream] = []
        self.journal = Journal(
            self._open_stream,
            event=self.tracker.event,
            backlog=self.tracker.learn,
            lost=lambda _: self.recovery.lost(),
            tagged=self.tracker.meet,
        )
        self.recovery = Recovery(
            world.begin_epoch,
            partial(Marks().of, replay=True),
            Stores(self),
            self.journal,
            self.tracker,
            self.ensembles,
            self.queue,
            self.loop,
            self.errors.append,
            NoMembers(),
        )
        self.needs = Needs(
            self.ensembles,
            self.journal,
            self.tracker,
            self.recovery,
            Running(),  # type: ignore[arg-type]
            self.queue.submissions,
            self.loop,
            NoMembers(),
        )

    def begin(self) -> None:
        self.recovery.restore(self._restore)
        assert not self.recovery.unreadable, self.recovery.unreadable
        self.recovery.catch_up(self._ready)

    def _ready(self) -> None:
        self.needs.ready()
        for ensemble in self.ensembles:
            self._changed(ensemble)

    def load(self, document: Mapping[str, Any]) -> None:
        load = {"document": json.dumps(document), "run": 1}
        ensemble = self._make(load, Store(self, document["name"], load), None)
        self.ensembles.add(ensemble)
        ensemble.note(eventlog.Load(document={}))
        self.needs.watch(ensemble, ensemble.start)

    def _restore(self, load: Any, store: Any, fold: Callable[[Spec], Replayed]) -> Ensemble:
        return self._make(load, store, fold(read(load["document"])))

    def _make(self, load: Any, store: Store, replayed: Replayed | None) -> Ensemble:
        spec = read(load["document"])

        def put_down(ensemble: Ensemble) -> WriteAheadLog:
            ensemble.engine.stats.keep_values()
            return WriteAheadLog(
                store,
                self.loop,
                ensemble,
                self.errors.append,
                self.queue,
                identity=identity(spec.name, load["run"]),
                replayed=replayed,
            )

        host = Host(
            loop=self.loop,
            queue=Member(self.queue, EnsembleRun(spec, load["run"], {}, "/")),  # type: ignore[arg-type]
            custom=lambda _: Caller(self),
            adviser=lambda: Adviser(self, spec),
            store=put_down,
            log_error=self.errors.append,
            changed=self._changed,
            stirred=lambda ensemble: self.needs.stirred(ensemble),
        )
        return Ensemble(spec, host, run=load["run"], cwd="/", replayed=replayed)

    def _changed(self, ensemble: Ensemble) -> None:
        self.needs.update(ensemble)

    def _open_stream(
        self, topic: str, payload: Any, receive: Any, ended: Any, aside: Any
    ) -> Stream:
        self.streams.append(Stream(self, payload, receive, ended))
        return self.streams[-1]
