"""How many `true` jobs a second the local queue runs, and 10,000 of them queued."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle

SIZES = (1000, 10_000)

DOCUMENT = """
name: bench
jobs: [{{name: t, command: "true", count: {count}}}]
rules: [{{trigger: start, action: {{name: submit, label: t}}}}]
limits: {{active-jobs: 100000, jobs: 100000}}
"""


#: One job, which says when it runs.
FIRST = """
name: hello
jobs: [{name: hello, command: [sh, -c, "date +%s.%N >first"]}]
rules: [{trigger: start, action: {name: submit, label: hello}}]
"""

#: The same with Flux: an instance, and a job in it.
FLUX = ["flux", "start", "flux", "run", "sh", "-c", "date +%s.%N >first"]

#: How often that is done.
TIMES = 7


def measure(smoke: bool) -> Numbers:
    """Seconds by size, and the peak memory of all runs in megabytes; seconds to a first job."""
    runs = [[count, _run(count)] for count in ((20,) if smoke else SIZES)]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    first: dict[str, list[float]] = {"ours": [], "flux": []}
    for _ in range(1 if smoke else TIMES):
        first["ours"].append(_first([*_RUN, "hello.yaml"]))
        if shutil.which("flux") is not None:
            first["flux"].append(_first(FLUX))
    return {"runs": runs, "megabytes": peak, "cores": os.cpu_count(), "first": first}


#: The command, up to the directory and the document.
_RUN = [
    sys.executable,
    "-m",
    "flux_ensemble.cli.main",
    "run",
    "--queue",
    "local",
    "--state-dir",
    ".",
]


def _first(command: list[str]) -> float:
    """Seconds from the start of a command until its job runs."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "hello.yaml").write_text(FIRST)
        begin = time.time()
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
        return float(Path(directory, "first").read_text()) - begin


def _run(count: int) -> float:
    """Seconds of the command `run`, from start to exit."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "bench.yaml").write_text(DOCUMENT.format(count=count))
        begin = time.perf_counter()
        done = subprocess.run(
            [*_RUN, "bench.yaml"], cwd=directory, check=True, stdout=subprocess.PIPE, text=True
        )
        seconds = time.perf_counter() - begin
    table = next(line.split() for line in done.stdout.splitlines() if line.startswith("t "))
    assert table[1:3] == [str(count)] * 2, done.stdout
    return seconds


def rows(numbers: Numbers) -> list[Row]:
    """The rate, with most jobs queued, and the first job of a run."""
    count, seconds = numbers["runs"][-1]
    return [
        Row(
            f"local queue: `true` jobs a second, {count:,} queued",
            count / seconds, ">=", 300, "",
            f"{seconds:.1f} s on {numbers['cores']} cores, {numbers['megabytes']:.0f} MB",
        ),
        *_first_row(numbers.get("first", {"flux": []})),
    ]  # fmt: skip


def _first_row(first: Numbers) -> list[Row]:
    """Against an instance of Flux, where there is one."""
    if not first["flux"]:
        return []
    ours, flux = (middle(first[key]) for key in ("ours", "flux"))
    return [
        Row(
            "local queue: start of the command to its first job / of `flux start flux run`",
            ours / flux, "<=", 0.5, "x", f"{1e3 * ours:.0f} / {1e3 * flux:.0f} ms",
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
    """`flux-ensemble run --queue local` of an ensemble whose jobs are all submitted at the start,
    from the start of the command to its exit. These jobs are processes. And an ensemble of one job,
    which says when it runs, against a job in an instance of Flux that is started for it.""",
    measure,
    rows,
    plot,
    height=1.6,
)
