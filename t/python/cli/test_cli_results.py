"""`run --report` and `--export`: what it leaves when there is nobody to ask later."""

from __future__ import annotations

import csv
import json
import resource
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flux_ensemble import Ensemble
from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.session.results import Export, Results
from flux_ensemble.metrics.statistics import ESTIMATES

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
        (("--export", "there.csv"), "--export: there.csv exists: --force replaces it"),
        (("--report", "there.csv"), "there.csv exists and is no report"),
        (("--report", "a.pdf"), "a.pdf: a report is an HTML file: name it a.html; to have a PDF"),
        (("--export", "nowhere/a.csv"), "cannot write nowhere/a.csv: its directory is not there"),
        # Not even root can make files there.
        (("--report", "/proc/sys/a.html"), "you have no permission to write /proc/sys"),
        (("--export", "/proc/sys/a.csv"), "you have no permission to write /proc/sys"),
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


def test_force_replaces_what_is_there(do: Do, tmp_path: Path) -> None:
    for name in ("a.csv", "a.html"):
        (tmp_path / name).write_text("mine")
    assert do("--export", "a.csv", "--report", "a.html")[0] == 2
    assert do("--export", "a.csv", "--report", "a.html", "--force")[0] == 0
    assert (tmp_path / "a.csv").read_text().startswith("id,")
    assert "<title>" in (tmp_path / "a.html").read_text()


def test_the_command_that_goes_on_asks_for_the_same_files() -> None:
    results = Results(Path("a.html"), (Export(Path("a.csv")), Export(Path("b.csv"), best=True)))
    asked = ["--report", "a.html", "--export", "a.csv", "--export", "best:b.csv"]
    assert list(results.options()) == asked
    assert list(replace(results, force=True).options()) == [*asked, "--force"]
    assert list(Results(shown=True).options()) == ["--open"]


def test_init_leaves_no_empty_file_where_it_cannot_write(tmp_path: Path) -> None:
    """As where the disk is full; what is there already is left alone."""
    # -B: Python takes a module for compiled of which only a part could be written.
    words = [sys.executable, "-B", "-m", "flux_ensemble.cli.main", "init", "hello-world"]

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


MEMO = f"{sys.executable} -m flux_ensemble.cli.main memo"
BEST = f"""
metrics: [{{best: {{name: longest, of: a-length}}}}]
jobs: [{{name: a, command: "{MEMO} length={{x}}", params: {{x: [5, 3]}}}}]
rules: [{{trigger: start, action: {{name: submit, label: a}}}}]
"""


