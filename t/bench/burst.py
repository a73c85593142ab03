"""A start rule with 10,000 jobs: how fast they are accepted, and what others feel of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle, percentile
from live import Stage, burst, live

JOBS, ROUNDS = 10_000, 3

#: How long each job runs: the first ones are running, and the others wait, as on a real machine.
SECONDS = 3600

#: Seconds between two requests for the status.
PAUSE = 0.02


def measure(smoke: bool) -> Numbers:
    """Rates of acceptance, and the latencies of `ensemble.status` while jobs are accepted."""
    jobs, rounds = (20, 1) if smoke else (JOBS, ROUNDS)
    found: dict[str, list[Numbers]] = {"bare": [], "ensemble": []}
    for _ in range(rounds):
        for kind, run in (("bare", _bare), ("ensemble", _ensemble)):
            with live() as stage:
                found[kind].append(run(stage, jobs))
    told = {}
    for place, start in (("module", Stage.load_service), ("process", Stage.keep_service)):
        with live() as stage:
            start(stage)
            status, empty = _status(stage, jobs)
            told[place] = {"status": status, "empty": empty}
    return {"jobs": jobs, **found, "told": told}


def _bare(stage: Stage, jobs: int) -> Numbers:
    """What a client can do that does nothing but to submit."""
    begin = stage.client("bare", "bare", jobs, SECONDS)["begin"]
    return _accepted(stage, "bare", jobs, begin)


def _ensemble(stage: Stage, jobs: int) -> Numbers:
    stage.load_service()
    stage.load(burst("many", jobs, SECONDS)).get()
    stage.await_jobs(jobs)
    log = stage.entries("many", follow=False)
    begin = next(entry["timestamp"] for entry in log if entry["name"] == "fire")
    return _accepted(stage, "many", jobs, begin)


def _status(stage: Stage, jobs: int) -> tuple[list[float], list[float]]:
    """Milliseconds that requests took, of the service and of a module that has nothing to do."""
    stage.load(burst("many", jobs, SECONDS)).get()
    latencies: list[float] = []
    empty: list[float] = []
    accepted = 0
    while accepted < jobs:
        status = _timed(lambda: stage.status("many"), latencies)
        accepted = status["groups"]["many"]["submitted"]
        time.sleep(PAUSE)
        _timed(lambda: stage.rpc("heartbeat.ping", seq=0, pad=""), empty)
        time.sleep(PAUSE)
    return latencies, empty


def _timed(ask: Callable[[], Any], latencies: list[float]) -> Any:
    """The answer; the milliseconds go to the list."""
    begin = time.perf_counter()
    answer = ask()
    latencies.append(round(1e3 * (time.perf_counter() - begin), 3))
    return answer


def _accepted(stage: Stage, name: str, jobs: int, begin: float) -> Numbers:
    """When the jobs were accepted, in seconds from the beginning, and at what rate."""
    stage.await_jobs(jobs)
    times = sorted(job.accepted - begin for job in stage.jobs(name))
    assert len(times) == jobs, f"{len(times)} jobs of {jobs}"
    every = max(1, jobs // 200)
    return {"rate": jobs / times[-1], "times": [round(t, 4) for t in times[every - 1 :: every]]}


def rows(numbers: Numbers) -> list[Row]:
    """The rate, and the slowest requests."""
    bare, ensemble = (
        middle([one["rate"] for one in numbers[kind]]) for kind in ("bare", "ensemble")
    )
    jobs = f"{numbers['jobs']:,} jobs"
    return [
        Row(
            f"start rule with {jobs}: accepted a second / by a bare loop of `submit_async`",
            ensemble / bare, ">=", 1, "x", f"{ensemble:.0f} / {bare:.0f} jobs/s",
        ),
        *(_row(jobs, place, told) for place, told in _told(numbers).items()),
    ]  # fmt: skip


#: Where the service was: what the row calls it, and how much longer the status may take.
PLACES = {
    "process": ("beside the broker", 2),
    "module": ("as a broker module, which has one handle", 4),
}


def _told(numbers: Numbers) -> dict[str, Numbers]:
    """The latencies, by where the service was."""
    # As they were kept when there was the module alone.
    earlier = {"module": {key: numbers.get(key) for key in ("status", "empty")}}
    told: dict[str, Numbers] = numbers.get("told", earlier)
    return told


def _row(jobs: str, place: str, told: Numbers) -> Row:
    where, goal = PLACES[place]
    status, empty = (
        [percentile(told[key], percent) for percent in (50, 99)] for key in ("status", "empty")
    )
    return Row(
        f"`ensemble.status` of a service {where}, while {jobs} are submitted / an empty request to "
        "Flux's heartbeat module, p99",
        status[1] / empty[1], "<=", goal, "x",
        f"{status[1]:.1f} / {empty[1]:.1f} ms; p50 {status[0]:.2f} / {empty[0]:.2f} ms",
    )  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Jobs accepted over time, and the latencies."""
    left, right = figure.subplots(1, 2)
    for kind, name, color in (
        ("bare", "bare loop of submit_async", plots.OTHER),
        ("ensemble", "ensemble", plots.OURS),
    ):
        for number, one in enumerate(numbers[kind]):
            label = name if not number else "_"
            plots.progress(left, one["times"], numbers["jobs"], label, color)
    left.set_ylabel("jobs accepted")
    plots.legend(left)
    told = _told(numbers)
    empty = [latency for one in told.values() for latency in one["empty"]]
    plots.ecdf(right, empty, "empty request", plots.OTHER)
    for place, one in told.items():
        color = plots.OURS if place == "process" else plots.THIRD
        plots.ecdf(right, one["status"], f"status, {place}", color)
    plots.logarithmic(right)
    right.set_xlabel("ms")
    plots.legend(right)


BENCHMARK = Benchmark(
    "burst",
    "A burst of submissions",
    """An ensemble with a start rule against a client that calls `submit_async` for each job and
    waits for the ids, each in an instance of its own. The rate is that from the firing of the
    rule, or the first call, to the last job's `validate` event. Every job of the client passes
    the validators of job-ingest; of an ensemble's job set one does. The jobs are long: the
    first 128 run, and the others wait for cores. In further such bursts the status is asked for,
    and in turns with it nothing of a module of Flux that has nothing else to do, 20 ms after
    each response, until all jobs are accepted: once with the service as a process beside the
    broker, which the keeper runs, and once as a broker module.""",
    measure,
    rows,
    plot,
)
