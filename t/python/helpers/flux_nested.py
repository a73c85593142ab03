"""Run by nested/test_nested_flux.py inside a Flux instance: what it finds, as JSON."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
import flux.constants  # noqa: E402
import flux.job  # noqa: E402
import flux.kvs  # noqa: E402
import flux.uri  # noqa: E402

from flux_ensemble.document.loading import load_mapping  # noqa: E402
from flux_ensemble.engine.commands import SubmitJobs  # noqa: E402
from flux_ensemble.engine.events import CommandFailed, Tag  # noqa: E402
from flux_ensemble.queues.flux.broker import Broker  # noqa: E402
from flux_ensemble.queues.flux.journal import Journal  # noqa: E402
from flux_ensemble.queues.flux.loop import FluxLoop, guard  # noqa: E402
from flux_ensemble.queues.flux.queue import FluxQueue  # noqa: E402
from flux_ensemble.queues.flux.stream import StreamingRequest  # noqa: E402
from flux_ensemble.queues.flux.submission import EnsembleRun  # noqa: E402
from flux_ensemble.queues.nested import member_job  # noqa: E402
from flux_ensemble.queues.nested.attempts import Attempt, Lost, attempt_of  # noqa: E402
from flux_ensemble.queues.nested.callbacks import Gone, MemberCallbacks  # noqa: E402
from flux_ensemble.queues.nested.jobspec import member_jobspec, member_tag  # noqa: E402
from flux_ensemble.queues.nested.life import Phase  # noqa: E402
from flux_ensemble.queues.nested.listener import Facts  # noqa: E402
from flux_ensemble.queues.nested.member import NestedMember  # noqa: E402
from flux_ensemble.queues.nested.member_job import MemberJob  # noqa: E402
from flux_ensemble.queues.nested.pump import Pump  # noqa: E402
from flux_ensemble.queues.nested.route import Route, connect  # noqa: E402
from flux_ensemble.queues.nested.service_handle import Followed  # noqa: E402
from flux_ensemble.queues.nested.shape import (  # noqa: E402
    MemberTag,
    Shape,
    Size,
)
from flux_ensemble.queues.nested.site import Site  # noqa: E402
from flux_ensemble.queues.providers.flux.provider import FluxProvider  # noqa: E402
from flux_ensemble.runtime.ports import FLEET_EVENTS  # noqa: E402

#: A job that runs no process.
MOCK = {
    "version": 1,
    "resources": [
        {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}
    ],
    "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {
        "system": {"duration": 0, "cwd": "/", "exec": {"test": {"run_duration": "0.001s"}}}
    },
}


class Bench:
    """The enclosing instance, and a reactor that runs until a condition holds."""

    def __init__(self) -> None:
        self.handle = flux.Flux()
        self.errors: list[str] = []
        self.loop = FluxLoop(self.handle, guard(self.unexpected))

    def unexpected(self, error: BaseException) -> None:
        self.errors.append("".join(traceback.format_exception(error)))
        self.handle.reactor_stop()

    def until(self, done: Callable[[], bool]) -> None:
        """Run the reactor until something is so; the test's own limit ends it otherwise."""

        def look() -> None:
            if done():
                self.handle.reactor_stop()

        watcher = self.loop.timer(0.0, look, every=0.001)
        self.handle.reactor_run()
        watcher.cancel()
        if self.errors:
            raise RuntimeError(self.errors[0])


def tag(ordinal: int = 1) -> MemberTag:
    return MemberTag("test", 1, "pool", ordinal, 1)


#: A member that leaves room for others on its node.
SMALL = Size(1, 1)


def small_member(tag: MemberTag, size: Size = SMALL, **keys: Any) -> dict[str, Any]:
    """The jobspec of a member with the environment of this process."""
    return member_jobspec(tag, size, environment=dict(os.environ), cwd="/", **keys)


