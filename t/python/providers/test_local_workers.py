"""A sweep over workers on this machine, by the command, whose process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from flux_ensemble.queues.providers.local.worker_process import WorkerProcess

JOBS = 40

DOCUMENT = """
name: sweep
members:
  - {name: here, from: local, runs: tasks, count: 2, exclusive: false, cores: 1, duration: 10m,
     options: {partition: batch}}
jobs:
  - name: sim
    command: sh -c 'echo {s} >>RAN; sleep 0.1'
    params: {s: {range: [0, JOBS]}}
rules:
  - {trigger: start, action: {name: submit, label: sim}}
"""


class Sweep:
    """The command, its run, and what its tasks have done."""

    def __init__(self, directory: Path) -> None:
        self.ran = directory / "ran"
        self.ran.touch()
        self.document = directory / "sweep.yaml"
        text = DOCUMENT.replace("RAN", str(self.ran)).replace("JOBS", str(JOBS))
        self.document.write_text(text)
        self.state = directory / "state"
        self.workers = self.state / "sweep" / "workers"
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        }

    def command(self, *words: str) -> subprocess.Popen[str]:
        run = "flux-ensemble", "run", "--state-dir", str(self.state)
        return subprocess.Popen(
            [*run, *words, str(self.document)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def status(self) -> dict[str, Any]:
        words = ["flux-ensemble", "status", "--state-dir", str(self.state), "--json", "sweep"]
        said = subprocess.run(words, env=self._environment, stdout=subprocess.PIPE, check=True)
        (status,) = json.loads(said.stdout)["ensembles"]
        return dict(status)

    def lines(self) -> list[str]:
        return self.ran.read_text().split()

    def pids(self) -> list[int]:
        paths = sorted(self.workers.glob("*.out"))
        return [pid for path in paths for pid in WorkerProcess(path)._processes()]


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    made = Sweep(tmp_path)
    yield made
    for pid in made.pids():
        os.kill(pid, signal.SIGKILL)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_home_that_is_killed_goes_on_with_its_workers_and_each_task_runs_once(
    sweep: Sweep,
) -> None:
    run = sweep.command()
    until(lambda: len(sweep.lines()) >= 5 and len(sweep.pids()) == 2)
    pids = sweep.pids()
    for done in (12, 20):
        run.kill()
        run.communicate()
        assert sweep.pids() == pids
        run = sweep.command("--resume")
        until(lambda done=done: len(sweep.lines()) >= done)  # type: ignore[misc]
    said, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    assert sorted(map(int, sweep.lines())) == list(range(JOBS))
    assert sweep.pids() == []
    assert "is lost" not in said


def test_a_worker_that_is_killed_while_there_is_no_home_is_replaced(sweep: Sweep) -> None:
    run = sweep.command()
    until(lambda: len(sweep.lines()) >= 5 and len(sweep.pids()) == 2)
    run.kill()
    run.communicate()
    for pid in sweep.pids():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not sweep.pids())
    run = sweep.command("--resume")
    said, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    # What had not been reported when its worker was killed ran again: 'on-lost' is resubmit.
    assert sorted(set(map(int, sweep.lines()))) == list(range(JOBS))
    assert len(sweep.lines()) <= JOBS + sweep.status()["groups"]["sim"]["interrupted"]


def test_an_interrupt_ends_the_workers(sweep: Sweep) -> None:
    run = sweep.command()
    until(lambda: len(sweep.lines()) >= 3)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE)
    assert sweep.pids() == []
    assert len(sweep.lines()) < JOBS
