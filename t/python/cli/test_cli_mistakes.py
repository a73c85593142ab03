"""Typical mistakes on the command line, and the answers.

They are collected from the public questions of which `document/test_mistakes.py` has those on
documents: options of Slurm, Snakemake, Nextflow and HyperQueue, and files that other tools run.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble.cli.common import naming
from flux_ensemble.cli.main import run_command
from flux_ensemble.client import EnsembleError

DOCUMENT = """\
jobs: [{name: a, command: run}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""

JOBSPEC = {"version": 1, "resources": [], "tasks": [], "attributes": {}}
NOTEBOOK = {"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}
MANIFEST = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}

#: The files of the folder in which a command runs.
FILES = {
    "study.yaml": DOCUMENT,
    "points.csv": "x,y\n1,2\n",
    "job.sh": "#!/bin/sh\n#SBATCH -n 4\necho hi\n",
    "sweep.py": "import flux\nprint(1)\n",
    "sweep.ipynb": json.dumps(NOTEBOOK),
    "settings.toml": "[a]\nb = 1\n",
    "job.json": json.dumps(JOBSPEC),
    "pod.yml": json.dumps(MANIFEST),
    "empty.yaml": "",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "none").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("FLUX_URI", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        # A file of another kind.
        ("run points.csv", "points.csv: this is a table: a document runs a job for each row, with "
         "'params: {NAME: {file: points.csv}}'"),
        ("run job.sh", "job.sh: this is a program: a document runs it, with "
         "'jobs: [{name: NAME, command: ./job.sh}]'"),
        ("run sweep.py", "command: python sweep.py"),
        ("validate sweep.ipynb", "sweep.ipynb: this is a program"),
        ("validate settings.toml", "a document is YAML or JSON: 'flux-ensemble init' writes one"),
        ("validate job.json", "this is a jobspec: a document runs it, with "
         "'jobs: [{name: NAME, jobspec: job.json}]'"),
        ("validate pod.yml", "'kubectl apply -f pod.yml'"),
        ("validate empty.yaml", "empty.yaml: the document is empty"),
        # No file, or a directory.
        ("run study", "No such file or directory (did you mean 'study.yaml'?)"),
        ("run study.yml", "(did you mean 'study.yaml'?)"),
        ("run stduy.yaml", "(did you mean 'study.yaml'?)"),
        ("run .", "Is a directory (documents in it: empty.yaml, job.json, pod.yml, study.yaml)"),
        ("simulate none", "Is a directory (it has no document in it)"),
        # Options and commands of other tools.
        ("run --dry-run study.yaml", "'flux-ensemble validate' checks a document"),
        ("run -n 4 study.yaml", "the size of a job is in the document: 'nodes', 'tasks'"),
        ("run --set x=1 study.yaml", "are in the document: 'params'"),
        ("run -j 8 study.yaml", "in the document: 'limits: {active-jobs: N}'"),
        ("start study.yaml", "'run' runs a document"),
        ("ps", "'list' lists ensembles"),
        ("kill study", "'cancel' ends an ensemble"),
        # A place where a job is meant, and a name that is none.
        ("memo loss=1", "memo is for use inside a job: FLUX_JOB_ID is not set"),
        ("explain walltime", "did you mean 'duration'?"),
    ],
)  # fmt: skip
def test_a_typical_mistake_is_answered_by_the_one_hint_that_its_writer_needs(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(command.split()) != 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "ERROR: " in line]
    assert len(lines) == 1
    assert said in lines[0]


def test_an_extra_that_is_missing_and_the_file_of_a_document_as_a_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("study.yaml").write_text(DOCUMENT.replace("command: run", "command: 'true'"))
    assert run_command(["run", "--quiet", "study.yaml"]) == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run_command(["export", "study", "jobs.parquet"]) != 0
    assert "[parquet]'" in capsys.readouterr().err
    assert run_command(["status", "study.yaml"]) != 0
    assert "did you mean 'study'?" in capsys.readouterr().err


