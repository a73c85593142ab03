"""Two ensembles that compete: how exactly their shares are kept, and when the second begins."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row
from live import Stage, burst, live

#: Cores, jobs of each, seconds of each job, when the second comes, and how long both run.
CORES, JOBS, SECONDS, LATE, RUN = 12, 3000, 1.0, 5.0, 130.0

#: Seconds over which core-seconds are compared, and after which the second has made up for the
#: start.
SPAN, SETTLED = 60.0, 10.0


def document(name: str, share: float, jobs: int, seconds: float) -> dict[str, Any]:
    """An ensemble whose jobs, which have its name, all compete from its start."""
    return {**burst(name, jobs, seconds), "share": share}


def measure(smoke: bool) -> Numbers:
    """When the jobs of both ran, in seconds since the second was loaded."""
    jobs, seconds, late, run = (150, 0.1, 0.2, 0.0) if smoke else (JOBS, SECONDS, LATE, RUN)
    with live(cores=CORES) as stage:
        stage.load_service()
        stage.load(document("first", 1, jobs, seconds)).get()
        time.sleep(late)
        begin = time.time()
        stage.load(document("second", 2, jobs, seconds)).get()
        if smoke:
            for name in ("first", "second"):
                stage.until(partial(_is_sent, stage, name, jobs), f"{name} has jobs to send", 0.1)
            stage.await_idle()
        else:
            time.sleep(run)
        end = time.time()
        spans = {
            name: [
                [round(job.started - begin, 3), round((job.finished or end) - begin, 3)]
                for job in stage.jobs(name)
                if job.started
            ]
            for name in ("first", "second")
        }
    return {"run": end - begin, "cores": CORES, "jobs": jobs, "spans": spans}


def _is_sent(stage: Stage, name: str, jobs: int) -> bool:
    return len(stage.jobs(name)) == jobs


def _used(spans: list[list[float]], begin: float, end: float) -> float:
    """Core-seconds of jobs between two times."""
    return sum(max(0.0, min(b, end) - max(a, begin)) for a, b in spans)


def rows(numbers: Numbers) -> list[Row]:
    """The ratio furthest from that of the shares in any minute, and the first job of the second."""
    first, second = numbers["spans"]["first"], numbers["spans"]["second"]
    span, settled = min(SPAN, numbers["run"] / 2), min(SETTLED, numbers["run"] / 4)
    starts, t = [], settled
    while t + span <= numbers["run"]:
        starts.append(t)
        t += span / 12
    used = [(_used(first, t, t + span), _used(second, t, t + span)) for t in starts]
    # A run in the tiny size can be over before both have had jobs at a time.
    used = [(a, b) for a, b in used if a and b] or [(span, span)]
    ratios = [b / a for a, b in used]
    off = max(abs(ratio / 2 - 1) for ratio in ratios)
    busy = min(a + b for a, b in used) / span / numbers["cores"]
    soonest = min(a for a, _ in second)
    return [
        Row(
            "two ensembles with shares 1 and 2: how far the ratio of core-seconds is from 2 in the "
            "worst minute",
            100 * off, "<=", 10, "%", f"{min(ratios):.2f} to {max(ratios):.2f}",
        ),
        Row(
            "the same, cores that are busy in the worst minute",
            100 * busy, ">=", 90, "%", f"{numbers['cores']} cores, jobs of {SECONDS:g} s",
        ),
        Row(
            f"first job of the second, with {numbers['jobs']:,} of the first in the queue",
            soonest, "<=", 3, "s", "since its load request",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Cores of each over time."""
    axes = figure.subplots()
    seconds = range(int(numbers["run"]))
    for name, share, color in (("first", 1, plots.OTHER), ("second", 2, plots.OURS)):
        cores = [_used(numbers["spans"][name], t, t + 1) for t in seconds]
        axes.step(seconds, cores, label=f"share {share}", color=color)
    axes.set_xlabel("seconds since the second was loaded")
    axes.set_ylabel("cores")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "shares",
    "Shares of ensembles that compete",
    """The first ensemble has all its jobs in the queue when the second is loaded. Core-seconds are
    those between the times that Flux gives for each job, in every span of a minute of those in
    which both have jobs, from ten seconds after the second was loaded.""",
    measure,
    rows,
    plot,
)
