"""A long run: jobs of many ensembles, and whether anything grows that must not.

    python t/fault/soak.py [--minutes M] [--jobs N] [--json FILE]

Ensembles of mock jobs are loaded one after the other, several at a time, into one instance whose
service runs under the keeper. Flux keeps few inactive jobs, and the service the ensembles that
ended last, so all that is kept is bounded. Now and then it is measured: the memory of the service,
what it has in the KVS, how long it takes to say its status, also against an empty request to a
module of Flux, and how many jobs end in a second. The last third of the run is compared with the
second; in the first one, what is kept fills up. Every ensemble must end with the counts that it has
to have. It ends after so many minutes or so many jobs, whichever is first, when all that was loaded
has ended. Prints a line for each measurement; exits 1 where something grows, or a count is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
import flux.kvs  # noqa: E402
from durable import Durable  # noqa: E402
from instance import Instance  # noqa: E402
from keeper import Kept  # noqa: E402
from scenario import FINAL  # noqa: E402
from services import Service  # noqa: E402
from workloads import mock  # noqa: E402

#: Jobs in each stage of an ensemble, which has two; ensembles at a time; measurements in all.
#: The service keeps a hundred ensembles that ended and what is left of 25 more: 25,000 jobs.
JOBS, ENSEMBLES, MEASUREMENTS = 100, 8, 60

#: Seconds between two looks at the status; so many of them are in a measurement, at least.
PAUSE, LOOKS = 0.1, 10

#: How much more the last third may take than the second. How long anything takes depends on what
#: else the machine does, an empty request too; and so do the keys of an ensemble, as a busy one
#: has its events in more and smaller batches.
MORE = {"memory_mb": 1.1, "kvs_kb": 1.1, "ensembles": 1.1, "status_x": 1.5}

COLUMNS = (
    "jobs",
    "jobs_s",
    "memory_mb",
    "kvs_kb",
    "kvs_keys",
    "ensembles",
    "status_ms",
    "status_p99_ms",
    "status_x",
    "db_mb",
)

_CONFIG = """
[job-manager]
inactive-num-limit = 2000
"""


def document(name: str) -> dict[str, Any]:
    """Jobs that are submitted at the start, and one for each that succeeds."""
    return {
        "name": name,
        "jobs": [
            {"name": "first", "command": "true", "count": JOBS, "attributes": mock(0.001)},
            {"name": "echo", "command": "true", "attributes": mock(0.001)},
        ],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "first"}},
            {"trigger": "job-success", "group": "first",
             "action": {"name": "submit", "label": "echo", "repetitions": "unlimited"}},
        ],
    }  # fmt: skip


class Soak:
    """The run.

    Args:
        seconds: for how long it loads ensembles.
        jobs: for how many in all.
        say: is told each measurement.
    """

    def __init__(self, seconds: float, jobs: int, say: Callable[[dict[str, float]], None]) -> None:
        self._seconds = seconds
        self._jobs = jobs
        self._say = say
        self._directory = Path(tempfile.mkdtemp(prefix="soak-"))
        self._instance = Instance(self._directory, config=_CONFIG)
        self._service = Service(self._instance, Kept())
        self._latencies: list[float] = []
        self._empty: list[float] = []
        self._loaded = 0
        self._live: set[str] = set()
        self._done = 0
        self._begun = 0.0
        self._measured = 0, 0.0, 0.0
        self.measured: list[dict[str, float]] = []
        self.problems: list[str] = []

    def run(self) -> None:
        """Run to the end."""
        self._instance.start()
        try:
            self._handle: Any = flux.Flux(self._instance.uri)
            self._service.start()
            self._service.await_answer(self._handle)
            self._begun = time.monotonic()
            self._measured = 0, self._begun, 0.0
            self._fill()
            while self._live and not self.problems:
                time.sleep(PAUSE)
                self._look()
                more = self._part - self._measured[2]
                if more >= 1 / MEASUREMENTS and len(self._latencies) >= LOOKS:
                    self._measure()
                self._fill()
        finally:
            self._service.end()
            self._instance.stop()
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _part(self) -> float:
        """The part of the run that is over."""
        return max(self._done / self._jobs, (time.monotonic() - self._begun) / self._seconds)

    @property
    def _is_to_load(self) -> bool:
        """Not as many ensembles are there as are to be."""
        return (
            len(self._live) < ENSEMBLES
            and self._loaded * 2 * JOBS < self._jobs
            and time.monotonic() - self._begun < self._seconds
        )

    def _fill(self) -> None:
        """Load as many ensembles as are to be there."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._directory)}
        while self._is_to_load:
            name = f"soak-{self._loaded}"
            self._loaded += 1
            payload = {
                "spec": document(name), "cwd": str(self._directory), "environment": environment
            }  # fmt: skip
            self._handle.rpc("ensemble.load", payload).get()
            self._live.add(name)

    def _look(self) -> None:
        """Ask for the status of one, and see which have ended."""
        self._empty.append(self._milliseconds("heartbeat.ping", {"seq": 0, "pad": ""}))
        self._latencies.append(self._milliseconds("ensemble.status", {"name": min(self._live)}))
        listed = self._handle.rpc("ensemble.list", {}).get()["ensembles"]
        for one in listed:
            if one["name"] in self._live and one["state"] in FINAL and not one["active"]:
                self._live.remove(one["name"])
                self._done += 2 * JOBS
                self._check(one["name"])

    def _milliseconds(self, topic: str, payload: dict[str, Any]) -> float:
        begin = time.perf_counter()
        self._handle.rpc(topic, payload).get()
        return 1e3 * (time.perf_counter() - begin)

    def _check(self, name: str) -> None:
        (status,) = self._handle.rpc("ensemble.status", {"name": name}).get()["ensembles"]
        counts = {group: one["success"] for group, one in status["groups"].items()}
        found = {"state": status["state"], "violations": status["violations"], **counts}
        wanted = {"state": "completed", "violations": 0, "first": JOBS, "echo": JOBS}
        if found != wanted:
            self.problems.append(f"{name}: expected {wanted}, found {found}")

    def _measure(self) -> None:
        now = time.monotonic()
        done, then, _ = self._measured
        pid = self._handle.rpc("ensemble.status", {}).get()["service"]["pid"]
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        ensembles, keys, size = self._kept()
        latencies, self._latencies = self._latencies, []
        empty, self._empty = self._empty, []
        found = {
            "jobs": self._done,
            "jobs_s": (self._done - done) / (now - then),
            "memory_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
            "kvs_kb": size / 1e3,
            "kvs_keys": keys,
            "ensembles": ensembles,
            "status_ms": median(latencies),
            "status_p99_ms": quantiles(latencies, n=100, method="inclusive")[98],
            "status_x": median(latencies) / median(empty),
            # Of content-sqlite, which removes nothing while it runs.
            "db_mb": self._handle.rpc("content-sqlite.stats-get").get()["dbfile_size"] / 1e6,
        }
        self.measured.append(found)
        self._say(found)
        self._measured = self._done, time.monotonic(), self._part

    def _kept(self) -> tuple[int, int, int]:
        """How many ensembles there are in the KVS, and the keys and bytes that they have there."""
        ensembles = keys = size = 0
        reader = Durable(self._handle, "")
        fronts = ["ensemble"]
        while fronts:
            name = fronts.pop()
            try:
                directory = flux.kvs.get_dir(self._handle, name)
            except FileNotFoundError:
                continue  # of an ensemble that the service has dropped since it was listed
            within = [f"{name}.{one}" for one in directory.directories()]
            fronts += within
            ensembles += len(within) if name == "ensemble" else 0
            for one in directory.files():
                keys += 1
                size += len(reader.text(f"{name}.{one}") or "")
        return ensembles, keys, size


