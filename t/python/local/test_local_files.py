"""The state directory of the local queue, where others may have been at work in it."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run, mounted

from flux_ensemble.cli.main import run_command
from flux_ensemble.metrics.statistics import ESTIMATES
from flux_ensemble.queues.local import state_dir as statelog
from flux_ensemble.queues.local.directory import open_directory
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.local.states import States

#: A user who is not the one that runs the tests.
OTHER = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make another user's files")

DOCUMENT: dict[str, Any] = {
    "jobs": [{"name": "a", "command": "echo hello"}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
}


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with an ensemble that has completed."""
    directory = tmp_path_factory.mktemp("completed")
    assert Run(directory, DOCUMENT).end()[0] == 0
    return directory / "state"


@pytest.fixture
def files(completed: Path, tmp_path: Path) -> Path:
    """The directory of an ensemble that has completed."""
    shutil.copytree(completed, tmp_path / "state")
    return tmp_path / "state" / "test"


@pytest.fixture
def begun(files: Path) -> Path:
    """The directory of an ensemble in which a run has never begun: the next one takes it."""
    for name in ("status.json", "events"):
        (files / name).unlink()
    return files


def refusal(root: Path) -> str:
    """Why a run is refused."""
    with pytest.raises(StateError) as found:
        StateLog(root, "test", "")
    return str(found.value)


def read_all(capsys: pytest.CaptureFixture[str], state: Path) -> tuple[list[int], str, str]:
    """The codes and the output of all commands that read a state directory."""
    words = (["log", "test"], ["status", "test"], ["metrics", "test"], ["list"], ["status"])
    codes = [run_command([*one, "--state-dir", str(state)]) for one in words]
    out, err = capsys.readouterr()
    return codes, out, err.replace(f"flux-ensemble: {ESTIMATES}\n", "")


# -- whose it is ----------------------------------------------------------------------


def test_what_a_run_makes_is_for_its_user_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        run = Run(tmp_path, DOCUMENT, "--state-dir", str(tmp_path / "a" / "b"), cold=True)
        assert run.end()[0] == 0
    finally:
        os.umask(mask)
    made = tmp_path / "a" / "b" / "test"
    for path in (tmp_path / "a", tmp_path / "a" / "b", made, made / "output"):
        assert path.stat().st_mode & 0o777 == 0o700
    for name in ("eventlog", "events", "status.json", "document", "lock", "jobs.lock"):
        assert (made / name).stat().st_mode & 0o777 == 0o600


@as_root
@pytest.mark.parametrize("name", [".", "test", "test/output"])
def test_a_directory_of_another_user_is_refused(begun: Path, name: str) -> None:
    state = begun.parent
    os.chown(state / name, OTHER, -1)
    path = state if name == "." else state / name
    assert f"{path} belongs to user {OTHER} and not to you: name" in refusal(state)


@pytest.mark.parametrize("name", [".", "test", "test/output"])
def test_a_directory_that_others_can_write_in_is_refused(begun: Path, name: str) -> None:
    state = begun.parent
    (state / name).chmod(0o775)
    said = refusal(state)
    assert "(mode 0775): end that with 'chmod go-w'" in said
    (state / name).chmod(0o755)
    StateLog(state, "test", "").close()


NAMES = ("eventlog", "eventlog.new", "events", "status.json", "document", "lock", "jobs.lock")


@as_root
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_user_is_refused(begun: Path, name: str) -> None:
    (begun / name).touch()
    os.chown(begun / name, OTHER, -1)
    said = refusal(begun.parent)
    assert f"{begun / name} belongs to user {OTHER} and not to you: remove it, or" in said


def symlink(path: Path) -> None:
    """A link to what must not be written."""
    path.symlink_to(path.parent.parent / "precious")


KINDS: dict[str, Callable[[Path], None]] = {
    "a symbolic link": symlink,
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a device": lambda path: os.mknod(path, 0o20600, os.makedev(1, 5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_of_ours_is_refused_and_left_alone(
    begun: Path, name: str, kind: str
) -> None:
    if kind == "a device" and os.geteuid() != 0:
        pytest.skip("needs root, to make a device")
    precious = begun.parent / "precious"
    precious.write_text("precious")
    (begun / name).unlink(missing_ok=True)
    KINDS[kind](begun / name)
    said = refusal(begun.parent)
    assert f"{begun / name} is {kind}, where a file of the local queue belongs: remove it" in said
    assert precious.read_text() == "precious"


