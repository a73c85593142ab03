"""The same sweeps over the same Slurm with Parsl's pilots and with members, and what is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plots
import slurm_pool
from benchmark import Benchmark, Numbers, Row, middle
from slurm_pool import NODES, document, started_slurm, t_starts, write

sys.path.append(str(Path(__file__).resolve().parents[1] / "fault"))

from effects import Effects
from homes import until
from slurm import Slurm

#: Parsl with a pilot on each node, and a worker for each core of it: `NODES TASKS COMMAND RETRIES`.
#: With the lines on the memoizer and the cache the program goes on after a kill.
PARSL = """
import os, sys
import parsl
from parsl.config import Config
from parsl.dataflow.memoization import BasicMemoizer
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider

@parsl.bash_app(cache=True)
def run(command, number):
    return command.replace("{i}", str(number))

if __name__ == "__main__":
    nodes, tasks, command, retries = sys.argv[1:]
    nodes = int(nodes)
    executor = HighThroughputExecutor(
        address="127.0.0.1",
        max_workers_per_node=os.cpu_count(),
        provider=SlurmProvider(
            nodes_per_block=1, init_blocks=nodes, min_blocks=nodes, max_blocks=nodes
        ),
    )
    config = Config(
        executors=[executor],
        memoizer=BasicMemoizer(checkpoint_mode="task_exit"),
        retries=int(retries),
        usage_tracking=0,
    )
    with parsl.load(config):
        futures = [run(command, number) for number in range(int(tasks))]
        print("failed:", sum(future.exception() is not None for future in futures))
"""

#: Tasks of the sweeps, and how often.
SIZES, ROUNDS = (1_000, 10_000), 2

#: Tasks of a sweep that something happens to, the seconds of each, how many have ended then, and
#: the seconds between the kill of a driver and its next start.
KILLED, SECONDS, BEFORE, AFTER = 240, 0.4, 60, 10.0

#: The longest that a pilot of a driver that was killed may last is its time limit, ten minutes.
PATIENCE = 900.0

TOOLS = {"members": "flux-ensemble", "parsl": "Parsl"}


def _peers() -> str:
    """The directory of the programs of Parsl's environment."""
    return str(Path(os.environ["PEERS"], "bin"))


class Sweep:
    """A sweep with one of the tools.

    Args:
        tool: of TOOLS.
        slurm: that it runs on.
        name: of it, and of its directory.
        tasks: their number.
        command: of each; `{i}` is its number; "" for a task that writes down that it runs.
        retries: whether what a lost pilot ran is to run again.
    """

    def __init__(
        self, tool: str, slurm: Slurm, name: str, tasks: int, command: str, *, retries: bool = False
    ) -> None:
        self.slurm, self.tasks = slurm, tasks
        directory = slurm.directory / f"{name}-{tool}"
        self.effects = Effects(directory)
        command = command or f"sh {directory}/task.sh {{i}}"
        sweep = document(f"{name}-{tool}", tasks, command, pool=True)
        if retries:
            again = {"name": "grow", "label": "hpc", "repetitions": "unlimited"}
            sweep["rules"].append({"trigger": "member-lost", "action": again})
        self.directory = write(slurm, sweep).parent
        self.effects.prepare(SECONDS)
        self.environment = dict(slurm.environment)
        if tool == "members":
            run = [sys.executable, "-m", "flux_ensemble", "run", "-q", "--resume", "sweep.yaml"]
            self.words = run
        else:
            self.environment["PATH"] = f"{slurm.directory}/bin:{_peers()}:{os.environ['PATH']}"
            # What this package has been compiled into is not for its Python.
            self.environment.pop("PYTHONPATH", None)
            script = str(self.directory / "sweep.py")
            Path(script).write_text(PARSL)
            arguments = [str(NODES), str(tasks), command, str(int(retries))]
            self.words = [f"{_peers()}/python", script, *arguments]
        self._before = set(t_starts(slurm))
        self._sessions: list[int] = []

    def run(self) -> tuple[float, float]:
        """Run it; return its seconds, and those of processor time of its home."""
        file = self.directory / "spent.json"
        spent_py = str(Path(__file__).with_name("spent.py"))
        words = [sys.executable, spent_py, str(file), *self.words]
        with (self.directory / "log").open("a") as log:
            subprocess.run(
                words, cwd=self.directory, env=self.environment, stdout=log, stderr=log, check=True
            )
        seconds, spent = json.loads(file.read_text())
        return seconds, spent

    def begin(self) -> subprocess.Popen[bytes]:
        """Begin it."""
        with (self.directory / "log").open("a") as log:
            process = subprocess.Popen(
                self.words,
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.append(process.pid)
        return process

    @property
    def done(self) -> int:
        """How many tasks have ended."""
        return len(self.effects.done)

    @property
    def pilots(self) -> dict[str, float]:
        """When its jobs of Slurm started, by their ids."""
        return {job: t for job, t in t_starts(self.slurm).items() if job not in self._before}

    @property
    def living(self) -> list[str]:
        """Its jobs of Slurm that have not ended."""
        listed = set(self.slurm.listed("%i"))
        return [job for job in self.pilots if job in listed]

    def wait(self, true: Callable[[], Any], what: str) -> None:
        """Wait for something."""
        until(true, PATIENCE, f"{what} in {self.directory.name}")

    def end(self) -> None:
        """Cancel what it has left in Slurm, and kill what it has left here."""
        for session in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)
        if self.living:
            subprocess.run(["scancel", *self.living], env=self.environment, check=True)
            self.wait(lambda: not self.living, "the end of what was left")

    def counted(self) -> dict[str, int]:
        """Return how many tasks never ended, and how many began more than once."""
        began = Counter(task for task, _ in self.effects.began)
        return {
            "lost": self.tasks - self.done,
            "twice": sum(count > 1 for count in began.values()),
            "overlap": len(self.effects.overlap),
        }