def growth(measured: Sequence[dict[str, float]]) -> dict[str, float]:
    """What the last third of the measurements is to the second one, by their medians."""
    third = len(measured) // 3
    parts = measured[third : 2 * third], measured[2 * third :]
    return {
        key: median(one[key] for one in parts[1]) / median(one[key] for one in parts[0])
        for key in (*MORE, "jobs_s")
    }


def _print(found: dict[str, float]) -> None:
    print(" ".join(f"{found[column]:>13,.6g}" for column in COLUMNS), flush=True)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="for how long, at most (60)")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="how many, at most (1,000,000)")
    parser.add_argument("--json", metavar="FILE", help="write the measurements as JSON")
    options = parser.parse_args()
    print(" ".join(f"{column:>13}" for column in COLUMNS), flush=True)
    soak = Soak(60 * options.minutes, options.jobs, _print)
    soak.run()
    problems = soak.problems
    if len(soak.measured) >= 6:
        found = growth(soak.measured)
        print("last third / second third: " + ", ".join(f"{k} {v:.3f}" for k, v in found.items()))
        problems += [
            f"{key} grows: {found[key]:.3f}x" for key, most in MORE.items() if found[key] > most
        ]
    for problem in problems:
        print(problem)
    print("FAILED" if problems else "ok")
    if options.json:
        Path(options.json).write_text(json.dumps(soak.measured))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
