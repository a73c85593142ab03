"""A search while its service, its sampler, or both are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import workloads
from kills import patience
from points import over
from scenario import Context
from scene import Scene, scene

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.runtime.asking.asker import described
from flux_ensemble.runtime.sampling import Sampling

#: How many trials there are at once.
_PARALLEL = 8


def search(context: Context) -> None:
    """kill -9 of the service, or of the sampler of its search; the points are those of no kill."""
    while context.row.kills < context.kills and context.row.ok:
        sampler = context.random.choice(("random", "qmc"))
        with scene(context) as stage:
            workload = workloads.search(
                "search", 200 if context.long else 120, sampler=sampler, parallel=_PARALLEL
            )
            stage.load(workload)
            made = 0
            while context.row.kills < context.kills and not over(stage, workload):
                time.sleep(context.random.uniform(0, 0.7))
                if context.random.random() < 0.3:
                    _kill_samplers(stage)
                stage.kill()
                made += 1
                stage.service.await_answer(stage.handle)
                if context.random.random() < 0.3:
                    _kill_samplers(stage)
            stage.await_end(workload.name, patience(workload, made))
            stage.verify(workload)
            _check_points(stage, workload)


def _kill_samplers(stage: Scene) -> None:
    """Kill the processes of samplers in the instance, which are known by what they run."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            command = path.with_name("cmdline").read_bytes()
            if b"runtime/custom/child.py" in command and _is_of(stage, path):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _is_of(stage: Scene, environ: Path) -> bool:
    return f"HOME={stage.directory}\0".encode() in environ.read_bytes() + b"\0"


def _check_points(stage: Scene, workload: workloads.Workload) -> None:
    """Each trial has the parameters that its number gives, and has ended once."""
    problems = stage.row.problems
    (given,) = load_mapping(workload.document).searches
    request = {"count": given.trials, "points": [], "attributes": {}, "ends": []}
    points = Sampling(described(given, 7)).answer(request)["points"]
    for row in stage.recorded(workload.name):
        if row["rule"] == "search:hpo" and row["params"] != points[row["firing"]]["params"]:
            wanted = points[row["firing"]]["params"]
            problems.append(f"trial {row['firing']} has {row['params']}, and not {wanted}")
    (told,) = stage.rpc("status", name=workload.name)["ensembles"][0]["searches"]
    if (told["state"], told["reason"]) != ("done", "trials"):
        problems.append(f"the search is {told['state']} ({told['reason']})")
    if told["failed"] != given.trials or told["complete"] or told["canceled"]:
        problems.append(f"of {given.trials} trials {told['failed']} have ended as they do")
