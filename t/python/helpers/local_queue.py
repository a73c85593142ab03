"""What the tests of the local queue share: a queue without an engine, and the command."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from patience import PATIENCE
from warm import WarmProcess

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import CancelJobs, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import Event, JobEvent
from flux_ensemble.queues.local.directory import open_directory
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.processes import ProcessRunner
from flux_ensemble.queues.local.queue import LocalQueue
from flux_ensemble.queues.local.recovery import EventFile
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.durability.timers import Timers


class Bench:
    """A local queue whose events are kept; group "j" is the one with the jobs."""

    def __init__(
        self, directory: Path, cluster: VirtualCluster, base: Mapping[str, str], **job: Any
    ) -> None:
        self.directory = directory
        self.output = directory / "output"
        self.kept = open_directory(self.output, make=True)
        self.events: list[JobEvent] = []
        self.lost: list[str] = []
        self.warned: list[str] = []
        self.loop = LocalLoop()
        spec = load_mapping(
            {"jobs": [{"name": "j", **job}], "rules": []}, name="test", directory=str(directory)
        )
        self.runner = ProcessRunner(
            self.loop,
            environment=base,
            cwd=str(directory),
            output=self.kept,
            ready=lambda: True,
            lost=self.lost.append,
            warn=self.warned.append,
            full=self.lost.append,
        )
        try:
            self.queue = LocalQueue(spec, cluster, self.loop, self.runner, self.events.append)
        except BaseException:
            self.runner.close()
            raise

    def submit(self, count: int = 1, first: int = 0) -> None:
        """Submit the first jobs of the group, or some after those."""
        self.queue.member.submit(SubmitJobs(1, "j", "r", 0, first, count), lambda _: None)

    def cancel(self, *jobs: int) -> None:
        """Cancel jobs."""
        self.queue.member.cancel(CancelJobs(2, jobs, "enough"), lambda _: None)

    def update(self, *jobs: int, **values: Any) -> None:
        """Change jobs."""
        self.queue.member.update(UpdateJobs(3, jobs, **values), lambda _: None)

    def run(self) -> None:
        """Run until no job is active."""
        self.loop.run(lambda: not self.queue.active)

    def wait(self, name: str, job: int = 1) -> None:
        """Run until a job has had an event."""
        self.loop.run(lambda: name in self.names(job))

    def until(self, condition: Callable[[], bool]) -> None:
        """Run until a condition holds that something outside brings about."""
        ticks = self.loop.timer(0.01, lambda: None, 0.01)
        self.loop.run(condition)
        ticks.cancel()

    def names(self, job: int = 1) -> list[str]:
        """The names of a job's events, in order."""
        return [event.name for event in self.events if event.job == job]

    def context(self, name: str, job: int = 1) -> Mapping[str, Any]:
        """The context of a job's first event of a name."""
        return next(one.context for one in self.events if one.job == job and one.name == name)

    def printed(self, job: int = 1) -> str:
        """What a job wrote to its default output file."""
        return (self.output / f"{job}.out").read_text()


@contextmanager
def bench(
    directory: Path,
    cluster: VirtualCluster | None = None,
    base: Mapping[str, str] | None = None,
    **job: Any,
) -> Iterator[Bench]:
    """A local queue for one job group with the keys of a document, closed at the end.

    Args:
        directory: where its files go.
        cluster: what it offers.
        base: the environment that jobs get.
        job: the keys of the group.
    """
    given = {"PATH": os.environ["PATH"]} if base is None else base
    made = Bench(directory, cluster or VirtualCluster(2, 2), given, **job)
    try:
        yield made
    finally:
        made.queue.close()
        made.loop.close()
        made.kept.close()


@contextmanager
def mounted(path: Path, options: str) -> Iterator[None]:
    """A small file system of its own; skips the test where none can be mounted."""
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "none", str(path)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs mount(8)")
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def shell(script: str) -> list[str]:
    """A command that runs a shell script."""
    return ["sh", "-c", script]


def events_in(directory: Path) -> Iterator[Event]:
    """The events that a local run has put down in the directory of its ensemble."""
    with open_directory(directory) as found:
        file = EventFile(found, Timers(), print)
        yield from file.read()
        file.close()


class Run:
    """`flux-ensemble run --queue local` in a process of its own.

    Args:
        directory: its working directory, with the document and the state directory.
        document: what is run.
        options: of the command.
        stdout: where its standard output goes.
        cold: it is started as a program, as a child that has all from this process, limits too.
    """

    def __init__(
        self,
        directory: Path,
        document: Mapping[str, Any],
        *options: str,
        stdout: int | IO[bytes] = subprocess.PIPE,
        cold: bool = False,
    ) -> None:
        file = directory / "test.yaml"
        text = yaml.safe_dump(dict(document))
        # Another run of it may be reading it.
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        self.state = directory / "state"
        words = ["run", "--queue", "local", "--state-dir", str(self.state), *options, str(file)]
        self.process = (
            subprocess.Popen(
                command(*words), cwd=directory, stdout=stdout, stderr=subprocess.PIPE, text=True
            )
            if cold
            else WarmProcess(words, directory, stdout)
        )

    def end(self) -> tuple[int, str, str]:
        """Wait; the exit code, and what it printed."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


def command(*words: object) -> list[str]:
    """The words of a `flux-ensemble` command."""
    return [sys.executable, "-m", "flux_ensemble.cli.main", *map(str, words)]


def await_pid(fifo: Path) -> int:
    """Read the process id that a job writes to a FIFO."""
    return int(fifo.read_text())


def children(pid: int) -> list[int]:
    """The processes that a process has started or adopted; of one that is gone, none."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(one) for one in text.split()]


def command_of(pid: int) -> bytes:
    """The words of a process, each with a NUL after it; of one that is gone, none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def descendants(pid: int) -> set[int]:
    """The processes that came from a process, and are not its own."""
    found: set[int] = set()
    left = [pid]
    while left:
        below = children(left.pop())
        found.update(below)
        left += below
    return found


def await_end(pid: int) -> None:
    """Wait until a process is gone, whoever its parent is."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([fd], [], [], PATIENCE)
        assert ready, f"process {pid} goes on"
    finally:
        os.close(fd)
