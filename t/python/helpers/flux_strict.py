"""Run by fluxqueue/test_flux_release.py inside a Flux instance: what it finds, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flux_member import Bench, flux, mock

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import CancelJobs, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.queues.flux.member import FluxMember
from flux_ensemble.queues.flux.submission import EnsembleRun


def checkpoint(bench: Bench) -> Any:
    """The reference of the KVS root that is on disk, or None."""
    try:
        answer = bench.handle.rpc("content.checkpoint-get", {}, nodeid=0).get()
    except OSError:
        return None
    return answer["value"][0]["rootref"]


def history(bench: Bench, job: int) -> list[tuple[str, Any]]:
    """The events of a job, with the urgency where there is one."""
    events = flux.job.event_watch(bench.handle, job)
    names = ("submit", "urgency", "priority", "alloc", "start", "clean")
    return [(one.name, one.context.get("urgency")) for one in events if one.name in names]


def ids_of(outcome: CommandDone | CommandFailed) -> list[int]:
    return list(outcome.result["ids"] if isinstance(outcome, CommandDone) else outcome.ids)


def result(bench: Bench, outcome: CommandDone | CommandFailed, jobs: list[int]) -> dict[str, Any]:
    for job in jobs:
        flux.job.event_wait(bench.handle, job, "clean", raiseJobException=False)
    return {
        "errors": bench.errors,
        "outcome": type(outcome).__name__,
        "reason": getattr(outcome, "reason", ""),
        "histories": [history(bench, job) for job in jobs],
    }


def release() -> dict[str, Any]:
    """Jobs are held, the KVS is put on disk, they start."""
    bench = Bench()
    order: list[str] = []
    event = bench._event

    def watch(job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        event(job, entry, jobspec)
        ours = any(job in jobs for jobs in bench.jobs.values())
        if ours and entry["name"] in ("submit", "urgency"):
            order.append(entry["name"])
            if entry["name"] == "submit" and len(order) == 1:
                order.append(checkpoint(bench) or "no checkpoint")
            if order.count("urgency") == 1 and entry["name"] == "urgency":
                order.append(checkpoint(bench))

    bench.journal._event = watch
    bench.watch_journal()
    member = bench.member(3, "strict", urgency=20, **mock("0.01s"))
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 3))
    return {**result(bench, outcome, ids_of(outcome)), "order": order}


def held() -> dict[str, Any]:
    """A group with urgency 0 stays held."""
    bench = Bench()
    bench.watch_journal()
    member = bench.member(2, "strict", urgency=0)
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 2))
    ids = ids_of(outcome)
    bench.perform(member.cancel, CancelJobs(2, tuple(ids), ""))
    return result(bench, outcome, ids)


def changed() -> dict[str, Any]:
    """A job that shows is updated, and another cancelled, before they are released."""
    bench = Bench()
    bench.watch_journal()
    member = bench.member(3, "strict", **mock("0.01s"))
    told: list[str] = []
    jobs: list[int] = []

    def watch() -> None:
        if len(bench.jobs) == 3 and not jobs:
            jobs.extend(job for shown in bench.jobs.values() for job in shown)
            first, second, _ = jobs
            update = UpdateJobs(2, (first,), urgency=30)
            member.update(update, lambda outcome: told.append(type(outcome).__name__))
            cancel = CancelJobs(3, (second,), "")
            member.cancel(cancel, lambda outcome: told.append(type(outcome).__name__))

    bench.watch = watch
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 3))
    return {**result(bench, outcome, jobs), "told": told}


def refused() -> dict[str, Any]:
    """What was accepted of a command that the queue refuses is released."""
    bench = Bench()
    bench.watch_journal()
    good = {"name": "a", "command": "true", **mock("0.01s")}
    dependency = {"system": {"dependencies": [{"scheme": "no", "value": "x"}]}}
    bad = {"name": "a", "command": "true", "attributes": dependency}
    spec = load_mapping({"name": "test", "jobs": [good, bad], "durability": "strict"})
    member = FluxMember(bench.queue, EnsembleRun(spec, 1, {}, "/"))
    bench.members.append(member)
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 2))
    return result(bench, outcome, ids_of(outcome))


def known() -> dict[str, Any]:
    """Of the jobs that the queue has already, those are released that are still held."""
    bench = Bench()
    bench.watch_journal()
    before = bench.member(1, **mock("0.01s"), urgency=0)
    outcome = bench.perform(before.submit, SubmitJobs(1, "a", "r", 0, 0, 1))
    (still,) = ids_of(outcome)
    ended = bench.member(2, **mock("0.01s"))
    outcome = bench.perform(ended.submit, SubmitJobs(1, "a", "r", 0, 1, 1))
    (over,) = ids_of(outcome)
    result(bench, outcome, [over])
    member = bench.member(3, "strict", **mock("0.01s"))
    member.known.update({tag: jobs[0] for tag, jobs in bench.jobs.items()})
    outcome = bench.perform(member.submit, SubmitJobs(1, "a", "r", 0, 0, 3))
    (new,) = set(ids_of(outcome)) - {still, over}
    return result(bench, outcome, [still, over, new])


if __name__ == "__main__":
    what: dict[str, Callable[[], dict[str, Any]]] = {
        "release": release,
        "held": held,
        "changed": changed,
        "refused": refused,
        "known": known,
    }
    print(json.dumps(what[sys.argv[1]]()))