class Child:
    """A nested instance, started by hand, that a pump connects to."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        jobspec = small_member(tag(), Size(None, 1), labels=("a",))
        self.job = flux.job.submit(bench.handle, json.dumps(jobspec))
        uri = flux.job.event_wait(bench.handle, self.job, "memo").context["uri"]
        self.lost = 0
        self.cleaned: list[int] = []
        opened: list[Any] = []
        connect(flux.uri.JobURI(uri).local, bench.loop, opened.append)
        bench.until(lambda: bool(opened))
        if isinstance(opened[0], OSError):
            raise opened[0]
        self.handle = opened[0]
        self.pump = Pump(self.handle, bench.loop, self._gone, bench.unexpected)
        self.broker = Broker(self.handle, bench.unexpected, main=bench.handle, more=self.pump.more)
        self.queue = FluxQueue(self.broker)
        self.journal = Journal(
            partial(StreamingRequest, self.handle, self.broker.inbox),
            event=self._event,
            backlog=lambda job, jobspec: None,
            lost=bench.errors.append,
        )
        self.pid = int(self.ask("attr.get", {"name": "broker.pid"})["value"])
        self.ask("state-machine.wait", {})
        ready: list[bool] = []
        self.journal.require(frozenset(("clean",)), False, lambda: ready.append(True))
        bench.until(lambda: bool(ready))

    def ask(self, topic: str, payload: Mapping[str, Any]) -> Any:
        found: list[Any] = []
        future = self.handle.rpc(topic, payload)
        self.broker.call(future, found.append)
        self.bench.until(lambda: bool(found))
        return found[0]

    def _event(self, job: int, entry: Mapping[str, Any], _: Any) -> None:
        if entry["name"] == "clean":
            self.cleaned.append(job)

    def _gone(self) -> None:
        self.lost += 1

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def pump() -> dict[str, Any]:
    """One job after the other, then many at once; a SIGKILL, and what was not read before it."""
    bench = Bench()
    child = Child(bench)
    text = json.dumps(MOCK)
    accepted: list[Any] = []
    for number in range(1, 61):
        child.queue.send(text, 16, accepted.append, validate=False)
        bench.until(lambda number=number: len(accepted) == len(child.cleaned) == number)  # type: ignore[misc]
    for _ in range(200):
        child.queue.send(text, 16, accepted.append, validate=False)
    bench.until(lambda: len(accepted) == len(child.cleaned) == 260)
    # Ten more, of which nothing is read while the broker lives.
    other = flux.Flux(child_uri(child))
    for _ in range(10):
        last = flux.job.submit(other, text)
        flux.job.event_wait(other, last, "clean")
    other.rpc("broker.ping", {"seq": 0}).get()
    before = len(child.cleaned)
    child.kill()
    bench.until(lambda: child.lost > 0)
    after = len(child.cleaned)
    # The enclosing instance answers, and its reactor turns.
    bench.until(lambda: True)
    flux.job.cancel(bench.handle, child.job)
    refused: list[Any] = []
    connect(child_uri(child), bench.loop, refused.append)
    bench.until(lambda: bool(refused))
    child.pump.close()
    child.broker.inbox.close()
    return {
        "errors": bench.errors,
        "accepted": sum(isinstance(answer, int) for answer in accepted),
        "before": before,
        "after": after,
        "twice": len(child.cleaned) - len(set(child.cleaned)),
        "lost": child.lost,
        "refused": str(refused[0]),
        "found": member_tag(dict(flux.job.kvslookup.job_kvs_lookup(
            bench.handle, child.job, ["jobspec"])["jobspec"])) == tag(),
    }  # fmt: skip


def child_uri(child: Child) -> str:
    """The URI of a child on this machine."""
    uri = flux.job.event_wait(child.bench.handle, child.job, "memo").context["uri"]
    return str(flux.uri.JobURI(uri).local)


def keep(table: dict[int, Any]) -> Callable[[MemberTag, Any], None]:
    """Takes what is told of a member, the first time."""

    def take(tag: MemberTag, value: Any) -> None:
        table.setdefault(tag.ordinal, value)

    return take


class Sites(Bench):
    """A service with members, and nothing else: it follows the journal and notes what it is told.

    Attributes:
        runs: of ensembles, by the ordinals of members that are not of the first one.
        up, gone, draining, refused, lost: members by ordinal, with what was told of them.
        t_expires: of members by ordinal, as told last.
        outcomes: (ordinal, number of the attempt, wait status) by the index of the job.
    """

    def __init__(self, epoch: int = 1) -> None:
        super().__init__()
        self.epoch = epoch
        self.runs: dict[int, int] = {}
        self.up: dict[int, tuple[Any, Facts]] = {}
        self.ups = 0
        self.gone: dict[int, Gone] = {}
        self.draining: dict[int, str] = {}
        self.t_expires: dict[int, float | None] = {}
        self.refused: dict[int, str] = {}
        self.lost: dict[int, str] = {}
        self.started: dict[int, set[int]] = {}
        self.outcomes: dict[int, list[tuple[int, int]]] = {}
        self.interrupted: list[tuple[int, int]] = []
        self.said: list[str] = []
        self.members: dict[int, NestedMember] = {}
        self.numbers: dict[Tag, int] = {}
        self.jobs: dict[tuple[int, int], Attempt] = {}
        self.commits = 0
        self.commands = 0
        self.failed: list[str] = []
        self.broker = Broker(self.handle, self.unexpected)
        self.queue = FluxQueue(self.broker)
        told = MemberCallbacks(
            up=self._up,
            draining=lambda tag, why, ends: keep(self.draining)(tag, why),
            expires=self._expires,
            event=self._event,
            past=self._past,
            caught_up=lambda tag: None,
            refused=keep(self.refused),
            lost=keep(self.lost),
            gone=keep(self.gone),
        )
        self.flux = FluxProvider(self.queue, os.getuid(), self.said.append)
        self.site = Site(
            self.broker.loop,
            self.broker,
            told=told,
            log_error=self.said.append,
        )
        self.flux.adopt = partial(self.site.adopt, self.flux)
        self.journal = Journal(
            partial(StreamingRequest, self.handle, self.broker.inbox),
            event=self.flux.event,
            backlog=lambda job, jobspec: None,
            lost=self.errors.append,
        )
        ready: list[bool] = []
        self.journal.catch_up(FLEET_EVENTS, False, self.flux.past, lambda: ready.append(True))
        self.until(lambda: bool(ready))
        self.flux.caught_up(self.site.__contains__)

    def tag(self, ordinal: int) -> MemberTag:
        return MemberTag("test", self.runs.get(ordinal, 1), "pool", ordinal, self.epoch)

    def start(self, *ordinals: int, duration: float = 0.0, **keys: Any) -> None:
        """Start members, and wait until they are up."""
        for ordinal in ordinals:
            size = Size(1, 1, duration=duration)
            self.ask(ordinal, size, **keys)
        self.until(lambda: self.up.keys() >= set(ordinals))

    def ask(self, ordinal: int, size: Size = SMALL, **keys: Any) -> None:
        """Ask for a member."""
        shape = Shape(self.tag(ordinal), "1.0", size, dict(os.environ), "/", **keys)
        self.site.start(self.flux, shape, lambda job, then: then())

    def limit(self, ordinal: int, seconds: float) -> None:
        """Give a member so many seconds more."""
        job = self.job_of(ordinal).job
        began = self.handle.rpc("job-list.list-id", {"id": job, "attrs": ["t_run"]}).get()["job"]
        updates = {"attributes.system.duration": time.time() - began["t_run"] + seconds}
        self.handle.rpc("job-manager.update", {"id": job, "updates": updates}).get()

    def job_of(self, ordinal: int) -> MemberJob:
        return self.site[self.tag(ordinal)]

    # -- jobs ---------------------------------------------------------------------------

    def load(self, ordinal: int, **job: Any) -> None:
        """Make one ensemble's view of a member."""
        entry = {"name": "a", "command": "true", "count": 10_000, **job}
        self.members[ordinal] = NestedMember(
            self.up[ordinal][0],
            EnsembleRun(load_mapping({"name": "test", "jobs": [entry]}), 1, dict(os.environ), "/"),
            durable=self._durable,
            number=lambda tag: self.numbers.get(tag, 0),
        )

    def _durable(self, then: Callable[[], None]) -> None:
        """As `WriteAheadLog.barrier` does it: a commit, and its response."""
        self.commits += 1
        transaction = flux.kvs.KVSTxn()
        transaction.put(f"test.placed.{self.commits}", list(self.numbers.values()))
        future = flux.kvs.commit_async(self.handle, 0, "primary", transaction)
        self.broker.call(future, lambda _: then())
        self.kept = transaction

    def submit(self, ordinal: int, first: int, count: int = 1) -> None:
        self.commands += 1

        def done(outcome: Any) -> None:
            if isinstance(outcome, CommandFailed):
                self.failed.append(outcome.reason)

        self.members[ordinal].submit(SubmitJobs(self.commands, "a", "r", 0, first, count), done)

    def again(self, lost: list[Lost], ordinal: int) -> None:
        """Send lost attempts to another member."""
        for one in lost:
            tag, number = one.attempt
            self.numbers[tag] = number + 1
            self.submit(ordinal, tag.index)

    # -- what is told -----------------------------------------------------------------------

    def _up(self, tag: MemberTag, instance: Followed, facts: Facts) -> None:
        self.ups += 1
        self.up[tag.ordinal] = instance, facts

    def _expires(self, tag: MemberTag, t_expires: float | None) -> None:
        self.t_expires[tag.ordinal] = t_expires

    def _past(
        self, tag: MemberTag, job: int, jobspec: Mapping[str, Any], entries: list[Any]
    ) -> None:
        for entry in entries:
            self._event(tag, job, entry, jobspec if entry["name"] == "submit" else None, False)

    def _event(
        self,
        member: MemberTag,
        job: int,
        entry: Mapping[str, Any],
        jobspec: Mapping[str, Any] | None,
        interrupted: bool,
    ) -> None:
        ordinal, name = member.ordinal, entry["name"]
        if jobspec is not None:
            attempt = attempt_of(jobspec)
            if attempt is not None:
                self.jobs[ordinal, job] = attempt
                if ordinal in self.members:
                    self.members[ordinal].seen(attempt.tag, job)
        attempt = self.jobs.get((ordinal, job))
        if attempt is None:
            return
        if interrupted:
            self.interrupted.append((ordinal, job))
        if name == "start":
            self.started.setdefault(ordinal, set()).add(job)
        elif name == "finish" and (ordinal, job) not in self.interrupted:
            found = self.outcomes.setdefault(attempt.tag.index, [])
            if (ordinal, attempt.number) not in found:
                found.append((ordinal, attempt.number))


