"""Tasks by the thousand: seconds, memory and bytes of ensembles of 1,000 to 1,000,000 tasks.

    python t/bench/many_tasks.py 1000000 --kills 100

A search goes on beside the tasks. Each task writes down its number, so that what the service says
is held against what was done. With `--kills` the service, the worker, and what starts its tasks are
killed meanwhile, at random.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row
from live import Stage, live
from scenario import processes_of

SIZES = (1_000, 10_000, 100_000)

#: Trials of the search.
TRIALS = 60

#: What the command lines of the processes have, by their kinds.
_WORDS = {"worker": b"--worker", "starters": b"queues/local/supervisor"}

_MEMORY = "service {service:.0f} MB, worker {worker:.0f} MB"

#: Seconds between two looks at the memory of the processes.
TICK = 0.25


def document(tasks: int, trials: int = TRIALS) -> dict[str, Any]:
    """The ensemble: one pool with one worker, a group of tasks, and a search."""
    return {
        "name": "many",
        "members": [{"name": "pool", "count": {"min": 1, "max": 2}, "runs": "tasks"}],
        "jobs": [
            {
                "name": "task",
                "command": 'sh -c "echo {i} >>did"',
                "params": {"i": {"range": [0, tasks]}},
            },
            {"name": "trial", "command": "flux-ensemble memo loss={x}", "cores": 1},
        ],
        "search": [
            {
                "id": "hunt",
                "group": "trial",
                "variables": {"x": {"low": 0.0, "high": 1.0}},
                "minimize": "loss",
                "trials": trials,
                "parallel": 2,
            }
        ],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "task"}},
            {"trigger": "start", "action": {"name": "search", "label": "hunt"}},
            {
                "trigger": "member-lost",
                "action": {"name": "grow", "label": "pool", "repetitions": "unlimited"},
            },
        ],
        "limits": {"active-jobs": 2 * tasks + 1000, "jobs": 2 * tasks + 1000, "losses": 1000},
    }


class Watch(threading.Thread):
    """Follow the memory of the service, the workers and the processes that start tasks.

    Args:
        stage: with the service.

    Attributes:
        most: megabytes of each kind, at most at one time.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(daemon=True)
        self.stage = stage
        self.most: dict[str, float] = {}
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(TICK):
            now = {"service": self._memory(self.stage.service)}
            for kind, pid in processes(self.stage):
                now[kind] = now.get(kind, 0.0) + self._memory(pid)
            for kind, memory in now.items():
                self.most[kind] = max(memory, self.most.get(kind, 0.0))

    def close(self) -> None:
        """End it."""
        self._over.set()
        self.join()

    @staticmethod
    def _memory(pid: int) -> float:
        with contextlib.suppress(OSError, IndexError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return 0.0


def processes(stage: Stage) -> Iterator[tuple[str, int]]:
    """The workers of this instance, and the processes that start their tasks."""
    for kind, word in _WORDS.items():
        for pid in processes_of(stage.directory, word):
            yield kind, pid


def kill(stage: Stage, chance: random.Random) -> str:
    """Kill something; return what, or "" if there was none of it."""
    kind = chance.choice(("service", "worker", "starters", "service and worker"))
    for each in kind.split(" and "):
        if each == "service":
            stage.kill_kept_service()
            continue
        pids = [pid for found, pid in processes(stage) if found == each]
        if not pids:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(pids), signal.SIGKILL)
    return kind


