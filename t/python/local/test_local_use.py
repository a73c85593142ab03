"""A local run of a document with `use` goes on after a kill, whatever became of the package."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from algorithm_packages import write_package

from flux_ensemble.cli.main import run_command
from flux_ensemble.queues.local.states import States

TEXT = """\
name: test
jobs:
  - {name: a, command: [sh, -c, "echo {x} >>ran"], params: {x: [1, 2]}}
use:
  - {algorithm: lab-again, group: a}
"""


def test_a_run_goes_on_without_the_package_that_made_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "installed"
    package.mkdir()
    write_package(package)
    file = tmp_path / "study.yaml"
    file.write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    words = ["run", "--queue", "local", "--state-dir", "state", "--cores", "1", "--nodes", "1"]
    with monkeypatch.context() as installed:
        path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
        installed.setenv("PYTHONPATH", path)
        installed.syspath_prepend(package)
        assert run_command([*words, str(file)]) == 0
    kept = tmp_path / "state" / "test"
    assert (kept / "source").read_text() == TEXT
    assert "use:" not in (kept / "document").read_text()
    entries = [json.loads(line) for line in (kept / "eventlog").read_text().splitlines()]
    (loaded,) = [entry["context"] for entry in entries if entry["name"] == "load"]
    assert "lab-again-start" in loaded["document"]

    # As if it had been killed after its first event.
    status = json.loads((kept / "status.json").read_text())
    status["status"]["state"], status["events"] = "running", 1
    (kept / "status.json").write_text(json.dumps(status))
    lines = (kept / "events").read_bytes().splitlines(keepends=True)
    (kept / "events").write_bytes(lines[0])
    (tmp_path / "ran").unlink()
    capsys.readouterr()
    assert run_command([*words, "--resume", str(file)]) == 0, capsys.readouterr().err
    assert sorted((tmp_path / "ran").read_text().split()) == ["1", "2"]
    assert [rule["fired"] for rule in States(tmp_path / "state").status("test")["rules"]] == [1]

    # Another document is still no document of that run.
    (kept / "status.json").write_text(json.dumps(status))
    file.write_text(TEXT.replace("[1, 2]", "[1, 3]"))
    assert run_command([*words, "--resume", str(file)]) == 2
    assert "no algorithm named 'lab-again'" in capsys.readouterr().err