def outcomes_in_journal(uri: str) -> list[tuple[int, int]]:
    """(index, attempt) of each job of a member that has finished, by another handle of it."""
    bench = Bench.__new__(Bench)
    bench.handle, bench.errors = flux.Flux(uri), []
    bench.loop = FluxLoop(bench.handle, guard(bench.unexpected))
    broker = Broker(bench.handle, bench.unexpected)
    found: list[tuple[int, int]] = []
    ready: list[bool] = []

    def past(job: int, jobspec: Any, entries: list[Any]) -> None:
        attempt = attempt_of(jobspec)
        if attempt is not None and any(entry["name"] == "finish" for entry in entries):
            found.append((attempt.tag.index, attempt.number))

    journal = Journal(
        partial(StreamingRequest, bench.handle, broker.inbox),
        event=lambda *_: None,
        backlog=lambda *_: None,
        lost=bench.errors.append,
    )
    names = frozenset(("submit", "finish", "clean"))
    journal.catch_up(names, False, past, lambda: ready.append(True))
    bench.until(lambda: bool(ready))
    return found


def module() -> dict[str, Any]:
    """A broker module of the enclosing instance, whose member is killed."""
    bench = Sites()
    bench.start(1)
    uri = str(flux.uri.JobURI(bench.job_of(1).uri).local)
    file = Path(__file__).with_name("nested_module.py")
    paths = [str(file.parents[3]), sysconfig.get_paths()["purelib"]]
    subprocess.run(["flux", "module", "load", file, uri, *paths], check=True, stdout=sys.stderr)

    def state(key: str) -> bool:
        answer = flux.Flux().rpc("nested_module.state").get()
        bench.errors += answer["errors"]
        return bool(answer[key])

    while not state("ready"):
        bench.until(lambda: True)
    os.kill(int(flux.Flux(uri).attr_get("broker.pid")), signal.SIGKILL)
    bench.until(lambda: 1 in bench.gone)
    while not state("lost"):
        bench.until(lambda: True)
    # It answers, and can be removed in order: its reactor turns.
    subprocess.run(["flux", "module", "remove", "nested_module"], check=True, stdout=sys.stderr)
    return {"errors": bench.errors, "state": bench.handle.rpc("state-machine.get").get()["state"]}


