"""The rows of a sweep that was killed and resumed: one for each point, unless more are wanted."""

from __future__ import annotations

import csv
import fcntl
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import browsing
from patience import PATIENCE

from flux_ensemble.api.ensemble import Ensemble
from flux_ensemble.cli.main import run_command
from flux_ensemble.queues.local.client import LocalClient

#: Each job publishes a value, waits until it may end, and publishes another one.
JOB = """\
import pathlib, sys, time
import flux_ensemble
x = float(sys.argv[1])
flux_ensemble.memo(y=x)
pathlib.Path(f"began-{sys.argv[1]}").touch()
while not pathlib.Path("gate").exists():
    time.sleep(0.01)
flux_ensemble.memo(y=10 * x)
"""

POINTS = 6


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that was killed when two jobs ran, and resumed."""
    root = tmp_path_factory.mktemp("killed")
    (root / "job.py").write_text(JOB)
    document: dict[str, Any] = {
        "name": "s",
        "jobs": [
            {
                "name": "a",
                "command": [sys.executable, str(root / "job.py"), "{x}"],
                "params": {"x": list(range(POINTS))},
            }
        ],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    (root / "s.json").write_text(json.dumps(document))
    begin = [sys.executable, "-m", "flux_ensemble", "run", "--queue", "local", "--nodes", "1"]
    begin += ["--cores", "2", "--state-dir", str(root / "state"), str(root / "s.json")]

    def has_published(states: LocalClient) -> bool:
        metrics = states.metrics("s") if (root / "state/s/status.json").exists() else {}
        return bool(metrics) and metrics["n"].get("a-y") == 2

    process = subprocess.Popen(begin, cwd=root, stdout=subprocess.DEVNULL)
    _wait(lambda: has_published(LocalClient(root / "state")))
    # Its files tell nothing of the last half second.
    _wait(lambda: time.time() - (root / "state/s/status.json").stat().st_mtime > 0.5)
    (root / "killed").write_text(repr(time.time()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait(lambda: not Path((root / "state/s/scratch").read_text().strip()).exists())
    # It is gone before the guard of the jobs has noted when that was.
    _wait(lambda: _is_free(root / "state/s/jobs.lock"))
    (root / "gone").write_text(repr(time.time()))
    (root / "gate").touch()
    subprocess.run([*begin, "--resume"], cwd=root, stdout=subprocess.DEVNULL, check=True)
    return root


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _wait(condition: Callable[[], bool]) -> None:
    late = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < late
        time.sleep(0.05)


def printed(
    capsys: pytest.CaptureFixture[str], directory: Path, *words: str
) -> tuple[list[str], str]:
    """What a command about the run prints: the lines, and the messages."""
    command, *rest = words
    assert run_command([command, "--state-dir", str(directory / "state"), "s", *rest]) == 0
    found = capsys.readouterr()
    return found.out.splitlines(), found.err


def test_the_run_and_its_jobs_went_on_until_it_was_killed(directory: Path) -> None:
    killed, gone = (float((directory / name).read_text()) for name in ("killed", "gone"))
    client: Any = LocalClient(directory / "state")
    cut = [job for job in client.jobs("s", interrupted=True) if job["interrupted"]]
    (status,) = client.status("s")["ensembles"]
    (absence,) = status["absences"]
    for t in (absence["since"], *(job["t_end"] for job in cut)):
        # The clock of the file system is that of the last tick.
        assert killed - 0.05 < t < gone
    assert len(cut) == 2
    # A run that ends by itself is not killed.
    assert (directory / "state/s/jobs.lock").stat().st_mtime < gone < absence["until"]
    assert status["away"] == absence["until"] - absence["since"]


SAID = (
    "flux-ensemble: 2 earlier attempts are left out, which later ones replace; --interrupted "
    "shows them\n"
)


def test_jobs_shows_each_point_once_and_says_what_it_leaves_out(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, said = printed(capsys, directory, "jobs", "-n", "-o", "{params.x}")
    assert (sorted(lines), said) == (sorted(map(str, range(POINTS))), SAID)
    lines, said = printed(capsys, directory, "jobs", "--json")
    assert (len(json.loads("".join(lines))["jobs"]), said) == (POINTS, SAID)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--interrupted"], POINTS + 2),
        (["--outcome", "interrupted"], 2),
        (["-f", "interrupted"], 2),
        (["--filter", "job.interrupted"], 2),
        (["--filter", "replaced != ''"], 2),
        (["--filter", "outcome in ['success', 'interrupted']"], POINTS + 2),
        (["1", "2"], 2),
    ],
)
def test_interrupted_attempts_are_shown_if_they_are_asked_for(
    options: list[str], rows: int, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, said = printed(capsys, directory, "jobs", "-n", "-o", "{id}", *options)
    assert (len(lines), said) == (rows, "")


def test_an_export_has_each_point_once(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = directory / "jobs.csv"
    lines, said = printed(capsys, directory, "export", "--force", str(file))
    assert (lines, said) == ([f"{POINTS} jobs written to {file}"], SAID)
    with file.open(newline="", encoding="utf-8-sig") as table:
        rows = list(csv.DictReader(table))
    assert sorted(float(row["memo.y"]) for row in rows) == [10.0 * x for x in range(POINTS)]
    assert "replaced" not in rows[0]
    lines, said = printed(capsys, directory, "export", "--force", "--interrupted", str(file))
    assert (lines, said) == ([f"{POINTS + 2} jobs written to {file}"], "")


def test_python_has_each_point_once(directory: Path, tmp_path: Path) -> None:
    ensemble = Ensemble.attach("s", state_dir=directory / "state")
    jobs = ensemble.jobs()
    assert Counter(job["params"]["x"] for job in jobs) == Counter(range(POINTS))
    assert jobs.left_out == 2
    assert repr(jobs).splitlines()[-1] == (
        "  2 earlier attempts are left out, which later ones replace; "
        "jobs(interrupted=True) shows them"
    )
    assert len(list(ensemble.jobs(interrupted=True))) == POINTS + 2
    assert len(list(ensemble.jobs(outcome="interrupted"))) == 2
    table = jobs.to_pandas()
    assert (len(table), table["memo.y"].mean()) == (POINTS, 10 * (POINTS - 1) / 2)
    assert ensemble.export(tmp_path / "a.jsonl") == POINTS
    assert ensemble.export(tmp_path / "b.jsonl", interrupted=True) == POINTS + 2
    assert ensemble.output(1) == ""


def test_the_statistics_are_those_of_an_undisturbed_run(directory: Path) -> None:
    metrics = LocalClient(directory / "state").metrics("s")
    assert metrics["n"]["a-y"] == 2 * POINTS
    assert metrics["mean"]["a-y"] == pytest.approx(11 * (POINTS - 1) / 4)


def test_a_report_counts_interrupted_attempts_apart(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = directory / "s.html"
    _, said = printed(capsys, directory, "report", "--force", "-o", str(page))
    assert f": {POINTS} jobs and 2 earlier attempts, " in said
    text = page.read_text()
    assert f"{POINTS} jobs and 2 earlier attempts, in the order of their ends" in text
    assert f"{POINTS} jobs had ended" in text


#: The jobs that have ended at the end of a course of two, of which one was interrupted.
COURSE = """
    const column = (array, values) => ({ array, values, step: 1 });
    const columns = {
      t_submit: column([0, 0]), t_run: column([0, 0]), t_end: column([1, 2]),
      outcome: column([2, 1], [null, "success", "interrupted"]), replaced: column([1, 0]),
    };
    return new Course({ columns }, 2, 4, 0.5).ended.at(-1);
