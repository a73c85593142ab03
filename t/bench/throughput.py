"""An ensemble of 4,000 jobs against Flux's own throughput, and what the service takes for it."""

from __future__ import annotations

from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle
from live import Stage, burst, live

JOBS, ROUNDS = 4000, 3

#: An ensemble that is live, and has no jobs.
IDLE = {
    "jobs": [{"name": "never", "command": "true"}],
    "rules": [{"trigger": "job-fail", "action": {"name": "terminate"}}],
    "finish": "never",
}


def measure(smoke: bool) -> Numbers:
    """Rates by kind, in rounds: the three kinds alternate in one instance."""
    jobs, rounds = (20, 1) if smoke else (JOBS, ROUNDS)
    kinds = {"flux": _flux, "loaded": _loaded, "ensemble": _ensemble}
    found: dict[str, list[Numbers]] = {kind: [] for kind in kinds}
    with live() as stage:
        stage.client("watch", "warm-up", 200 if not smoke else 5)
        stage.await_idle()
        for number in range(rounds):
            # Each kind is once the first, because Flux gets slower with the jobs it has had.
            order = [*kinds][number:] + [*kinds][:number]
            for kind in order:
                found[kind].append(_timed(stage, kinds[kind], f"{kind}-{number}", jobs))
    return {"jobs": jobs, **found}


def _timed(stage: Stage, run: Any, name: str, jobs: int) -> Numbers:
    spent = run(stage, name, jobs)
    times = stage.jobs(name)
    assert len(times) == jobs, f"{len(times)} jobs of {jobs}"
    begin = min(job.submitted for job in times)
    return {"rate": jobs / (max(job.clean for job in times) - begin), "processor": spent}


def _flux(stage: Stage, name: str, jobs: int) -> Numbers:
    before = stage.processor()
    told = stage.client("watch", name, jobs)
    assert told["clean"] == jobs
    stage.await_idle()
    return stage.processor_since(before)


def _loaded(stage: Stage, name: str, jobs: int) -> Numbers:
    stage.load_service()
    stage.load({**IDLE, "name": f"idle-{name}"}).get()
    spent = _flux(stage, name, jobs)
    stage.rpc("ensemble.terminate", name=f"idle-{name}")
    stage.unload_service()
    return spent


def _ensemble(stage: Stage, name: str, jobs: int) -> Numbers:
    stage.load_service()
    before = stage.processor()
    stage.run(burst(name, jobs))
    stage.await_idle()
    spent = stage.processor_since(before)
    assert stage.status(name)["groups"][name]["success"] == jobs
    stage.unload_service()
    return spent


def share(numbers: Numbers) -> float:
    """The service's share of the processor time in percent, the median of the rounds."""
    return middle(
        [
            100 * one["processor"]["service"] / sum(one["processor"].values())
            for one in numbers["ensemble"]
        ]
    )


def rate(numbers: Numbers, kind: str) -> float:
    """Jobs a second, the median of the rounds."""
    return middle([one["rate"] for one in numbers[kind]])


def rows(numbers: Numbers) -> list[Row]:
    """The ensemble, the loaded service, and the processor time."""
    own = rate(numbers, "flux")
    jobs = f"{numbers['jobs']:,} jobs"
    service = middle([one["processor"]["service"] for one in numbers["ensemble"]])
    return [
        Row(
            f"throughput of an ensemble of {jobs} / of Flux's own benchmark",
            rate(numbers, "ensemble") / own, ">=", 0.99, "x",
            f"{rate(numbers, 'ensemble'):.0f} / {own:.0f} jobs/s",
        ),
        Row(
            "Flux's own benchmark with the service and an idle ensemble loaded / without them",
            rate(numbers, "loaded") / own, ">=", 0.99, "x",
            f"{rate(numbers, 'loaded'):.0f} / {own:.0f} jobs/s",
        ),
        Row(
            "processor time of the service in the ensemble's run, of all of Flux",
            share(numbers), "<=", 8, "%",
            f"{1e3 * service / numbers['jobs']:.2f} ms a job",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Two panels: rates, and processor time a job."""
    left, right = figure.subplots(1, 2)
    names = {"flux": "Flux alone", "loaded": "Flux, service idle", "ensemble": "ensemble"}
    colors = [plots.OTHER, plots.THIRD, plots.OURS]
    rates = {name: [one["rate"] for one in numbers[kind]] for kind, name in names.items()}
    plots.bars(left, rates, colors)
    plots.goal(left, x=0.99 * rate(numbers, "flux"), label="goal: 0.99x")
    left.set_xlabel("jobs/s")
    left.set_title(f"{numbers['jobs']:,} jobs")
    plots.legend(left)
    spent = {
        name: {
            part: 1e3 * middle([one["processor"][part] for one in numbers[kind]]) / numbers["jobs"]
            for part in ("broker", "other", "service")
        }
        for kind, name in names.items()
    }
    plots.stacked(right, spent, [plots.OTHER, "#c9c9c9", plots.OURS])
    right.set_yticklabels([])
    right.set_xlabel("ms of processor time a job")
    right.set_title("")
    plots.legend(right)


BENCHMARK = Benchmark(
    "throughput",
    "Throughput, and what the service takes for it",
    """In one instance alternate: a client that submits all jobs at once and follows the eventlog
    of each, as Flux's own `src/test/throughput.py` does; the same while the service is loaded
    with an ensemble that is live and has nothing to do with these jobs; and an ensemble with a
    start rule.
    The rate is that from the first job's submit event to the last one's clean event. Processor
    time is that of all processes of the instance, from /proc; the client's is not counted.""",
    measure,
    rows,
    plot,
)