@pytest.fixture
def study() -> None:
    """An ended local run of study.yaml, whose ensemble has its name."""
    text = DOCUMENT.replace("command: run", 'command: "true"')
    Path("study.yaml").write_text(text)
    assert run_command(["run", "-q", "--queue", "local", "study.yaml"]) == 0


@pytest.mark.usefixtures("study")
@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("status study.yaml", "status study"),
        ("jobs ./study.yaml -f failed", "jobs study"),
        ("top study.yaml --once", "top study"),
        ("log study.yaml", "log study"),
        ("report study.yaml", "report study"),
        ("report study page.html", "report study -o page.html"),
        ("report page.html", "report study -o page.html"),
        ("export study.yaml out.csv", "export study out.csv"),
        ("export out.csv study", "export study out.csv"),
        ("output 1 study", "output study 1"),
        ("jobs 1 2 study", "jobs study 1 2"),
        ("why rule-0 study", "why study rule-0"),
        ("submit a study", "submit study a"),
        ("status empty.yaml", "run empty.yaml"),
    ],
)
def test_words_in_another_order_get_the_command_that_was_meant(
    command: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run_command(command.split()) != 0
    said = capsys.readouterr().err
    assert "no ensemble named" in said
    assert f"'flux-ensemble {right}'" in said


@pytest.mark.parametrize("command", ["load big study.yaml", "run study.yaml big"])
def test_a_name_beside_a_document_is_an_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(command.split()) == 2
    right = f"flux-ensemble {command.split()[0]} --name big study.yaml"
    assert "unexpected extra argument" in (said := capsys.readouterr().err)
    assert f": a name is an option, '{right}'" in said


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("run study.yaml page.html", "run study.yaml --report page.html"),
        ("run study.yaml jobs.csv", "run study.yaml --export jobs.csv"),
        ("rerun study page.html", "rerun study --report page.html"),
        ("simulate study.yaml page.html", "simulate study.yaml --report page.html"),
        ("best study -n 5", "jobs study --sort -memo.KEY -c 5"),
    ],
)
def test_a_file_to_write_and_a_number_are_values_of_options(
    command: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(command.split()) == 2
    assert "unexpected extra argument" in (said := capsys.readouterr().err)
    assert f"'flux-ensemble {right}'" in said


def test_a_service_that_says_an_ensemble_has_ended_is_completed_with_the_ways_on() -> None:
    group = {"failed": 1, "timeout": 0, "canceled": 0}
    ended = {"name": "s", "state": "completed", "failed": 1, "groups": {"a": group}}
    client: Any = SimpleNamespace(status=lambda name: {"ensembles": [ended]})
    said = "ensemble 's' has ended (completed)"
    with pytest.raises(EnsembleError) as caught, naming(client, "s"):
        raise EnsembleError(errno.EINVAL, said)
    assert str(caught.value).startswith(f"{said}: 'flux ensemble rerun s' runs again what did not")
    # A local run has said so itself.
    whole = f"{said}: 'flux-ensemble rm s' removes this"
    with pytest.raises(EnsembleError) as caught, naming(client, "s"):
        raise EnsembleError(errno.EINVAL, whole)
    assert str(caught.value) == whole


def test_a_number_after_n_is_that_of_another_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["list", "-n", "5"]) == 2
    assert "takes no number; -c 5 shows so many" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "command", ["run a b", "run a.yaml b.yaml", "validate --x a b", "run a b c.yaml"]
)
def test_other_words_too_many_get_no_advice_about_names(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(command.split()) == 2
    assert "a name is an option" not in capsys.readouterr().err


@pytest.mark.usefixtures("study")
def test_an_unknown_name_alone_gets_no_advice_about_the_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("status other", "output other 1"):
        capsys.readouterr()
        assert run_command(command.split()) != 0
        assert "NAME comes first" not in capsys.readouterr().err
