"""What an ensemble leaves, from Python: reasons, output, best jobs, tables, files, its document."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flux_ensemble import Action, Ensemble, Job, Rule
from flux_ensemble.api.ensemble import StartedElsewhereError
from flux_ensemble.cli.main import ensemble as ensemble_command
from flux_ensemble.client import EnsembleError
from flux_ensemble.document.loading import DocumentError

START = Rule(trigger="start", action=Action(name="submit", label="a"))
PROGRAM = (
    "import sys; x = int(sys.argv[1]); print(x, 'is too large' if x > 4 else ''); sys.exit(x > 4)"
)


def sweep(**more: Any) -> Ensemble:
    job = Job(
        name="a", command=[sys.executable, "-c", PROGRAM, "{x}"], params={"x": [*range(1, 7)]}
    )
    return Ensemble(name="sweep", jobs=[job], rules=[START], **more)


@pytest.fixture
def ended(tmp_path: Path) -> Ensemble:
    ensemble = sweep()
    ensemble.run(state_dir=tmp_path / "state")
    return ensemble


def command(*words: str, state_dir: Path) -> str:
    result = CliRunner().invoke(ensemble_command, [*words, "--state-dir", str(state_dir)])
    assert result.exit_code == 0, result.output
    return result.output


def test_failures_are_those_of_the_command(ended: Ensemble, tmp_path: Path) -> None:
    why = ended.failures()
    (reason,) = why
    assert (len(why), why.failed, why.ended) == (1, 2, 6)
    assert (reason.group, reason.reason, reason.jobs) == ("a", "exit 1", 2)
    assert reason.tail in (["5 is too large"], ["6 is too large"])
    assert {job["params"]["x"] for job in ended.jobs(filter=reason.filter)} == {5, 6}
    printed = command("failures", "sweep", state_dir=tmp_path / "state")
    # What shows the jobs is a method in Python.
    said = str(why).splitlines()[:-1]
    assert printed.splitlines()[: len(said)] == said
    assert str(why).endswith("all of them: jobs(group='a', filter='job.returncode == 1')")
    with pytest.raises(EnsembleError, match="no job group named 'b'"):
        ended.failures(group="b")


def test_without_failures_a_sentence_says_so(tmp_path: Path) -> None:
    ensemble = Ensemble(name="well", jobs=[Job(name="a", command="true")], rules=[START])
    ensemble.run(state_dir=tmp_path)
    assert str(ensemble.failures()) == "0 of 1 job failed"
    assert list(ensemble.failures()) == []


def test_what_jobs_wrote_is_in_failures_without_control_characters(tmp_path: Path) -> None:
    job = Job(name="a", command=["sh", "-c", r"printf '\033[31mred\n'; exit 1"])
    ensemble = Ensemble(name="red", jobs=[job], rules=[START])
    ensemble.run(state_dir=tmp_path)
    assert "\033" not in str(ensemble.failures())


def test_a_job_without_output_has_none(tmp_path: Path) -> None:
    jobs = [Job(name="a", command="true"), Job(name="b", command="no-such-program-at-all")]
    more = Rule(trigger="start", action=Action(name="submit", label="b"))
    ensemble = Ensemble(name="silent", jobs=jobs, rules=[START, more])
    ensemble.run(state_dir=tmp_path)
    (silent,) = ensemble.jobs(group="a")
    assert ensemble.output(silent) == ""
    (absent,) = ensemble.jobs(group="b")
    assert absent["outcome"] == "failed"
    assert isinstance(ensemble.output(absent), str)


def test_a_report_is_never_put_in_the_place_of_a_device_or_a_fifo(
    ended: Ensemble, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(EnsembleError, match=r"cannot write .*fifo: expected a regular file"):
        ended.report(tmp_path / "fifo", force=True)
    assert (tmp_path / "fifo").is_fifo()


def test_a_report_is_a_file_that_only_a_report_replaces(
    ended: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended.report() == ended.report() == Path("sweep.html")
    assert "is too large" in (tmp_path / "sweep.html").read_text()
    (tmp_path / "notes.html").write_text("mine")
    with pytest.raises(EnsembleError, match="is no report: force=True replaces it"):
        ended.report("notes.html")
    assert (tmp_path / "notes.html").read_text() == "mine"
    ended.report("notes.html", force=True)
    assert "is too large" in (tmp_path / "notes.html").read_text()


def test_jobs_are_exported(ended: Ensemble, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    assert ended.export(file) == 6
    with pytest.raises(EnsembleError, match="exists: force=True replaces it"):
        ended.export(file)
    assert ended.export(file, outcome="failed", force=True) == 2
    assert len(file.read_text().splitlines()) == 3
    with pytest.raises(EnsembleError, match="expected a file that ends in one of"):
        ended.export(tmp_path / "jobs.doc")
    with pytest.raises(EnsembleError, match="no best job: its document"):
        ended.export(tmp_path / "best.csv", best=True)


def test_best_is_that_of_the_document_and_an_error_without(ended: Ensemble, tmp_path: Path) -> None:
    with pytest.raises(EnsembleError, match="no best job: its document"):
        ended.best()
    best = sweep(metrics=[{"best": {"name": "long", "of": "a-duration", "mode": "max"}}])
    best.run(state_dir=tmp_path / "other")
    (row,) = best.best()
    assert (row["name"], row["of"], row["trial"]) == ("long", "a-duration", None)
    assert row["job"] in {job["id"] for job in best.jobs()}
    assert best.export(tmp_path / "best.jsonl", best=True) == 1
    with pytest.raises(ValueError, match="no choice of jobs"):
        best.export(tmp_path / "best.csv", best=True, group="a")


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_table_of_few_jobs_or_none_has_the_columns_of_all(
    package: str, ended: Ensemble, tmp_path: Path
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")

    def columns(**chosen: Any) -> list[str]:
        return list(getattr(ended.jobs(**chosen), f"to_{package}")().columns)

    assert {"id", "params.x", "outcome"} <= set(columns())
    assert columns(filter="params.x > 100") == columns(outcome="failed") == columns()
    nothing = Ensemble(name="nothing", jobs=[Job(name="a", command="true")])
    nothing.run(state_dir=tmp_path / "nothing")
    empty = getattr(nothing.jobs(), f"to_{package}")()
    assert len(empty) == 0
    assert {"id", "outcome", "returncode"} <= set(empty.columns)


def test_an_attached_ensemble_has_the_document_that_was_loaded(
    ended: Ensemble, tmp_path: Path
) -> None:
    other = Ensemble.attach("sweep", state_dir=tmp_path / "state")
    assert other.document == ended.document
    assert other.to_yaml() == ended.to_yaml()
    assert other.validate() == ended.validate()
    assert other.simulate().status["groups"]["a"]["success"] == 6
    with pytest.raises(StartedElsewhereError, match="'sweep' was started elsewhere"):
        other.run(state_dir=tmp_path / "state")


def test_attach_says_that_it_looks_at_runs_of_this_machine(
    ended: Ensemble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("flux_ensemble.api.hosts.reaches_flux", lambda: False)
    monkeypatch.setattr("flux_ensemble.api.hosts.local_root", lambda: tmp_path / "state")
    monkeypatch.setattr("flux_ensemble.api.ensemble._TOLD_INSTEAD", set())
    assert Ensemble.attach("sweep").status()["state"] == "completed"
    assert capsys.readouterr().err == (
        "flux-ensemble: no Flux instance can be reached: looking at runs of this machine\n"
    )
    Ensemble.attach("sweep")
    assert not capsys.readouterr().err, "a program is told once"


def test_a_filter_by_a_parameter_that_no_job_has_is_told(
    ended: Ensemble, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert list(ended.jobs(filter="params.X > 3")) == []
    err = capsys.readouterr().err
    assert err == (
        "flux-ensemble: no job has 'params.X' (did you mean 'params.x'? parameters: x)\n"
    )
    assert not list(ended.jobs(filter="params.x > 100"))
    assert not capsys.readouterr().err


def test_the_document_of_an_attached_ensemble_is_checked_where_it_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "x.csv").write_text("x\n1\n2\n")
    (here / "sweep.yaml").write_text(
        "jobs: [{name: a, command: 'echo {x}', params: {x: {file: x.csv}}}]\n"
        "rules: [{trigger: start, action: {name: submit, label: a}}] # begin\n"
    )
    state = tmp_path / "state"
    monkeypatch.chdir(here)
    command("run", "sweep.yaml", state_dir=state)
    monkeypatch.chdir(tmp_path)
    other = Ensemble.attach("sweep", state_dir=state)
    assert other.to_yaml() == (here / "sweep.yaml").read_text()
    assert other.simulate().status["groups"]["a"]["success"] == 2
    (here / "x.csv").unlink()
    with pytest.raises(DocumentError, match=r"^the document of sweep:1: jobs\[0\]\.params\.x"):
        other.validate()


def test_the_status_is_that_of_now(tmp_path: Path) -> None:
    ensemble = Ensemble(name="now", finish="never", jobs=[Job(name="a", command="sleep 100")])
    ensemble.start(state_dir=tmp_path)
    assert ensemble.status()["state"] == "running"
    ensemble.submit("a", count=3)
    assert ensemble.status()["groups"]["a"]["submitted"] == 3
    ensemble.pause()
    assert ensemble.status()["state"] == "paused"
    other = Ensemble.attach("now", state_dir=tmp_path)
    other.resume()
    assert other.status()["state"] == "running"
    ensemble.cancel()
    asyncio.run(ensemble.wait())
    assert ensemble.status()["state"] == "canceled"


def test_why_is_that_of_now(tmp_path: Path) -> None:
    job = Job(name="a", command="sleep 100")
    ensemble = Ensemble(name="why", jobs=[job], rules=[START]).start(state_dir=tmp_path)
    assert [rule["fired"] for rule in ensemble.why()["rules"]] == [1]
    ensemble.cancel()
    asyncio.run(ensemble.wait())


def test_a_run_prints_the_warnings_about_its_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(name="a", command="echo $HOME {x}", params={"x": [1]})
    ensemble = Ensemble(name="warned", jobs=[job], rules=[START])
    ensemble.run(state_dir=tmp_path)
    warnings = ensemble.validate()
    assert warnings
    assert capsys.readouterr().err.splitlines() == [f"warning: {one}" for one in warnings]


def test_an_ensemble_without_a_best_says_what_to_write_in_python(tmp_path: Path) -> None:
    ensemble = sweep()
    ensemble.run("local", state_dir=tmp_path)
    with pytest.raises(
        EnsembleError, match=r'such as \{"best": \{"name": "NAME", "of": "GROUP-KEY"'
    ):
        ensemble.best()
    with pytest.raises(EnsembleError, match=r"'sweep' has ended, .*: run\(\) or start\(\) begins"):
        ensemble.submit("a")
