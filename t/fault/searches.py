"""Searches while their service, their samplers, or both are killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import told
from kills import patience
from learning import NAME, Publisher, learning
from points import over
from scenario import TICK, Context
from scene import Scene, scene
from workloads import Workload

#: The generator is imported here too.
HELPERS = Path(__file__).parents[1] / "python" / "helpers"
sys.path.append(str(HELPERS))

#: How many trials of a search there are at once; how many in all, and for each kill in long runs,
#: so that most kills are of one run.
_PARALLEL, _TRIALS, _TRIALS_A_KILL = 8, 40, 5

#: What is to have happened.
MET = ("trials", "generator in mid-ask", "service in mid-ask", "copies", "pruned by asha",
       "pruned by median")  # fmt: skip

#: What the generator is in the midst of an ask by, and what ends that.
_ASKED, GO_ON = "asked", "go-on"


def search(context: Context) -> None:
    """kill -9 of the service, or of samplers, while there are searches, copies and predictions."""
    reached = context.row.reached
    reached.update(dict.fromkeys((*MET, "samplers killed"), 0))
    while context.row.kills < context.kills and context.row.ok:
        sampler = context.random.choice(("random", "qmc"))
        with scene(context) as stage, _publishing(stage):
            shutil.copy(HELPERS / "generators.py", stage.directory)
            left = context.kills - context.row.kills
            trials = max(_TRIALS, _TRIALS_A_KILL * left if context.long else 0)
            workload = learning(trials, sampler=sampler, parallel=_PARALLEL)
            stage.load(workload)
            made = _kill(context, stage, workload)
            stage.await_end(workload.name, patience(workload, made))
            stage.verify(workload)
            _check(stage, workload)
    for what in MET:
        if not reached[what] and context.row.ok:
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
    asked, go_on = stage.directory / _ASKED, stage.directory / GO_ON
    before = row.kills
    asks: dict[str, int] = {}
    while row.kills < context.kills and not over(stage, workload):
        if not go_on.exists() and (asked.exists() or row.kills == context.kills - 1):
            _in_mid_ask(stage, asked)
            go_on.touch()
            continue
        time.sleep(random.uniform(0, 0.7))
        if random.random() < 0.4:
            # However slow the machine is, it must get on.
            stage.witness.wait_seen(NAME, "submit", stage.witness.seen[NAME, "submit"] + 1, 10)
        if random.random() < 0.3:
            asks = _kill_answered(stage, asks)
        stage.kill()
        stage.service.await_answer(stage.handle)
    go_on.touch()
    return row.kills - before


def _kill_answered(stage: Scene, asks: dict[str, int]) -> dict[str, int]:
    """Kill what suggests points if each search has had an answer since the last time.

    A search ends when an ask has failed three times.

    Args:
        asks: by search, how often points had been given the last time.

    Returns:
        The same now.
    """
    status = stage.status(NAME)
    if status is None:
        return asks
    now = {one["id"]: one["asks"] for one in status["searches"] if one["state"] == "running"}
    if any(number <= asks.get(id, -1) for id, number in now.items()):
        return asks
    stage.row.reached["samplers killed"] += _kill_samplers(stage)
    return now


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
    """Each search is what it is without kills, and each trial was told once."""
    row, jobs = stage.row, stage.witness.of(NAME)
    searches = stage.rpc("status", name=NAME)["ensembles"][0]["searches"]
    recorded, entries = stage.recorded(NAME), stage.entries(NAME)
    problems, pruned = told.check(workload.document, searches, recorded, entries, jobs)
    stage.note(problems)
    for policy, number in pruned.items():
        row.reached[f"pruned by {policy}"] += number
    copies = [job for job in jobs if job.tag and job.tag["rule"] in workload.expected.copied]
    row.reached["copies"] += len(copies)
    row.reached["trials"] += sum(one["complete"] + one["failed"] + one.get("pruned", 0)
                                 for one in searches)  # fmt: skip
