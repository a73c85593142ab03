"""Signals to a local run, and a terminal that is closed: what it leaves can be resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pexpect
import pytest
import yaml
from local_queue import Run, await_end, children, command
from patience import PATIENCE

from flux_ensemble.queues.local.states import States

#: The first time a job says that it runs and goes on; the second time it ends well.
ONCE = "echo {x} $$ >>ran; test -e again || exec sleep 1000"

DOCUMENT = {
    "jobs": [{"name": "a", "command": ["sh", "-c", ONCE], "params": {"x": [1, 2, 3]}}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
}


def await_jobs(directory: Path) -> list[int]:
    """The processes of the first two jobs, when both have begun."""
    ran = directory / "ran"
    while not ran.exists() or ran.read_text().count("\n") < 2:
        time.sleep(0.01)
    return [int(line.split()[-1]) for line in ran.read_text().splitlines()]


def await_starts(directory: Path, number: int) -> None:
    """Wait until so many starts of jobs are in the file of events, where a kill leaves them."""
    events = directory / "state/test/events"
    while events.read_text().count('"start"') < number:
        time.sleep(0.01)


class Begun:
    """A run of three jobs, of which two run and one waits.

    Attributes:
        jobs: the processes of those that run.
        pid: of the run.
    """

    def __init__(self, directory: Path, document: Mapping[str, Any] = DOCUMENT) -> None:
        self.directory = directory
        self.document = document
        self.run = Run(directory, document, "--nodes", "1", "--cores", "2")
        self.pid = self.run.process.pid
        self.jobs = await_jobs(directory)
        await_starts(directory, 2)

    @property
    def status(self) -> dict[str, Any]:
        """As `status` shows it."""
        return States(self.run.state).status("test")

    def resume(self) -> Counter[str]:
        """Go on to the end; how often each job has begun in all."""
        (self.directory / "again").touch()
        code, out, err = Run(self.directory, self.document, "--resume").end()
        assert code == 0, err
        assert "going on after 1 firing" in out
        status = self.status
        assert status["state"] == "completed"
        assert status["jobs"]["active"] == 0
        lines = (self.directory / "ran").read_text().splitlines()
        return Counter(line.split()[0] for line in lines)


def kill(*names: str) -> Callable[[Begun], None]:
    """What kills processes of a run at once."""

    def do(begun: Begun) -> None:
        (guard,) = children(begun.pid)
        (supervisor,) = children(guard)
        pids = {"run": begun.pid, "guard": guard, "supervisor": supervisor}
        for name in names:
            os.kill(pids[name], signal.SIGKILL)

    return do


def send(number: signal.Signals) -> Callable[[Begun], None]:
    """What sends a signal to a run."""
    return lambda begun: os.kill(begun.pid, number)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param(send(signal.SIGHUP), 130, id="SIGHUP"),
        pytest.param(send(signal.SIGTERM), 130, id="SIGTERM"),
        pytest.param(kill("guard"), 1, id="guard"),
        pytest.param(kill("supervisor"), 1, id="supervisor"),
        pytest.param(kill("run", "guard", "supervisor"), -signal.SIGKILL, id="all"),
    ],
)
def test_what_ends_a_run_from_outside_leaves_it_to_be_resumed(
    end: Callable[[Begun], None], code: int, tmp_path: Path
) -> None:
    begun = Begun(tmp_path)
    end(begun)
    assert begun.run.end()[0] == code
    for job in begun.jobs:
        await_end(job)
    status = begun.status
    assert (status["state"], status["resumable"]) == ("failed", True)
    assert f"'{status['resumes']}' goes on with it" in status["reason"]
    # Nothing runs any more: what did waits to run again. What is killed did not say how many.
    assert status["jobs"]["active"] == 0
    assert status["jobs"]["waiting"] == (3 if code > 0 else status["jobs"]["total"])
    # Those that ran begin again, and count as no failures.
    assert begun.resume() == {"1": 2, "2": 2, "3": 1}
    assert begun.status["groups"]["a"]["failed"] == 0


@pytest.mark.parametrize(
    ("end", "failed"),
    [
        pytest.param(send(signal.SIGHUP), 0, id="SIGHUP"),
        pytest.param(send(signal.SIGTERM), 0, id="SIGTERM"),
        pytest.param(kill("supervisor"), 2, id="supervisor"),
        pytest.param(kill("run", "guard", "supervisor"), 2, id="all"),
    ],
)
def test_what_ends_in_order_is_no_loss_of_its_jobs(
    end: Callable[[Begun], None], failed: int, tmp_path: Path
) -> None:
    begun = Begun(tmp_path, {**DOCUMENT, "limits": {"losses": 0}})
    end(begun)
    begun.run.end()
    for job in begun.jobs:
        await_end(job)
    begun.resume()
    group = begun.status["groups"]["a"]
    assert (group["failed"], group["gave-up"]) == (failed, failed)
    assert group["success"] == 3 - failed


def test_jobs_that_a_signal_interrupted_ran_until_then(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    os.kill(begun.pid, signal.SIGTERM)
    begun.run.end()
    begun.resume()
    states = States(begun.run.state)
    (t_end,) = (entry["timestamp"] for entry in states.log("test") if entry["name"] == "shutdown")
    rows = [row for row in states.jobs("test") if row["outcome"] == "interrupted"]
    assert [row["t_end"] for row in rows] == [pytest.approx(t_end, abs=1e-5)] * 2
    assert {row["exception"]["note"] for row in rows} == {"its run was interrupted"}


_CRASHES = pytest.mark.parametrize(
    "end", [kill("run", "guard", "supervisor"), kill("supervisor")], ids=["all", "supervisor"]
)


@_CRASHES
def test_jobs_that_were_lost_ended_no_later_than_their_run(
    end: Callable[[Begun], None], tmp_path: Path
) -> None:
    begun = Begun(tmp_path)
    end(begun)
    begun.run.end()
    t_over = time.time()
    begun.resume()
    states = States(begun.run.state)
    lost = [row for row in states.jobs("test") if row["outcome"] == "interrupted"]
    assert len(lost) == 2
    for row in lost:
        assert row["t_run"] <= row["t_end"] <= t_over
        assert row["runtime"] <= t_over - row["t_run"]
    # What was cut off is no duration of jobs, and is told once.
    assert states.metrics("test")["n"]["a-duration"] == 3
    assert "lost when the run was killed" in {row["exception"]["note"] for row in lost}


def test_jobs_that_were_lost_end_no_later_than_now_where_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    begun = Begun(tmp_path)
    kill("run", "guard", "supervisor")(begun)
    begun.run.end()
    ahead = time.time() + 1e6
    os.utime(begun.run.state / "test" / "status.json", (ahead, ahead))
    begun.resume()
    rows = States(begun.run.state).jobs("test")
    assert all(row["t_run"] <= row["t_end"] <= time.time() for row in rows)


def test_a_job_that_is_lost_twice_has_an_end_for_each_time(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    ends = []
    for lost in (1, 2):
        kill("run", "guard", "supervisor")(begun)
        begun.run.end()
        ends.append(time.time())
        for job in begun.jobs:
            await_end(job)
        (tmp_path / "ran").unlink()
        begun.run = Run(tmp_path, DOCUMENT, "--nodes", "1", "--cores", "2", "--resume")
        begun.pid = begun.run.process.pid
        begun.jobs = await_jobs(tmp_path)
        await_starts(tmp_path, 2 + 2 * lost)
    (tmp_path / "again").touch()
    for job in begun.jobs:
        os.kill(job, signal.SIGTERM)
    begun.run.end()
    rows = [row for row in States(begun.run.state).jobs("test") if row["outcome"] == "interrupted"]
    assert len(rows) == 4
    for row in rows:
        (over, *_) = [t for t in ends if t >= row["t_run"]]
        assert row["t_end"] <= over


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    os.kill(begun.pid, signal.SIGTERM)
    code, out, _ = begun.run.end()
    assert code == 130
    assert "terminated (SIGTERM): its jobs are ended" in out
    assert "'test' is not over: 0 of 3 jobs are done, and 'flux-ensemble run " in out
    assert f"--resume {tmp_path}/test.yaml' goes on with it" in out


def test_jobs_have_time_to_end_when_a_run_is_terminated(tmp_path: Path) -> None:
    """What they do then, be it to end well, is no outcome of theirs."""
    script = (
        "test -e again && exit; trap 'echo saved >>saved; exit 0' TERM; echo $$ >>ran; "
        "while :; do sleep 0.01; done"
    )
    jobs = [{"name": "a", "command": ["sh", "-c", script], "count": 3}]
    begun = Begun(tmp_path, {**DOCUMENT, "jobs": jobs})
    os.kill(begun.pid, signal.SIGTERM)
    assert begun.run.end()[0] == 130
    assert (tmp_path / "saved").read_text() == "saved\n" * 2
    assert begun.status["groups"]["a"]["finished"] == 0


def test_a_second_signal_does_not_wait_for_jobs_that_do_not_end(tmp_path: Path) -> None:
    script = "trap '' TERM; echo $$ >>ran; while :; do sleep 0.01; done"
    jobs = [{"name": "a", "command": ["sh", "-c", script], "count": 2}]
    begun = Begun(tmp_path, {**DOCUMENT, "jobs": jobs})
    assert begun.run.process.stdout is not None
    # A shell and the kernel both send this one.
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
        os.kill(begun.pid, number)
    assert begun.run.end()[0] == 130
    for job in begun.jobs:
        await_end(job)
    assert begun.status["resumable"] is True


def test_two_interrupts_cancel_and_leave_no_job_active(tmp_path: Path) -> None:
    script = "trap '' TERM; echo $$ >>ran; while :; do sleep 0.01; done"
    jobs = [{"name": "a", "command": ["sh", "-c", script], "count": 3}]
    begun = Begun(tmp_path, {**DOCUMENT, "jobs": jobs})
    assert begun.run.process.stdout is not None
    os.kill(begun.pid, signal.SIGINT)
    while "interrupted: cancelling" not in begun.run.process.stdout.readline():
        pass
    os.kill(begun.pid, signal.SIGINT)
    assert begun.run.end()[0] == 130
    status = begun.status
    assert (status["state"], status["jobs"]["active"]) == ("canceled", 0)
    assert status["groups"]["a"]["canceled"] == 3
    assert "resumable" not in status


def test_a_run_whose_terminal_is_closed_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(DOCUMENT))
    options = ["--queue", "local", "--state-dir", "state", "--nodes", "1", "--cores", "2"]
    words = command("run", *options, "test.yaml")
    terminal = pexpect.spawn(words[0], words[1:], cwd=str(tmp_path), timeout=PATIENCE)
    jobs = await_jobs(tmp_path)
    pid = terminal.pid
    os.close(terminal.child_fd)
    for job in jobs:
        await_end(job)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert States(tmp_path / "state").status("test")["resumable"] is True
    (tmp_path / "again").touch()
    assert Run(tmp_path, DOCUMENT, "--resume").end()[0] == 0
    assert States(tmp_path / "state").status("test")["state"] == "completed"


def test_with_nohup_a_run_outlives_its_terminal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    jobs = [{"name": "a", "command": ["sh", "-c", "echo $$ >fifo; read _ <fifo"]}]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({**DOCUMENT, "jobs": jobs}))
    words = command("run", "--queue", "local", "--state-dir", "state", "test.yaml")
    terminal = pexpect.spawn("nohup", words, cwd=str(tmp_path), timeout=PATIENCE)
    assert int((tmp_path / "fifo").read_text())
    os.close(terminal.child_fd)
    (tmp_path / "fifo").write_text("\n")
    _, status = os.waitpid(terminal.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert States(tmp_path / "state").status("test")["groups"]["a"]["success"] == 1


def test_whose_output_is_read_no_more_can_be_resumed(tmp_path: Path) -> None:
    """As in `run FILE | head`."""
    begun = Begun(tmp_path)
    stdout = begun.run.process.stdout
    assert stdout is not None
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, stdout.fileno())
    os.close(nothing)
    # Something to say, and nobody to hear it; it may have had something to say before.
    words = command("pause", "--state-dir", begun.run.state, "test")
    subprocess.run(words, cwd=tmp_path, stderr=subprocess.DEVNULL, check=False)
    assert begun.run.end()[0] == 130
    assert begun.status["resumable"] is True
    (entry,) = (
        entry for entry in States(begun.run.state).log("test") if entry["name"] == "shutdown"
    )
    assert entry["context"]["reason"] == "nobody reads what it prints: its jobs are ended"