def one(tasks: int, kills: int = 0, seed: int = 0, trials: int = TRIALS) -> dict[str, Any]:
    """Run an ensemble of so many tasks; return what it took."""
    chance = random.Random(seed)
    killed: dict[str, int] = {}
    with live(brokers=1) as stage:
        stage.keep_service(f"deaths={kills + 10}")
        stage.load(document(20, trials) | {"name": "warm-up"}).get()
        stage.until(lambda: stage.status("warm-up")["state"] == "completed", "no warm-up")
        stage.directory.joinpath("did").unlink()
        before = stage.kvs_bytes()
        watch = Watch(stage)
        watch.start()
        begin = time.monotonic()
        stage.load(document(tasks, trials)).get()
        most = 0
        while (status := _status(stage)) is None or status["state"] == "running":
            done = status["groups"]["task"]["finished"] if status else most
            if sum(killed.values()) < kills and done > most:
                # Evenly over the tasks, each time after some have ended.
                if done >= tasks * (sum(killed.values()) + 0.5) / kills:
                    what = kill(stage, chance)
                    if what:
                        killed[what] = killed.get(what, 0) + 1
                        print(f"{done:,} tasks: killed {what}", file=sys.stderr, flush=True)
                most = done
            time.sleep(TICK)
        seconds = time.monotonic() - begin
        watch.close()
        did = stage.directory.joinpath("did").read_text().split()
        assert len(set(did)) == tasks, (len(set(did)), tasks)
        assert status["state"] == "completed", status["reason"]
        group, trial = status["groups"]["task"], status["groups"]["trial"]
        assert group["success"] == tasks, group
        assert trial["success"] == trials, trial
        return {
            "tasks": tasks,
            "seconds": round(seconds, 2),
            "megabytes": {kind: round(most, 1) for kind, most in watch.most.items()},
            "kvs": (stage.kvs_bytes() - before) / 1e6,
            "killed": killed,
            "again": len(did) - tasks,
            "processor": round(stage.processor()["service"], 1),
        }


def _status(stage: Stage) -> dict[str, Any] | None:
    with contextlib.suppress(OSError):
        return stage.status("many")
    return None


def measure(smoke: bool) -> Numbers:
    """What each size takes."""
    if smoke:
        return {"runs": [one(tasks, trials=6) for tasks in (50, 100)]}
    return {"runs": [one(tasks) for tasks in SIZES]}


def rows(numbers: Numbers) -> list[Row]:
    """Growth of time, memory, and bytes."""
    first, *_, last = numbers["runs"]
    start = first["seconds"] - first["tasks"] * _slope(first, last, "seconds")
    words = "; ".join(
        f"{run['tasks']:,} tasks: {run['seconds']:.1f} s, {_MEMORY.format(**run['megabytes'])}, "
        f"KVS {run['kvs']:.1f} MB"
        for run in numbers["runs"]
    )
    middle = numbers["runs"][-2]
    each, before = ((run["seconds"] - start) / run["tasks"] for run in (last, middle))
    memory = last["megabytes"]
    starters = f"{memory['starters']:.0f} MB of the processes that start tasks"
    bytes_each = 1e3 * _slope(first, last, "kvs")
    sizes = f"{last['tasks']:,} of them / {middle['tasks']:,}"
    return [
        Row(f"many tasks: time of one, {sizes}", each / before, "<=", 1.25, "x", words),
        Row("many tasks: memory of the service", memory["service"], "<=", 400, "MB", "at most"),
        Row("many tasks: memory of a worker", memory["worker"], "", 0, "MB", starters),
        Row("many tasks: KVS of one", bytes_each, "", 0, "kB", "log, record and snapshots"),
    ]


def _slope(first: Numbers, last: Numbers, key: str) -> float:
    slope: float = (last[key] - first[key]) / (last["tasks"] - first["tasks"])
    return slope


def plot(figure: Any, numbers: Numbers) -> None:
    """Time and memory by size."""
    left, right = figure.subplots(1, 2)
    sizes = [run["tasks"] for run in numbers["runs"]]
    left.loglog(sizes, [run["seconds"] for run in numbers["runs"]], "o-", color=plots.OURS)
    left.set_xlabel("tasks")
    left.set_ylabel("seconds")
    for kind, color in (("service", plots.OURS), ("worker", plots.OTHER)):
        memory = [run["megabytes"][kind] for run in numbers["runs"]]
        right.semilogx(sizes, memory, "o-", color=color, label=kind)
    right.set_xlabel("tasks")
    right.set_ylabel("MB")
    right.set_ylim(bottom=0)
    right.legend()


def lacks() -> str | None:
    """Return what is missing, in words."""
    return "flux is not on PATH" if shutil.which("flux") is None else None


BENCHMARK = Benchmark(
    "many-tasks",
    "Many tasks",
    """Ensembles of 1,000, 10,000 and 100,000 tasks, each of which writes its number into a file,
    with a search beside them, on one worker in an instance of one broker; from the request to load
    to the end. The file, the counts and the search are checked.""",
    measure,
    rows,
    plot,
    lacks=lacks,
)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", type=int)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(one(options.tasks, options.kills, options.seed), indent=1))


if __name__ == "__main__":
    _main()