#: Jobs of a sweep, half of which begin in each member.
JOBS = int(os.environ.get("JOBS", "60"))


def mock(seconds: str) -> dict[str, Any]:
    """The keys of a job that runs no process."""
    return {"attributes": {"system": {"exec": {"test": {"run_duration": seconds}}}}}


def sweep(how: str) -> dict[str, Any]:
    """A sweep over two members, one of which is lost in the middle.

    Args:
        how: "kill" its broker; "fence": it is given up although it lives; "no-fence": and what it
            has is sent elsewhere without a fence, which is what must not be.
    """
    bench = Sites()
    bench.start(1, 2)
    # The one that is lost is slow, so that it has something left then.
    bench.load(1, **mock("0.2s"))
    bench.load(2, **mock("0.01s"))
    half = JOBS // 2
    bench.submit(1, 0, half)
    bench.submit(2, half, half)
    bench.until(lambda: sum(index < half for index in bench.outcomes) >= 5)
    lost_one = bench.job_of(1)
    uri = flux.uri.JobURI(lost_one.uri).local
    if how == "kill":
        pid = flux.Flux(uri).attr_get("broker.pid")
        os.kill(int(pid), signal.SIGKILL)
    elif how == "fence":
        lost_one.give_up("the test says so")
    else:
        lost_one._enter(Phase.FENCING)
        lost_one._conclude(fenced=False)
    bench.until(lambda: 1 in bench.gone)
    clean = (
        bench.handle.rpc("job-list.list-id", {"id": lost_one.job, "attrs": ["state"]}).get()["job"][
            "state"
        ]
        == flux.constants.FLUX_JOB_STATE_INACTIVE
    )
    before = dict(bench.outcomes)
    lost = bench.gone[1].lost
    bench.again(lost, 2)
    bench.until(lambda: len(bench.outcomes) == JOBS and not bench.job_of(2).attempts)
    counted = [(index, number) for index, all in bench.outcomes.items() for _, number in all]
    if how == "no-fence":
        # What it had goes on, and ends.
        while len(theirs := outcomes_in_journal(uri)) < half:
            bench.until(lambda: True)
        counted = sorted({*counted, *theirs})
    theirs = outcomes_in_journal(flux.uri.JobURI(bench.job_of(2).uri).local)
    per_intent = [index for index, _ in counted]
    bench.site.end(bench.tag(2))
    bench.until(lambda: 2 in bench.gone)
    if how == "no-fence":
        flux.job.cancel(bench.handle, lost_one.job)
    bench.journal.stop()
    return {
        "errors": bench.errors,
        "failed": bench.failed,
        "intents": len(set(per_intent)),
        "outcomes": len(per_intent),
        "lost": len(lost),
        "known": sum(member == 1 for all in before.values() for member, _ in all),
        "fenced": bench.gone[1].fenced,
        "clean": clean,
        "in the journal of the other": len(theirs),
        "ended": (bench.gone[2].asked, bench.gone[2].fenced, len(bench.gone[2].lost)),
        "commits": bench.commits,
    }


