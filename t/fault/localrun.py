"""The same for the local queue: `run --member local` is killed, and goes on with --resume."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verify
from scenario import FINAL, TICK, Context, children
from witness import Job
from workloads import Expected, Submits, Workload

from flux_ensemble.engine.codec import to_json
from flux_ensemble.runtime.durability.batches import expand

_JOBS = 60

_CUSTOM = """
def more(**kwargs):
    with open({calls!r}, "a") as file:
        file.write("more\\n")
    return Action({{"name": "submit", "label": "tail"}})
"""


def _workload(directory: Path) -> Workload:
    """Jobs write their ids to a file; rules look at counts of jobs that ended in any way."""
    ran = directory / "ran"

    def group(name: str, count: int, seconds: float) -> dict[str, Any]:
        script = f"echo $FLUX_JOB_ID >>{ran}; sleep {seconds}"
        return {"name": name, "command": ["sh", "-c", script], "count": count}

    document = {
        "name": "local",
        "jobs": [
            group("first", _JOBS, 0.2),
            group("second", _JOBS // 2, 0.1),
            group("echo", 1, 0.01),
            group("tick", 2, 0.01),
            group("tail", 3, 0.01),
        ],
        "rules": [
            {"id": "first", "trigger": "start", "action": {"name": "submit", "label": "first"}},
            {"id": "second", "trigger": "metric", "name": "count.first.finished",
             "when": _JOBS // 2, "action": {"name": "submit", "label": "second"}},
            {"id": "echo", "trigger": "job-clean", "group": "second",
             "action": {"name": "submit", "label": "echo", "repetitions": "unlimited"}},
            {"id": "tick", "trigger": "timer", "after": 0.1, "every": 0.3,
             "action": {"name": "submit", "label": "tick", "repetitions": 5}},
            {"id": "more", "trigger": "metric", "name": "count.echo.finished",
             "when": _JOBS // 2, "action": {"name": "custom", "label": "more"}},
        ],
        "custom": _CUSTOM.format(calls=str(directory / "calls")),
    }  # fmt: skip
    submits = {
        "first": Submits("first", 1, _JOBS),
        "second": Submits("second", 1, _JOBS // 2),
        "echo": Submits("echo", _JOBS // 2, 1),
        "tick": Submits("tick", 5, 2),
        "more": Submits("tail", 1, 3, first=1),
    }
    return Workload(document, Expected(submits, calls={"more": 1}))


class LocalRun:
    """Runs of one ensemble on the local queue, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = directory / "state" / "local"
        self.workload = _workload(directory)
        self._document = directory / "local.yaml"
        self._document.write_text(json.dumps(self.workload.document))
        self._log = (directory / "run.log").open("a")

    def start(self, *, resume: bool) -> subprocess.Popen[bytes]:
        """Start it, or go on."""
        command = [
            str(Path(sys.executable).with_name("flux-ensemble")),
            "run", "--member", "local", "--state-dir", str(self.directory / "state"),
            "--nodes", "4", "--cores", "4", *(["--resume"] if resume else []),
            str(self._document),
        ]  # fmt: skip
        return subprocess.Popen(
            command, cwd=self.directory, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Of its files, in bytes: it grows when something happens."""
        total = 0
        for name in ("events", "eventlog"):
            with contextlib.suppress(FileNotFoundError):
                total += (self.files / name).stat().st_size
        return total

    def state(self) -> str | None:
        """The state that its files tell; None before they are there."""
        try:
            snapshot = json.loads((self.files / "status.json").read_text())
        except FileNotFoundError:
            return None
        return str(snapshot["status"]["state"])

    def jobs(self) -> list[Job]:
        """Its jobs by the events that it has put down."""
        jobs: dict[int, Job] = {}
        for event in self._events():
            job = jobs.setdefault(event["job"], Job(event["job"]))
            if event["tag"] is not None:
                group, rule, firing, index = event["tag"]
                tag = {"group": group, "rule": rule, "firing": firing, "index": index}
                if job.tag is not None and job.tag != {**tag, "run": 0}:
                    raise RuntimeError(f"job {event['job']} has two tags: {job.tag} and {tag}")
                job.tag = {**tag, "run": 0}
            job.take({**event, "timestamp": event["t"]})
        return [job for job in jobs.values() if job.counts]

    def _events(self) -> Iterator[dict[str, Any]]:
        """Job events, from a file of events or from the batches of a log."""
        events = self.files / "events"
        file = events if events.exists() else self.files / "eventlog"
        latest = 0
        for line in file.read_text().splitlines():
            value = json.loads(line)
            if value.get("type") == "JobEvent":
                yield value
            elif value.get("name") == "batch" and value["context"]["number"] > latest:
                latest = value["context"]["number"]
                for one in value["context"]["events"]:
                    if isinstance(one, list):
                        yield to_json(expand(one))

    def entries(self) -> list[dict[str, Any]]:
        """The entries for people."""
        lines = (self.files / "eventlog").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["name"] != "batch"]


def local(context: Context) -> None:
    """kill -9 of `run --member local`, and of its helpers, at random; it goes on with --resume."""
    while context.row.kills < context.kills and not context.row.problems:
        directory = Path(tempfile.mkdtemp(prefix="fault-"))
        _run(context, LocalRun(directory))
        if context.row.problems:
            log = (directory / "run.log").read_text().splitlines()[-20:]
            print(f"---- local: {directory}", *log, sep="\n", file=sys.stderr, flush=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _run(context: Context, run: LocalRun) -> None:
    resume = False
    deadline = time.monotonic() + 60 + 10 * context.kills
    while True:
        before = run.size
        process = run.start(resume=resume)
        if context.row.kills < context.kills:
            # A run that goes on writes its files anew, so that any change will do.
            while run.size == before and process.poll() is None:
                time.sleep(TICK)
            time.sleep(context.random.uniform(0, 0.5))
        if context.row.kills < context.kills and process.poll() is None:
            _kill(context, process)
            context.row.kills += 1
            state = run.state()
            if state in FINAL:
                break
            resume = state is not None
            continue
        code = process.wait(timeout=max(1.0, deadline - time.monotonic()))
        if code != 0:
            context.row.problems.append(f"the run exits with {code}")
            return
        break
    _verify(context, run)


def _kill(context: Context, process: subprocess.Popen[bytes]) -> None:
    """Kill the run, and perhaps its guard and its supervisor, in any order."""
    family = [process.pid]
    while below := children(family[-1]):
        family.append(below[0])
    # Below the supervisor are jobs.
    helpers = family[1:3]
    victims = [process.pid, *(pid for pid in helpers if context.random.random() < 0.5)]
    context.random.shuffle(victims)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _verify(context: Context, run: LocalRun) -> None:
    findings = verify.Findings()
    jobs = run.jobs()
    expected = run.workload.expected
    snapshot = json.loads((run.files / "status.json").read_text())
    findings.expect("completed", snapshot["status"]["state"], "state")
    findings.expect([], snapshot["status"]["errors"], "errors in status")
    verify.check_tags(expected, jobs, findings)
    verify.check_log(expected, run.entries(), findings)
    verify.check_metrics(jobs, snapshot["metrics"], findings)
    verify.check_calls(expected, run.directory / "calls", findings)
    ran = (run.directory / "ran").read_text().split()
    findings.expect(len(set(ran)), len(ran), "jobs that ran, and how often they did")
    counts, _ = verify.fold(jobs)
    succeeded = sum(one["success"] for one in counts.values())
    if succeeded > len(ran):
        findings.problems.append(f"{succeeded} jobs succeeded, and {len(ran)} ran")
    context.row.jobs += len(jobs)
    context.row.duplicates += findings.duplicates
    context.row.missing += findings.missing
    context.row.problems += findings.problems
