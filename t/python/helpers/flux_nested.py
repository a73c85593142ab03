"""Run by nested/test_nested_flux.py inside a Flux instance: what it finds, as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
import flux.job  # noqa: E402
import flux.uri  # noqa: E402

from flux_ensemble.members.flux.broker import Broker  # noqa: E402
from flux_ensemble.members.flux.journal import Journal  # noqa: E402
from flux_ensemble.members.flux.loop import FluxLoop, guard  # noqa: E402
from flux_ensemble.members.flux.queue import FluxQueue  # noqa: E402
from flux_ensemble.members.flux.stream import Stream  # noqa: E402
from flux_ensemble.members.nested.connection import connect  # noqa: E402
from flux_ensemble.members.nested.jobspec import (  # noqa: E402
    MemberTag,
    Size,
    member_jobspec,
    member_tag,
)
from flux_ensemble.members.nested.pump import Pump  # noqa: E402

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


class Child:
    """A nested instance, started by hand, that a pump connects to."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        jobspec = member_jobspec(
            tag(), Size(None, 1), environment=dict(os.environ), cwd="/", labels=("a",)
        )
        self.job = flux.job.submit(bench.handle, jobspec)
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
            partial(Stream, self.handle, self.broker.inbox),
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
        self.broker.call(future, lambda future: found.append(future.get()), found.append, 60.0)
        self.bench.until(lambda: len(found) > 1)
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


if __name__ == "__main__":
    print(json.dumps({"pump": pump}[sys.argv[1]]()))
