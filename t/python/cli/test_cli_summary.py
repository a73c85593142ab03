"""`run --summary`, and `run --serve` where the service is a process of the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.session.results import LARGEST, Summary

DOCUMENT = """\
jobs: [{name: work, command: "%s", count: 2}]
rules: [{trigger: start, action: {name: submit, label: work}}]
"""


def run(tmp_path: Path, text: str) -> tuple[int, dict[str, object]]:
    (tmp_path / "a.yaml").write_text(text)
    options = ["--queue=local", f"--state-dir={tmp_path}", f"--summary={tmp_path}/summary"]
    code = run_command(["run", *options, str(tmp_path / "a.yaml")])
    return code, json.loads((tmp_path / "summary").read_text())


def test_the_summary_says_how_a_run_ended(tmp_path: Path) -> None:
    code, summary = run(tmp_path, DOCUMENT % "true")
    assert code == summary["exit_code"] == 0
    assert summary["state"] == "completed"
    assert summary["name"] == "a"
    assert summary["jobs"] == {
        "success": 2, "failed": 0, "canceled": 0, "timeout": 0, "interrupted": 0,
    }  # fmt: skip
    assert "error" not in summary


def test_the_summary_says_why_a_run_did_not_begin(tmp_path: Path) -> None:
    code, summary = run(tmp_path, "jobs: [{name: work}]")
    assert code == summary["exit_code"] == 2
    assert "expected a command" in str(summary["error"])
    assert "state" not in summary


def test_a_summary_fits_into_what_kubernetes_keeps(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    summary = Summary(file)
    status = {"name": "a" * 64, "state": "failed", "reason": "\U0001f40d" * 9999}
    summary.take(status | {"t_start": 1.5, "t_end": 2.5})  # type: ignore[arg-type]
    summary.write(1, "x" * 99999)
    assert len(file.read_bytes()) <= LARGEST
    assert json.loads(file.read_text())["exit_code"] == 1


@pytest.mark.parametrize(
    ("file", "error"),
    [
        ("nowhere/a.json", "cannot write nowhere/a.json: its directory is not there"),
        ("a.yaml/a.json", "cannot write a.yaml/a.json: its directory is not there"),
        (".", "File '.' is a directory"),
        # Not even root can make files there.
        ("/proc/sys/a.json", "cannot write /proc/sys/a.json: you have no permission to write"),
        ("/proc/sys/kernel/ostype", "you have no permission to write /proc/sys/kernel/ostype"),
    ],
)
def test_a_summary_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(DOCUMENT % "touch ran")
    options = ["--queue=local", "--state-dir=state", "--summary", file]
    assert run_command(["run", *options, "a.yaml"]) == 2
    assert error in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_a_summary_that_cannot_be_written_at_the_end_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(DOCUMENT % "mkdir -p summary")
    options = ["--queue=local", "--state-dir=state", "--summary=summary"]
    assert run_command(["run", *options, "a.yaml"]) == 1
    assert "cannot write the summary 'summary'" in capsys.readouterr().err


def test_the_exit_code_of_a_run_stays_if_its_summary_cannot_be_written(tmp_path: Path) -> None:
    assert Summary(tmp_path / "no" / "file").write(3) == 3


SCRIPT = """\
from flux_ensemble.bindings import require_flux
require_flux()
from flux_ensemble.cli.session.own_service import is_needed, serving
from flux_ensemble.client import Client, EnsembleError
client = Client()
assert not is_needed(client)
with serving(client):
    assert client.list() == []
    with serving(client):
        pass
    assert client.list() == []
try:
    client.list()
except EnsembleError as error:
    print(error.errno)
"""


@pytest.mark.flux
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_the_service_runs_with_the_command_and_ends_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = ["flux", "start", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "38"


SEARCH = f"""\
jobs: [{{name: work, command: "{Path(sys.executable).with_name("flux-ensemble")} memo los={{x}}"}}]
search:
  - id: hpo
    group: work
    variables: {{x: {{low: 0, high: 1}}}}
    minimize: loss
    sampler: random
    trials: 2
