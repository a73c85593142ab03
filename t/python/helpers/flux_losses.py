"""Run by fluxqueue/test_flux_losses.py inside a Flux instance: what it finds, as JSON."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from flux_member import Bench, mock

from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.queues.flux import queue

# flux_member has made it importable.
from flux.constants import FLUX_MSGTYPE_REQUEST  # isort: skip

# How many are sent at first without an answer: the fewest there are at any time.
queue.SUBMISSIONS = queue.FEWEST_SUBMISSIONS

#: Jobs of a burst: when it is disturbed, some have not been sent yet.
BURST = queue.SUBMISSIONS + queue.SUBMISSIONS // 2

#: More matchtags than a handle of a test has in its pool.
TAGS = 2000

#: How often `Bench` looks whether a process has ended, in seconds.
LOOK = 0.01


class Modules:
    """Runs `flux module` commands for job-ingest beside the reactor, one after the other."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._process: subprocess.Popen[bytes] | None = None
        self.codes: list[int] = []

    def run(self, verb: str, then: Callable[[], None] = lambda: None) -> None:
        assert self._process is None
        process = self._process = subprocess.Popen(["flux", "module", verb, "job-ingest"])

        def look() -> None:
            if process.poll() is None:
                self._bench.queue.broker.loop.timer(LOOK, look)
                return
            self._process = None
            self.codes.append(process.returncode)
            then()

        look()

    def wait(self) -> None:
        if self._process is not None:
            self._process.wait()


def tally(bench: Bench, count: int, outcome: CommandDone | CommandFailed) -> dict[str, Any]:
    """What the journal has shown, against what was said of the submission."""
    ids = outcome.result["ids"] if isinstance(outcome, CommandDone) else outcome.ids
    shown = [job for jobs in bench.jobs.values() for job in jobs]
    return {
        "errors": bench.errors,
        "jobs": count,
        "outcome": type(outcome).__name__,
        "reason": getattr(outcome, "reason", ""),
        "errno": getattr(outcome, "errno", ""),
        "missing": count - len(bench.jobs),
        "twice": [tag for tag, jobs in bench.jobs.items() if len(jobs) > 1],
        "agrees": sorted(ids) == sorted(shown),
        "queued": bench.handle.rpc("job-list.job-stats", {}).get()["job_states"]["total"],
    }


def burst(bench: Bench, jobs: int, disturb: Callable[[Modules], None]) -> dict[str, Any]:
    """Submit many jobs, and call `disturb` when some of them have shown in the journal."""
    bench.watch_journal()
    modules = Modules(bench)
    disturbed: list[None] = []

    def watch() -> None:
        if not disturbed and len(bench.jobs) >= jobs // 10:
            disturbed.append(None)
            disturb(modules)

    bench.watch = watch
    member = bench.member(jobs, **mock("0.01s"))
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, jobs))
    modules.wait()
    return {**tally(bench, jobs, outcome), "codes": modules.codes}


def reload(jobs: int) -> dict[str, Any]:
    """Reload job-ingest twice in the middle of a burst."""

    def disturb(modules: Modules) -> None:
        modules.run("reload", lambda: modules.run("reload"))

    return burst(Bench(), jobs, disturb)


def away(jobs: int, seconds: float) -> dict[str, Any]:
    """Remove job-ingest in the middle of a burst, and load it after a while."""
    bench = Bench()

    def disturb(modules: Modules) -> None:
        def wait() -> None:
            bench.queue.broker.loop.timer(seconds, lambda: modules.run("load"))

        modules.run("remove", wait)

    return burst(bench, jobs, disturb)


def gone(jobs: int) -> dict[str, Any]:
    """Remove job-ingest for good in the middle of a burst; load it when all is over.

    The ensemble ends when fences have been given up several times.
    """
    bench = Bench(patience=2.0)
    waits: list[str] = []

    def end() -> None:
        member = bench.members[0]
        waits.extend(wait.kind for wait in member.waits())
        member.revoke()

    def wait() -> None:
        bench.queue.broker.loop.timer(7.0, end)

    def disturb(modules: Modules) -> None:
        modules.run("remove", wait)

    found = burst(bench, jobs, disturb)
    found["waits"] = waits
    member = bench.members[0]

    def submit_and_end(*args: Any) -> None:
        # As the driver does: the engine had given the command before the ensemble ended.
        member.submit(*args)
        member.revoke()

    again = bench.perform(submit_and_end, SubmitJobs(2, "a", "r", 1, 0, 1))
    found["again"] = getattr(again, "errno", "")
    subprocess.run(["flux", "module", "load", "job-ingest"], check=True)
    after = bench.perform(member.submit, SubmitJobs(3, "a", "r", 2, 0, 1))
    found["after"] = type(after).__name__
    return found