def ways() -> dict[str, Any]:
    """A service after another; a broker that is stopped for a while; a way that breaks."""
    first = Sites()
    first.start(1)
    first.load(1, **mock("0.1s"))
    first.submit(1, 0, 60)
    first.until(lambda: len(first.outcomes) >= 5)
    first.site.close()
    first.journal.stop()
    seen = len(first.outcomes)

    # The next one finds the member, and all that happened there meanwhile.
    bench = Sites(epoch=2)
    bench.until(lambda: 1 in bench.up)
    bench.until(lambda: len(bench.outcomes) == 60)
    found = bench.job_of(1)

    # It is stopped while more is sent than a socket takes.
    uri = str(flux.uri.JobURI(found.uri).local)
    other = flux.Flux(uri)
    pid = int(other.attr_get("broker.pid"))
    del other
    environment = {"PADDING": "x" * 8000}
    bench.load(1, environment=environment, **mock("0.01s"))
    queue = bench.up[1][0].queue
    # The first of a kind is sent alone.
    bench.submit(1, 100)
    bench.until(lambda: 100 in bench.outcomes)
    os.kill(pid, signal.SIGSTOP)
    refused: list[Any] = []
    try:
        bench.submit(1, 101, 60)
        bench.until(lambda: queue.waiting > 0)
        # Nobody answers a new connection; nobody waits for that either.
        connect(uri, bench.loop, refused.append, seconds=0.1)
        bench.until(lambda: bool(refused))
    finally:
        os.kill(pid, signal.SIGCONT)
    bench.until(lambda: len(bench.outcomes) == 121)

    # The same instance once more, of another ensemble, reached by a proxy that is killed in the
    # middle.
    bench.runs[2] = 2
    bench.site.connect(bench.tag(2), uri)
    bench.until(lambda: 2 in bench.up)
    bench.load(2, **mock("0.02s"))
    bench.submit(2, 1000, 40)
    bench.until(lambda: len(bench.job_of(2).attempts) <= 37)
    ups = bench.ups
    route = bench.job_of(2)._route
    assert route is not None
    proxy = route._proxy
    assert proxy is not None
    os.kill(proxy.pid, signal.SIGKILL)
    bench.until(lambda: bench.ups > ups)
    # What the proxy had not passed on has not shown by now, and is sent, as `service.fleet` does.
    bench.load(2, **mock("0.02s"))
    for one in bench.job_of(2).attempts.lost():
        if one.job is None:
            bench.submit(2, one.attempt.tag.index)
    bench.until(lambda: not bench.job_of(2).attempts)
    finished = outcomes_in_journal(uri)
    bench.site.end(bench.tag(2))
    bench.until(lambda: 2 in bench.gone)
    # Of another Flux, and one that ends before it has begun.
    bench.broker.handle.attr_get = lambda name: "0.1.0"
    bench.site.connect(bench.tag(4), uri)
    bench.ask(5)
    bench.site.end(bench.tag(5))
    bench.until(lambda: {4, 5} <= bench.gone.keys())
    # It was somebody else's, and goes on.
    lives = bench.job_of(1).phase is Phase.UP
    bench.site.end(bench.tag(1))
    bench.until(lambda: 1 in bench.gone)
    unknown = bench.tag(3)
    bench.site.connect(unknown, "local:///nowhere/local-0")
    said = bench.job_of(3)
    said._reconnect = 0.0
    bench.until(lambda: 3 in bench.gone)
    return {
        "errors": first.errors + bench.errors,
        "failed": first.failed + bench.failed,
        "seen": seen,
        "found": found.tag.epoch,
        "finished": (len(finished), len(set(finished))),
        "silent": str(refused[0]),
        "lives": lives,
        "let go": (bench.gone[2].fenced, len(bench.gone[2].lost)),
        "refused": bench.refused[4],
        "ended early": (bench.gone[5].asked, bench.gone[5].fenced, 5 in bench.up),
        "nowhere": bench.gone[3].reason,
    }


