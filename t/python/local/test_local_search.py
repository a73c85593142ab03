"""A search on the local queue: killed and resumed, it has the points of a run that was not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, descendants

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.members.local.states import States
from flux_ensemble.runtime.asking.asker import described
from flux_ensemble.runtime.sampling import Sampling

pytest.importorskip("optuna")

TRIALS = 12

#: A job says that it runs, and goes on when it may.
SCRIPT = "echo {x} >>ran; until test -e go-on || test $(wc -l <ran) -lt 5; do sleep 0.05; done"


def document(directory: Path) -> dict[str, Any]:
    search = {
        "id": "hpo",
        "group": "trial",
        "variables": {"x": {"low": 0, "high": 1}},
        "maximize": "fom",
        "sampler": "random",
        "trials": TRIALS,
        "parallel": 2,
        "failures": TRIALS + 1,
    }
    return {
        "name": "test",
        "seed": 7,
        "search": [search],
        "jobs": [{"name": "trial", "command": ["sh", "-c", SCRIPT], "workdir": str(directory)}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
    }


def test_a_run_that_is_killed_goes_on_with_the_points_of_one_that_is_not(tmp_path: Path) -> None:
    first = Run(tmp_path, document(tmp_path))
    ran = tmp_path / "ran"
    while not ran.exists() or len(ran.read_text().splitlines()) < 5:
        assert first.process.poll() is None
        os.sched_yield()
    for pid in (first.process.pid, *descendants(first.process.pid)):
        os.kill(pid, signal.SIGKILL)
    first.end()
    (tmp_path / "go-on").touch()
    code, _, err = Run(tmp_path, document(tmp_path), "--resume").end()
    assert (code, err) == (0, "")
    states = States(tmp_path / "state")
    (search,) = states.status("test")["searches"]
    assert (search["state"], search["reason"], search["failed"]) == ("done", "trials", TRIALS)
    trials = {job["firing"]: job["params"] for job in states.jobs("test")}
    (given,) = load_mapping(document(tmp_path)).searches
    request = {"count": TRIALS, "points": [], "attributes": {}, "ends": []}
    points = Sampling(described(given, 7)).answer(request)["points"]
    assert trials == dict(enumerate(point["params"] for point in points))