rules: [{{trigger: start, action: {{name: search, label: hpo}}}}]
"""

RULE = """\
jobs: [{name: work, command: "true"}]
rules:
  - {trigger: start, action: {name: submit, label: work}}
  - {id: judge, trigger: job-success, action: {name: custom, label: judge}}
custom: |
  def judge(**event):
      raise RuntimeError("no verdict")
"""


@pytest.mark.parametrize(
    ("document", "trouble"),
    [
        (SEARCH, "search 'hpo' found nothing in 2 trials: the last trial failed, as it published"),
        (RULE, "rule 'judge' is disabled"),
    ],
)
def test_a_search_that_found_nothing_and_a_disabled_rule_fail_the_run_and_the_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str, trouble: str
) -> None:
    code, summary = run(tmp_path, document)
    assert code == summary["exit_code"] == 1
    assert summary["state"] == "completed"
    assert str(summary["trouble"]).startswith(trouble)
    # What is said at the end is what the summary has.
    assert f", but {summary['trouble']}\n" in capsys.readouterr().out
    place = f"--state-dir={tmp_path}"
    assert run_command(["wait", place, "a"]) == 1
    assert f"a: {summary['trouble']}" in capsys.readouterr().out
    assert run_command(["wait", place, "--fail-on", "none", "a"]) == 0
    assert run_command(["watch", place, "a"]) == 1
    assert run_command(["watch", place, "--fail-on=job", "a"]) == 0
    run_command(["status", place, "a"])
    assert trouble.replace("rule 'judge' is disabled", "judge: ") in capsys.readouterr().out


def test_failed_jobs_fail_the_run_only_where_that_is_asked_for(tmp_path: Path) -> None:
    code, summary = run(tmp_path, DOCUMENT % "false")
    assert code == 0
    assert summary["trouble"] == "2 jobs failed"
    assert run_command(["wait", f"--state-dir={tmp_path}", "--fail-on", "job", "a"]) == 1


BEST = """\
jobs: [{name: work, command: "sleep {x}", params: {x: [0.01, 0], ok: true, v: 1.10}}]
metrics: [{best: {name: quick, of: work-duration, mode: min}}]
rules: [{trigger: start, action: {name: submit, label: work}}]
"""


def test_the_best_job_is_shown_by_its_command_the_status_and_the_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, BEST)
    place = f"--state-dir={tmp_path}"
    lines = []
    for command in ("best", "status", "metrics"):
        capsys.readouterr()
        assert run_command([command, place, "a"]) == 0
        lines += [one for one in capsys.readouterr().out.splitlines() if one.startswith("quick")]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    assert "min work-duration" in lines[0]
    assert run_command(["best", place, "a", "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)["best"]
    # As the command got them.
    assert f"x={best['params']['x']} ok=true v=1.10" in lines[0]
    run(tmp_path, DOCUMENT % "true")
    assert run_command(["best", place, "a-2"]) == 1
    assert "keeps no best job: its document has no search" in capsys.readouterr().err


def test_what_people_read_in_a_summary_does_not_steer_or_turn_text(tmp_path: Path) -> None:
    summary = Summary(tmp_path / "file")
    status: Any = {
        "name": "s", "state": "failed", "reason": "a \u202e b\x1b[2J", "groups": {},
        "t_start": 1.0, "t_end": 2.0,
    }  # fmt: skip
    summary.take(status)
    summary.write(1, "\u2066 \u00e9 \udcff" * 300)
    text = (tmp_path / "file").read_text()
    assert not re.search("[\u202e\u2066\udcff\x1b]", text)
    read = json.loads(text)
    assert read["reason"] == r"a \u202e b\x1b[2J"
    assert read["error"].startswith(r"\u2066 \u00e9".replace(r"\u00e9", "\u00e9"))
    assert len(text) < 4096
