"""Local runs whose processes are killed and stopped: of their jobs nothing is left or lost."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_queue import Run, await_end, children, descendants, events_in
from patience import PATIENCE

from flux_ensemble.engine.events import JobEvent
from flux_ensemble.queues.local import state_dir as statelog
from flux_ensemble.queues.local.directory import open_directory
from flux_ensemble.queues.local.leftovers import PREFIX, SCRATCH_FILE, end_leftovers, remember
from flux_ensemble.queues.local.memos import VARIABLE, socket_path
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.local.states import States

#: A job of a shell, what it starts, and a daemon that left its process group; says their ids.
#: The daemon says so itself: until it has left, it is one of the group.
FAMILY = "sleep 1000 & setsid sh -c 'echo $0 $$ >fifo; exec sleep 1000' \"$$ $!\" & wait"

SUBMIT = [{"trigger": "start", "action": {"name": "submit", "label": "a"}}]


class Family:
    """A run with a job, and the processes that are there for it.

    Attributes:
        processes: by name: the runner, the guard, the supervisor.
        tied: the processes of the job's process group.
        daemon: one that left it.
    """

    def __init__(self, directory: Path) -> None:
        os.mkfifo(directory / "fifo")
        document = {
            "jobs": [{"name": "a", "command": ["sh", "-c", FAMILY], "on-lost": "fail"}],
            "rules": SUBMIT,
        }
        self.run = Run(directory, document)
        *self.tied, self.daemon = map(int, (directory / "fifo").read_text().split())
        runner = self.run.process.pid
        # From now on its processes are tied to those of the run.
        events = directory / "state" / "test" / "events"
        while '"start"' not in events.read_text():
            time.sleep(0.01)
        guard = next(one for one in children(runner) if self.tied[0] in descendants(one))
        (supervisor,) = children(guard)
        self.processes = {"runner": runner, "guard": guard, "supervisor": supervisor}

    def send(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to processes, by name."""
        for name in names:
            # What one of them does when another is gone can be quicker.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.processes[name], number)

    def kill_all(self) -> None:
        """Kill all of the run's processes at once: none has time to end what is left."""
        self.send(signal.SIGSTOP, *self.processes)
        self.send(signal.SIGKILL, *self.processes)

    def await_tied(self) -> None:
        """Wait until no process of the job's process group is left."""
        for pid in self.tied:
            await_end(pid)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    """A run with a job; nothing of it is left after the test, whatever came of it."""
    made = Family(tmp_path)
    yield made
    for pid in (*made.processes.values(), *made.tied, made.daemon):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    made.run.end()


NAMES = ("runner", "guard", "supervisor")


@pytest.mark.parametrize("killed", [*NAMES, *map(" ".join, itertools.permutations(NAMES, 2))])
def test_while_one_of_its_processes_lives_nothing_of_a_job_is_left(
    family: Family, killed: str
) -> None:
    family.send(signal.SIGKILL, *killed.split())
    family.await_tied()
    if {"guard", "supervisor"} - set(killed.split()):
        await_end(family.daemon)
    for pid in (family.processes["guard"], family.processes["supervisor"]):
        await_end(pid)
    code, _, err = family.run.end()
    # A run that is killed second may have noticed what became of the first, and ended by itself.
    ends = {-signal.SIGKILL} if killed.startswith("runner") else {1, -signal.SIGKILL}
    assert code in (ends if "runner" in killed else {1})
    if "runner" not in killed:
        assert "Traceback" not in err
        assert "the process that starts the jobs has ended unexpectedly: its jobs are killed" in err
    assert States(family.run.state).status("test")["resumable"] is True


@pytest.mark.parametrize("killed", [*map(" ".join, itertools.permutations(NAMES))])
def test_no_process_of_a_jobs_group_outlives_all_of_the_runs_processes(
    family: Family, killed: str
) -> None:
    family.send(signal.SIGKILL, *killed.split())
    family.await_tied()


@pytest.mark.parametrize("again", [1, 2])
def test_what_outlives_all_of_a_runs_processes_ends_before_the_run_goes_on(
    tmp_path: Path, again: int
) -> None:
    family = Family(tmp_path)
    family.kill_all()
    family.await_tied()
    os.kill(family.daemon, 0)
    scratch = Path((tmp_path / "state/test/scratch").read_text())
    assert scratch.exists()
    document = yaml.safe_load((tmp_path / "test.yaml").read_text())
    for number in range(again):
        code, out, err = Run(tmp_path, document, "--resume").end()
        assert code in (0, 1), err
        said = re.findall(r"killed \d+ process\w* that job 1 had left .*: (.*)", out)
        assert len(said) == (number == 0)
        assert all(str(family.daemon) in re.findall(r"\d+", pids) for pids in said)
        await_end(family.daemon)
    assert not scratch.exists()
    family.run.end()