def walltime() -> dict[str, Any]:
    """An allocation that is about to end, with jobs that run and jobs that wait."""
    member_job.LOOK_SECONDS = 0.2
    bench = Sites()
    bench.start(1, duration=3600.0, drain=15.0)
    cores = bench.up[1][1].cores
    bench.load(1, **mock("3600s"))
    bench.submit(1, 0, cores + 3)
    attempts = bench.job_of(1).attempts
    bench.until(
        lambda: (
            len(bench.started.get(1, ())) == cores
            and sum(job is not None for _, job, _ in attempts.lost()) == cores + 3
        )
    )
    bench.limit(1, 20.0)
    bench.until(lambda: 1 in bench.draining)
    waiting = [one.job for one in attempts.lost() if not one.started]
    bench.until(lambda: 1 in bench.gone)
    gone = bench.gone[1]
    return {
        "errors": bench.errors,
        "draining": bench.draining[1],
        "cores": cores,
        "waiting": len(waiting),
        "started": len(bench.started[1]),
        "outcomes": len(bench.outcomes),
        "interrupted": len({job for _, job in bench.interrupted}),
        "lost": sorted(one.started for one in gone.lost),
        "fenced": gone.fenced,
    }


def dead() -> dict[str, Any]:
    """The socket of a broker that is gone."""
    bench = Bench()
    # How often Flux tries to connect, a while after the time before, where that is left to it.
    os.environ["FLUX_LOCAL_CONNECTOR_RETRY_COUNT"] = "1000000"
    opened: list[Any] = []
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/local-0"
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(path)
            gone.listen()
        Route(bench.loop).find(f"local://{path}", True, opened.append)
        bench.until(lambda: bool(opened))
    return {"errors": bench.errors, "error": errno.errorcode[opened[0].errno]}


