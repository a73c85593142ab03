"""`true` as tasks of a worker, against the local queue, jobs of Flux, HyperQueue, and Parsl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle

#: Tasks, and how many of those are jobs of Flux or tasks of the other tools, which take longer.
TASKS, JOBS, OTHERS, ROUNDS = 20_000, 400, 2000, 3

DOCUMENT = """
name: {name}
jobs: [{{name: t, command: "true", count: {count}}}]
rules: [{{trigger: start, action: {{name: submit, label: t}}}}]
limits: {{active-jobs: 100000, jobs: 100000}}
"""

_OURS = [sys.executable, "-m", "flux_ensemble.cli.main", "run", "-q"]

#: HyperQueue with one worker, by its Python interface, which brings its server along. Its tasks
#: have one core and keep no output.
_HQ = """
import os, sys
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=os.cpu_count()))
    job = Job()
    for _ in range(int(sys.argv[1])):
        job.program(["true"], stdout=None, stderr=None)
    client = cluster.client()
    client.wait_for_jobs([client.submit(job)])
"""

#: Parsl with one block of workers, one for each core, that run commands.
_PARSL = """
import os, sys
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

@parsl.bash_app
def run():
    return "true"

executor = HighThroughputExecutor(
    address="127.0.0.1",
    max_workers_per_node=os.cpu_count(),
    provider=LocalProvider(init_blocks=1, max_blocks=1),
)
with parsl.load(Config(executors=[executor], usage_tracking=0)):
    for task in [run() for _ in range(int(sys.argv[1]))]:
        task.result()
"""

#: A task that publishes numbers, and prints how many milliseconds one takes.
_MEMO = """
import sys, time
import flux_ensemble as fe

times = []
for number in range(int(sys.argv[1])):
    begin = time.perf_counter()
    fe.memo(number=number)
    times.append(1e3 * (time.perf_counter() - begin))
print(sorted(times)[len(times) // 2])
"""

#: By the package that has to be installed.
_PEERS = {"hyperqueue": _HQ, "parsl": _PARSL}


def measure(smoke: bool) -> Numbers:
    """Seconds by kind, in rounds, all in one instance of one broker."""
    sizes = (20, 5, 0, 1) if smoke else (TASKS, JOBS, OTHERS, ROUNDS)
    words = [sys.executable, __file__, *map(str, sizes)]
    # The members find `flux ensemble` on it.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            ["flux", "start", "--test-size=1", *words],
            cwd=directory, env={**os.environ, "PATH": path}, check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
    numbers: Numbers = json.loads(done.stdout.splitlines()[-1])
    return numbers


def _measure(tasks: int, jobs: int, others: int, rounds: int) -> Numbers:
    found: dict[str, list[float]] = {"tasks": [], "local": [], "jobs": []}
    # The service is loaded, and has run a worker.
    _run("warm-up", 20, "--tasks")
    for number in range(rounds):
        found["tasks"].append(_run(f"tasks-{number}", tasks, "--tasks"))
        found["local"].append(_run("local", tasks, "--queue", "local", "--state-dir", "."))
        # `submit --wait` takes as long, and has failed with an errno of something else.
        found["jobs"].append(
            _seconds(
                ["flux", "submit", f"--cc=1-{jobs}", "--quiet", "true"], ["flux", "queue", "drain"]
            )
        )
        for peer, script in _PEERS.items():
            if others and find_spec(peer) is not None:
                found.setdefault(peer, []).append(
                    _seconds([sys.executable, "-c", script, str(others)])
                )
    return {
        "memo": _memo(tasks),
        "tasks": tasks,
        "jobs": jobs,
        **dict.fromkeys(_PEERS, others),
        "cores": os.cpu_count(),
        "seconds": found,
    }


def _run(name: str, count: int, *options: str) -> float:
    Path("bench.yaml").write_text(DOCUMENT.format(name=name, count=count))
    summary = Path("summary.json")
    seconds = _seconds([*_OURS, *options, "--summary", str(summary), "bench.yaml"])
    jobs = json.loads(summary.read_text())["jobs"]
    assert jobs["success"] == count, jobs
    return seconds


def _memo(count: int) -> float:
    """Milliseconds of a memo from Python in a task: the median of so many."""
    Path("memo.py").write_text(_MEMO)
    command = f"{sys.executable} memo.py {count}"
    document = {
        "name": "memo",
        "jobs": [{"name": "t", "command": command, "output": "memo.out"}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "t"}}],
    }
    Path("memo.yaml").write_text(json.dumps(document))
    _seconds([*_OURS, "--tasks", "memo.yaml"])
    return float(Path("memo.out").read_text())


def _seconds(*commands: Sequence[str]) -> float:
    begin = time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, stdout=sys.stderr)
    return time.perf_counter() - begin


def _rate(numbers: Numbers, kind: str) -> float:
    count = numbers[kind] if kind in numbers else numbers["tasks"]
    return float(count / middle(numbers["seconds"][kind]))


def rows(numbers: Numbers) -> list[Row]:
    """The rate against each other kind."""
    rates = {kind: _rate(numbers, kind) for kind in numbers["seconds"]}
    goals = {"local": 0.85, "hyperqueue": 3.0, "parsl": 3.0, "jobs": 25.0}
    names = {
        "local": "the local queue, without Flux",
        "hyperqueue": "HyperQueue, one worker",
        "parsl": "Parsl, a worker for each core",
        "jobs": "`flux submit --cc`, a Flux job each",
    }
    return [
        Row(
            f"tasks: `true` a second through the service / {names[kind]}",
            rates["tasks"] / rate, ">=", goals[kind], "x",
            f"{rates['tasks']:,.0f} / {rate:,.0f} a second, {numbers['tasks']:,} tasks on "
            f"{numbers['cores']} cores",
        )
        for kind, rate in rates.items()
        if kind != "tasks"
    ] + [
        Row("tasks: `flux_ensemble.memo` in a task, from Python", numbers["memo"], "<=", 0.2, "ms",
            f"the median of {numbers['tasks']:,} in a row")
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """The rates."""
    axes = figure.subplots()
    names = {
        "tasks": "tasks of a worker", "local": "local queue", "jobs": "jobs of Flux",
        "hyperqueue": "HyperQueue", "parsl": "Parsl",
    }  # fmt: skip
    values = {names[kind]: [_rate(numbers, kind)] for kind in numbers["seconds"]}
    plots.bars(axes, values, [plots.OURS] * 2 + [plots.OTHER] * (len(values) - 2))
    axes.set_xlabel("`true` a second, start and end of the command included")


def lacks() -> str | None:
    """Return what is missing, in words."""
    return "flux is not on PATH" if shutil.which("flux") is None else None


BENCHMARK = Benchmark(
    "tasks",
    "Short tasks",
    """`flux ensemble run --tasks` of an ensemble of `true`, from the start of the command to its
    exit, in an instance with one broker whose service is loaded; the local queue, which needs no
    Flux; `flux submit --cc`, which makes each a job of Flux; and, where they are installed,
    HyperQueue with one worker and no files of output, and Parsl's HighThroughputExecutor with a
    worker for each core. In turns.""",
    measure,
    rows,
    plot,
    height=2.0,
    lacks=lacks,
)

if __name__ == "__main__":
    print(json.dumps(_measure(*map(int, sys.argv[1:]))))