def test_a_link_in_the_place_of_the_directory_of_an_ensemble_is_refused(begun: Path) -> None:
    begun.rename(begun.parent / "elsewhere")
    begun.symlink_to("elsewhere")
    said = refusal(begun.parent)
    assert f"{begun} is a symbolic link, where a directory of the local queue belongs" in said


def test_a_link_in_the_place_of_the_output_is_refused_or_gone(begun: Path) -> None:
    (begun / "output" / "1.out").unlink()
    (begun / "output").rmdir()
    (begun.parent / "precious").mkdir()
    (begun / "output").symlink_to(begun.parent / "precious")
    assert "output is a symbolic link, where a directory" in refusal(begun.parent)
    assert list((begun.parent / "precious").iterdir()) == []


def test_a_state_directory_is_found_through_links_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "relative").symlink_to("real")
    (tmp_path / "state").symlink_to(tmp_path / "relative")
    assert Run(tmp_path, DOCUMENT).end()[0] == 0
    assert States(tmp_path / "state").names() == ["test"]
    assert (tmp_path / "real" / "test" / "events").exists()


def test_links_that_lead_nowhere_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to("state")
    assert "Too many levels of symbolic links" in refusal(tmp_path / "state")
    (tmp_path / "state").unlink()
    (tmp_path / "state").symlink_to("there/is/nothing")
    (tmp_path / "there").write_text("")
    assert "Not a directory" in refusal(tmp_path / "state")


@as_root
def test_a_link_of_another_user_on_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "precious").mkdir(mode=0o700)
    os.symlink(tmp_path / "precious", tmp_path / "home" / "local")
    os.lchown(tmp_path / "home" / "local", OTHER, -1)
    root = tmp_path / "home" / "local" / "state"
    said = refusal(root)
    assert f"'local' in {root} is a symbolic link of user {OTHER}, to '{tmp_path}/precious'" in said
    assert list((tmp_path / "precious").iterdir()) == []


@as_root
def test_output_goes_to_the_directory_that_was_checked(tmp_path: Path) -> None:
    """Another user who owns what is above the state directory puts something in its place."""
    home, precious = tmp_path / "home", tmp_path / "precious"
    home.mkdir()
    precious.write_text("precious")
    os.mkfifo(tmp_path / "fifo")
    document = {
        "jobs": [
            {"name": "wait", "command": ["sh", "-c", "echo >fifo; read _ <fifo"]},
            {"name": "after", "command": "echo overwritten"},
        ],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "wait"}},
            {"trigger": "job-success", "group": "wait",
             "action": {"name": "submit", "label": "after"}},
        ],
    }  # fmt: skip
    run = Run(tmp_path, document, "--state-dir", str(home / "state"))
    (tmp_path / "fifo").read_text()
    (home / "state").rename(home / "moved")
    (home / "state" / "test" / "output").mkdir(parents=True)
    (home / "state" / "test" / "output" / "2.out").symlink_to(precious)
    (home / "state" / "test" / "events").symlink_to(precious)
    (tmp_path / "fifo").write_text("\n")
    assert run.end()[0] == 0
    assert precious.read_text() == "precious"
    assert (home / "moved" / "test" / "output" / "2.out").read_text() == "overwritten\n"
    assert States(home / "moved").status("test")["state"] == "completed"


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "ro"):
        code, _, err = Run(tmp_path, DOCUMENT).end()
        assert code == 1
        said = f"cannot write to {tmp_path / 'state'}: Read-only file system; name another state "
        assert f"{said}directory with --state-dir" in err


@pytest.mark.parametrize("words", [["run", "--queue", "local", "-"], ["list", "--queue", "local"]])
def test_a_user_without_a_home_directory_is_told_to_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    text = io.TextIOWrapper(io.BytesIO(json.dumps({**DOCUMENT, "name": "test"}).encode()))
    monkeypatch.setattr(sys, "stdin", text)
    assert run_command(words) == 1
    expected = "you have no home directory: name a state directory with --state-dir"
    assert capsys.readouterr().err == f"flux-ensemble: ERROR: {expected}\n"


def test_what_cannot_be_written_can_be_read(
    completed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path / "state", "size=1m"):
        shutil.copytree(completed, tmp_path / "state", dirs_exist_ok=True)
        words = ["mount", "-o", "remount,ro", str(tmp_path / "state")]
        subprocess.run(words, check=True)
        codes, _, err = read_all(capsys, tmp_path / "state")
    assert (codes, err) == ([0] * 5, "")


# -- who runs -------------------------------------------------------------------------