def _first(tool: str, slurm: Slurm, number: int) -> float:
    """Return the seconds from Slurm's first start of a job to the begin of the first task."""
    file = slurm.directory / f"first-{number}-{tool}.times"
    sweep = Sweep(tool, slurm, f"first-{number}", 8, f"sh -c 'date +%s.%N >>{file}'")
    sweep.run()
    began = min(map(float, file.read_text().split()))
    sweep.end()
    return began - min(sweep.pilots.values())


def _kill_driver(tool: str, slurm: Slurm, size: int, before: int) -> Numbers:
    """Kill the driver, look what goes on, and start it again."""
    sweep = Sweep(tool, slurm, "driver", size, "")
    driver = sweep.begin()
    sweep.wait(lambda: sweep.done >= before, "the first tasks")
    done = sweep.done
    driver.kill()
    driver.wait()
    time.sleep(AFTER)
    alone, left = sweep.done - done, len(sweep.living)
    old = set(sweep.pilots)
    begin = time.monotonic()
    code = sweep.begin().wait(PATIENCE)
    found: Numbers = {"code": code, "alone": alone, "left": left, **sweep.counted()}
    found["seconds"] = time.monotonic() - begin
    found["new"] = len(set(sweep.pilots) - old)
    sweep.end()
    return found


def _cancel_pilot(tool: str, slurm: Slurm, size: int, before: int, *, retries: bool) -> Numbers:
    """Cancel one of the pilots."""
    name = "pilot-again" if retries else "pilot"
    sweep = Sweep(tool, slurm, name, size, "", retries=retries)
    driver = sweep.begin()
    sweep.wait(lambda: sweep.done >= before and len(sweep.living) == NODES, "the first tasks")
    begin = time.monotonic()
    subprocess.run(["scancel", sweep.living[0]], env=sweep.environment, check=True)
    code = driver.wait(PATIENCE)
    found: Numbers = {"code": code, "seconds": time.monotonic() - begin, **sweep.counted()}
    found["new"] = len(sweep.pilots) - NODES
    sweep.end()
    return found