def test_a_run_that_goes_on_ends_nothing_of_another_run(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Family(tmp_path / "other")
    (tmp_path / "mine").mkdir()
    mine = Family(tmp_path / "mine")
    mine.kill_all()
    document = yaml.safe_load((tmp_path / "mine/test.yaml").read_text())
    Run(tmp_path / "mine", document, "--resume").end()
    await_end(mine.daemon)
    for pid in (*other.tied, other.daemon):
        os.kill(pid, 0)
    other.send(signal.SIGKILL, "runner")
    other.await_tied()
    other.run.end()
    mine.run.end()


@pytest.mark.parametrize("scratch", ["/", "/tmp", "", "/etc/flux-ensemble-none"])
def test_a_damaged_note_of_the_scratch_directory_removes_and_ends_nothing(
    tmp_path: Path, scratch: str
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with open_directory(tmp_path / "run", make=True) as directory:
        directory.replace(SCRATCH_FILE, scratch.encode())
        assert end_leftovers(directory) == {}
    assert kept.exists()


@pytest.mark.parametrize(
    ("label", "job"), [("7", 7), (None, None), ("x", None), ("\u00b2", None), ("9" * 30, None)]
)
def test_a_command_in_a_shell_that_a_job_has_left_does_not_end_that_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str | None, job: int | None
) -> None:
    scratch = tmp_path / f"{PREFIX}here"
    scratch.mkdir()
    monkeypatch.setenv(VARIABLE, socket_path(str(scratch)))
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    if label is not None:
        monkeypatch.setenv("FLUX_JOB_ID", label)
    shell = subprocess.Popen(["sleep", "1000"])
    with open_directory(tmp_path / "run", make=True) as directory:
        remember(directory, str(scratch))
        assert end_leftovers(directory) == {}
        assert shell.poll() is None
        # From elsewhere it is one of what is left.
        monkeypatch.delenv(VARIABLE)
        reaper = threading.Thread(target=shell.wait)
        reaper.start()
        assert end_leftovers(directory) == {shell.pid: job}
        reaper.join()
    assert shell.returncode == -signal.SIGKILL


class Traced:
    """A process that the test traces (ptrace(2)): its parent learns of its end after the test."""

    _CONT, _SEIZE, _LISTEN, _EVENT_STOP = 7, 0x4206, 0x4208, 128

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._call = ctypes.CDLL(None, use_errno=True).ptrace
        self._call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        if self._call(self._SEIZE, pid, None, None):
            pytest.skip(f"no tracing here: {os.strerror(ctypes.get_errno())}")

    def stop(self) -> None:
        """Stop it, until somebody has it continue."""
        os.kill(self._pid, signal.SIGSTOP)
        while not self._go_on():
            pass

    def await_end(self) -> None:
        """Wait until it has ended; its parent does not know that before the test has ended."""
        flags = os.WEXITED | os.WSTOPPED | os.WNOWAIT
        while (seen := os.waitid(os.P_PID, self._pid, flags)) is not None:
            if seen.si_code not in (os.CLD_TRAPPED, os.CLD_STOPPED):
                return
            self._go_on()

    def _go_on(self) -> bool:
        """Have it do what it was about to; whether that is to be stopped."""
        _, status = os.waitpid(self._pid, 0)
        number, event = os.WSTOPSIG(status), status >> 16
        stopped = event == self._EVENT_STOP and number == signal.SIGSTOP
        request = self._LISTEN if stopped else self._CONT
        self._call(request, self._pid, None, 0 if event else number)
        return stopped


def test_the_guard_does_not_end_the_supervisor_before_that_has_ended_the_jobs(
    family: Family,
) -> None:
    """The guard is killed when the supervisor is gone, before it can go on in its place."""
    traced = Traced(family.processes["supervisor"])
    traced.stop()
    family.send(signal.SIGKILL, "runner")
    traced.await_end()
    family.send(signal.SIGKILL, "guard")
    family.await_tied()
    await_end(family.daemon)


@pytest.mark.parametrize("stopped", ["supervisor", "guard", "runner", "runner supervisor"])
@pytest.mark.parametrize("killed", ["runner", "supervisor"])
def test_a_process_that_is_stopped_keeps_no_job_alive(
    family: Family, stopped: str, killed: str
) -> None:
    family.send(signal.SIGSTOP, *stopped.split())
    family.send(signal.SIGKILL, killed)
    if (stopped, killed) == ("guard", "supervisor"):
        # Nobody is awake who would end the daemon, so not yet.
        family.await_tied()
        family.send(signal.SIGCONT, "guard")
    family.await_tied()
    await_end(family.daemon)


def test_a_hangup_of_the_terminal_ends_the_jobs(family: Family) -> None:
    family.send(signal.SIGHUP, "runner")
    family.await_tied()
    await_end(family.daemon)
    assert family.run.end()[0] == 130
    assert States(family.run.state).status("test")["resumable"] is True


@pytest.mark.parametrize("stopped", ["supervisor", "guard", "guard supervisor"])
def test_two_signals_end_a_run_whose_processes_are_stopped(family: Family, stopped: str) -> None:
    family.send(signal.SIGSTOP, *stopped.split())
    assert family.run.process.stdout is not None
    family.send(signal.SIGINT, "runner")
    while "interrupted" not in family.run.process.stdout.readline():
        pass
    family.send(signal.SIGINT, "runner")
    assert family.run.process.wait(timeout=PATIENCE) == 130
    family.await_tied()
    await_end(family.daemon)


@pytest.mark.parametrize(
    "killed", ["runner", "supervisor", "runner supervisor", "supervisor runner"]
)
def test_a_job_that_is_about_to_start_is_not_left(tmp_path: Path, killed: str) -> None:
    """Between fork and exec; the process waits there because the test leases its program."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n: >started\nexec sleep 1000\n")
    program.chmod(0o755)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(program, os.O_RDONLY)
    try:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"no leases here: {error.strerror}")
        document = {"jobs": [{"name": "a", "command": "./program"}], "rules": SUBMIT}
        run = Run(tmp_path, document)
        processes = {"runner": run.process.pid}
        for name, above in (("guard", "runner"), ("supervisor", "guard"), ("job", "supervisor")):
            processes[name] = child_of(processes[above])
        for name in killed.split():
            os.kill(processes[name], signal.SIGKILL)
        for name in ("guard", "supervisor", "job"):
            await_end(processes[name])
        run.end()
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)
    assert not (tmp_path / "started").exists()


def test_a_run_goes_on_only_when_the_jobs_of_the_one_before_are_gone(tmp_path: Path) -> None:
    family = Family(tmp_path)
    # Nobody ends the jobs for now.
    family.send(signal.SIGSTOP, "guard", "supervisor")
    family.send(signal.SIGKILL, "runner")
    family.run.process.wait()
    document = {
        "jobs": [{"name": "a", "command": ["sh", "-c", FAMILY], "on-lost": "fail"}],
        "rules": SUBMIT,
    }
    second = Run(tmp_path, document, "--resume")
    locks = Path("/proc/locks")
    inode = f":{(tmp_path / 'state/test/lock').stat().st_ino} "
    while inode not in locks.read_text():
        time.sleep(0.01)
    for pid in family.tied:
        os.kill(pid, 0)
    assert second.process.poll() is None
    family.send(signal.SIGCONT, "guard")
    assert second.end()[0] == 0
    family.run.end()
    for pid in (*family.tied, family.daemon):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert States(tmp_path / "state").status("test")["groups"]["a"]["failed"] == 1


def test_jobs_that_do_not_end_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateLog(tmp_path, "test", "").close()
    monkeypatch.setattr(statelog, "JOBS_SECONDS", 0.05)
    held = os.open(tmp_path / "test" / "jobs.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(StateError, match="processes of jobs of the earlier run of 'test' are"):
        StateLog(tmp_path, "test", "")
    os.close(held)


# -- stopped, and going on ------------------------------------------------------------


def child_of(pid: int) -> int:
    """The first process that another one starts."""
    while not (found := children(pid)):
        time.sleep(0.01)
    return found[0]


class Waiting:
    """A run with a job that ends when it is told to, and its process."""

    def __init__(self, directory: Path, **changes: Any) -> None:
        os.mkfifo(directory / "fifo")
        self._fifo = directory / "fifo"
        job = {"name": "a", "command": ["sh", "-c", "echo $$ >fifo; read _ <fifo"]}
        document = {"jobs": [job], "rules": SUBMIT, **changes}
        job.update(document.pop("job", {}))
        self.run = Run(directory, document, *document.pop("options", ()))
        self.runner = self.run.process.pid
        # Before the job begins: a short one can be over soon after.
        self.guard = child_of(self.runner)
        self.supervisor = child_of(self.guard)
        self.job = int(self._fifo.read_text())

    def release(self) -> None:
        """Tell the job to end."""
        self._fifo.write_text("\n")

    def send(self, number: signal.Signals, *names: str) -> None:
        """Send a signal to processes, by name."""
        for name in names:
            # On a slow machine the job can have ended before, and the run with it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(getattr(self, name), number)

    def t_start(self) -> float:
        """When its job began, as its time limit counts."""
        events = events_in(self.run.state / "test")
        return next(one.t for one in events if isinstance(one, JobEvent) and one.name == "start")

    def group(self) -> dict[str, int]:
        """The counts of its group when the run has ended."""
        assert self.run.end()[0] == 0
        counts: dict[str, int] = States(self.run.state).status("test")["groups"]["a"]
        return counts


def test_a_job_that_ends_in_time_while_the_run_is_stopped_has_not_timed_out(
    tmp_path: Path,
) -> None:
    one = Waiting(tmp_path, job={"duration": 1.0})
    one.send(signal.SIGSTOP, "runner")
    one.release()
    await_end(one.job)
    ended = time.time()
    # Its time is up then.
    time.sleep(1.2)
    one.send(signal.SIGCONT, "runner")
    counts = one.group()
    if ended - one.t_start() > 0.9:
        pytest.skip("the machine was too busy for the job to end in time")
    assert (counts["success"], counts["timeout"]) == (1, 0)


@pytest.mark.parametrize("stopped", [("runner",), ("supervisor",), ("runner", "supervisor")])
def test_a_time_limit_that_passes_while_processes_are_stopped_counts(
    tmp_path: Path, stopped: tuple[str, ...]
) -> None:
    one = Waiting(tmp_path, job={"duration": 2.0})
    one.send(signal.SIGSTOP, *stopped)
    time.sleep(2.1)
    one.send(signal.SIGCONT, *stopped)
    counts = one.group()
    assert (counts["success"], counts["timeout"]) == (0, 1)


def test_timers_that_come_due_while_the_run_is_stopped_fire_once(tmp_path: Path) -> None:
    rules = [
        *SUBMIT,
        {"id": "late", "trigger": "timer", "after": 0.2,
         "action": {"name": "submit", "label": "b"}},
        {"id": "often", "trigger": "timer", "after": 0.1, "every": 0.1,
         "action": {"name": "submit", "label": "c", "repetitions": 3}},
    ]  # fmt: skip
    jobs = [
        {"name": "a", "command": ["sh", "-c", "echo $$ >fifo; read _ <fifo"]},
        {"name": "b", "command": "true"},
        {"name": "c", "command": "true"},
    ]
    one = Waiting(tmp_path, rules=rules, jobs=jobs)
    os.kill(one.runner, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(one.runner, signal.SIGCONT)
    one.release()
    assert one.group()["success"] == 1
    groups = States(one.run.state).status("test")["groups"]
    assert (groups["b"]["finished"], groups["c"]["finished"]) == (1, 3)


def test_jobs_are_submitted_while_the_supervisor_is_stopped(tmp_path: Path) -> None:
    """More than the channel to it holds; the run can be ended meanwhile."""
    jobs = [
        {"name": "a", "command": ["sh", "-c", "echo $$ >fifo; read _ <fifo"]},
        {"name": "b", "command": ["true", "x" * 4000], "count": 500},
    ]
    rules = [
        *SUBMIT,
        {"trigger": "timer", "after": 0.2, "action": {"name": "submit", "label": "b"}},
    ]
    one = Waiting(tmp_path, rules=rules, jobs=jobs, options=("--cores", "200"))
    os.kill(one.supervisor, signal.SIGSTOP)
    events = tmp_path / "state" / "test" / "events"
    while events.read_text().count('"alloc"') < 400:
        time.sleep(0.01)
    os.kill(one.supervisor, signal.SIGCONT)
    one.release()
    one.group()
    assert States(one.run.state).status("test")["groups"]["b"]["success"] == 500
