"""A sweep over members in Slurm, from a home without Flux, against the same in one allocation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row, middle

sys.path.append(str(Path(__file__).resolve().parents[1] / "fault"))

from slurm import Slurm

#: Nodes, tasks, and how often.
NODES, TASKS, ROUNDS = 4, 10_000, 3

_OURS = [sys.executable, "-m", "flux_ensemble"]

_STARTS = re.compile(r"\[([\d\-T:.]+)\] .*(?:Allocate|Started) JobId=(\d+) ")


@contextmanager
def started_slurm(nodes: int = NODES) -> Iterator[Slurm]:
    """A Slurm on this machine, in which jobs find this package."""
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin")
    )
    slurm = Slurm(nodes=nodes)
    try:
        slurm.environment["PATH"] = f"{slurm.directory}/bin:{os.environ['PATH']}"
        slurm.environment["XDG_STATE_HOME"] = str(slurm.directory / "runs")
        slurm.environment.pop("FLUX_URI", None)
        yield slurm
    finally:
        slurm.close()


def lacks() -> str | None:
    """Return what is missing, in words."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [one for one in ("slurmctld", "munged") if shutil.which(one, path=path) is None]
    return f"{' and '.join(missing)} not on PATH" if missing else None


def document(name: str, tasks: int, command: str, *, pool: bool) -> dict[str, Any]:
    """Return the sweep.

    Args:
        name: of the ensemble.
        tasks: their number.
        command: of each; `{i}` is its number.
        pool: it starts members in Slurm.
    """
    sweep: dict[str, Any] = {
        "name": name,
        "jobs": [{"name": "t", "command": command, "params": {"i": {"range": [0, tasks]}}}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "t"}}],
        "limits": {"active-jobs": 100_000, "jobs": 100_000},
    }
    if pool:
        sweep["members"] = [{"name": "hpc", "from": "slurm", "runs": "tasks", "count": NODES}]
    return sweep


def write(slurm: Slurm, sweep: dict[str, Any]) -> Path:
    """Write a sweep into a directory of its own; return the file."""
    directory = slurm.directory / sweep["name"]
    directory.mkdir()
    path = directory / "sweep.yaml"
    path.write_text(json.dumps(sweep))
    return path


def timed(slurm: Slurm, words: Sequence[str], directory: Path) -> float:
    """Run a command; return the seconds that it took."""
    begin = time.perf_counter()
    subprocess.run(
        words, cwd=directory, env=slurm.environment, check=True, stdout=sys.stderr.fileno()
    )
    return time.perf_counter() - begin


def t_starts(slurm: Slurm) -> dict[str, float]:
    """Return when Slurm started its jobs, by their ids; in milliseconds, as its log has them."""
    text = (slurm.directory / "controller.log").read_text()
    return {job: datetime.fromisoformat(t).timestamp() for t, job in _STARTS.findall(text)}


def _summary(path: Path, tasks: int) -> None:
    jobs = json.loads(path.with_name("summary.json").read_text())["jobs"]
    assert jobs["success"] == tasks, jobs


def run_pool(
    slurm: Slurm, name: str, tasks: int, command: str = "true"
) -> tuple[float, list[float]]:
    """Run a sweep over members in Slurm.

    Returns:
        The seconds from the start of the command to its exit, and those of `_until_up`.
    """
    path = write(slurm, document(name, tasks, command, pool=True))
    words = [*_OURS, "run", "-q", "--summary", "summary.json", path.name]
    seconds = timed(slurm, words, path.parent)
    _summary(path, tasks)
    return seconds, list(_until_up(slurm, name))


def _until_up(slurm: Slurm, name: str) -> Iterator[float]:
    """Yield for each member the seconds from Slurm's start of its job until it was up."""
    log = [*_OURS, "log", name, "--json"]
    done = subprocess.run(log, env=slurm.environment, capture_output=True, text=True, check=True)
    starts = t_starts(slurm)
    listed = map(str.split, slurm.listed("%j %i", "--states=all"))
    jobs: dict[str, str] = dict(listed)
    for entry in map(json.loads, done.stdout.splitlines()):
        if entry["name"] == "member-up":
            yield entry["timestamp"] - starts[jobs[f"{name}:{entry['context']['member']}"]]


def _run_allocation(slurm: Slurm, name: str, tasks: int) -> float:
    """Run a sweep in one allocation; return the seconds from the start of `srun` to its exit."""
    path = write(slurm, document(name, tasks, "true", pool=False))
    # Each broker and its worker have the node.
    srun = f"srun --mpi=pmi2 --cpu-bind=none --exclusive --nodes={NODES} --ntasks-per-node=1"
    words = [
        *srun.split(), "flux", "start",
        *_OURS, "run", "-q", "--tasks", "--summary", "summary.json", path.name,
    ]  # fmt: skip
    seconds = timed(slurm, words, path.parent)
    _summary(path, tasks)
    return seconds


def measure(smoke: bool) -> Numbers:
    """Both, in turns."""
    tasks, rounds = (20, 1) if smoke else (TASKS, ROUNDS)
    seconds: dict[str, list[float]] = {"pool": [], "allocation": []}
    ups: list[float] = []
    with started_slurm() as slurm:
        for number in range(rounds):
            took, until_up = run_pool(slurm, f"pool-{number}", tasks)
            seconds["pool"].append(took)
            ups += until_up
            seconds["allocation"].append(_run_allocation(slurm, f"allocation-{number}", tasks))
    return {"tasks": tasks, "seconds": seconds, "up": ups}


def rows(numbers: Numbers) -> list[Row]:
    """The rates, and the start of members."""
    rates = {kind: numbers["tasks"] / middle(took) for kind, took in numbers["seconds"].items()}
    ups = sorted(numbers["up"])
    return [
        Row(
            f"{numbers['tasks']:,} `true` on {NODES} nodes: over members in Slurm, from a home "
            "without Flux / in one allocation, with Flux",
            rates["pool"] / rates["allocation"], ">=", 0.8, "x",
            f"{rates['pool']:,.0f} / {rates['allocation']:,.0f} a second, from the start of the "
            "command to its exit",
        ),
        Row(
            "a member in Slurm: from Slurm's start of its job until it is up, the latest",
            ups[-1], "<=", 3, "s",
            f"{len(ups)} members, {NODES} at once; {ups[0]:.2f} s at the least",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """The seconds of both, and the starts of members."""
    left, right = figure.subplots(1, 2)
    names = {"pool": "members in Slurm", "allocation": "one allocation"}
    values = {names[kind]: took for kind, took in numbers["seconds"].items()}
    plots.bars(left, values, [plots.OURS, plots.OTHER])
    left.set_xlabel(f"seconds for {numbers['tasks']:,} `true`")
    plots.ecdf(right, numbers["up"], "members", plots.OURS)
    plots.goal(right, x=3)
    right.set_xlabel("seconds from Slurm's start of the job until it is up")
    plots.legend(right)


BENCHMARK = Benchmark(
    "slurm-pool",
    "A sweep over members in Slurm",
    """A Slurm of four nodes that are all this machine, and so share its processors. The members run
    tasks, and their home, which started them, runs without Flux (`flux-ensemble run`); or one
    `srun` for all four nodes starts a Flux instance, and in that `flux ensemble run --tasks` has a
    worker on each. In turns. The log of Slurm's controller has when it started a job, and that of
    the ensemble when the member was up. What is lost and what runs twice where homes, workers and
    Slurm are killed, counts [the harness](faults.md).""",
    measure,
    rows,
    plot,
    lacks=lacks,
)