def test_a_run_leaves_its_best_jobs(do: Do, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(BEST)
    code, err = do("--export", "best:best.csv", "--export", "all.csv")
    assert (code, "flux-ensemble: best.csv: 1 best job\n" in err) == (0, True)
    with (tmp_path / "best.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["of"], row["value"], row["params.x"]) == (
        "longest", "a-length", "5", "5",
    )  # fmt: skip
    with (tmp_path / "all.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2


def test_export_writes_the_best_jobs_of_a_run_too(
    do: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(BEST)
    do()
    words = ["export", "study", "--state-dir", "state"]
    assert run_command([*words, "best:best.json"]) == 0
    assert capsys.readouterr().out == "1 best job written to best.json\n"
    (row,) = json.loads((tmp_path / "best.json").read_text())
    assert row["params"] == {"x": 5}
    assert run_command([*words, "best:best.json"]) == 1
    assert "best.json exists: --force replaces it" in capsys.readouterr().err
    assert run_command([*words, "--group", "a", "best:b.json"]) == 2
    assert "best:FILE has all best jobs" in capsys.readouterr().err
    # A file of such a name can be written, too.
    assert run_command([*words, "./best:all.json"]) == 0
    assert len(json.loads((tmp_path / "best:all.json").read_text())) == 2


def test_jobs_that_are_as_good_as_the_best_one_are_named(
    do: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(BEST.replace("[5, 3]", "[5, 3, 5.0]"))
    assert do()[0] == 0
    capsys.readouterr()
    assert run_command(["best", "study", "--state-dir", "state"]) == 0
    said = "longest: 1 other job has the same length: flux-ensemble jobs study --state-dir state "
    (line,) = capsys.readouterr().err.splitlines()
    assert said.split(": ")[1] in line
    assert run_command(shlex.split(line.rpartition(": ")[2])[1:]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_metrics_say_what_is_an_estimate_beside_the_table_that_programs_read(
    do: Do, capsys: pytest.CaptureFixture[str]
) -> None:
    assert do()[0] == 0
    words = ["metrics", "study", "--queue", "local", "--state-dir", "state"]
    assert run_command(words) == 0
    out, err = capsys.readouterr()
    assert ESTIMATES not in out
    assert err == f"flux-ensemble: {ESTIMATES}\n"
    for more in (["--json"], ["-o", "{group} {mean}"]):
        assert run_command([*words, *more]) == 0
        assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("do")
def test_a_best_job_by_a_value_that_nobody_published_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(BEST.replace("of: a-length", "of: a-lenght"))
    said = "longest: no job of group 'a' published 'lenght' (did you mean 'length'? published: len"
    local = ["--queue", "local", "--state-dir", "state"]
    assert run_command(["run", *local, "study.yaml"]) == 0
    assert said in capsys.readouterr().out.splitlines()[-1]
    assert run_command(["best", "study", *local]) == 0
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("do")
def test_where_nothing_was_published_it_is_said_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(
        "name: study\njobs: [{name: a, command: 'true'}]\n"
        "metrics: [{best: {name: most, of: a-yield}}]\n"
        "rules: [{trigger: start, action: {name: submit, label: a}}]\n"
    )
    local = ["--queue", "local", "--state-dir", "state"]
    assert run_command(["run", *local, "study.yaml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "they published nothing: a job does by 'flux-ensemble memo yield=VALUE'" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("length={x}", "length=nan"), "that succeeded published a finite number 'length'"),
        (("{x}'", "{x}; exit 1'"), "longest: no job of group 'a' succeeded"),
        (("label: a", "label: b"), "longest: no job of group 'a' has run"),
    ],
    ids=["nan", "failed", "none"],
)
def test_best_says_why_there_is_none(
    change: tuple[str, str], said: str, do: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = BEST.replace(f'"{MEMO} length={{x}}"', f"\"sh -c '{MEMO} length={{x}}'\"")
    text = text.replace("}}]\nrules", "}}, {name: b, command: 'true'}]\nrules")
    assert change[0] in text
    (tmp_path / "study.yaml").write_text(text.replace(*change))
    do()
    capsys.readouterr()
    assert run_command(["best", "study", "--state-dir", "state"]) == 0
    assert said in " ".join(capsys.readouterr().err.split())
    assert Ensemble.attach("study", state_dir="state").best() == []
    assert said in " ".join(capsys.readouterr().err.split())


def test_best_names_what_went_wrong_with_a_search(
    do: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(
        f"jobs: [{{name: a, command: '{MEMO} loss=nan'}}]\n"
        "search: [{id: hpo, group: a, variables: {x: {low: 0, high: 1}}, minimize: loss,"
        " trials: 2, sampler: random}]\n"
        "rules: [{trigger: start, action: {name: search, label: hpo}}]\n"
    )
    do()
    capsys.readouterr()
    assert run_command(["best", "study", "--state-dir", "state"]) == 0
    assert "search 'hpo' found nothing in 2 trials" in capsys.readouterr().err


def test_a_report_and_an_export_are_written_to_files_of_their_formats(
    do: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert do()[0] == 0
    words = ["study", "--state-dir", "state"]
    assert run_command(["report", *words, "-o", "r.pdf", "--force"]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "a report is an HTML file: name it r.html; to have a PDF, open that in a brow" in said
    assert not (tmp_path / "r.pdf").exists()
    assert run_command(["report", *words, "-o", "r.HTM"]) == 0
    assert run_command(["export", *words]) == 2
    assert "such as study.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "error"),
    [
        ("best:best.csv", "--export: best:best.csv: ensemble 'study' keeps no best job: its docum"),
        ("best:", "expected a file after 'best:', such as best:best.csv"),
        ("best:best", "--export: best: expected a file that ends in one of: .csv, .json"),
    ],
)
def test_best_jobs_that_cannot_be_exported_are_refused_before_anything_runs(
    file: str, error: str, do: Do, tmp_path: Path
) -> None:
    code, err = do("--export", file)
    assert (code, error in err) == (2, True)
    assert not (tmp_path / "state").exists()


def test_a_report_without_a_file_of_its_own_replaces_none_of_another_run(
    do: Do, tmp_path: Path
) -> None:
    def reports() -> dict[str, str]:
        return {path.name: path.read_text() for path in tmp_path.glob("*.html")}

    assert do("--open")[0] == 0
    first = reports()
    assert first.keys() == {"study.html"}
    words = ["--state-dir", "state", "study"]
    assert run_command(["report", *words]) == 0
    assert reports().keys() == {"study.html"}
    first = reports()
    assert run_command(["rm", *words]) == 0
    assert do("--open")[0] == 0
    assert reports().keys() == {"study.html", "study-2.html"}
    assert reports()["study.html"] == first["study.html"]
    # Who names a file gets that.
    assert run_command(["report", *words, "-o", "study.html"]) == 0
    assert reports().keys() == {"study.html", "study-2.html"}
    assert reports()["study.html"] != first["study.html"]


def test_open_opens_the_report_in_a_browser(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setenv("DISPLAY", ":0")
    assert do("--open")[0] == 0
    assert do("--open", "--report", "mine.html")[0] == 0
    assert opened == [(tmp_path / name).as_uri() for name in ("study.html", "mine.html")]
    assert all((tmp_path / name).exists() for name in ("study.html", "mine.html"))
    assert run_command(["report", "study", "--open", "--state-dir", "state"]) == 0
    assert len(opened) == 3


def test_without_a_browser_open_says_where_the_report_is(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("a browser is started"))
    code, err = do("--open")
    assert code == 0
    assert f"no browser can be opened here: the report is {tmp_path}/study.html" in err
