"""Whom a command asks: who names a Flux instance gets that instance or an error."""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble import Ensemble
from flux_ensemble.cli.commands import exporter
from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.session import target
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.instance import no_instance

DOCUMENT = """
jobs: [{name: a, command: "true"}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""

GONE = "there is no Flux instance at FLUX_URI 'local:///nowhere'"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local run that has ended, where it is looked for by default; no Flux can be reached."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("FLUX_URI", raising=False)

    def refuse(self: Client) -> None:
        raise EnsembleError(2, no_instance(OSError(2, os.strerror(2)), None))

    monkeypatch.setattr(Client, "__init__", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(DOCUMENT)
    assert run_command(["run", "--quiet", "study.yaml"]) == 0
    return tmp_path / "study.yaml"


def test_a_local_run_does_not_answer_for_an_instance_that_is_gone(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nowhere")
    capsys.readouterr()
    assert run_command(["wait", "study"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert GONE in err
    assert "add --queue local" in err


@pytest.mark.parametrize(
    "words",
    [
        ["list"], ["status", "study"], ["metrics", "study"], ["why", "study"], ["jobs", "study"],
        ["log", "study"], ["failures", "study"], ["export", "study", "out.csv"],
        ["report", "study"], ["top", "--once"], ["unload", "study"], ["cancel", "study"],
        ["watch", "study"], ["run", "study.yaml"], ["load", "study.yaml"],
    ],
)  # fmt: skip
def test_no_command_takes_another_target_than_the_one_that_is_named(
    words: list[str],
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nowhere")
    before = sorted(study.parent.rglob("*"))
    capsys.readouterr()
    assert run_command(words) == 1
    assert GONE in capsys.readouterr().err
    assert sorted(study.parent.rglob("*")) == before
    # Who names the local queue gets that.
    if words[0] != "load":
        assert GONE not in _err([words[0], "--queue", "local", *words[1:]], capsys)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("local:///nowhere", ["load"]), ("", ["load"]), ("", ["load", "--queue", "local"]),
        ("local:///nowhere", ["load", "--state-dir", "elsewhere"]),
    ],
)  # fmt: skip
def test_the_command_that_runs_what_cannot_be_loaded_does_so(
    uri: str,
    words: list[str],
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if uri:
        monkeypatch.setenv("FLUX_URI", uri)
    capsys.readouterr()
    advised = re.findall(r"'flux-ensemble (run .*?)' runs it", _err([*words, "study.yaml"], capsys))
    assert [run_command(shlex.split(one)) for one in advised] == [0]
    assert Path("elsewhere").is_dir() == ("elsewhere" in words)


def test_an_exporter_waits_for_the_instance_that_is_named_and_takes_no_other(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///nowhere")
    words = ["metrics-exporter", "--textfile", "out.prom", "--interval", "0"]
    assert run_command(words) == 0
    warned = capsys.readouterr().err
    assert GONE in warned
    assert "until it answers, the metric 'up' is 0" in warned
    written = Path("out.prom").read_text()
    assert "flux_ensemble_up 0.0" in written
    assert "study" not in written


def _err(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    run_command(words)
    return capsys.readouterr().err


@pytest.mark.parametrize("refused", [errno.EPERM, errno.EACCES])
def test_an_instance_of_another_user_is_not_said_to_be_gone(
    refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUX_URI", "local:///theirs")
    told = no_instance(OSError(refused, os.strerror(refused)), None)
    assert told.startswith("the Flux instance at FLUX_URI 'local:///theirs' is not open to this")
    assert told.endswith(os.strerror(refused))


def test_an_instance_that_does_not_listen_is_said_to_be_gone() -> None:
    told = no_instance(OSError(errno.ECONNREFUSED, "Connection refused"), "local:///x")
    assert told == "there is no Flux instance at 'local:///x': Connection refused"


@pytest.mark.parametrize(
    "old", [["--member", "local"], ["--member=local"], ["--executor", "local"]]
)
@pytest.mark.parametrize(
    "words", [["list"], ["wait", "study"], ["jobs", "study", "-n"], ["run", "-q", "study.yaml"]]
)
def test_an_old_option_does_what_the_new_one_does_and_warns_once(
    old: list[str], words: list[str], study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(option: list[str]) -> tuple[int, str, str]:
        code = run_command([*words, *option])
        out, err = capsys.readouterr()
        return code, re.sub(r"study-\d", "study-N", re.sub(r"\d+\.\d+s", "TIME", out)), err

    printed(["--queue", "local"])
    now = printed(["--queue", "local"])
    code, out, err = printed(old)
    assert (code, out) == now[:2]
    name = old[0].partition("=")[0]
    warnings = [line for line in err.splitlines() if "deprecated" in line]
    assert warnings == [f"warning: {name} is deprecated: use --queue"]


def test_help_has_the_new_option_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--queue [flux|local|minicluster]" in out
    assert "--member" not in out
    assert "--executor" not in out


def test_an_error_about_an_old_option_has_the_new_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["list", "--member", "slurm"]) == 2
    err = capsys.readouterr().err
    assert "invalid value for '--queue': 'slurm' is not one of 'flux', 'local'" in err
    assert err.count("deprecated") == 1


def test_a_command_without_the_new_option_does_not_take_the_old_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["validate", "--member", "local", "x.yaml"]) == 2
    err = capsys.readouterr().err
    assert "no such option '--member'" in err
    assert "deprecated" not in err


def test_a_program_may_say_member_for_one_release(study: Path) -> None:
    with pytest.warns(DeprecationWarning, match="member= is deprecated: use queue="):
        old = Ensemble.attach("study", member="local")  # type: ignore[call-arg]
    assert old.status() == Ensemble.attach("study", queue="local").status()
    document: Any = {"name": "again", "jobs": [{"name": "a", "command": "true"}]}
    with pytest.warns(DeprecationWarning, match="use queue=") as warned:
        ended = Ensemble(**document).run(member="local")
    assert ended["state"] == "completed"
    assert len(warned) == 1
    with pytest.raises(TypeError, match="member and queue are the same argument"):
        Ensemble.attach("study", queue="local", member="local")  # type: ignore[call-arg]


def test_where_no_instance_is_named_local_runs_answer(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["wait", "study"]) == 0
    # As in a shell that has emptied the variable.
    monkeypatch.setenv("FLUX_URI", "")
    assert run_command(["wait", "study"]) == 0
    assert "study: completed" in capsys.readouterr().out


def test_a_program_gets_the_instance_that_is_named_or_an_error(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Ensemble.attach("study").status()["state"] == "completed"
    monkeypatch.setenv("FLUX_URI", "local:///nowhere")
    with pytest.raises(EnsembleError, match=GONE):
        Ensemble.attach("study")
    with pytest.raises(EnsembleError, match=GONE):
        Ensemble(name="other", jobs=[{"name": "a", "command": "true"}]).start()
    assert Ensemble.attach("study", "local").status()["state"] == "completed"


def test_an_exporter_of_an_instance_that_goes_away_does_not_go_on_with_local_runs(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun without a name for the instance, as on a machine whose Flux is the system's."""
    state = SimpleNamespace(there=True)

    class System(Client):
        def __init__(self) -> None:
            if not state.there:
                raise EnsembleError(2, "gone")

        def list(self) -> Any:
            return []

        def status(self, name: str | None = None) -> Any:
            if not state.there:
                raise EnsembleError(113, "gone")
            return {"ensembles": []}

    asked: list[Any] = []
    monkeypatch.setattr(exporter, "Client", System)
    monkeypatch.setattr(exporter, "_write", lambda path, collect, interval: asked.append(collect))
    assert run_command(["metrics-exporter", "--textfile", "out"]) == 0
    (collect,) = asked
    list(collect())
    state.there = False
    for _ in range(2):
        text = "\n".join(str(sample) for metric in collect() for sample in metric.samples)
        assert "study" not in text
        assert "flux_ensemble" in text


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (errno.ENOENT, "no ensemble named 'study' (ensembles: none)"),
        (errno.ENOSYS, "the ensemble service is not loaded: `flux ensemble run FILE` starts it"),
    ],
)
def test_a_local_run_that_is_looked_for_in_an_instance_is_named(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    answer: str,
) -> None:
    def refuse(self: Client, op: str, **payload: Any) -> Any:
        raise EnsembleError(number, answer)

    monkeypatch.setattr(Client, "__init__", lambda self, **_: None)
    monkeypatch.setattr(Client, "call", refuse)
    monkeypatch.setattr(target, "kept_names", lambda client: None)
    capsys.readouterr()
    for words in (["rerun", "study"], ["status", "study"], ["metrics", "study"]):
        assert run_command(words) != 0
        err = capsys.readouterr().err
        assert f"{answer}; a local run has the name 'study': add --queue local" in err


