"""Workers are killed, with what starts their tasks, their job shells, the service, and others.

Side effects are counted.

Tasks are no jobs of Flux, so no journal tells what became of them: they write down that they run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from effects import Effects
from flux.resource import resource_list
from kills import patience
from scenario import FINAL, TICK, Context, children, parent, processes_of, stopping, words
from scene import Scene, scene
from verify import Findings
from workloads import REPLACED, Expected, Submits, Workload

#: Tasks for each kill: more than run at once.
_TASKS = 100

#: Nodes, and how many are left at least, with the first, whose broker is not killed.
_NODES, _FEWEST = 6, 3

#: What is killed.
_KINDS = ("worker", "starters", "shell", "service", "service and worker", "broker", "keeper",
          "broker and service", "keeper and worker", "service and shell")  # fmt: skip


def tasks(context: Context) -> None:
    """SIGKILL of workers, their job shells and helpers, service, keeper, brokers, and pairs."""
    options = ("--test-exit-mode=leader", "--test-exit-timeout=0")
    with scene(context, kind="kept", brokers=_NODES, start_options=options) as stage:
        program = Effects(stage.directory).prepare(0.2)
        workload = _workload(program, _TASKS * (context.wanted + 1))
        stage.load(workload)
        made: Counter[str] = Counter()
        while sum(made.values()) < context.wanted and not stopping.is_set():
            if not _goes_on(stage, workload):
                break
            time.sleep(context.random.uniform(0, 0.3))
            kind = context.random.choice(_KINDS)
            if _kill(stage, kind):
                made[kind] += 1
        context.row.reached |= made
        status = stage.await_end(workload.name, patience(workload, context.wanted))
        stage.await_entry(workload.name, "finish")
        _verify(stage, workload, status)


def _workload(program: Path, jobs: int) -> Workload:
    command = f"sh {program} {{s}}"
    document = {
        "name": "tasks",
        "limits": {"losses": 1000},
        "members": [{"name": "pool", "count": {"min": 2, "max": 3}, "runs": "tasks"}],
        "jobs": [
            {"name": "sim", "command": command, "params": {"s": {"range": [0, jobs]}}},
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


def _goes_on(stage: Scene, workload: Workload) -> bool:
    """Wait until another task has begun; return False if the ensemble is over before."""
    effects, deadline = Effects(stage.directory), time.monotonic() + 120
    before = len(effects.began)
    while len(effects.began) == before:
        if time.monotonic() > deadline:
            raise RuntimeError("no task has begun within two minutes")
        status = stage.status(workload.name)
        if status is not None and status["state"] in FINAL:
            return False
        time.sleep(10 * TICK)
    return True


def _workers(stage: Scene) -> list[int]:
    """The processes of the workers of this scene."""
    return processes_of(stage.directory, b"--worker")


def _kill(stage: Scene, kind: str) -> bool:
    """Kill something, in the order of its parts; return False if there is none of it."""
    return all(_PARTS[part](stage) for part in kind.split(" and "))


def _kill_worker(stage: Scene) -> bool:
    """Kill a worker, with none, one or both of the processes that start its tasks."""
    return _kill_some(
        stage, lambda worker: [worker, *_starters(worker)[: stage.random.randrange(3)]]
    )


def _kill_starters(stage: Scene) -> bool:
    """Kill both processes that start tasks, or the first, which has the second."""
    return _kill_some(stage, _starters)


def _kill_shell(stage: Scene) -> bool:
    """Kill the job shell of a worker, which is its parent."""
    return _kill_some(stage, lambda worker: _shells(parent(worker)))


def _shells(pid: int) -> list[int]:
    return [pid] if any(word.endswith(b"flux-shell") for word in words(pid)) else []


def _starters(worker: int) -> list[int]:
    return [pid for child in children(worker) for pid in (child, *children(child))[:2]]


def _kill_some(stage: Scene, victims: Callable[[int], list[int]]) -> bool:
    workers = _workers(stage)
    if not workers:
        return False
    for pid in victims(stage.random.choice(workers)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def _kill_service(stage: Scene) -> bool:
    stage.kill()
    stage.service.await_answer(stage.handle)
    return True


def _kill_keeper(stage: Scene) -> bool:
    """Kill the keeper, and the service with it; another keeper is loaded."""
    left = stage.kept.kill(stage.instance)
    stage.note([f"{left} services outlived the keeper"] if left else [])
    stage.service.gone()
    stage.row.kills += 1
    stage.start_service()
    return True


def _kill_broker(stage: Scene) -> bool:
    """Kill a broker, with or without a worker under it; a node is lost for good."""
    left = [rank for rank in resource_list(stage.handle).get().up.ranks if rank]
    if len(left) < _FEWEST:
        return False
    stage.instance.kill_broker(stage.random.choice(left))
    return True


_PARTS = {
    "worker": _kill_worker, "starters": _kill_starters, "shell": _kill_shell,
    "service": _kill_service, "keeper": _kill_keeper, "broker": _kill_broker,
}  # fmt: skip


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
    record = stage.recorded(workload.name)
    rows = [row for row in record if row["outcome"] == "success"]
    once = Counter((row["group"], row["rule"], row["firing"], row["index"]) for row in rows)
    findings.expect(2 * jobs, len(once), "successes in the record")
    findings.duplicates += sum(once.values()) - len(once)
    effects = Effects(stage.directory)
    findings.missing += jobs - len(effects.done)
    findings.expect(jobs, len(effects.done), "tasks that ended, by what they wrote")
    again = (row for row in record if (row["group"], row["outcome"]) == ("sim", "interrupted"))
    interrupted = Counter(str(row["params"]["s"]) for row in again)
    findings.expect({}, effects.twice(interrupted), "tasks that ran twice, and nothing explains it")
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
