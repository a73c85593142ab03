"""One scenario's instance, service, witness and ensemble, and the verification at its end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import flux
import verify
from durable import Durable
from flux.kvs import kvs_checkpoint_lookup
from instance import NODE_CORES, Instance
from keeper import Kept
from scenario import FINAL, TICK, Context
from services import Command, Launcher, Module, Service, Warm
from verify import Findings
from witness import Witness
from workloads import Workload

from flux_ensemble.client import Client

_Scene = TypeVar("_Scene", bound="Scene")


def _launcher(kind: str, directory: Path, options: tuple[str, ...]) -> Launcher:
    if kind == "module":
        return Module()
    log = directory / "service.log"
    return Warm(log, options) if kind == "warm" else Command(log)


class Scene:
    """An instance with the service, and a witness of its jobs.

    Args:
        context: of the scenario.
        kind: "warm", "command", "module" or "kept": how the service is started.
        options: of standby.py.
        statedir, config: as for `Instance`.
        start_options: of the first start of the instance.
        raises: the service is to log a traceback.
        brokers, node_cores: of the instance.
    """

    def __init__(
        self,
        context: Context,
        *,
        kind: str = "warm",
        options: tuple[str, ...] = (),
        statedir: bool = False,
        config: str = "",
        start_options: Sequence[str] = (),
        raises: bool = False,
        brokers: int = 1,
        node_cores: int = NODE_CORES,
    ) -> None:
        self._raises = raises
        self.row = context.row
        self.random = context.random
        # Sockets are there too, whose paths must be short.
        self.directory = Path(tempfile.mkdtemp(prefix="fault-"))
        self.instance = Instance(
            self.directory,
            statedir=statedir,
            config=config,
            brokers=brokers,
            node_cores=node_cores,
        )
        self.kept = Kept()
        launcher = self.kept if kind == "kept" else _launcher(kind, self.directory, options)
        self.service = Service(self.instance, launcher)
        self.calls = self.directory / "calls"
        self._failed = False
        self.instance.start(start_options)
        self.connect()
        self.start_service()

    def connect(self) -> None:
        """Begin to watch the instance, which has just started."""
        self.handle = flux.Flux(self.instance.uri)
        self.witness = Witness(self.instance.uri)

    def start_service(self) -> None:
        """Start the service, and wait until it answers."""
        self.service.start()
        self.service.await_answer(self.handle)

    def kill(self, *, restart: bool = True) -> None:
        """Kill the service, and start it again at once; it may not answer yet."""
        self.service.kill()
        self.row.kills += 1
        if restart:
            self.service.start()

    def restart(self, options: Sequence[str], *, crash: bool = False) -> None:
        """Have the instance end, start it again, and then the service.

        Args:
            options: of the new start.
            crash: kill the broker instead of ending it as a user would.
        """
        if crash:
            self.instance.crash()
        else:
            self.instance.stop()
        self.service.gone()
        self.witness.close()
        # After a crash the shutdown of Flux 0.88 can hang in cancelling jobs.
        self.instance.start(options, keep_jobs=crash)
        self.connect()
        self.start_service()

    def await_checkpoint(self) -> None:
        """Wait until all that the KVS has now would survive a crash."""
        sequence = self.handle.rpc("kvs.getroot", {"namespace": "primary", "flags": 0}).get()
        deadline = time.monotonic() + 20
        while kvs_checkpoint_lookup(self.handle)[0]["sequence"] < sequence["rootseq"]:
            if time.monotonic() > deadline:
                raise RuntimeError("the KVS makes no checkpoints")
            time.sleep(TICK)

    def durable(self, name: str) -> Durable:
        """What an ensemble has in the KVS."""
        return Durable(self.handle, name)

    def load(self, workload: Workload) -> None:
        """Load an ensemble."""
        self.begin_load(workload).wait_for(60).get()

    def begin_load(self, workload: Workload) -> Any:
        """The future of a request to load an ensemble."""
        # The services of members are found on it.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(self.directory), **self.instance.nested}
        payload = {
            "spec": workload.document, "cwd": str(self.directory), "environment": environment
        }  # fmt: skip
        return self.handle.rpc("ensemble.load", payload)

    def rpc(self, op: str, **payload: Any) -> Any:
        """The response to a request; one that the service's death cut off raises OSError."""
        return self.handle.rpc(f"ensemble.{op}", payload).wait_for(60).get()

    def status(self, name: str) -> dict[str, Any] | None:
        """The status of an ensemble; None while the service is not there."""
        try:
            status: dict[str, Any] = self.rpc("status", name=name)["ensembles"][0]
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EHOSTUNREACH, errno.ECONNRESET):
                return None
            raise
        return status

    def await_ready(self) -> None:
        """Wait until the service has recovered."""
        deadline = time.monotonic() + 60
        while self.rpc("status")["service"]["state"] != "ready":
            if time.monotonic() > deadline:
                raise RuntimeError("the service does not recover")
            time.sleep(10 * TICK)

    def await_end(self, name: str, seconds: float) -> dict[str, Any]:
        """Wait until an ensemble has ended and its jobs have too; returns its status.

        Raises:
            RuntimeError: it has not in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.status(name)
            if status is not None and status["state"] in FINAL and not status["jobs"]["active"]:
                return status
            if status is None and not self.service.alive:
                raise RuntimeError("the service died by itself")
            time.sleep(10 * TICK)
        raise RuntimeError(f"ensemble {name!r} has not ended within {seconds:g} seconds")

    def await_state(self, name: str, state: str, seconds: float) -> dict[str, Any]:
        """Wait until an ensemble is in a state; returns its status."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.status(name)
            if status is not None and status["state"] == state:
                return status
            time.sleep(10 * TICK)
        raise RuntimeError(f"ensemble {name!r} is not {state} within {seconds:g} seconds")

    def await_entry(self, name: str, entry: str, seconds: float = 60) -> None:
        """Wait until an entry of the log is durable."""
        durable = self.durable(name)
        deadline = time.monotonic() + seconds
        while not durable.count(entry):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the log of {name!r} has no entry {entry!r}")
            time.sleep(TICK)

    def started_retries(self, name: str) -> int:
        """How many jobs of an ensemble that were tried again have started."""
        return sum(
            job.tag is not None
            and job.tag["name"] == name
            and job.tag["rule"] == "retry"
            and job.first("start") is not None
            for job in self.witness.jobs.values()
        )

    def entries(self, name: str) -> list[Mapping[str, Any]]:
        """The eventlog."""
        return list(Client(self.handle).log(name))

    def recorded(self, name: str) -> list[Mapping[str, Any]]:
        """The jobs of an ensemble, by its record."""
        return list(Client(self.handle).jobs(name, interrupted=True))

    def verify(
        self,
        workload: Workload,
        *,
        lossy: bool = False,
        purged: bool = False,
        calls: Path | None = None,
    ) -> None:
        """Note in the row all that is not as expected of an ensemble that has ended.

        Args:
            workload: the ensemble.
            lossy: jobs may have been lost by the fault; they are counted, as failed.
            purged: as for `verify.check_tags`; those are counted so too.
            calls: the file that its custom functions write to, if not `Scene.calls`.
        """
        findings = Findings()
        name, expected = workload.name, workload.expected
        self.await_quiet(name)
        # Its state is told before the entry that says so is durable.
        self.await_entry(name, "finish")
        durable = self.durable(name)
        jobs = self.witness.of(name)
        status = self.rpc("status", name=name)["ensembles"][0]
        metrics = self.rpc("metrics", name=name)
        findings.expect("completed", status["state"], "state")
        findings.expect([], status["errors"], "errors in status")
        findings.expect(0, status.get("violations", 0), "violations in status")
        verify.mark_beaten(expected, jobs)
        verify.check_tags(expected, jobs, findings, purged=purged)
        verify.check_log(expected, self.entries(name), findings)
        if lossy or purged:
            verify.check_sums(expected, jobs, metrics, findings)
        else:
            verify.check_metrics(jobs, metrics, findings, durable.absences())
            verify.check_outcomes(expected, metrics, findings)
            verify.check_record(jobs, self.recorded(name), findings)
        verify.check_calls(expected, calls or self.calls, findings)
        try:
            verify.check_log(expected, durable.entries(), findings)
        except ValueError as error:
            findings.problems.append(str(error))
        self.row.jobs += len(jobs)
        self.row.duplicates += findings.duplicates
        self.row.violations += status.get("violations", 0)
        self.note_findings(workload, findings)

    def note_findings(self, workload: Workload, findings: Findings) -> None:
        """Note what is wrong with an ensemble, and keep its log."""
        name = workload.name
        if findings.problems:
            self._keep(name, self.durable(name))
        self.row.missing += findings.missing
        self.row.problems += [f"{name}: {problem}" for problem in findings.problems]
        self._failed |= bool(findings.problems)

    def note(self, problems: Sequence[str]) -> None:
        """Note what else is wrong in the row; the files stay then."""
        self.row.problems += problems
        self._failed |= bool(problems)

    def _keep(self, name: str, durable: Durable) -> None:
        """Leave the log of an ensemble beside the other files, as it is told and as it is kept."""
        for kind, entries in (("told", self.entries(name)), ("kvs", durable.lines())):
            with (self.directory / f"log-{name}-{kind}.jsonl").open("w") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def await_quiet(self, name: str) -> None:
        """Wait until no job of an ensemble is active, by what the queue says.

        Raises:
            RuntimeError: some still are after a minute.
        """
        seen = self.witness.seen

        def quiet() -> bool:
            gone = seen[name, "clean"] + seen[name, "invalidate"]
            return self.witness.sentinel and seen[name, "submit"] == gone

        if not self.witness.wait(quiet, 60):
            raise RuntimeError(f"jobs of {name!r} are still active")
        self.witness.check()

    def duplicates(self, name: str) -> int:
        """How many jobs of an ensemble have a tag that an earlier one has."""
        tags = [tuple(sorted((job.tag or {}).items())) for job in self.witness.of(name)]
        return len(tags) - len(set(tags))

    def diagnose(self) -> None:
        """Print what may explain a failure."""
        self._failed = True
        out = [f"---- {self.row.scenario}: {self.directory}"]
        with contextlib.suppress(OSError, RuntimeError):
            status = self.handle.rpc("ensemble.status", {}).wait_for(5).get()
            for one in status["ensembles"]:
                one["rules"] = {rule["id"]: rule["fired"] for rule in one["rules"]}
                out.append(json.dumps(one))
                self._keep(one["name"], self.durable(one["name"]))
        counts = sorted(self.witness.seen.items())
        out.append(" ".join(f"{name}:{event}={count}" for (name, event), count in counts))
        for command in (["queue", "status"], ["dmesg"], ["module", "list"]):
            with contextlib.suppress(RuntimeError):
                lines = self.instance.flux(*command).splitlines()
                out += [line for line in lines if ".debug[" not in line][-30:]
        out += ["service.log:", *self._service_log()[-20:]]
        out += ["broker.log:", *self.instance.said()[-20:]]
        print("\n".join(out), file=sys.stderr, flush=True)

    def _service_log(self) -> list[str]:
        log = self.directory / "service.log"
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def _note_tracebacks(self) -> None:
        """An exception that was caught is a fault all the same."""
        lines = self.instance.said() + self._service_log()
        begin = [at for at, line in enumerate(lines) if "Traceback (most recent" in line]
        if begin and not self._raises:
            last = next(line for line in lines[begin[0] + 1 :] if "err[0]:   " not in line)
            self.row.problems.append(f"{len(begin)} tracebacks in the log, the first: {last}")
            self._failed = True

    def close(self) -> None:
        """Take everything down; files are kept where something was wrong."""
        with contextlib.suppress(OSError, RuntimeError):
            self.service.end()
        self.witness.close()
        if self.service.deaths:
            self.row.problems.append(f"the service died by itself {self.service.deaths} times")
        if self.service.orphans:
            self.row.problems.append(f"{self.service.orphans} processes outlived the service")
        with contextlib.suppress(OSError):
            self.instance.stop()
        self.service.launcher.close()
        self._note_tracebacks()
        if not self._failed:
            shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def scene(context: Context, **options: Any) -> Iterator[Scene]:
    """A scene; what goes wrong in it is noted in the row, with diagnostics."""
    with within(Scene(context, **options)) as made:
        yield made


@contextlib.contextmanager
def within(made: _Scene) -> Iterator[_Scene]:
    """Take a scene down in the end; what goes wrong in it is noted in its row."""
    try:
        yield made
    except (OSError, RuntimeError, KeyError) as error:
        made.row.problems.append(f"{type(error).__name__}: {error}")
        made.diagnose()
    finally:
        made.close()