def limits() -> dict[str, Any]:
    """An instance of somebody else that drains as its time is nearly up, and then gets more."""
    member_job.LOOK_SECONDS, member_job.STOP_SECONDS = 0.2, 600.0
    bench = Sites()
    bench.start(1, duration=3600.0)
    bench.runs[2] = 2
    bench.site.connect(bench.tag(2), str(flux.uri.JobURI(bench.job_of(1).uri).local))
    bench.until(lambda: 2 in bench.up)
    bench.limit(1, 300.0)
    bench.until(lambda: {1, 2} <= bench.draining.keys())
    before = bench.t_expires[2]
    bench.limit(1, 7200.0)
    bench.until(lambda: bench.t_expires[1] == bench.t_expires[2] != before)
    found = {
        "errors": bench.errors,
        "draining": bench.draining[2],
        "left": [round((t or 0.0) - time.time()) for t in (before, bench.t_expires[2])],
    }
    for ordinal in (2, 1):
        bench.site.end(bench.tag(ordinal))
        bench.until(lambda ordinal=ordinal: ordinal in bench.gone)  # type: ignore[misc]
    return found


if __name__ == "__main__":
    scenarios: dict[str, Callable[[], dict[str, Any]]] = {
        "pump": pump,
        "module": module,
        "ways": ways,
        "walltime": walltime,
        "dead": dead,
        "limits": limits,
        "sweep": lambda: {how: sweep(how) for how in ("kill", "fence", "no-fence")},
    }
    print(json.dumps(scenarios[sys.argv[1]]()))