"""


def test_the_page_counts_interrupted_attempts_apart(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = directory / "shown.html"
    printed(capsys, directory, "report", "--force", "-o", str(page))
    with browsing() as browser:
        opened = browser.open(page)
        numbers = f"{POINTS} jobs and 2 earlier attempts"
        assert opened.text("[data-jobs] [role=status]").endswith(f" of {numbers}")
        assert opened.text("[data-jobs] caption").startswith(numbers)
        assert opened.run(COURSE) == 1


#: A job fails at once, unless there is a gate at which it waits.
FAILING = "test {x} -gt 3 && exit; if test -e gate; then exec sleep 1000; fi; exit 1"


def _killed(words: list[str], root: Path, began: int) -> None:
    """Begin a run, and kill it when so many jobs have begun."""
    process = subprocess.Popen(words, cwd=root, stdout=subprocess.DEVNULL)
    files = root / "state/f/status.json"

    def has_begun() -> bool:
        status = LocalClient(root / "state").status("f")["ensembles"][0] if files.exists() else {}
        return bool(status) and status["groups"]["a"]["running"] == began

    _wait(has_begun)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_jobs_that_ran_when_it_was_killed_are_told_from_the_first_kill_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {
        "name": "f",
        "jobs": [{"name": "a", "command": ["sh", "-c", FAILING], "params": {"x": [1, 2, 3, 4, 5]}}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    (tmp_path / "f.json").write_text(json.dumps(document))
    ours = [sys.executable, "-m", "flux_ensemble"]
    sizes = ["--nodes", "1", "--cores", "3", "--state-dir", str(tmp_path / "state")]
    run = [*ours, "run", "--queue", "local", *sizes, str(tmp_path / "f.json")]
    (tmp_path / "gate").touch()
    _killed(run, tmp_path, 3)
    state = ("--state-dir", str(tmp_path / "state"))
    file = tmp_path / "jobs.csv"
    for command in (["jobs", "f"], ["failures", "f"], ["export", "f", str(file), "--force"]):
        assert run_command([*command, *state]) == 0
        err = capsys.readouterr().err
        assert "5 jobs have not ended: its run was interrupted, and 'cd " in err
    (tmp_path / "gate").unlink()
    subprocess.run([*run, "--resume"], cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    (tmp_path / "gate").touch()
    _killed([*ours, "rerun", *sizes, "f"], tmp_path, 3)
    assert run_command(["rerun", "f", *state]) == 1
    err = capsys.readouterr().err
    assert err.count("goes on with it") == err.count("--resume f") == 1
    client = LocalClient(tmp_path / "state")
    assert sorted(job["params"]["x"] for job in client.jobs("f")) == [4, 5]
    jobs = Ensemble.attach("f", state_dir=tmp_path / "state").jobs()
    assert sorted(job["params"]["x"] for job in jobs) == [4, 5]
    for command in (["jobs", "f"], ["export", "f", str(file), "--force"]):
        assert run_command([*command, *state]) == 0
        out, err = capsys.readouterr()
        assert "failed" not in out
        assert "3 jobs have not ended: its run was interrupted, and 'cd " in err
        assert "earlier attempts are left out" in err
    with file.open(newline="", encoding="utf-8-sig") as table:
        assert sorted(row["params.x"] for row in csv.DictReader(table)) == ["4", "5"]
    # What was given up does not go on.
    (tmp_path / "state/f/given-up").touch()
    assert len(client.jobs("f")) == 5
