"""Workers are killed, with what starts their tasks, and with the service; side effects are counted.

Tasks are no jobs of Flux, so no journal tells what became of them: they write down that they run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kills import patience
from scenario import FINAL, TICK, Context, children, stopping, words
from scene import Scene, scene
from verify import Findings
from workloads import REPLACED, Expected, Submits, Workload

#: Tasks for each kill: more than run at once.
_TASKS = 100

#: A task: a second one at the same time finds the lock taken. What it says last is that it ended.
_TASK = """#!/bin/sh
exec 9>"lock.$1"
flock -n 9 || echo "$1" >>overlap
echo "$1" >>began
sleep 0.2
echo "$1" >>done
"""


def tasks(context: Context) -> None:
    """SIGKILL of workers, of the processes that start their tasks, of the service, and of pairs."""
    with scene(context, kind="command", brokers=3) as stage:
        (stage.directory / "task.sh").write_text(_TASK)
        workload = _workload(_TASKS * (context.wanted + 1))
        stage.load(workload)
        made: Counter[str] = Counter()
        while sum(made.values()) < context.wanted and not stopping.is_set():
            if not _goes_on(stage, workload):
                break
            time.sleep(context.random.uniform(0, 0.3))
            kind = context.random.choice(("worker", "starters", "service", "service and worker"))
            if _kill(stage, kind):
                made[kind] += 1
        context.row.reached |= made
        status = stage.await_end(workload.name, patience(workload, context.wanted))
        stage.await_entry(workload.name, "finish")
        _verify(stage, workload, status)


def _workload(jobs: int) -> Workload:
    document = {
        "name": "tasks",
        "limits": {"losses": 1000},
        "members": [{"name": "pool", "count": {"min": 2, "max": 3}, "runs": "tasks"}],
        "jobs": [
            {"name": "sim", "command": "sh task.sh {s}", "params": {"s": {"range": [0, jobs]}}},
            {"name": "echo", "command": "true"},
        ],
        "rules": [
            {"id": "sim", "trigger": "start", "action": {"name": "submit", "label": "sim"}},
            {"id": "echo", "trigger": "job-success", "group": "sim",
             "action": {"name": "submit", "label": "echo", "repetitions": "unlimited"}},
            {"id": f"{REPLACED}lost", "trigger": "member-lost",
             "action": {"name": "grow", "label": "pool", "repetitions": "unlimited"}},
        ],
    }  # fmt: skip
    submits = {"sim": Submits("sim", 1, jobs), "echo": Submits("echo", jobs, 1)}
    return Workload(document, Expected(submits))


def _lines(stage: Scene, name: str) -> int:
    return len(_said(stage, name))


def _said(stage: Scene, name: str) -> list[str]:
    try:
        return (stage.directory / name).read_text().split()
    except FileNotFoundError:
        return []


def _goes_on(stage: Scene, workload: Workload) -> bool:
    """Wait until another task has begun; return False if the ensemble is over before."""
    before, deadline = _lines(stage, "began"), time.monotonic() + 120
    while _lines(stage, "began") == before:
        if time.monotonic() > deadline:
            raise RuntimeError("no task has begun within two minutes")
        status = stage.status(workload.name)
        if status is not None and status["state"] in FINAL:
            return False
        time.sleep(10 * TICK)
    return True


def _workers(stage: Scene) -> list[int]:
    """The processes of the workers of this scene: its instance is in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        if b"--worker" not in words(pid):
            continue
        with contextlib.suppress(OSError):
            if str(stage.directory).encode() in (process / "environ").read_bytes():
                found.append(pid)
    return found


def _kill(stage: Scene, kind: str) -> bool:
    """Kill something; return False if there is none of it."""
    workers = _workers(stage)
    if "worker" in kind or kind == "starters":
        if not workers:
            return False
        victim = stage.random.choice(workers)
        # The processes that start tasks: both, or the first, which has the second.
        starters = [pid for child in children(victim) for pid in (child, *children(child))[:2]]
        if kind != "starters":
            starters = [victim, *starters[: stage.random.randrange(3)]]
        for pid in starters:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if "service" in kind:
        stage.kill()
        stage.service.await_answer(stage.handle)
    return True


def _verify(stage: Scene, workload: Workload, status: Mapping[str, Any]) -> None:
    findings = Findings()
    jobs = workload.expected.submits["sim"].jobs
    findings.expect("completed", status["state"], "state")
    findings.expect([], status["errors"], "errors in status")
    findings.expect(0, status.get("violations", 0), "violations in status")
    for group in ("sim", "echo"):
        counts = status["groups"][group]
        findings.expect(jobs, counts["success"], f"successes of {group}")
        findings.expect(jobs, counts["finished"], f"finished jobs of {group}")
    rows = [row for row in stage.recorded(workload.name) if row["outcome"] == "success"]
    once = Counter((row["group"], row["rule"], row["firing"], row["index"]) for row in rows)
    findings.expect(2 * jobs, len(once), "successes in the record")
    findings.duplicates += sum(once.values()) - len(once)
    ended = set(_said(stage, "done"))
    findings.missing += jobs - len(ended)
    findings.expect(jobs, len(ended), "tasks that ended, by what they wrote")
    findings.expect([], _said(stage, "overlap"), "tasks that ran twice at the same time")
    findings.expect([], _tasks_left(stage), "processes of tasks that outlive the ensemble")
    stage.row.jobs += 2 * jobs
    stage.row.duplicates += findings.duplicates
    stage.note_findings(workload, findings)


def _tasks_left(stage: Scene) -> list[int]:
    """Processes of tasks of this scene: they run in its directory."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            in_it = os.readlink(process / "cwd") == str(stage.directory)
            if in_it and b"task.sh" in words(int(process.name)):
                left.append(int(process.name))
    return left
