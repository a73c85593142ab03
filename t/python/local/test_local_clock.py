"""The local queue where the clock of the machine is set, forward or back."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from local_queue import bench, shell
from patience import PATIENCE

from flux_ensemble.cli.display.views import Plain
from flux_ensemble.cli.session.local_run import Options, run_locally
from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.commands import StartTimer
from flux_ensemble.engine.events import Started, TimerFired
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.states import States
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.durability.timers import Timers

HOUR = 3600.0


class Clock:
    """The clock, which can be set."""

    def __init__(self) -> None:
        self._real = time.time
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that everything of this process reads."""
    made = Clock()
    monkeypatch.setattr(time, "time", made)
    return made


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_the_time_limit_of_a_job_does_not_follow_the_clock(
    tmp_path: Path, clock: Clock, step: float
) -> None:
    with bench(tmp_path, command=shell("echo >>ran; exec sleep 1000"), duration=1000) as one:
        one.submit()
        one.wait("start")
        clock.ahead += step
        # More time, which is counted from its start.
        one.update(1, duration=500.0)
        one.loop.timer(0.05, lambda: one.update(1, duration=0.1))
        one.run()
    assert one.context("exception")["type"] == "timeout"
    names = one.names()
    assert names[: names.index("exception")].count("jobspec-update") == 2
    assert names.count("exception") == 1


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_an_ensemble_completes_whatever_the_clock_does(
    tmp_path: Path, clock: Clock, step: float
) -> None:
    rules = [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {"trigger": "timer", "after": 0.2, "every": 0.1,
         "action": {"name": "submit", "label": "b", "repetitions": 3}},
    ]  # fmt: skip
    jobs = [{"name": "a", "command": "true"}, {"name": "b", "command": "true"}]
    text = json.dumps({"name": "test", "jobs": jobs, "rules": rules})

    class Setting(Plain):
        """Sets the clock when the first job has been submitted."""

        def line(self, line: object) -> None:
            clock.ahead = step

    options = Options(timeout=PATIENCE, state_dir=tmp_path / "state")
    code = run_locally(load_text(text), text, VirtualCluster(1, 1), Setting(), options)
    assert code == 0
    groups = States(tmp_path / "state").status("test")["groups"]
    assert (groups["a"]["success"], groups["b"]["success"]) == (1, 3)


def test_a_timer_has_no_more_left_than_it_was_set_for() -> None:
    timers = Timers()
    timers.take(Started(1000.0), [StartTimer("once", 5.0, 0.0), StartTimer("often", 7.0, 2.0)])
    now = {"in time": 1001.0, "late": 2000.0, "back": -5000.0}
    left = {what: [one.after for one in timers.due(t)] for what, t in now.items()}
    assert left == {"in time": [4.0, 6.0], "late": [0.0, 0.0], "back": [5.0, 7.0]}
    timers.take(TimerFired(1007.0, "often"), [])
    assert [one.after for one in timers.due(1008.0)] == [0.0, 1.0]


def test_a_timer_of_many_days_does_not_end_the_loop() -> None:
    loop = LocalLoop()
    rang: list[str] = []
    loop.timer(60 * 86400.0, lambda: rang.append("late"))
    loop.timer(0.01, lambda: rang.append("soon")).cancel()
    reads, writes = socket.socketpair()
    loop.reader(reads.fileno(), lambda: rang.append("read"))
    writes.send(b"x")
    loop.run(lambda: bool(rang))
    assert rang == ["read"]
    loop.close()
    reads.close()
    writes.close()