@pytest.mark.parametrize(
    ("kept", "next"),
    [
        ([], "there is no ensemble in this Flux instance yet: 'flux ensemble init sweep' writes"),
        (["a"], "this Flux instance has kept 'a': 'flux ensemble run --resume FILE' starts it"),
    ],
)
def test_in_an_instance_without_a_service_what_to_do_next_is_said(
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: list[str],
    next: str,
) -> None:
    unloaded = EnsembleError(errno.ENOSYS, "the ensemble service is not loaded: `flux ensemble run")

    def refuse(self: Client, op: str, **payload: Any) -> Any:
        raise unloaded

    monkeypatch.setattr(Client, "__init__", lambda self, **_: None)
    monkeypatch.setattr(Client, "call", refuse)
    monkeypatch.setattr(target, "kept_names", lambda client: kept)
    capsys.readouterr()
    for words in (["list"], ["status"], ["metrics", "x"], ["rerun", "x"]):
        assert run_command(words) == 1
        err = " ".join(capsys.readouterr().err.split())
        assert f"the ensemble service is not loaded, and {next}" in err, words
    assert run_command(["status", "study"]) == 1
    assert "a local run has the name 'study': add --queue local" in capsys.readouterr().err


def test_where_nothing_has_run_yet_what_runs_something_is_named(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nothing"))
    capsys.readouterr()
    assert run_command(["list"]) == 1
    said = "no ensemble has run on this machine yet: 'flux-ensemble run FILE' does so without Flux"
    assert said in capsys.readouterr().err
