"""Run by fluxqueue/test_flux_member.py inside a Flux instance: what it finds, as JSON."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
from flux.constants import FLUX_MSGTYPE_REQUEST  # noqa: E402
from flux.core.inner import ffi, lib  # noqa: E402
from flux.message import Message  # noqa: E402

from flux_ensemble.document.loading import load_mapping  # noqa: E402
from flux_ensemble.engine.commands import CancelJobs, SubmitJobs, UpdateJobs  # noqa: E402
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag  # noqa: E402
from flux_ensemble.queues.flux import delivery  # noqa: E402
from flux_ensemble.queues.flux.broker import Broker  # noqa: E402
from flux_ensemble.queues.flux.futures import Futures  # noqa: E402
from flux_ensemble.queues.flux.inbox import Inbox, unread  # noqa: E402
from flux_ensemble.queues.flux.journal import Journal  # noqa: E402
from flux_ensemble.queues.flux.loop import FluxLoop, guard  # noqa: E402
from flux_ensemble.queues.flux.member import FluxMember  # noqa: E402
from flux_ensemble.queues.flux.queue import FluxQueue  # noqa: E402
from flux_ensemble.queues.flux.stream import StreamingRequest  # noqa: E402
from flux_ensemble.queues.flux.submission import EnsembleRun  # noqa: E402
from flux_ensemble.queues.flux.submit_rpc import Submissions  # noqa: E402

EVENTS = ("validate", "depend", "priority", "alloc", "start", "finish", "release", "free")


class Bench:
    """A queue, a journal, and a reactor that runs until a condition holds.

    Args:
        patience: of the queue, in seconds.

    Attributes:
        jobs: the jobs that have shown in the journal, by their tags.
        seen: how often each event of each of them has come.
        fences: the jobs by which the queue finds out what became of submissions without a response.
    """

    def __init__(self, patience: float = 60.0) -> None:
        self.handle = flux.Flux()
        self.jobs: dict[Tag, list[int]] = {}
        self.members: list[FluxMember] = []
        self.errors: list[str] = []
        self.seen: dict[int, Counter[str]] = {}
        self.fences: set[int] = set()
        self.clean = 0
        self.learned = 0
        self.queue = FluxQueue(Broker(self.handle, self._unexpected), patience=patience)
        self.journal = Journal(
            partial(StreamingRequest, self.handle, self.queue.broker.inbox),
            event=self._event,
            backlog=self._learn,
            lost=self.errors.append,
        )
        self.watch: Callable[[], None] = lambda: None

    def _unexpected(self, error: BaseException) -> None:
        self.errors.append("".join(traceback.format_exception(error)))
        self.handle.reactor_stop()

    def _event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        tag = (jobspec or {}).get("attributes", {}).get("user", {}).get("ensemble", {})
        if tag.get("fence"):
            self.fences.add(job)
        if entry["name"] == "submit" and "group" in tag:
            key = Tag(*(tag[field] for field in Tag._fields))
            self.jobs.setdefault(key, []).append(job)
            for member in self.members:
                member.seen(key, job)
        if entry["name"] == "invalidate":
            for member in self.members:
                member.refused(job)
        if job not in self.fences:
            self.seen.setdefault(job, Counter())[entry["name"]] += 1
            self.clean += entry["name"] == "clean"
            self.watch()

    def _learn(self, job: int, jobspec: Mapping[str, Any]) -> None:
        self.learned += 1

    def member(self, count: int, durability: str = "fast", **job: Any) -> FluxMember:
        entry = {"name": "a", "command": "true", "count": count, **job}
        spec = load_mapping({"name": "test", "jobs": [entry], "durability": durability})
        environment = dict(os.environ)
        self.members.append(FluxMember(self.queue, EnsembleRun(spec, 1, environment, "/")))
        return self.members[-1]

    def watch_journal(self) -> None:
        """Have the journal show jobs from now on."""
        names = frozenset(("submit", "invalidate", "urgency", "start", "clean"))
        self.journal.require(names, False, self.handle.reactor_stop)
        self.handle.reactor_run()

    def perform(self, method: Callable[..., None], command: Any) -> CommandDone | CommandFailed:
        """Perform a command and wait for its outcome."""
        outcomes: list[CommandDone | CommandFailed] = []

        def done(outcome: CommandDone | CommandFailed) -> None:
            outcomes.append(outcome)
            self.handle.reactor_stop()

        method(command, done)
        if not outcomes:
            self.handle.reactor_run()
        return outcomes[0]


def mock(seconds: str) -> dict[str, Any]:
    return {"attributes": {"system": {"exec": {"test": {"run_duration": seconds}}}}}


def widen(jobs: int) -> dict[str, Any]:
    """Run many jobs while the filter is widened once for every event, twice at a time."""
    bench = Bench()
    member = bench.member(jobs, **mock("0.01s"))
    left = list(EVENTS)
    granted: dict[str, set[int]] = {}

    def require(*names: str, learn: bool = False) -> None:
        def ready() -> None:
            for name in names:
                granted.setdefault(name, set(bench.seen))

        bench.journal.require(frozenset(names), learn, ready)

    def watch() -> None:
        if bench.clean == jobs:
            bench.handle.reactor_stop()
        # Far enough apart that jobs are submitted, run and end at every widening.
        while left and len(bench.seen) > jobs * (len(EVENTS) - len(left)) // len(EVENTS):
            require(left.pop(), learn=len(left) % 2 == 0)

    def start() -> None:
        bench.watch = watch
        member.submit(SubmitJobs(1, "a", "r", 0, 0, jobs), lambda outcome: None)

    bench.journal.require(frozenset(("submit", "clean")), False, start)
    bench.handle.reactor_run()
    wrong = [
        (job, counts)
        for job, counts in bench.seen.items()
        if counts["submit"] != 1
        or counts["clean"] != 1
        or any(number > 1 for number in counts.values())
        or any(not counts[name] for name, before in granted.items() if job not in before)
    ]
    later = {name: jobs - len(before) for name, before in granted.items()}
    return {
        "errors": bench.errors,
        "jobs": len(bench.seen),
        "tags": len(bench.jobs),
        "fences": len(bench.fences),
        "wrong": wrong[:5],
        "later": later,
    }


def hurry(jobs: int) -> dict[str, Any]:
    """The same where responses are late all the time, as on a machine that is busy."""
    delivery.RESPONSE_SECONDS = 0.02
    return widen(jobs)


def change() -> dict[str, Any]:
    """Submit, update and cancel jobs, twice, and have submissions refused."""
    bench = Bench()
    bench.watch_journal()
    member = bench.member(3, command="sleep 600", duration="1h")
    result: dict[str, Any] = {"errors": bench.errors}
    ids = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 3)).result["ids"]  # type: ignore[union-attr]
    result["ids"] = len(set(ids))
    update = UpdateJobs(2, tuple(ids), urgency=20, duration=1000.0)
    cancel = CancelJobs(3, tuple(ids), "a reason")
    for name, method, command in (
        ("update", member.update, update),
        ("cancel", member.cancel, cancel),
        ("cancel again", member.cancel, cancel),
        ("update again", member.update, update),
    ):
        outcome = bench.perform(method, command)
        result[name] = type(outcome).__name__, getattr(outcome, "reason", "")
        if name == "cancel":
            for id in ids:
                flux.job.event_wait(bench.handle, id, "clean", raiseJobException=False)
    bad = bench.member(2000, queue="nowhere")
    outcome = bench.perform(bad.submit, SubmitJobs(4, "a", "r", 0, 0, 2000))
    result["refused"] = getattr(outcome, "errno", ""), getattr(outcome, "reason", "")
    result["jobs"] = bench.handle.rpc("job-list.job-stats", {}).get()["job_states"]["total"]
    return result


class Panic(BaseException):
    """What compiled code raises."""


def overtake() -> dict[str, Any]:
    """Many responses, two of which raise in handling, and a request behind them."""
    handle = flux.Flux()
    handle.service_register("overtake").get()
    handled: list[Any] = []
    errors: list[BaseException] = []
    loop = FluxLoop(handle, guard(errors.append))
    inbox = Inbox(loop, partial(unread, handle), errors.append)
    count = 200

    def handle_one(number: int) -> None:
        handled.append(number)
        if number == 7:
            raise ValueError("seven")
        if number == 8:
            raise Panic("eight")
        if len(handled) == count + 2:
            handle.reactor_stop()

    def request(*_: Any) -> None:
        handled.append("request")

    def first(*_: Any) -> None:
        for number in range(1, count + 1):
            future = handle.rpc("broker.ping", {"seq": number})
            future.then(lambda future, number: inbox.put(handle_one, number), number)
        handle.rpc("overtake.request")
        # When this one has its response, all the others are there to be read.
        handle.rpc("broker.ping", {"seq": 0}).get()

    def panic() -> None:
        raise Panic("of a timer")

    loop.timer(0.0, panic)
    watcher = handle.msg_watcher_create(request, FLUX_MSGTYPE_REQUEST, "overtake.request")
    watcher.start()
    start = handle.timer_watcher_create(0.0, first)
    start.start()
    inbox.put(handle_one, 0)
    handle.reactor_run()
    return {"errors": [], "handled": handled, "raised": sorted(map(str, errors))}


def wait() -> dict[str, Any]:
    """Requests whose responses come, fail, come too late, and cannot be sent."""
    handle = flux.Flux()
    handle.service_register("wait").get()
    errors: list[str] = []

    def unexpected(error: BaseException) -> None:
        errors.append(repr(error))
        handle.reactor_stop()

    futures = Futures(FluxLoop(handle, guard(unexpected)), 0.2)
    found: dict[str, list[str]] = {"early": [], "late": []}
    requests: list[Message] = []

    def ask(kind: str, topic: bytes) -> None:
        def came(future: Any) -> None:
            failed = lib.flux_future_get(future, ffi.NULL) < 0
            found["early"].append(f"{kind}: {ffi.errno if failed else 0}")

        def late() -> None:
            found["late"].append(kind)
            # The response to this comes now, and nobody waits for it any more.
            handle.respond(requests[0], None)
            ask("another", b"config.get")
            handle.timer_watcher_create(0.2, lambda *_: handle.reactor_stop()).start()

        # No payload, to any rank, with a response.
        futures.add(lib.flux_rpc(handle.handle, topic, ffi.NULL, 0xFFFFFFFF, 0), came, late)

    def keep(_handle: Any, _watcher: Any, message: Message, _: Any) -> None:
        requests.append(message)

    watcher = handle.msg_watcher_create(keep, FLUX_MSGTYPE_REQUEST, "wait.forever")
    watcher.start()
    ask("slow", b"wait.forever")
    ask("quick", b"config.get")
    ask("unknown", b"wait.nothing")
    handle.reactor_run()
    try:
        futures.add(ffi.NULL, lambda future: None)
    except OSError:
        found["early"].append("not sent")
    return {"errors": errors, **found}


class Allocated(ctypes.Structure):
    """What glibc says of its memory: `mallinfo2`, whose `uordblks` are the bytes in use."""

    _fields_ = (
        ("_before", 7 * ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("_behind", 2 * ctypes.c_size_t),
    )


def keep() -> dict[str, Any]:
    """How many bytes of C's memory are left in use of each of many submissions."""
    handle = flux.Flux()
    errors: list[str] = []
    loop = FluxLoop(handle, guard(lambda error: errors.append(repr(error))))
    inbox = Inbox(loop, partial(unread, handle), lambda error: errors.append(repr(error)))
    submissions = Submissions(handle, inbox, loop)
    jobspec = flux.job.JobspecV1.from_command(["true"], environment={"LONG": "x" * 4000})
    text, count = jobspec.dumps(), 200

    def in_use() -> int:
        gc.collect()
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = Allocated
        used: int = libc.mallinfo2().uordblks
        return used

    def submit() -> None:
        answers: list[int | Exception] = []

        def answer(what: int | Exception) -> None:
            answers.append(what)
            if len(answers) == count:
                handle.reactor_stop()

        for _ in range(count):
            # Held: what is measured is how they get into the queue, not what becomes of them.
            submissions.send(text, 0, answer, validate=False)
        handle.reactor_run()
        errors.extend(str(one) for one in answers if isinstance(one, Exception))

    submit()
    before = in_use()
    submit()
    return {"errors": errors, "bytes": (in_use() - before) / count, "jobspec": len(text)}


if __name__ == "__main__":
    scenarios = {
        "widen": lambda: widen(400),
        "hurry": lambda: hurry(400),
        "change": change,
        "overtake": overtake,
        "wait": wait,
        "keep": keep,
    }
    print(json.dumps(scenarios[sys.argv[1]]()))
