"""The report: how long it takes to make one, and what it asks of the browser that shows it."""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))

from browser import browsing
from reports import html, source

SIZES = (100_000, 1_000_000)
NODES, CORES = 64, 32

#: How the counters of the group are named that the jobs are of.
_COUNTERS = (
    "waiting", "pending", "running", "submitted", "finished", "success", "failed", "canceled",
    "timeout", "attempts", "gave-up",
)  # fmt: skip


def _jobs(count: int) -> Iterator[dict[str, Any]]:
    """Jobs of a sweep, of which some fail, one after the other on each core."""
    draw = random.Random(1)
    free = [0.0] * (NODES * CORES)
    for index in range(count):
        core = draw.randrange(len(free))
        begin, seconds = free[core], draw.lognormvariate(4, 0.5)
        free[core] = begin + seconds
        params = {"t": 280 + 10 * (index % 7), "mesh": draw.choice(["coarse", "medium", "fine"])}
        bad = draw.random() < (0.2 if params["t"] == 340 else 0.01)
        yield {
            "id": 83_886_080 * (index + 1), "name": "sim", "state": "inactive", "group": "sim",
            "rule": "begin", "firing": 0, "index": index, "attempt": 0, "params": params,
            "nnodes": 1, "ranks": str(core // CORES), "t_submit": 10.0, "t_alloc": 10.0 + begin,
            "t_run": 10.1 + begin, "t_end": 10.1 + begin + seconds, "runtime": seconds,
            "outcome": "failed" if bad else "success", "returncode": 3 if bad else 0,
            "signal": None, "interrupted": False,
            "exception": {"type": None, "note": None}, "memo": {"fom": draw.gauss(1, 0.3)},
            "memo_left_out": 0, "output": None, "error": None,
        }  # fmt: skip


def _write(path: str, count: int) -> int:
    """A file of so many jobs, a line of JSON each, as the local queue leaves it; failed jobs."""
    failed = 0
    with open(path, "w") as file:
        for job in _jobs(count):
            file.write(json.dumps(job) + "\n")
            failed += job["outcome"] == "failed"
    return failed


def _make(path: str, page: str, count: int, failed: int) -> tuple[float, float]:
    """Make a report of the jobs in a file; seconds of processor time, and megabytes."""
    import dataclasses

    begin = time.process_time()
    with open(path) as file:
        ended = {"success": count - failed, "failed": failed}
        made_of = {"attempts": count, "submitted": count, "finished": count}
        counts = {**dict.fromkeys(_COUNTERS, 0), **made_of, **ended}
        jobs = {"waiting": 0, "active": 0, "total": count}
        status = {"groups": {"sim": counts}, "jobs": jobs, "t_end": None}
        made = dataclasses.replace(source([], status=status), jobs=map(json.loads, file), now=20.0)
        Path(page).write_text(html(made))
    seconds = time.process_time() - begin
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(smoke: bool) -> Numbers:
    """Of each size: making it in a process of its own, and a browser that opens it."""
    found = []
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory, browsing() as browser:
        jobs, path = str(Path(directory, "jobs")), Path(directory, "page.html")
        for count in (200, 400) if smoke else SIZES:
            with spawn.Pool(1) as pool:
                failed = pool.apply(_write, (jobs, count))
            with spawn.Pool(1) as pool:
                seconds, megabytes = pool.apply(_make, (jobs, str(path), count, failed))
            page = browser.open(path)
            processor = page.processor()
            ready = int(page.run("return document.documentElement.dataset.ready")) / 1000
            assert f"of {count:,} jobs" in page.text("[data-jobs] [role=status]")
            assert page.complaints() == []
            page.run("gc()")
            heap = page.run("return performance.memory.usedJSHeapSize") / 1e6
            size = path.stat().st_size / 1e6
            elements = page.count("*")
            found.append([count, seconds, megabytes, size, ready, heap, elements, processor])
    return {"runs": found}


def rows(numbers: Numbers) -> list[Row]:
    """The goals are those of the first size; the second opens."""
    (count, seconds, megabytes, size, ready, heap, elements, processor), *others = numbers["runs"]
    many = f"report of {count:,} jobs"
    found = [
        Row(f"{many}: processor time to make it", seconds, "<=", 5, "s"),
        Row(f"{many}: memory to make it", megabytes, "<=", 300, "MB"),
        Row(f"{many}: size", size, "<=", 5, "MB"),
        Row(
            f"{many}: ready in the browser", ready, "<=", 2, "s",
            f"{processor:.2f} s of processor time of the page",
        ),
        Row(f"{many}: heap of the browser", heap, "<=", 150, "MB"),
        Row(f"{many}: elements of the page", elements, "<=", 2000),
    ]  # fmt: skip
    for more, seconds, _, size, ready, heap, _, processor in others:
        made = (
            f"{size:.1f} MB, made in {seconds:.0f} s, {heap:.0f} MB of heap, {processor:.1f} s of "
            "processor time of the page"
        )
        text = f"report of {more:,} jobs: ready in the browser"
        found.append(Row(text, ready, "<=", 10, "s", made))
    return found


def plot(figure: Any, numbers: Numbers) -> None:
    """Ready, and made, by size."""
    left, right = figure.subplots(1, 2)
    runs = {f"{run[0]:,} jobs": run for run in numbers["runs"]}
    plots.bars(left, {name: [run[1]] for name, run in runs.items()}, [plots.OURS] * len(runs))
    left.set_xlabel("seconds of processor time to make it")
    plots.bars(right, {name: [run[4]] for name, run in runs.items()}, [plots.OURS] * len(runs))
    right.set_xlabel("seconds until it is ready")
    for axes, goal in ((left, 5), (right, 2)):
        plots.goal(axes, x=goal, label="goal of the smaller")
        plots.legend(axes)


BENCHMARK = Benchmark(
    "report",
    "The report of many jobs",
    """Made-up jobs of a sweep on 64 nodes of 32 cores, in a file as the local queue leaves it. The
    report is made by a process of its own, whose processor time and peak memory are taken. Then
    Chromium, without a screen, opens it: ready is when everything is drawn, and the heap is that
    after a collection.""",
    measure,
    rows,
    plot,
)
