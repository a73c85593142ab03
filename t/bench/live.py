"""A private Flux instance with the service in it, for benchmarks.

    with live() as stage:
        stage.load_service()
        stage.run(document)
        stage.jobs("name-of-the-jobs")

Jobs are mock jobs on fake cores, and what is measured comes from the timestamps that Flux
itself gave, read when everything is over: so nobody looks on while the work is done. Processor
time comes from /proc: of the broker, of the service, and of the other processes of the
instance.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flux_ensemble
from flux_ensemble.bindings import (
    keeper_path,
    module_arguments,
    module_path,
    require_flux,
)

sys.path.append(str(Path(__file__).parents[1] / "fault"))
require_flux()

import flux  # noqa: E402
import flux.constants  # noqa: E402
from instance import Instance  # noqa: E402

#: Seconds in which anything here is over, and between two looks whether it is.
PATIENCE, TICK = 240.0, 0.05

#: Seconds in which a service that lives answers.
ANSWER = 0.2

#: States of a job that was accepted, as job-list counts them.
_ACCEPTED = ("sched", "run", "cleanup", "inactive")

_JIFFY = os.sysconf("SC_CLK_TCK")


def mock(seconds: float = 0.001) -> dict[str, Any]:
    """Attributes of a job that runs for so long without a process."""
    return {"system": {"exec": {"test": {"run_duration": f"{seconds:g}s"}}}}


def burst(name: str, jobs: int, seconds: float = 0.001) -> dict[str, Any]:
    """An ensemble of one group that is submitted at the start; its jobs have its name."""
    return {
        "name": name,
        "jobs": [group(name, seconds, count=jobs)],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": name}}],
        "limits": {"active-jobs": max(jobs, 1), "jobs": 2 * jobs},
    }


def group(name: str, seconds: float = 0.001, **more: Any) -> dict[str, Any]:
    """A group of mock jobs, which have its name in the queue too."""
    return {"name": name, "command": "true", "attributes": mock(seconds), **more}


@dataclass(frozen=True)
class Job:
    """When a job got how far, in epoch seconds: Flux's own timestamps, or 0.

    Args:
        submitted: job-ingest had it.
        accepted: the job manager had accepted it (`validate`).
        started: it had its resources (`alloc`).
        finished: it ended.
        clean: nothing is left of it.
    """

    id: int
    submitted: float
    accepted: float
    started: float
    finished: float
    clean: float


class Stage:
    """The instance.

    Args:
        cores: how many fake ones it has.
        config: more TOML for the broker.
        brokers: it has so many, with the cores of this machine; 0 for one with fake cores.

    Attributes:
        handle: a Flux handle.
        directory: for files.
        service: the id of the service's process, or 0.
    """

    def __init__(self, cores: int, config: str, brokers: int) -> None:
        # Sockets are there too, whose paths must be short.
        self.directory = Path(tempfile.mkdtemp(prefix="bench-"))
        self.instance = Instance(self.directory, config=config, cores=cores)
        if brokers:
            (self.directory / "conf" / "fault.toml").write_text(config)
            self.instance.start([f"--test-size={brokers}"])
        else:
            self.instance.start()
        self.handle: Any = flux.Flux(self.instance.uri)
        self.broker = int(self.handle.attr_get("broker.pid"))
        self.service = 0

    def close(self) -> None:
        """End the instance, whatever it does: to cancel thousands of jobs takes minutes."""
        with contextlib.suppress(OSError, RuntimeError):
            self.instance.crash()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- the service ----------------------------------------------------------------

    def load_service(self, path: Path | None = None, *more: str) -> None:
        """Load the broker module, and wait until it is ready.

        Args:
            path: the module's file, if not the service's own.
            more: arguments for it.
        """
        file = str(path or module_path())
        self.instance.flux("module", "load", "--name=ensemble", file, *module_arguments(), *more)
        self.await_ready()

    def keep_service(self, *more: str) -> None:
        """Have the keeper run it, as a process beside the broker, and wait until it is ready.

        Args:
            more: arguments for the keeper.
        """
        # The keeper hands on no PYTHONPATH, by which the package is found that is measured.
        python = self.directory / "python"
        package = shlex.quote(str(Path(flux_ensemble.__file__).parents[1]))
        python.write_text(f'#!/bin/sh\nPYTHONPATH={package} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        self.instance.flux("module", "load", str(keeper_path()), f"python={python}", *more)
        self.await_ready()

    def kill_service(self) -> None:
        """Kill it, without a broker panic, and wait until its broker knows."""
        self.instance.flux("setattr", "broker.module-nopanic", "1")
        os.kill(self.service, signal.SIGKILL)
        self.service = 0
        self.until(
            lambda: all(one["name"] != "ensemble" for one in self.rpc("module.list")["mods"]),
            "the killed service is listed",
        )

    def kill_kept_service(self) -> None:
        """Kill the process that the keeper runs, and wait until the next one is ready."""
        killed = self.service
        os.kill(killed, signal.SIGKILL)

        def another() -> Mapping[str, Any] | None:
            ready = self._ready()
            return ready if ready and ready["pid"] != killed else None

        self.service = int(self.until(another, "the keeper starts no service", 0.01)["pid"])

    def await_ready(self) -> None:
        """Wait until the service has recovered."""
        self.service = int(self.until(self._ready, "the service is not ready")["pid"])

    def _ready(self) -> Mapping[str, Any] | None:
        # A service that was killed a moment ago takes the request along, unanswered.
        with contextlib.suppress(OSError):
            future = self.handle.rpc("ensemble.status").wait_for(ANSWER)
            service: dict[str, Any] = future.get()["service"]
            if service["state"] == "ready":
                return service
        return None

    def unload_service(self) -> None:
        """Remove the broker module."""
        self.instance.flux("module", "remove", "ensemble")
        self.service = 0

    def load(self, document: Mapping[str, Any]) -> Any:
        """The future of a request to load an ensemble."""
        # The services of members are commands of this package.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(self.directory)}
        payload = {"spec": document, "cwd": str(self.directory), "environment": environment}
        return self.handle.rpc("ensemble.load", payload)

    def run(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run an ensemble to its end; returns its log."""
        self.load(document).get()
        return self.entries(document["name"])

    def entries(self, name: str, *, follow: bool = True) -> list[dict[str, Any]]:
        """The log of an ensemble, to its end or as it is now."""
        flags = flux.constants.FLUX_RPC_STREAMING
        stream = self.handle.rpc("ensemble.log", {"name": name, "follow": follow}, flags=flags)
        entries = []
        with contextlib.suppress(OSError):
            while True:
                entries.append(stream.get())
                stream.reset()
        return entries

    def rpc(self, topic: str, **payload: Any) -> Any:
        """The response to a request."""
        return self.handle.rpc(topic, payload).get()

    def status(self, name: str) -> dict[str, Any]:
        """The status of an ensemble."""
        status: dict[str, Any] = self.rpc("ensemble.status", name=name)["ensembles"][0]
        return status

    # -- the queue ------------------------------------------------------------------

    def await_idle(self) -> None:
        """Wait until no job is active."""

        def idle() -> bool:
            active: int = self.rpc("job-manager.stats-get")["active_jobs"]
            return active == 0

        self.until(idle, "jobs are active", 0.1)

    def client(self, kind: str, name: str, jobs: int, seconds: float = 0.001) -> dict[str, Any]:
        """Submit jobs as a user of Flux does: see flux_client.py."""
        command = [sys.executable, str(Path(__file__).with_name("flux_client.py"))]
        done = subprocess.run(
            [*command, kind, name, str(jobs), f"{seconds:g}"],
            env=self.instance.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def await_jobs(self, jobs: int) -> None:
        """Wait until so many jobs have been accepted since the instance began."""

        def enough() -> bool:
            states: dict[str, int] = self.rpc("job-list.job-stats")["job_states"]
            return sum(states[state] for state in _ACCEPTED) >= jobs

        self.until(enough, f"fewer than {jobs} jobs", 0.2)

    def jobs(self, name: str) -> list[Job]:
        """The jobs of this name, oldest first."""
        times = ("t_submit", "t_depend", "t_run", "t_cleanup", "t_inactive")
        found = self.rpc(
            "job-list.list", max_entries=0, attrs=list(times), constraint={"name": [name]}
        )["jobs"]
        return sorted(
            (Job(one["id"], *(one.get(key, 0.0) for key in times)) for one in found),
            key=lambda job: job.id,
        )

    def until(self, found: Callable[[], Any], complaint: str, pause: float = TICK) -> Any:
        """Wait until something is found, and return it."""
        deadline = time.monotonic() + PATIENCE
        while not (value := found()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{complaint} after {PATIENCE:g} seconds")
            time.sleep(pause)
        return value

    # -- processor time -------------------------------------------------------------

    def processor(self) -> dict[str, float]:
        """Seconds of processor time since each process began.

        Returns:
            `broker` with all modules that are its threads, `service`, and `other` processes of
            the instance. What is run by benchmarks is none of the instance.
        """
        children: dict[int, list[int]] = {}
        spent: dict[int, float] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            children.setdefault(int(fields[1]), []).append(pid)
            # User and system time, of the process and of its children that have ended.
            spent[pid] = sum(map(int, fields[11:15])) / _JIFFY
        front, below = [self.broker], []
        while front:
            found = children.get(front.pop(), [])
            below += found
            front += found
        other = sum(spent[pid] for pid in below if pid != self.service)
        return {
            "broker": spent[self.broker],
            "service": spent.get(self.service, 0.0),
            "other": other,
        }

    def megabytes(self) -> float:
        """The memory of the service's process."""
        pages = int(Path(f"/proc/{self.service}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def kvs_bytes(self) -> int:
        """The size of the database that the KVS is kept in."""
        self.rpc("content.flush")
        size: int = self.rpc("content-sqlite.stats-get")["dbfile_size"]
        return size

    def processor_since(self, before: Mapping[str, float]) -> dict[str, float]:
        """What `processor` has grown by."""
        now = self.processor()
        return {key: round(now[key] - spent, 2) for key, spent in before.items()}


@contextlib.contextmanager
def live(cores: int = 128, config: str = "", brokers: int = 0) -> Iterator[Stage]:
    """An instance for as long as it is needed."""
    stage = Stage(cores, config, brokers)
    try:
        yield stage
    finally:
        stage.close()