def late() -> dict[str, Any]:
    """A call is given up, and then there is a response: is its matchtag given to others?"""
    bench = Bench()
    handle = bench.handle
    requests: list[Any] = []
    outcomes: list[int | None] = []

    def tags() -> set[int]:
        """Those that are free; they go round."""
        gc.collect()  # futures refer to themselves
        given = [handle.flux_matchtag_alloc() for _ in range(TAGS)]
        for tag in given:
            handle.flux_matchtag_free(tag)
        return set(given)

    def given_up(error: Exception | None) -> None:
        outcomes.append(getattr(error, "errno", None))
        # In a turn of its own: nothing of the call is left then.
        bench.queue.broker.loop.timer(0.0, handle.reactor_stop)

    handle.service_register("late").get()
    watcher = handle.msg_watcher_create(
        lambda _handle, _watcher, message, _args: requests.append(message),
        FLUX_MSGTYPE_REQUEST,
        "late.*",
    )
    watcher.start()
    future = handle.rpc("late.call", {})
    tag = future.pimpl.flux_rpc_get_matchtag()
    bench.queue.broker.call(future, given_up, seconds=0.2)
    del future
    handle.reactor_run()
    before = tag in tags()
    handle.respond(requests[0], {})
    # A response to this comes after it.
    bench.queue.broker.call(handle.rpc("broker.ping", {"seq": 1}), given_up)
    handle.reactor_run()
    watcher.destroy()
    return {"errors": bench.errors, "outcomes": outcomes, "free": [before, tag in tags()]}


def refused() -> dict[str, Any]:
    """A jobspec that the validator refuses, with nothing lost: no fence is needed."""
    bench = Bench()
    bench.watch_journal()
    fences: list[None] = []
    bench.queue.fence = lambda done: fences.append(None)  # type: ignore[method-assign]
    bad = bench.member(3, attributes={"system": {"dependencies": [{"scheme": "no", "value": "x"}]}})
    outcome = bench.perform(bad.submit, SubmitJobs(1, "a", "r", 0, 0, 3))
    return {**tally(bench, 0, outcome), "fences": len(fences)}


def fence() -> dict[str, Any]:
    """What fences leave behind, and what has shown when one is back."""
    bench = Bench()
    bench.watch_journal()
    queues = list(bench.handle.conf_get("queues", default={}))
    given = mock("0.01s") | ({"queue": queues[0]} if queues else {})
    member = bench.member(50, **given)
    back: list[tuple[str, int]] = []
    outcomes: list[str] = []
    begin = bench.queue.outcomes.begin
    sent: list[None] = []

    def count(*args: Any, **more: Any) -> None:
        sent.append(None)
        begin(*args, **more)

    bench.queue.outcomes.begin = count  # type: ignore[method-assign]

    def stop_if_over() -> None:
        if len(back) == 3 and len(outcomes) == 2:
            bench.handle.reactor_stop()

    def done(error: Exception | None) -> None:
        back.append((str(error), len(bench.jobs)))
        stop_if_over()

    def submitted(outcome: CommandDone | CommandFailed) -> None:
        outcomes.append(type(outcome).__name__)
        stop_if_over()

    member.submit(SubmitJobs(1, "a", "r", 0, 0, 50), submitted)
    before = len(sent)
    bench.queue.fence(done)
    member.submit(SubmitJobs(2, "a", "r", 1, 0, 50), submitted)
    bench.queue.fence(done)
    bench.queue.fence(done)
    bench.handle.reactor_run()
    listed = bench.handle.rpc("job-list.list", {"max_entries": 0, "attrs": []}).get()["jobs"]
    shown = {job for jobs in bench.jobs.values() for job in jobs}
    return {
        "errors": bench.errors,
        "sent before": before,
        "back": back,
        "outcomes": outcomes,
        "fences": len(bench.fences),
        "agrees": {job["id"] for job in listed} == shown,
        "jobs": len(listed),
    }


def known() -> dict[str, Any]:
    """Jobs that the queue has already are not submitted again."""
    bench = Bench()
    bench.watch_journal()
    member = bench.member(5, **mock("0.01s"))
    first = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 1, 2))
    assert isinstance(first, CommandDone)
    member.known.update({tag: jobs[0] for tag, jobs in bench.jobs.items()})
    member.known[Tag("a", "r", 1, 0)] = 7
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 5))
    assert isinstance(outcome, CommandDone)
    found = tally(bench, 5, outcome)
    return {**found, "left": list(member.known.values()), "ids": len(outcome.result["ids"])}


if __name__ == "__main__":
    what: dict[str, Callable[[], dict[str, Any]]] = {
        "reload": lambda: reload(BURST),
        "away": lambda: away(BURST, 3.0),
        "late": late,
        "gone": lambda: gone(BURST),
        "refused": refused,
        "fence": fence,
        "known": known,
    }
    print(json.dumps(what[sys.argv[1]]()))
