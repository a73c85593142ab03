"""How many `true` jobs a second the local queue runs, and 10,000 of them queued."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row

SIZES = (1000, 10_000)

DOCUMENT = """
name: bench
jobs: [{{name: t, command: "true", count: {count}}}]
rules: [{{trigger: start, action: {{name: submit, label: t}}}}]
limits: {{active-jobs: 100000, jobs: 100000}}
"""


def measure(smoke: bool) -> Numbers:
    """Seconds by size, and the peak memory of all runs in megabytes."""
    runs = [[count, _run(count)] for count in ((20,) if smoke else SIZES)]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"runs": runs, "megabytes": peak, "cores": os.cpu_count()}


def _run(count: int) -> float:
    """Seconds of the command `run`, from start to exit."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "bench.yaml").write_text(DOCUMENT.format(count=count))
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "flux_ensemble.cli.main", "run", "--member", "local",
             "--state-dir", directory, "bench.yaml"],
            cwd=directory, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
    table = next(line.split() for line in done.stdout.splitlines() if line.startswith("t "))
    assert table[1:3] == [str(count)] * 2, done.stdout
    return seconds


def rows(numbers: Numbers) -> list[Row]:
    """The rate, with most jobs queued."""
    count, seconds = numbers["runs"][-1]
    return [
        Row(
            f"local queue: `true` jobs a second, {count:,} queued",
            count / seconds, ">=", 300, "",
            f"{seconds:.1f} s on {numbers['cores']} cores, {numbers['megabytes']:.0f} MB",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """The rates."""
    axes = figure.subplots()
    values = {f"{count:,} jobs": [count / seconds] for count, seconds in numbers["runs"]}
    plots.bars(axes, values, [plots.OURS] * len(values))
    plots.goal(axes, x=300)
    axes.set_xlabel("jobs a second, start and end of the command included")
    plots.legend(axes)


BENCHMARK = Benchmark(
    "local",
    "The local queue",
    """`flux-ensemble run --member local` of an ensemble whose jobs are all submitted at the start,
    from the start of the command to its exit. These jobs are processes.""",
    measure,
    rows,
    plot,
    height=1.6,
)
