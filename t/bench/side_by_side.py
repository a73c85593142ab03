"""50 ensembles of 200 jobs side by side against one of 10,000."""

from __future__ import annotations

from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row
from live import burst, live

ENSEMBLES, JOBS, ROUNDS = 50, 200, 2


def measure(smoke: bool) -> Numbers:
    """Seconds from the first request to the last job's end; an instance for each run."""
    ensembles, jobs, rounds = (3, 5, 1) if smoke else (ENSEMBLES, JOBS, ROUNDS)
    found: Numbers = {"ensembles": ensembles, "jobs": jobs, "one": [], "many": []}
    kinds = [("one", 1, ensembles * jobs), ("many", ensembles, jobs)]
    for _ in range(rounds):
        for kind, *sizes in kinds:
            found[kind].append(_run(*sizes))
        # A machine that gets faster or slower meanwhile does so for both.
        kinds.reverse()
    return found


def _run(ensembles: int, jobs: int) -> Numbers:
    names = [f"e{number}" for number in range(ensembles)]
    with live() as stage:
        stage.load_service()
        before = stage.processor()
        loads = [stage.load(burst(name, jobs)) for name in names]
        for load in loads:
            load.get()
        for name in names:
            stage.entries(name)
        stage.await_idle()
        spent = stage.processor_since(before)
        begin = min(stage.entries(name)[0]["timestamp"] for name in names)
        ends = sorted(job.clean - begin for name in names for job in stage.jobs(name))
    assert len(ends) == ensembles * jobs, f"{len(ends)} jobs of {ensembles * jobs}"
    every = max(1, len(ends) // 200)
    times = [round(t, 3) for t in ends[every - 1 :: every]]
    return {"seconds": ends[-1], "times": times, "processor": spent}


def rows(numbers: Numbers) -> list[Row]:
    """One against many, by the faster run of each: what else the machine does only adds."""
    one, many = (min(run["seconds"] for run in numbers[key]) for key in ("one", "many"))
    ensembles, jobs = numbers["ensembles"], numbers["jobs"]
    return [
        Row(
            f"{ensembles} ensembles of {jobs} jobs / one of {ensembles * jobs:,}, time to the end",
            many / one, "<=", 1.1, "x", f"{many:.1f} / {one:.1f} s",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Jobs that are over, over time."""
    axes = figure.subplots()
    jobs = numbers["ensembles"] * numbers["jobs"]
    names = {
        "one": f"one ensemble of {jobs:,} jobs",
        "many": f"{numbers['ensembles']} of {numbers['jobs']}",
    }
    for (kind, name), color in zip(names.items(), (plots.OTHER, plots.OURS), strict=True):
        for number, run in enumerate(numbers[kind]):
            label = name if not number else "_"
            plots.progress(axes, run["times"], jobs, label, color)
    axes.set_ylabel("jobs over")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "side-by-side",
    "Ensembles side by side",
    """The same number of jobs as one ensemble and as many, which are loaded at once; an instance
    for each run, and two runs of each, one kind around the other, of which the faster counts.
    The time is that from the first entry in a log to the last job's clean event.""",
    measure,
    rows,
    plot,
)