def measure(smoke: bool) -> Numbers:
    """The sweeps, in turns."""
    sizes, rounds = ((20,), 1) if smoke else (SIZES, ROUNDS)
    sweeps: dict[str, list[Any]] = {tool: [] for tool in TOOLS}
    firsts: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    with started_slurm() as slurm:
        for number in range(rounds):
            for tool in TOOLS:
                firsts[tool].append(_first(tool, slurm, number))
                for size in sizes:
                    sweep = Sweep(tool, slurm, f"sweep-{size}-{number}", size, "true")
                    sweeps[tool].append([size, *sweep.run()])
                    sweep.end()
    return {"sweeps": sweeps, "first": firsts}


def measure_kills(smoke: bool) -> Numbers:
    """What is killed, with each tool."""
    killed, before = (24, 4) if smoke else (KILLED, BEFORE)
    found: dict[str, Any] = {}
    with started_slurm() as slurm:
        for tool in TOOLS:
            found[tool] = {
                "driver": _kill_driver(tool, slurm, killed, before),
                "pilot": _cancel_pilot(tool, slurm, killed, before, retries=False),
                "pilot-again": _cancel_pilot(tool, slurm, killed, before, retries=True),
            }
    return {"killed": found, "tasks": killed}


def _least(values: Sequence[Sequence[float]], size: int, column: int) -> float:
    """The least of the sweeps of a size: what disturbs one makes it longer."""
    return min(row[column] for row in values if row[0] == size)


