"""The service is killed with 10,000 finished and 1,000 active jobs, and started again."""

from __future__ import annotations

import time
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle
from live import group, live

FINISHED, ACTIVE, ROUNDS = 10_000, 1000, 3


def document(finished: int, active: int) -> dict[str, Any]:
    """Jobs that stay, and then jobs that come and go."""
    return {
        "name": "kept",
        "jobs": [group("long", 36_000, count=active), group("short", count=finished)],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "long"}},
            {"trigger": "start", "action": {"name": "submit", "label": "short"}},
        ],
        "limits": {"active-jobs": finished + active},
    }


def measure(smoke: bool) -> Numbers:
    """Seconds from `flux module load` to a service that is ready, in rounds."""
    finished, active, rounds = (30, 5, 1) if smoke else (FINISHED, ACTIVE, ROUNDS)
    seconds, empty = [], []
    with live(cores=2 * active + 128) as stage:
        for _ in range(rounds):
            begin = time.monotonic()
            stage.load_service()
            empty.append(time.monotonic() - begin)
            stage.unload_service()
        stage.load_service()
        stage.load(document(finished, active)).get()

        def over() -> bool:
            groups = stage.status("kept")["groups"]
            return bool(
                groups["short"]["finished"] == finished and groups["long"]["running"] == active
            )

        stage.until(over, "the jobs do not end", 1)
        for _ in range(rounds):
            stage.kill_service()
            begin = time.monotonic()
            stage.load_service()
            seconds.append(time.monotonic() - begin)
            groups = stage.status("kept")["groups"]
            assert over(), f"recovered {groups}"
            assert stage.rpc("ensemble.status")["service"]["state"] == "ready"
    return {"finished": finished, "active": active, "seconds": seconds, "empty": empty}


def rows(numbers: Numbers) -> list[Row]:
    """The recovery."""
    return [
        Row(
            f"recovery of an ensemble with {numbers['finished']:,} finished and "
            f"{numbers['active']:,} active jobs",
            middle(numbers["seconds"]), "<=", 3, "s",
            f"of these {middle(numbers['empty']):.2f} s to start with nothing to recover",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Each start."""
    axes = figure.subplots()
    values = {"nothing to recover": numbers["empty"], "after kill -9": numbers["seconds"]}
    plots.bars(axes, values, [plots.OTHER, plots.OURS])
    plots.goal(axes, x=3)
    axes.set_xlabel("seconds from `flux module load` to a service that is ready")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "recover",
    "Recovery",
    """An ensemble has finished its short jobs, and its long ones run; the service is killed
    (SIGKILL) and loaded again. The time is that from the start of `flux module load` until the
    service says that it is ready; then every job is accounted for.""",
    measure,
    rows,
    plot,
    height=1.8,
)
