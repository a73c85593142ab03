"""Searches while their service, their samplers, or both are killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kills import patience
from learning import NAME, SEED, Publisher, learning
from points import over
from scenario import TICK, Context
from scene import Scene, scene
from witness import Job
from workloads import Workload

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.search import Search
from flux_ensemble.engine.stopping import stopping
from flux_ensemble.engine.trials import COMPLETE, FAILED, Trials
from flux_ensemble.runtime.asking.asker import described
from flux_ensemble.runtime.suggesting import suggesting

#: The generator is imported here too.
HELPERS = Path(__file__).parents[1] / "python" / "helpers"
sys.path.append(str(HELPERS))

#: How many trials of a search there are at once.
_PARALLEL = 8

#: What the generator is in the midst of an ask by, and what ends that.
_ASKED, _GO_ON = "asked", "go-on"


def search(context: Context) -> None:
    """kill -9 of the service, or of samplers, while there are searches, copies and predictions."""
    reached = context.row.reached
    reached.update({"generator in mid-ask": 0, "service in mid-ask": 0, "copies": 0, "pruned": 0})
    while context.row.kills < context.kills and context.row.ok:
        sampler = context.random.choice(("random", "qmc"))
        with scene(context) as stage, _publishing(stage):
            shutil.copy(HELPERS / "generators.py", stage.directory)
            workload = learning(100 if context.long else 40, sampler=sampler, parallel=_PARALLEL)
            stage.load(workload)
            made = _kill(context, stage, workload)
            stage.await_end(workload.name, patience(workload, made))
            stage.verify(workload)
            _check(stage, workload)
    for what, times in reached.items():
        if not times and context.row.ok:
            context.row.problems.append(f"never met: {what}")


@contextlib.contextmanager
def _publishing(stage: Scene) -> Iterator[None]:
    publisher = Publisher(stage.instance.uri, stage.witness)
    try:
        yield
    finally:
        publisher.close()


def _kill(context: Context, stage: Scene, workload: Workload) -> int:
    """Kill until the ensemble has ended, or all kills are made; how many these were."""
    row, random = context.row, context.random
    asked, go_on = stage.directory / _ASKED, stage.directory / _GO_ON
    before = row.kills
    # A search ends when an ask has failed three times.
    samplers = 1
    while row.kills < context.kills and not over(stage, workload):
        if not go_on.exists() and (asked.exists() or row.kills == context.kills - 1):
            _in_mid_ask(stage, asked)
            go_on.touch()
            continue
        time.sleep(random.uniform(0, 0.7))
        if samplers and random.random() < 0.3:
            samplers -= bool(_kill_samplers(stage))
        stage.kill()
        stage.service.await_answer(stage.handle)
    go_on.touch()
    return row.kills - before


def _in_mid_ask(stage: Scene, asked: Path) -> None:
    """Kill the generator, and then the service, while it is being asked."""
    killed = 0
    while not killed:
        _await(asked)
        asked.unlink()
        # None is there if the service was killed since.
        killed = _kill_samplers(stage)
    stage.row.reached["generator in mid-ask"] += 1
    _await(asked)
    asked.unlink()
    stage.kill()
    stage.row.reached["service in mid-ask"] += 1
    _await(asked)


def _await(path: Path) -> None:
    """Wait for a file."""
    deadline = time.monotonic() + 120
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"there is no {path.name!r}: the generator is not asked")
        time.sleep(10 * TICK)


def _kill_samplers(stage: Scene) -> int:
    """Kill what suggests points in the instance, known by what it runs; how many these are."""
    killed = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            command = path.with_name("cmdline").read_bytes()
            if b"runtime/custom/child.py" in command and _is_of(stage, path):
                os.kill(int(path.parent.name), signal.SIGKILL)
                killed += 1
    return killed


def _is_of(stage: Scene, environ: Path) -> bool:
    return f"HOME={stage.directory}\0".encode() in environ.read_bytes() + b"\0"


# -- what came of it ------------------------------------------------------------------------


def _check(stage: Scene, workload: Workload) -> None:
    """Each trial has the parameters that its number gives, and has ended once, as it had to."""
    problems, jobs = stage.row.problems, stage.witness.of(NAME)
    told = {one["id"]: one for one in stage.rpc("status", name=NAME)["ensembles"][0]["searches"]}
    params: dict[str, dict[int, Any]] = {}
    for row in stage.recorded(NAME):
        id = row["rule"].removeprefix("search:")
        if id != row["rule"]:
            params.setdefault(id, {})[row["firing"]] = row["params"]
    for given in load_mapping(workload.document).searches:
        one = told[given.id]
        ends = {job.tag["firing"]: _end(job, given) for job in jobs
                if job.tag and job.tag["rule"] == f"search:{given.id}"}  # fmt: skip
        if (one["state"], one["reason"]) != ("done", "trials"):
            problems.append(f"search {given.id!r} is {one['state']} ({one['reason']})")
            continue
        for number, wanted in enumerate(_points(given, ends)):
            found = params[given.id].get(number)
            if found != wanted:
                problems.append(f"trial {number} of {given.id!r} has {found}, and not {wanted}")
        counts = {state: one.get(state, 0) for state in ("complete", "failed", "pruned")}
        states = Counter(state for state, _ in ends.values())
        if counts != {state: states[state] for state in counts}:
            problems.append(f"search {given.id!r} says {counts}, and it was {dict(states)}")
    _check_pruned(stage, workload, jobs)
    copies = [job for job in jobs if job.tag and job.tag["rule"] in workload.expected.copied]
    stage.row.reached["copies"] += len(copies)


def _end(job: Job, given: Search) -> tuple[str, float | None]:
    """The state of a trial whose job has ended, and its value."""
    assert job.tag is not None
    finish = job.first("finish")
    if finish is None or finish[1].get("status") != 0:
        return "pruned", None
    losses = [memo["loss"] for name, t, memo in job.events if name == "memo" and t <= finish[0]]
    return (COMPLETE, losses[-1]) if losses else (FAILED, None)


def _points(given: Search, ends: Mapping[int, tuple[str, float | None]]) -> list[dict[str, Any]]:
    """The points of a search that nothing disturbs, one after the other."""
    if given.generator is not None:
        # It gives the same, and does not wait.
        given = replace(given, generator=replace(given.generator, name="generators:Learner"))
    trials, source = Trials(given), suggesting(described(given, SEED))
    if given.generator is None:
        request = {"count": given.trials, "points": [], "attributes": {}, "ends": []}
        return [point["params"] for point in source.answer(request)["points"]]
    found = []
    for number in range(given.trials):
        # It knows the points that it gave.
        seen = trials.seen(number, max(0, number - 1), number, number)
        (point,) = source.answer({"count": 1, **seen})["points"]
        found.append(point["params"])
        trials.add(point["params"], point.get("attributes"))
        trials.next(0.0)
        trials.end(number, *ends[number], 0.0)
    return found


def _check_pruned(stage: Scene, workload: Workload, jobs: list[Job]) -> None:
    """The trials that were stopped early are those that the order of the memos gives."""
    (given,) = (one for one in load_mapping(workload.document).searches if one.stop)
    assert given.stop is not None
    memos = sorted(
        (t, job.tag["firing"], memo)
        for job in jobs
        if job.tag and job.tag["rule"] == f"search:{given.id}"
        for name, t, memo in job.events
        if name == "memo"
    )
    decides, wanted = stopping(given.stop), list[int]()
    for _, number, memo in memos:
        if number not in wanted and decides.publish(number, memo["epoch"], memo["loss"]):
            wanted.append(number)
    entries = [one["context"] for one in stage.entries(NAME) if one["name"] == "pruned"]
    found = [entry["trial"] for entry in entries]
    stage.row.reached["pruned"] += len(found)
    if found != wanted:
        stage.row.problems.append(f"trials {found} were stopped early, and not {wanted}")
