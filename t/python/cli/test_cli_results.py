"""`run --report` and `--export`: what it leaves when there is nobody to ask later."""

from __future__ import annotations

import csv
import json
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flux_ensemble.cli.main import run_command

DOCUMENT = """
jobs: [{name: a, command: "sh -c 'exit {x}'", params: {x: [0, 3]}}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""

Do = Callable[..., tuple[int, str]]


@pytest.fixture
def do(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Do:
    """Runs the document on the local queue with options: the exit code, and the errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(DOCUMENT)

    def run(*options: str) -> tuple[int, str]:
        local = ["--queue", "local", "--state-dir", "state"]
        code = run_command(["run", *local, *options, "study.yaml"])
        return code, capsys.readouterr().err

    return run


def test_a_run_leaves_a_report_and_its_jobs_in_each_form(do: Do, tmp_path: Path) -> None:
    exports = ["--export", "a.csv", "--export", "a.json", "--export", "a.sqlite"]
    code, err = do("--report", "a.html", *exports)
    assert code == 0
    assert "flux-ensemble: a.csv: 2 jobs" in err
    with (tmp_path / "a.csv").open() as file:
        assert sorted(row["returncode"] for row in csv.DictReader(file)) == ["0", "3"]
    jobs = json.loads((tmp_path / "a.json").read_text())
    assert sorted(job["params"]["x"] for job in jobs) == [0, 3]
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        assert database.execute("select count(*) from jobs").fetchone() == (2,)
    database.close()
    assert "<title>" in (tmp_path / "a.html").read_text()


def test_it_is_of_the_run_that_it_is_asked_of_also_where_that_has_another_name(
    do: Do, tmp_path: Path
) -> None:
    assert do()[0] == 0
    assert do("--export", "second.json", "--fail-on", "job")[0] == 1
    kept = tmp_path / "state" / "study-2" / "jobs"
    times = [json.loads(line)["t_end"] for line in kept.read_text().splitlines()]
    assert [job["t_end"] for job in json.loads((tmp_path / "second.json").read_text())] == times


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--export", "a.xls"), "--export: a.xls: expected a file that ends in one of: .csv"),
        (("--export", "there.csv"), "--export: there.csv exists: remove it, or name another file"),
        (("--report", "there.csv"), "there.csv exists and is no report"),
        (("--export", "nowhere/a.csv"), "cannot write nowhere/a.csv: its directory is not there"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_runs(
    options: tuple[str, ...], error: str, do: Do, tmp_path: Path
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    code, err = do(*options)
    assert code != 0
    assert error in err
    assert not (tmp_path / "state").exists()
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_a_file_that_cannot_be_written_at_the_end_is_an_error_and_the_others_are_written(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = DOCUMENT.replace("exit {x}", "mkdir -p a.csv; exit {x}")
    (tmp_path / "study.yaml").write_text(document)
    code, err = do("--export", "a.csv", "--export", "b.csv")
    assert code == 1
    assert "ERROR: a.csv exists" in err
    assert (tmp_path / "b.csv").exists()


def test_init_leaves_no_empty_file_where_it_cannot_write(tmp_path: Path) -> None:
    """As where the disk is full; what is there already is left alone."""
    words = [sys.executable, "-m", "flux_ensemble.cli.main", "init", "hello-world"]

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(
        words, cwd=tmp_path, preexec_fn=full, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot write hello-world.yaml: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "hello-world.yaml").write_text("mine")
    assert subprocess.run(words, cwd=tmp_path, stderr=subprocess.DEVNULL).returncode == 2
    assert (tmp_path / "hello-world.yaml").read_text() == "mine"
