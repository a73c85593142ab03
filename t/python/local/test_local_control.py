"""Steering and following a run on the local queue from other processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, await_end, command
from patience import PATIENCE

from flux_ensemble.cli.main import run_command
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.local import contact
from flux_ensemble.queues.local.contact import ask
from flux_ensemble.queues.local.control import MAX_OPEN, Control
from flux_ensemble.queues.local.directory import open_directory
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.local.states import LogFollower, States
from flux_ensemble.runtime.answers import Answer

#: Goes on until it is told to end; its job waits for a FIFO to be written.
STEERED = {
    "finish": "never",
    "jobs": [
        {"name": "wait", "command": ["sh", "-c", "echo $$ >fifo; exec sleep 1000"]},
        {"name": "quick", "command": "true", "params": {"x": [1]}},
    ],
    "rules": [
        {"id": "begin", "trigger": "start", "action": {"name": "submit", "label": "wait"}},
        {"id": "next", "trigger": "job-success", "group": "quick", "when": "job.params.x == 9",
         "action": {"name": "submit", "label": "quick", "params": {"x": 10}}},
    ],
}  # fmt: skip


class Steered:
    """A run whose job goes on, and the commands on it.

    Args:
        directory: of the run.
        cold: it is a child of the tests, so that they hear when it is stopped.
    """

    def __init__(self, directory: Path, *, cold: bool = False) -> None:
        os.mkfifo(directory / "fifo")
        self.run = Run(directory, STEERED, cold=cold)
        self.job = int((directory / "fifo").read_text())
        self.states = States(self.run.state)

    def __call__(self, op: str, *words: str) -> int:
        """The exit code of a command."""
        return run_command([op, "--state-dir", str(self.run.state), *words])


@contextlib.contextmanager
def steered_in(directory: Path, *, cold: bool = False) -> Iterator[Steered]:
    """Such a run, ended at the end."""
    one = Steered(directory, cold=cold)
    try:
        yield one
    finally:
        one.run.process.kill()
        one.run.process.communicate()
        await_end(one.job)


@pytest.fixture
def steered(tmp_path: Path) -> Iterator[Steered]:
    with steered_in(tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def one_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steered]:
    """A run that goes on whatever it is told."""
    with steered_in(tmp_path_factory.mktemp("steered")) as one:
        yield one


def test_a_local_run_is_steered_as_one_in_flux_is(
    steered: Steered, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(op: str, *words: str) -> str:
        assert steered(op, "test", *words) == 0
        return capsys.readouterr().out

    assert printed("pause") == "test: paused\n"
    assert steered("submit", "test", "quick") == 1
    assert "is paused; resume it first" in capsys.readouterr().err
    assert printed("resume") == "test: running\n"
    assert printed("submit", "quick", "--param", "x=9") == "2\n"
    assert printed("disable", "next") == "test: rule next disabled\n"
    assert printed("enable", "next") == "test: rule next enabled\n"
    assert printed("action", "{name: submit, label: quick, count: 2}").split()[0] in ("3", "4")
    rows = json.loads(printed("jobs", "--json", "--group", "wait"))["jobs"]
    assert [(row["state"], row["outcome"]) for row in rows] == [("running", None)]
    assert printed("cancel", "wait") == "test: running: 1 job of group 'wait' cancelled\n"
    assert printed("terminate") in ("test: completed\n", "test: ending\n")
    code, out, err = steered.run.end()
    assert (code, err) == (0, "")
    assert "paused" in out
    assert "request terminate" in out


def test_an_active_job_has_the_file_that_its_output_is_kept_in_as_one_that_ended_has(
    one_for_all: Steered, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_for_all("jobs", "test", "--json", "--group", "wait") == 0
    (row,) = json.loads(capsys.readouterr().out)["jobs"]
    assert row["outcome"] is None
    assert row["output"] == row["error"]
    assert Path(row["output"]).exists()


def test_a_run_that_writes_no_status_any_more_says_so_and_since_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with steered_in(tmp_path, cold=True) as steered:
        process, states = steered.run.process, steered.states
        assert "waits" not in states.status("test")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        long_ago = time.time() - 3 * 86400 - 1800
        os.utime(steered.run.state / "test/status.json", (long_ago, long_ago))
        for op in ("status", "why"):
            assert steered(op, "test") == 0
            said = " ".join(capsys.readouterr().out.split())
            assert "its run has written nothing for 3d: it is stopped, its disk is full" in said
        assert states.status("test")["waits"][0]["t"] == pytest.approx(long_ago, abs=1)
        process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        while "waits" in states.status("test"):
            assert time.monotonic() < deadline


def test_unknown_names_are_answered_with_near_ones(
    one_for_all: Steered, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, near in (
        (("pause", "tets"), "did you mean 'test'?"),
        (("submit", "test", "quik"), "did you mean 'quick'?"),
        (("enable", "test", "nxt"), "did you mean 'next'?"),
    ):
        assert one_for_all(*words) == 1
        assert near in capsys.readouterr().err


def test_an_ensemble_that_has_ended_takes_no_request_and_can_be_unloaded(
    steered: Steered, capsys: pytest.CaptureFixture[str]
) -> None:
    assert steered("unload", "test") == 1
    assert "has not ended: cancel or terminate it first" in capsys.readouterr().err
    assert steered("cancel", "test") == 0
    steered.run.end()
    assert steered("pause", "test") == 2
    assert "ensemble 'test' has ended (canceled)" in capsys.readouterr().err
    assert steered("cancel", "test") == 2
    place = f"--state-dir {steered.run.state}"
    said = capsys.readouterr().err
    assert f"(canceled): 'flux-ensemble rerun test {place}' runs again what did not succeed" in said
    assert f", 'run' begins another run, and 'flux-ensemble rm test {place}' removes this" in said
    assert not (steered.run.state / "test" / "control").exists()
    assert steered("unload", "test") == 0
    assert list(steered.run.state.iterdir()) == []
    assert steered("unload", "test") == 1


@pytest.mark.parametrize(("lock", "kind"), [("lock", fcntl.LOCK_SH), ("jobs.lock", fcntl.LOCK_EX)])
def test_an_ensemble_is_unloaded_when_who_looks_at_it_and_the_end_of_its_jobs_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, kind: int
) -> None:
    state = tmp_path / "state"
    log = StateLog(state, "one", "document")
    log.append({"timestamp": 1.0, "name": "load", "context": {}})
    log.snapshot({**_status(), "state": "completed"}, {"count": {}}, 0)
    log.publish()
    log.close()
    held = os.open(state / "one" / lock, os.O_RDWR)
    fcntl.flock(held, kind)
    # Whoever has it lets it go when it is waited for.
    monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(held, fcntl.LOCK_UN))
    try:
        assert run_command(["unload", "--state-dir", str(state), "one"]) == 0
    finally:
        os.close(held)
    assert States(state).names() == []


def test_wait_watch_and_log_follow_a_run_to_its_end(steered: Steered) -> None:
    others = {
        op: subprocess.Popen(
            command(op, "--state-dir", steered.run.state, *words, "test"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for op, words in (("wait", ()), ("watch", ()), ("log", ("--follow",)))
    }  # fmt: skip
    # All have begun to follow when `log` has printed what there is.
    stdout = others["log"].stdout
    assert stdout is not None
    assert stdout.readline().split()[1] == "load"
    assert steered("cancel", "test") == 0
    ended = {
        op: (other.communicate(timeout=PATIENCE), other.returncode) for op, other in others.items()
    }
    assert ended["wait"] == (("test: canceled: canceled by the user\n", ""), 3)
    (out, err), code = ended["watch"]
    assert (err, code) == ("", 3)
    assert " => trigger start" in out
    assert "test: canceled after" in out
    (out, err), code = ended["log"]
    assert (err, code) == ("", 0)
    assert "finish        canceled" in out
    steered.run.end()


def test_a_run_that_is_killed_ends_those_that_follow_it_with_a_sentence(
    steered: Steered, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [
        subprocess.Popen(
            command(op, "--state-dir", steered.run.state, *words, "test"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for op, words in (("wait", ()), ("watch", ()), ("log", ("-f",)))
    ]  # fmt: skip
    for one in others[1:]:
        assert one.stdout is not None
        one.stdout.readline()
    steered.run.process.kill()
    resumes = r"'(cd .* && )?flux-ensemble run .*--resume \S+' goes on with it"
    for one in others:
        out, err = one.communicate(timeout=PATIENCE)
        assert one.returncode == 1
        assert re.search(f"its run was interrupted: {resumes}", out + err)
    # Its socket is left, and nobody listens.
    assert (steered.run.state / "test" / "control").is_socket()
    assert steered("pause", "test") == 1
    assert re.search(resumes, capsys.readouterr().err)
    await_end(steered.job)
    assert steered("unload", "test") == 1
    assert "--force removes it" in capsys.readouterr().err
    assert steered("unload", "--force", "test") == 0
    assert steered.states.names() == []


def test_a_stopped_run_is_named_and_does_nothing_of_it_later(tmp_path: Path) -> None:
    with steered_in(tmp_path, cold=True) as steered:
        process = steered.run.process
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        stopped = f"is stopped: 'kill -CONT {process.pid}'"
        with pytest.raises(RequestError, match=stopped) as refused:
            ask(steered.states, "test", "pause", {})
        assert refused.value.errno == errno.ETIMEDOUT
        process.send_signal(signal.SIGCONT)
        # What was asked meanwhile comes first, and is not done.
        ask(steered.states, "test", "rules", {"id": "next", "enabled": False})
        assert ask(steered.states, "test", "resume", {}) == {"state": "running"}
        assert "pause" not in [entry["name"] for entry in steered.states.log("test")]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"nothing {}", errno.ENOSYS),
        (b"pause", errno.EINVAL),
        (b"pause [1]", errno.EINVAL),
        (b'pause {"name": "other"}', errno.ENOENT),
        (b'submit {"name": "test", "group": "quick", "count": 0}', errno.EINVAL),
        (b'submit {"name": "test", "group": "quick", "cuont": 1}', errno.EINVAL),
        (b"\xff\xfe", errno.EPROTO),
        (b"pause " + b"[" * 100_000, errno.EINVAL),
    ],
)
def test_nonsense_is_refused_and_the_run_goes_on(
    one_for_all: Steered, line: bytes, number: int
) -> None:
    assert _say(one_for_all, line + b"\n")["errno"] == number
    assert ask(one_for_all.states, "test", "resume", {}) == {"state": "running"}


def test_a_request_without_an_end_is_refused(one_for_all: Steered) -> None:
    assert _say(one_for_all, b"pause " + b" " * (5 << 20))["errno"] == errno.EMSGSIZE


def _say(steered: Steered, data: bytes) -> Any:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(steered.run.state / "test" / "control"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            one.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while more := one.recv(1 << 16):
                received += more
    return json.loads(received)


# -- the two ends alone ----------------------------------------------------------------


@contextlib.contextmanager
def served(root: Path, handle: Any) -> Iterator[States]:
    """A directory of an ensemble "one" whose lock is held, and its socket, in a thread."""
    log = StateLog(root, "one", "document")
    log.snapshot(_status(), {"count": {}}, 0)
    log.publish()
    loop = LocalLoop()
    control = Control(log.directory, loop, handle)
    over = threading.Event()
    loop.timer(0.01, lambda: None, 0.01)
    thread = threading.Thread(target=loop.run, args=(over.is_set,))
    thread.start()
    try:
        yield States(root)
    finally:
        over.set()
        thread.join()
        control.close()
        loop.close()
        log.close()


def _status() -> dict[str, Any]:
    return {
        "name": "one", "state": "running", "reason": "", "t_start": 1.0, "t_end": None,
        "groups": {}, "rules": [], "jobs": {"waiting": 0, "active": 0}, "errors": [],
    }  # fmt: skip


def answered(line: bytes, answer: Answer) -> None:
    """Answers with the length of the request, so often."""
    answer({"text": "x" * 3_000_000, "size": len(line)})


def test_an_answer_that_is_longer_than_a_socket_holds_comes_whole(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 100) / ("e" * 100)  # longer than the path of a socket can be
    with served(long, answered) as states:
        answer = ask(states, "one", "any", {"more": "y" * 1_000_000})
    assert len(answer["text"]) == 3_000_000
    assert answer["size"] > 1_000_000


def test_too_many_requests_at_once_are_refused_and_later_ones_are_not(tmp_path: Path) -> None:
    with served(tmp_path / "state", answered) as states:
        path = str(tmp_path / "state" / "one" / "control")
        idle = []
        for _ in range(MAX_OPEN):
            one = socket.socket(socket.AF_UNIX)
            one.connect(path)
            idle.append(one)
        with pytest.raises(RequestError, match="too many requests at once"):
            ask(states, "one", "any", {})
        for one in idle:
            one.close()
        while not _is_answered(states):
            pass  # it notices one after the other that they are gone


def _is_answered(states: States) -> bool:
    try:
        return bool(ask(states, "one", "any", {})["size"])
    except RequestError as error:
        if error.errno != errno.EAGAIN:
            raise
        return False


def test_what_a_handler_raises_is_an_answer(tmp_path: Path) -> None:
    def broken(line: bytes, answer: Answer) -> None:
        raise KeyError("no")

    with (
        served(tmp_path / "state", broken) as states,
        pytest.raises(RequestError, match="internal error: KeyError"),
    ):
        ask(states, "one", "any", {})


def test_a_run_that_does_not_answer_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "PATIENCE", 0.1)
    monkeypatch.setattr(contact, "_LOOK_SECONDS", 0.05)
    with (
        served(tmp_path / "state", lambda line, answer: None) as states,
        pytest.raises(RequestError, match="does not answer"),
    ):
        ask(states, "one", "any", {})


def test_what_answers_nonsense_is_no_run(tmp_path: Path) -> None:
    def nonsense(line: bytes, answer: Any) -> None:
        answer([1])

    with (
        served(tmp_path / "state", nonsense) as states,
        pytest.raises(RequestError, match="the answer of the run of 'one' is none"),
    ):
        ask(states, "one", "any", {})


def test_what_is_no_socket_is_neither_asked_nor_replaced(tmp_path: Path) -> None:
    log = StateLog(tmp_path / "state", "one", "document")
    log.snapshot(_status(), {"count": {}}, 0)
    log.publish()
    path = tmp_path / "state" / "one" / "control"
    path.symlink_to("/tmp")
    loop = LocalLoop()
    with pytest.raises(StateError, match="is no socket of the local queue"):
        Control(log.directory, loop, answered)
    with pytest.raises(RequestError, match="is no socket of the local queue"):
        ask(States(tmp_path / "state"), "one", "any", {})
    loop.close()
    log.close()


def test_a_socket_that_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "state" / "one").mkdir(parents=True, mode=0o700)
    os.chmod(tmp_path / "state", 0o700)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "state" / "one" / "control"))
    stale.close()
    with served(tmp_path / "state", answered) as states:
        assert ask(states, "one", "any", {})["size"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_cannot_steer_a_run_and_neither_can_root_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "state", answered) as states:
        os.chmod(tmp_path, 0o755)
        theirs = [tmp_path / "state" / name for name in ("one", "one/format")]
        for path in theirs:
            os.chown(path, 1234, -1)
        try:
            with pytest.raises(RequestError, match="is user 1234's, who alone can steer it"):
                ask(states, "one", "any", {})
        finally:
            for path in theirs:
                os.chown(path, 0, -1)
        # Even where the directories let another user in.
        for path in (tmp_path / "state", tmp_path / "state" / "one"):
            path.chmod(0o755)
        (tmp_path / "state" / "one" / "control").chmod(0o777)
        monkeypatch.chdir(tmp_path / "state" / "one")
        child = os.fork()
        if child == 0:
            os.setuid(1234)
            with socket.socket(socket.AF_UNIX) as one:
                one.connect("control")
                os._exit(bool(one.recv(1)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ask(states, "one", "any", {})["size"]


def test_a_follower_goes_on_with_a_run_that_is_resumed_and_not_with_another(
    tmp_path: Path,
) -> None:
    def entry(t: float, name: str) -> dict[str, Any]:
        return {"timestamp": t, "name": name, "context": {}}

    root = tmp_path / "state"

    def write(*entries: dict[str, Any], resume: bool | None = None) -> None:
        log = StateLog(root, "one", "document", resume)
        for one in entries:
            log.append(one)
        log.snapshot(_status(), {"count": {}}, 0)
        log.publish()
        log.close()

    write(entry(1.0, "load"), entry(2.0, "start"))
    following = LogFollower(States(root), "one")
    assert [one["name"] for one in following.take()] == ["load", "start"]
    assert following.over
    assert following.take() == []
    write(entry(1.5, "load"), entry(2.0, "start"), entry(3.0, "pause"), resume=True)
    assert [one["name"] for one in following.take()] == ["pause"]
    shutil.rmtree(root / "one")
    write(entry(5.0, "load"), entry(6.0, "start"))
    with pytest.raises(StateError, match="another run of 'one' has taken the place"):
        following.take()


def test_a_run_that_waited_for_the_lock_of_an_unloaded_ensemble_does_not_go_on_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "state"
    StateLog(root, "one", "document").close()
    with open_directory(root / "one") as held:
        fd = held.open("lock", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)

        def unload(_: float) -> None:
            """Who has the lock goes on while it is waited for."""
            (root / "one").rename(root / ".one.unloaded")
            os.close(fd)

        monkeypatch.setattr(time, "sleep", unload)
        with pytest.raises(StateError, match="'one' was unloaded just now: try again"):
            StateLog(root, "one", "document")