def test_of_two_runs_that_start_at_once_one_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    document = {
        "jobs": [{"name": "wait", "command": ["sh", "-c", "echo >fifo; read _ <fifo"]}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "wait"}}],
    }
    runs = [Run(tmp_path, document) for _ in range(3)]
    (tmp_path / "fifo").read_text()
    # Whoever was first runs, and the others have ended.
    while sum(run.process.poll() is None for run in runs) > 1:
        time.sleep(0.01)
    (tmp_path / "fifo").write_text("\n")
    ends = [run.end() for run in runs]
    assert sorted(code for code, _, _ in ends) == [0, 1, 1]
    for code, _, err in ends:
        assert ("an ensemble named 'test' is running already" in err) == (code == 1)


def test_looking_at_an_ensemble_keeps_no_run_of_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long the machine takes to end who looks.
    monkeypatch.setattr(statelog, "LOOK_SECONDS", 60.0)
    StateLog(tmp_path, "test", "").close()
    with open_directory(tmp_path / "test") as directory:
        looking = directory.open("lock")
        fcntl.flock(looking, fcntl.LOCK_SH)
        code = (
            "import sys, time, fcntl, os\n"
            "fcntl.flock(int(sys.argv[1]), fcntl.LOCK_SH)\n"
            "print(flush=True); time.sleep(0.05)\n"
        )
        looker = subprocess.Popen(
            [sys.executable, "-c", code, str(looking)], pass_fds=[looking], stdout=subprocess.PIPE
        )
        assert looker.stdout is not None
        looker.stdout.readline()
        os.close(looking)
        StateLog(tmp_path, "test", "").close()
        looker.communicate()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StateError, match=rf"cannot lock {tmp_path}/test/lock: .*: name a state"):
        StateLog(tmp_path, "test", "")


def test_a_state_directory_that_is_removed_does_not_keep_a_run_from_its_end(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    document = {
        "jobs": [{"name": "wait", "command": ["sh", "-c", "echo >fifo; read _ <fifo"]}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "wait"}}],
    }
    run = Run(tmp_path, document)
    (tmp_path / "fifo").read_text()
    subprocess.run(["rm", "-r", str(tmp_path / "state")], check=True)
    (tmp_path / "fifo").write_text("\n")
    code, out, err = run.end()
    assert code == 1
    assert "test: completed" in out
    status = tmp_path / "state" / "test" / "status.json"
    assert err == (
        f"flux-ensemble: ERROR: cannot write {status}: No such file or directory: "
        "how 'test' ended is not kept\n"
    )


# -- what is read ---------------------------------------------------------------------