def rows(numbers: Numbers) -> list[Row]:
    """The rate, what the home takes, and the first task."""
    ours, theirs = (numbers["sweeps"][tool] for tool in TOOLS)
    size = max(row[0] for row in ours)
    rate, other = (size / _least(one, size, 1) for one in (ours, theirs))
    spent, more = (1e3 * _least(one, size, 2) / size for one in (ours, theirs))
    first, later = (middle(numbers["first"][tool]) for tool in TOOLS)
    return [
        Row(
            f"{size:,} `true` on {NODES} nodes of a Slurm: a second / with Parsl's pilots",
            rate / other, ">=", 3, "x",
            f"{rate:,.0f} / {other:,.0f}, from the start of the command to its exit",
        ),
        Row(
            "the same: processor time of the home a task / of Parsl's driver",
            spent / more, "<=", 1, "x", f"{spent:.2f} / {more:.2f} ms",
        ),
        Row(
            "from Slurm's start of the first job to the first task / with Parsl",
            first / later, "<=", 1, "x", f"{first:.2f} / {later:.2f} s",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """The seconds of the sweeps."""
    axes = figure.subplots()
    sizes = sorted({row[0] for row in numbers["sweeps"]["members"]})
    values = {
        f"{TOOLS[tool]}, {size:,}": [row[1] for row in numbers["sweeps"][tool] if row[0] == size]
        for size in sizes
        for tool in TOOLS
    }
    plots.bars(axes, values, [plots.OURS, plots.OTHER] * len(sizes))
    axes.set_xlabel("seconds for so many `true` on four nodes of a Slurm")


def _lines(cells: Mapping[str, Callable[[str], str]]) -> str:
    head = f"| | {' | '.join(TOOLS.values())} |\n|---|---|---|\n"
    return head + "".join(
        f"| {text} | {' | '.join(cell(tool) for tool in TOOLS)} |\n" for text, cell in cells.items()
    )


def table(numbers: Numbers) -> str:
    """The table of docs/comparison.md."""
    sweeps, first = numbers["sweeps"], numbers["first"]
    cells: dict[str, Callable[[str], str]] = {}
    for size in sorted({row[0] for row in sweeps["members"]}):

        def sweep(tool: str, size: int = size) -> str:
            seconds = _least(sweeps[tool], size, 1)
            return f"{seconds:.1f} s ({size / seconds:,.0f} a second)"

        def spent(tool: str, size: int = size) -> str:
            return f"{_least(sweeps[tool], size, 2):.1f} s"

        cells[f"{size:,} `true`, from the start of the command to its exit"] = sweep
        cells[f"processor time of the command, {size:,} tasks"] = spent
    cells["from Slurm's start of the first job to the first task"] = lambda tool: (
        f"{middle(first[tool]):.2f} s"
    )
    return _lines(cells)


def kill_rows(numbers: Numbers) -> list[Row]:
    """What became of the tasks where the driver was killed, or a pilot cancelled."""
    killed, tasks = numbers["killed"], numbers["tasks"]

    def wrong(tool: str, what: str, key: str) -> int:
        return int(killed[tool][what]["lost"] + killed[tool][what][key])

    return [
        Row(
            f"{text}, of {tasks}",
            wrong("members", what, key), "<=", 0, "", f"Parsl {wrong('parsl', what, key)}",
        )
        for what, key, text in (
            ("driver", "twice", "the home is killed (SIGKILL), and started again: tasks that never "
             "ended, or ran twice"),
            ("pilot-again", "overlap", "a member is cancelled in Slurm: tasks that never ended, or "
             "ran twice at once"),
        )
    ]  # fmt: skip


def kill_plot(figure: Any, numbers: Numbers) -> None:
    """The seconds from the next start of the driver to its end."""
    axes = figure.subplots()
    killed = numbers["killed"]
    values = {TOOLS[tool]: [killed[tool]["driver"]["seconds"]] for tool in TOOLS}
    plots.bars(axes, values, [plots.OURS, plots.OTHER])
    axes.set_xlabel("seconds from the next start of a driver that was killed to its end")


def kill_table(numbers: Numbers) -> str:
    """The table of docs/comparison.md."""
    killed = numbers["killed"]

    def count(what: str, key: str) -> Callable[[str], str]:
        return lambda tool: str(killed[tool][what][key])

    def seconds(what: str) -> Callable[[str], str]:
        return lambda tool: f"{killed[tool][what]['seconds']:.0f}"

    driver = "the driver is killed"
    cells: dict[str, Callable[[str], str]] = {
        f"{driver}: tasks that ended in {AFTER:g} s without it": count("driver", "alone"),
        f"{driver}: jobs of Slurm that it left": count("driver", "left"),
        f"{driver}: new jobs of Slurm when it goes on": count("driver", "new"),
        f"{driver}: seconds from its next start to its end": seconds("driver"),
        f"{driver}: tasks that never ended": count("driver", "lost"),
        f"{driver}: tasks that ran twice": count("driver", "twice"),
    }
    for what, text in (
        ("pilot", "a pilot is cancelled"),
        ("pilot-again", "the same, and lost tasks and pilots are to be replaced"),
    ):
        cells[f"{text}: tasks that never ended"] = count(what, "lost")
        cells[f"{text}: tasks that began again"] = count(what, "twice")
        cells[f"{text}: seconds from then to the end"] = seconds(what)
        cells[f"{text}: new jobs of Slurm"] = count(what, "new")
    return _lines(cells)


def peers_lack() -> str | None:
    """Return what is missing, in words."""
    if "PEERS" not in os.environ or not Path(_peers(), "parsl-perf").exists():
        return "PEERS names no environment with parsl"
    return slurm_pool.lacks()


BENCHMARK = Benchmark(
    "slurm-peers",
    "Parsl on the same Slurm",
    """Sweeps over four nodes of a Slurm that are all this machine: members that run tasks, whose
    home runs without Flux, and Parsl's HighThroughputExecutor with its SlurmProvider, four blocks
    of one node, as many workers on each as it has cores, and checkpoints. In turns; the quicker of
    two sweeps counts. Processor time is that of the command and of all that it starts at home.
    Parsl is in the environment that PEERS names.""",
    measure,
    rows,
    plot,
    lacks=peers_lack,
    table=table,
)

KILLS = Benchmark(
    "slurm-peers-kills",
    "Parsl on the same Slurm, and kills",
    """Tasks of 0.4 s that write down that they run. When a quarter has ended, the command is killed
    (SIGKILL), and started again ten seconds later: ours with `--resume`, Parsl with checkpoints; or
    one of the four jobs of Slurm is cancelled, once with Parsl's `retries=0` and a pool that
    stays as it is, and once with `retries=1` and a rule that replaces what is lost.""",
    measure_kills,
    kill_rows,
    kill_plot,
    height=1.6,
    lacks=peers_lack,
    table=kill_table,
)
