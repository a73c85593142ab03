"""The simulator at scale: ensembles of 100 groups with 50 rules on 1,024 nodes of 64 cores."""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

import plots
import simpy_queue
from benchmark import Benchmark, Numbers, Row, middle

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.queues.simulation.simulation import Simulation
from flux_ensemble.queues.virtual.cluster import VirtualCluster

SIZES, ROUNDS = (10_000, 100_000, 1_000_000), 3
GROUPS, RULES = 100, 50


def document(jobs: int) -> dict[str, Any]:
    """Half of the rules submit a group each at the start; of the others each looks at every
    success of a job of one of these, and at each tenth submits ten jobs of another group."""
    pairs = [(f"first-{number}", f"second-{number}") for number in range(RULES // 2)]
    others = [f"other-{number}" for number in range(GROUPS - RULES)]
    count = jobs // RULES
    return {
        "name": "bench",
        "jobs": [
            *({"name": first, "command": "true", "count": count} for first, _ in pairs),
            *({"name": second, "command": "true", "count": 10, "cores": 2} for _, second in pairs),
            *({"name": other, "command": "true"} for other in others),
        ],
        "rules": [
            *(
                {"trigger": "start", "action": {"name": "submit", "label": first}}
                for first, _ in pairs
            ),
            *(
                {
                    "trigger": "job-success",
                    "group": first,
                    "action": {
                        "name": "submit",
                        "label": second,
                        "repetitions": "unlimited",
                        "backoff": 9,
                    },
                }
                for first, second in pairs
            ),
        ],
        # A cap that both sizes reach, so that they spend their time in the same way.
        "limits": {"jobs": jobs, "active-jobs": 1000},
        "simulate": {
            name: {"duration": {"lognormal": {"median": 60, "sigma": 0.5}}}
            for pair in pairs
            for name in pair
        },
    }


def run(jobs: int) -> tuple[float, float]:
    """Simulate so many jobs.

    Returns:
        Seconds of processor time, and the most megabytes that this process has had.
    """
    spec = load_mapping(document(jobs))
    begin = time.process_time()
    found = Simulation(spec, VirtualCluster(1024, 64), spec.simulate).run()
    seconds = time.process_time() - begin
    assert found.status["jobs"]["total"] == jobs
    assert found.status["state"] == "completed"
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(smoke: bool) -> Numbers:
    """Seconds and megabytes by size; each run in a process of its own."""
    sizes, rounds = ((500, 1000), 1) if smoke else (SIZES, ROUNDS)
    found = []
    for jobs in sizes:
        # The smallest is over too soon to be measured once.
        for _ in range(rounds if jobs == sizes[0] else 1):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found.append([jobs, *pool.apply(run, (jobs,))])
    size = sizes[len(sizes) // 2]
    return {"runs": found, "size": size, "pairs": [_pair(size) for _ in range(rounds)]}


def _pair(jobs: int) -> list[float]:
    """Seconds of the simulator and of a bare model, one after the other."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        ours, _ = pool.apply(run, (jobs,))
        return [ours, pool.apply(simpy_queue.run, (jobs, 1000, 1024 * 64, 60.0, 0.5))]


def rows(numbers: Numbers) -> list[Row]:
    """Time against a bare model, memory, and growth."""
    runs = numbers["runs"]
    small, large = runs[0][0], runs[-1][0]
    first = min(seconds for jobs, seconds, _ in runs if jobs == small)
    _, seconds, megabytes = runs[-1]
    text = f"simulation of {large:,} jobs"
    return [
        *_against_simpy(numbers),
        Row(f"{text}: memory", megabytes, "<=", 500, "MB"),
        Row(
            f"{text}: cost of a job against that of one of {small:,}",
            (seconds / large) / (first / small), "<=", 1.3, "x",
            f"{1e6 * seconds / large:.1f} / {1e6 * first / small:.1f} us",
        ),
    ]  # fmt: skip


def _against_simpy(numbers: Numbers) -> list[Row]:
    """Against the bare model, where it was measured."""
    if "pairs" not in numbers:
        return []
    jobs = numbers["size"]
    ours, theirs = (middle([pair[at] for pair in numbers["pairs"]]) for at in (0, 1))
    return [
        Row(
            f"simulation of {jobs:,} jobs, with rules / a bare SimPy model of the queue, without",
            ours / theirs, "<=", 2, "x",
            f"{1e6 * ours / jobs:.1f} / {1e6 * theirs / jobs:.1f} us a job",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """Time and memory by the number of jobs."""
    left, right = figure.subplots(1, 2)
    jobs, seconds, megabytes = zip(*numbers["runs"], strict=True)
    costs = [1e6 * spent / many for many, spent in zip(jobs, seconds, strict=True)]
    left.plot(jobs, costs, "o", color=plots.OURS)
    plots.goal(left, y=1.3 * min(costs[:-1]), label="goal: 1.3x the least")
    left.set_ylabel("us of processor time a job")
    left.set_ylim(0, 1.6 * max(costs))
    right.plot(jobs, megabytes, "o", color=plots.OURS)
    plots.goal(right, y=500)
    right.set_ylabel("MB at most")
    right.set_ylim(0, 600)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("jobs simulated")
        plots.legend(axes)


BENCHMARK = Benchmark(
    "simulate",
    "The simulator",
    """Ensembles with half of their groups submitted at the start, and a rule on each of those
    that submits ten jobs at each tenth success; lognormal durations, at most 1,000 jobs active,
    1,024 nodes of 64 cores. Processor time and peak memory of the process. The bare model
    (`t/bench/simpy_queue.py`) has as many jobs, the same durations, cores and bound, written with
    SimPy as its manual does it: no groups, rules, statistics or log.""",
    measure,
    rows,
    plot,
)