def hostile(kind: str, path: Path) -> None:
    """Put something in the place of a file that a reader must not take for one of ours."""
    path.unlink(missing_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "zero":
            path.symlink_to("/dev/zero")
        case "huge":
            with path.open("wb") as file:
                file.truncate(10 << 30)
        case "link":
            path.with_name("real").write_text('{"timestamp": 1.0, "name": "x", "context": {}}\n')
            path.symlink_to("real")
        case "deep":
            path.write_text("[" * 100_000 + "\n")
        case "list":
            path.write_text("[]\n")
        case "text":
            path.write_bytes(b"\xff\xfe\0\n")
        case "numbers":
            path.write_text('{"timestamp": NaN, "name": "x", "context": {}}\n')
        case "directory":
            path.mkdir()


@pytest.mark.parametrize(
    "kind", ["fifo", "zero", "huge", "link", "deep", "list", "text", "numbers", "directory"]
)
def test_readers_refuse_what_no_run_left(
    files: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    for name in ("eventlog", "status.json"):
        hostile(kind, files / name)
    codes, out, err = read_all(capsys, files.parent)
    # What cannot be read hides nothing else of what there is.
    assert codes == [1, 1, 1, 0, 0]
    assert "unreadable test: " in out
    assert len(max(out.splitlines(), key=len)) < 1000
    for line in err.splitlines():
        assert line.startswith("flux-ensemble: ERROR: ")
        assert len(line) < 1000


@as_root
def test_a_device_is_not_opened_by_readers(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("eventlog", "status.json"):
        (files / name).unlink()
        os.mknod(files / name, 0o20600, os.makedev(1, 5))
    codes, out, err = read_all(capsys, files.parent)
    assert codes == [1, 1, 1, 0, 0]
    assert "unreadable test: " in out
    assert "is a device, where a file of the local queue belongs" in err


@as_root
def test_root_reads_the_state_directory_of_a_user(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (files.parent, files, *files.iterdir()):
        os.chown(path, OTHER, OTHER)
    codes, out, err = read_all(capsys, files.parent)
    assert (codes, err) == ([0] * 5, "")
    assert "completed" in out


WRONG: dict[str, Any] = {
    "no object": [],
    "no state": {"state": None},
    "jobs": {"jobs": []},
    "groups": {"groups": {"a": {"finished": "many"}}},
    "a time of no year": {"t_start": 1e300},
    "no time": {"t_end": "now"},
    "a number that no float holds": {"groups": {"a": {"finished": 10**400}}},
    "attempts that are no number": {"groups": {"a": {"attempts": "many"}}},
    "rules": {"rules": [{}]},
    "errors": {"errors": [1]},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_status_of_another_form_is_a_sentence(
    files: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    snapshot = json.loads((files / "status.json").read_text())
    if isinstance(WRONG[what], dict):
        snapshot["status"].update(WRONG[what])
    else:
        snapshot["status"] = WRONG[what]
    (files / "status.json").write_text(json.dumps(snapshot))
    codes, out, err = read_all(capsys, files.parent)
    assert codes == [0, 1, 1, 0, 0]
    expected = (
        f"{files / 'status.json'}: expected status and metrics in JSON ('flux-ensemble rm --force "
        f"test --state-dir {files.parent}' removes the run)"
    )
    assert err.splitlines() == [f"flux-ensemble: ERROR: {expected}"] * 2
    assert f"unreadable test: {expected}\n" in out


@pytest.mark.parametrize("metrics", [[], {}, {"count": []}, {"count": {}, "mean": {"a-x": "1"}}])
def test_metrics_of_another_form_are_a_sentence(
    files: Path, capsys: pytest.CaptureFixture[str], metrics: Any
) -> None:
    snapshot = json.loads((files / "status.json").read_text())
    (files / "status.json").write_text(json.dumps({**snapshot, "metrics": metrics}))
    assert run_command(["metrics", "test", "--state-dir", str(files.parent)]) == 1
    assert "expected status and metrics in JSON" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["fire", "outcome", "finish", "error", "request", "scale"])
def test_an_entry_of_another_form_is_a_sentence(
    files: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    entry = {"timestamp": 2.0, "name": name, "context": {"action": 5, "ok": [], "text": 1}}
    with (files / "eventlog").open("a") as file:
        file.write(json.dumps(entry) + "\n")
    assert run_command(["log", "test", "--state-dir", str(files.parent)]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 5
    assert err == "flux-ensemble: ERROR: entry 6 of the log of 'test' is none of ours\n"


def test_what_would_steer_a_terminal_is_escaped(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nasty = "\x1b]0;owned\x07 \x9b2J\r\nEND \ud800"
    snapshot = json.loads((files / "status.json").read_text())
    snapshot["status"].update(name=nasty, reason=nasty, state=nasty, errors=[nasty])
    snapshot["status"]["rules"][0].update(id=nasty, error=nasty)
    snapshot["metrics"]["mean"][nasty] = 1.0
    (files / "status.json").write_text(json.dumps(snapshot))
    entry = {"timestamp": 2.0, "name": nasty, "context": {nasty: nasty}}
    with (files / "eventlog").open("a") as file:
        file.write(json.dumps(entry) + "\n")
    (files.parent / nasty.replace("\ud800", "")).mkdir()
    codes, out, err = read_all(capsys, files.parent)
    assert (codes, err) == ([0] * 5, "")
    assert not set(out) & set("\x1b\x9b\r\x07\ud800")
    assert "\\x1b]0;owned\\x07 \\x9b2J\\x0d" in out


@pytest.mark.parametrize("name", ["..", "test/../test", "-x", "", "\x1b[2J", "a\nb", "x" * 5000])
def test_names_that_no_ensemble_has_are_unknown(files: Path, name: str) -> None:
    with pytest.raises(StateError, match=r"no ensemble named .* \(ensembles: test\)"):
        States(files.parent).status(name)


def test_a_lock_that_is_a_fifo_does_not_block_a_reader(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = json.loads((files / "status.json").read_text())
    snapshot["status"]["state"] = "running"
    (files / "status.json").write_text(json.dumps(snapshot))
    (files / "lock").unlink()
    os.mkfifo(files / "lock")
    assert run_command(["status", "test", "--state-dir", str(files.parent)]) == 1
    assert "lock is a FIFO, where a file of the local queue belongs" in capsys.readouterr().err
