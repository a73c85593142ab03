"""The same for the local queue: `run --queue local` is killed, and goes on with --resume."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import verify
from scenario import FINAL, TICK, Context, children, words
from witness import Job
from workloads import Expected, Submits, Workload

from flux_ensemble.engine.codec import to_json
from flux_ensemble.runtime.durability.batches import expand

_JOBS = 60

#: What a run may take that is killed no more, in seconds: in any case, and for each job.
_SECONDS, _SECONDS_A_JOB = 120.0, 1.0

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
        # Kills follow each other closely.
        "limits": {"losses": 10_000},
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
    """Runs of one ensemble on the local queue, in a directory of their own.

    Args:
        directory: theirs.
        workload: the ensemble.
    """

    def __init__(self, directory: Path, workload: Workload) -> None:
        self.directory = directory
        self.files = directory / "state" / workload.name
        self.workload = workload
        self._document = directory / f"{workload.name}.yaml"
        self._document.write_text(json.dumps(self.workload.document))
        self._log = (directory / "run.log").open("a")

    def start(self, *, resume: bool) -> subprocess.Popen[bytes]:
        """Start it, or go on."""
        command = [
            str(Path(sys.executable).with_name("flux-ensemble")),
            "run", "--queue", "local", "--state-dir", str(self.directory / "state"),
            # Trials that publish nothing are meant to fail.
            "--nodes", "4", "--cores", "6", "--fail-on", "job", *(["--resume"] if resume else []),
            str(self._document),
        ]  # fmt: skip
        return subprocess.Popen(
            command, cwd=self.directory, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log,
            # Under nohup(1) it would leave hangups ignored.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
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
            return str(self.snapshot()["status"]["state"])
        except FileNotFoundError:
            return None

    def snapshot(self) -> dict[str, Any]:
        """Its status and metrics, as its file has them."""
        kept: dict[str, Any] = json.loads((self.files / "status.json").read_text())
        return kept

    def jobs(self, *, in_order: bool = False) -> list[Job]:
        """Its jobs by the events that it has put down.

        Args:
            in_order: an event that it has seen after another one has a later time. What a process
                published can be read after its end, and has that time, but counts all the same.
        """
        jobs: dict[int, Job] = {}
        seen = -math.inf
        for event in self._events():
            seen = max(event["t"], math.nextafter(seen, math.inf))
            job = jobs.setdefault(event["job"], Job(event["job"]))
            if event["tag"] is not None:
                group, rule, firing, index = event["tag"]
                tag = {"group": group, "rule": rule, "firing": firing, "index": index}
                if job.tag is not None and job.tag != {**tag, "run": 0}:
                    raise RuntimeError(f"job {event['job']} has two tags: {job.tag} and {tag}")
                job.tag = {**tag, "run": 0}
            if job.take({**event, "timestamp": event["t"]}) and in_order:
                name, _, context = job.events[-1]
                job.events[-1] = (name, seen, context)
        return [job for job in jobs.values() if job.counts]

    def absences(self) -> list[tuple[float, float]]:
        """The spans in which it did not run, as it has put them down."""
        return [
            (value["since"], value["t"])
            for line in (self.files / "events").read_text().splitlines()
            if (value := json.loads(line)).get("type") == "Absent"
        ]

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
    """kill -9 or ends of `run --queue local` or its helpers, at random; --resume goes on."""
    while context.row.kills < context.kills and not context.row.problems:
        with local_run(context, _workload) as run:
            if drive(context, run):
                _verify(context, run)


@contextlib.contextmanager
def local_run(context: Context, workload: Callable[[Path], Workload]) -> Iterator[LocalRun]:
    """A run that has not begun; its files are kept where something was wrong.

    Args:
        context: of the scenario.
        workload: makes the ensemble, for a directory.
    """
    directory = Path(tempfile.mkdtemp(prefix="fault-"))
    yield LocalRun(directory, workload(directory))
    if context.row.problems:
        log = (directory / "run.log").read_text().splitlines()[-20:]
        print(f"---- {context.row.scenario}: {directory}", *log, sep="\n", file=sys.stderr)
    else:
        shutil.rmtree(directory, ignore_errors=True)


def drive(context: Context, run: LocalRun, *, grows: int = 0) -> bool:
    """Kill a run again and again, until it has ended or all kills are made; False if it fails.

    Args:
        context: of the scenario.
        run: the run.
        grows: so many bytes are put down before every second kill, or so. However slow the
            machine is, it must get on.
    """
    resume = False
    while True:
        before = run.size
        process = run.start(resume=resume)
        if context.row.kills < context.kills:
            # A run that goes on writes its files anew, so that any change will do.
            while run.size == before and process.poll() is None:
                time.sleep(TICK)
            if grows and context.random.random() < 0.5:
                enough = run.size + grows
                while run.size < enough and process.poll() is None:
                    time.sleep(TICK)
            time.sleep(context.random.uniform(0, 0.5))
        if context.row.kills < context.kills and process.poll() is None:
            how = context.random.choice(ENDS) if context.random.random() < 0.5 else ENDS[0]
            end(context, process, how)
            context.row.kills += 1
            state = run.state()
            if state in FINAL:
                return True
            resume = state is not None
            continue
        try:
            code = process.wait(timeout=_SECONDS + _SECONDS_A_JOB * run.workload.expected.jobs)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            context.row.problems.append("the run does not end")
            return False
        if code != 0:
            context.row.problems.append(f"the run exits with {code}")
        return code == 0


#: What ends a run from outside, of which it goes on with --resume.
ENDS = ("killed", "guard killed", "supervisor killed", "SIGHUP", "SIGTERM")


def end(context: Context, process: subprocess.Popen[bytes], how: str) -> None:
    """End a run from outside, and wait until it has.

    Args:
        context: of the scenario.
        process: the run.
        how: one of ENDS; what kills the run may kill what it has started, too.
    """
    run, *helpers = family(process.pid)
    helpers += suggesting(process.pid)
    if how == "killed":
        victims = [run, *(pid for pid in helpers if context.random.random() < 0.5)]
        context.random.shuffle(victims)
        # All at once: whoever is killed first, the others have no time to act on that.
        _signal(victims, signal.SIGSTOP)
        _signal(victims, signal.SIGKILL)
    elif how in ("guard killed", "supervisor killed"):
        # Where it is about to end they may be gone.
        at = ("guard killed", "supervisor killed").index(how)
        _signal(helpers[at : at + 1], signal.SIGKILL)
    else:
        _signal([run], signal.Signals[how])
    try:
        process.wait(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        context.row.problems.append(f"the run does not end: {how}")
        process.kill()
        process.wait()


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def family(run: int) -> list[int]:
    """The processes of a run: its own, the guard, and the supervisor, below which are jobs."""
    found = [run]
    while len(found) < _PROCESSES and (
        below := [pid for pid in children(found[-1]) if not _suggests(pid)]
    ):
        found.append(below[0])
    return found


#: Processes of a run, besides what suggests points.
_PROCESSES = 3


def suggesting(run: int) -> list[int]:
    """The processes that suggest points to a run."""
    return [pid for pid in children(run) if _suggests(pid)]


def _suggests(pid: int) -> bool:
    return any(b"runtime/custom/child.py" in word for word in words(pid))


def verified(run: LocalRun, jobs: list[Job]) -> verify.Findings:
    """What is wrong with an ensemble that has ended, whatever it is.

    Args:
        run: its run.
        jobs: its jobs.
    """
    findings = verify.Findings()
    expected, snapshot = run.workload.expected, run.snapshot()
    findings.expect("completed", snapshot["status"]["state"], "state")
    findings.expect([], snapshot["status"]["errors"], "errors in status")
    verify.check_tags(expected, jobs, findings)
    verify.check_log(expected, run.entries(), findings)
    verify.check_metrics(jobs, snapshot["metrics"], findings, run.absences())
    return findings


def note(context: Context, jobs: list[Job], findings: verify.Findings) -> None:
    """Put down what was found."""
    context.row.jobs += len(jobs)
    context.row.duplicates += findings.duplicates
    context.row.missing += findings.missing
    context.row.problems += findings.problems


def _verify(context: Context, run: LocalRun) -> None:
    jobs = run.jobs()
    findings = verified(run, jobs)
    verify.check_calls(run.workload.expected, run.directory / "calls", findings)
    ran = (run.directory / "ran").read_text().split()
    findings.expect(len(set(ran)), len(ran), "jobs that ran, and how often they did")
    counts, _ = verify.fold(jobs)
    succeeded = sum(one["success"] for one in counts.values())
    if succeeded > len(ran):
        findings.problems.append(f"{succeeded} jobs succeeded, and {len(ran)} ran")
    note(context, jobs, findings)
