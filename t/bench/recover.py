"""The service is killed with 10,000 finished and 1,000 active jobs, and started again."""

from __future__ import annotations

import time
from collections.abc import Callable
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
    """Seconds until a service is ready, in rounds, with nothing to recover and with the ensemble.

    As a broker module from `flux module load`, under the keeper from the kill.
    """
    finished, active, rounds = (30, 5, 1) if smoke else (FINISHED, ACTIVE, ROUNDS)
    with live() as stage:
        stage.keep_service()
        kept_empty = [_seconds(stage.kill_kept_service) for _ in range(rounds)]
    empty, seconds, kept = [], [], []
    with live(cores=2 * active + 128) as stage:
        for _ in range(rounds):
            empty.append(_seconds(stage.load_service))
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
            seconds.append(_seconds(stage.load_service))
            assert over(), "jobs are lost"
        stage.kill_service()
        stage.keep_service()
        for _ in range(rounds):
            kept.append(_seconds(stage.kill_kept_service))
            assert over(), "jobs are lost"
    return {
        "finished": finished,
        "active": active,
        "seconds": seconds,
        "empty": empty,
        "kept": kept,
        "kept_empty": kept_empty,
    }


def _seconds(do: Callable[[], None]) -> float:
    """How long something takes."""
    begin = time.monotonic()
    do()
    return time.monotonic() - begin


def rows(numbers: Numbers) -> list[Row]:
    """The recoveries."""
    what = (
        f"recovery of an ensemble with {numbers['finished']:,} finished and "
        f"{numbers['active']:,} active jobs"
    )
    return [
        Row(
            what, middle(numbers["seconds"]), "<=", 3, "s",
            f"of these {middle(numbers['empty']):.2f} s to start with nothing to recover",
        ),
        Row(f"under the keeper, from the kill: {what}",
            middle(numbers["kept"]), "<=", 3, "s"),
        Row("under the keeper, from the kill: a service with nothing to recover",
            middle(numbers["kept_empty"]), "<=", 1, "s"),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Each start."""
    axes = figure.subplots()
    values = {
        "nothing to recover": numbers["empty"],
        "after kill -9": numbers["seconds"],
        "keeper, nothing to recover": numbers["kept_empty"],
        "keeper, after kill -9": numbers["kept"],
    }
    plots.bars(axes, values, [plots.OTHER, plots.OURS] * 2)
    plots.goal(axes, x=3)
    axes.set_xlabel("seconds until a service is ready")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "recover",
    "Recovery",
    """An ensemble has finished its short jobs, and its long ones run; the service is killed
    (SIGKILL). A broker module is loaded again, and the time is that from the start of `flux module
    load`; beside the broker the keeper starts another one, and it is that from the kill. Both end
    when the service says that it is ready; then every job is accounted for.""",
    measure,
    rows,
    plot,
    height=2.4,
)
