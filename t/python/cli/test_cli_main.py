"""The command: parsing, exit codes, and errors as sentences."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import flux_ensemble
from flux_ensemble import __version__
from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.commands import run
from flux_ensemble.cli.main import ensemble, run_command
from flux_ensemble.cli.session import overview, target
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.deploy.service_start import parse_version

HELLO = """
jobs:
  - {name: echo, command: echo hello, count: 2}
rules:
  - {trigger: start, action: {name: submit, label: echo}}
"""


class FakeClient:
    """A client whose requests are answered from a table: an answer, or an error to raise."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._answers = answers
        self.handle = SimpleNamespace(attr_get=self._attr_get, rpc=self._rpc)

    command = Client.command
    kept_file = Client.kept_file
    interrupted = Client.interrupted

    @staticmethod
    def label(id: int) -> str:
        return f"f{id}"

    def names(self) -> list[str]:
        return [one["name"] for one in self.list()]

    def _attr_get(self, name: str) -> str:
        raise FileNotFoundError(name)

    def _rpc(self, topic: str, request: dict[str, Any]) -> Any:
        raise PermissionError(errno.EPERM, f"{topic} is not for guests")

    def __call__(self) -> FakeClient:
        return self

    def __getattr__(self, op: str) -> Any:
        def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((op, *args, kwargs))
            answer = self._answers[op]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what standard input holds."""

    def fill(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return fill


def serve(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> FakeClient:
    client = FakeClient(**answers)
    for module in (run, target):
        monkeypatch.setattr(module, "Client", client)
    return client


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [
        line.removeprefix("flux-ensemble: ERROR: ")
        for line in capsys.readouterr().err.splitlines()
        if not line.startswith("Usage:")
    ]


def test_version_and_help_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"flux-ensemble {__version__}\n"
    assert run_command(["-h"]) == 0
    for name in ensemble.list_commands(click.Context(ensemble)):
        assert run_command([name, "--help"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lod"], "no such command 'lod'"),
        (["list", "--colour"], "no such option"),
        (["run"], "missing argument 'FILE'"),
        (["wait"], "missing argument 'NAME...'"),
        (["submit", "a", "b", "--count", "0"], "'--count': 0 is not in the range"),
        (
            ["submit", "a", "b", "--count", "two"],
            "'--count': expected a whole number such as 20, not 'two'",
        ),
        (["submit", "a", "b", "--param", "x"], "expected key=value, not 'x'"),
        (["submit", "a", "b", "--param", "x=[1"], "the value of 'x' is not YAML: '[1'"),
        (["run", "a.yaml", "--timeout", "soon"], "expected a duration"),
        (["serve", "--log-level", "loud"], "'--log-level': 'loud' is not one of"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    (line,) = errors(capsys)
    assert sentence in line


def test_without_a_command_the_ensembles_of_the_instance_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, list=EnsembleError(errno.ENOSYS, "the service is not loaded"))
    monkeypatch.setattr(overview, "Client", target.Client)
    assert run_command([]) == 0
    said = capsys.readouterr().out
    assert "flux ensemble init sweep" in said
    # What the instance has kept is not known, and nothing is said of it.
    assert "flux ensemble supervise" in said
    assert "no ensemble" not in said


def test_the_package_is_a_command_too_and_all_its_names_are_completed() -> None:
    words = [sys.executable, "-m", "flux_ensemble", "--version"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == f"flux-ensemble {__version__}\n"
    assert {*flux_ensemble.__all__} <= {*dir(flux_ensemble)}


def test_validate_says_what_a_good_document_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pipe: Any
) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(HELLO)
    assert run_command(["validate", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok: 1 job group, 1 rule\n"
    pipe(HELLO.encode())
    assert run_command(["validate", "-"]) == 0
    assert capsys.readouterr().out == "document: ok: 1 job group, 1 rule\n"


def test_validate_prints_every_error_of_a_bad_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(HELLO.replace("count: 2", "count: -2").replace("label: echo", "label: ecko"))
    assert run_command(["validate", str(file)]) == 2
    first, second = errors(capsys)
    assert first.startswith(f"{file}:3: jobs[0].count: ")
    assert second.startswith(f"{file}:5: rules[0].action.label: no job group named 'ecko'")


def test_validate_prints_warnings_and_is_strict_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(HELLO.replace("command: ", "output: '{index}.{id}.out', command: ", 1))
    assert run_command(["validate", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{file}: ok: 1 job group, 1 rule\n"
    assert err == (
        f"warning: {file}:3: jobs[0].output: '{{id}}' is left as it is "
        "(did you mean '{{id}}', which Flux fills in?)\n"
    )
    assert run_command(["validate", "--strict", str(file)]) == 1


@pytest.mark.parametrize("command", ["validate", "run", "load"])
def test_a_document_that_cannot_be_read_is_a_usage_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], pipe: Any
) -> None:
    assert run_command([command, str(tmp_path / "nowhere.yaml")]) == 2
    assert run_command([command, str(tmp_path)]) == 2
    (tmp_path / "binary").write_bytes(b"abc\xff")
    assert run_command([command, str(tmp_path / "binary")]) == 2
    pipe(b"\xff")
    assert run_command([command, "-"]) == 2
    assert errors(capsys) == [
        f"cannot read {tmp_path}/nowhere.yaml: No such file or directory",
        f"cannot read {tmp_path}: Is a directory (it has no document in it)",
        f"{tmp_path}/binary: not UTF-8 text (byte 3)",
        "standard input: not UTF-8 text (byte 0)",
    ]


def test_load_sends_the_document_and_prints_the_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = serve(monkeypatch, list=[], load={"name": "mine", "state": "running"})
    file = tmp_path / "hello.yaml"
    file.write_text(HELLO)
    assert run_command(["load", str(file), "--name", "mine"]) == 0
    assert capsys.readouterr().out == "mine\n"
    given = {"name": "mine", "file": str(file), "workers": None}
    assert client.asked[-1] == ("load", HELLO, given)


def test_a_document_that_the_service_refuses_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pipe: Any
) -> None:
    serve(monkeypatch, list=[], load=EnsembleError(errno.EINVAL, "a.yaml:1: no\na.yaml:2: no"))
    pipe(HELLO.encode())
    assert run_command(["load", "-", "--name", "a"]) == 2
    assert errors(capsys) == ["a.yaml:1: no", "a.yaml:2: no"]


def test_submit_reads_parameters_as_a_document_would(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = serve(monkeypatch, submit=[1, 2])
    given = ["--count", "2", "--param", "x=[1, 2]", "--param", "name=a=b"]
    given += ["--set", "nodes=4", "--set", "duration=2h"]
    assert run_command(["submit", "mine", "echo", *given]) == 0
    assert capsys.readouterr().out == "f1\nf2\n"
    assert client.asked == [
        (
            "submit",
            "mine",
            "echo",
            {
                "count": 2,
                "params": {"x": [1, 2], "name": "a=b"},
                "overrides": {"nodes": 4, "duration": "2h"},
            },
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "asked", "line"),
    [
        (["pause", "a"], ("pause", "a", {}), "a: paused"),
        (["resume", "a"], ("resume", "a", {}), "a: running"),
        (["terminate", "a"], ("terminate", "a", {"cancel": False}), "a: completed"),
        (["terminate", "a", "--cancel"], ("terminate", "a", {"cancel": True}), "a: completed"),
        (["cancel", "a"], ("cancel", "a", None, {}), "a: ending"),
        (["cancel", "a", "g"], ("cancel", "a", "g", {}), "a: ending"),
        (["unload", "a"], ("unload", "a", {}), "a: unloaded"),
    ],
)
def test_a_command_that_steers_prints_the_state(
    arguments: list[str],
    asked: tuple[Any, ...],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = serve(
        monkeypatch,
        pause={"state": "paused"},
        resume={"state": "running"},
        terminate={"state": "completed"},
        cancel={"state": "ending"},
        status=EnsembleError(errno.EHOSTUNREACH, "it went away"),
        unload={"state": "completed"},
    )
    assert run_command(arguments) == 0
    assert capsys.readouterr().out == f"{line}\n"
    assert [one for one in client.asked if one[0] != "status"] == [asked]


def test_a_near_name_of_an_ensemble_is_suggested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = EnsembleError(errno.ENOENT, "no ensemble named 'helo'")
    serve(monkeypatch, status=refusal, list=[{"name": "hello"}, {"name": "other"}])
    assert run_command(["status", "helo"]) == 1
    assert errors(capsys) == ["no ensemble named 'helo'; did you mean 'hello'?"]


def test_a_near_name_of_a_group_is_suggested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(
        monkeypatch,
        submit=EnsembleError(errno.ENOENT, "no job group named 'ecko'"),
        list=[{"name": "hello"}],
        status={"ensembles": [{"groups": {"echo": {}, "sleep": {}}}]},
    )
    assert run_command(["submit", "hello", "ecko"]) == 1
    assert errors(capsys) == ["no job group named 'ecko'; did you mean 'echo'?"]


def test_a_name_that_is_near_to_nothing_is_only_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = EnsembleError(errno.ENOENT, "no ensemble named 'x'")
    serve(monkeypatch, pause=refusal, list=EnsembleError(errno.ENOSYS, "gone"))
    assert run_command(["pause", "x"]) == 1
    assert errors(capsys) == ["no ensemble named 'x'"]


@pytest.mark.parametrize(
    "error",
    [
        EnsembleError(errno.EAGAIN, "not now"),
        BindingsError("not now"),
        OSError(errno.EIO, "not now"),
    ],
)
def test_every_failure_is_a_sentence_and_exits_with_1(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, pause=error)
    assert run_command(["pause", "a"]) == 1
    assert errors(capsys) == ["not now"]


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "Client", interrupt)
    assert run_command(["list"]) == 130


def test_the_answer_of_the_service_is_printed_as_it_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, list=[{"name": "a"}], metrics={"mean": {}}, status={"queue": {}})
    assert run_command(["list", "--json"]) == 0
    assert run_command(["metrics", "a", "--json"]) == 0
    assert run_command(["status", "--json"]) == 0
    assert capsys.readouterr().out == (
        '{"ensembles": [{"name": "a"}]}\n{"mean": {}}\n{"queue": {}}\n'
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["a", "b", "c"]),
        (["-c", "2"], ["b", "c"]),
        (["-c", "0"], ["a", "b", "c"]),
        (["-f", "failed,running"], ["a", "c"]),
        (["--filter", "failed", "--count", "1"], ["c"]),
        (["-f", "paused"], []),
    ],
)
def test_list_takes_states_and_a_count_as_flux_jobs_does(
    options: list[str],
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    states = {"a": "running", "b": "completed", "c": "failed"}
    serve(monkeypatch, list=[{"name": name, "state": state} for name, state in states.items()])
    assert run_command(["list", "--json", *options]) == 0
    shown = json.loads(capsys.readouterr().out)["ensembles"]
    assert [one["name"] for one in shown] == names


def test_an_unknown_state_of_ensembles_is_an_error_with_a_guess(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["list", "-f", "fialed"]) == 2
    (line,) = errors(capsys)
    assert "no such state: 'fialed' (did you mean 'failed'?" in line


def test_the_version_of_flux_is_read_with_whatever_follows() -> None:
    assert parse_version("0.88.0-12-gabcdef") == (0, 88)
    assert parse_version("1.2.3") > (0, 84)
    assert parse_version("unknown") == (0, 0)


def test_characters_that_a_terminal_has_not_are_printed_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    entry = {"timestamp": 1.0, "name": "\N{GREEK SMALL LETTER ALPHA}\x1b[2J", "context": {}}
    (tmp_path / "some" / "eventlog").write_text(json.dumps(entry) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "flux_ensemble.cli.main", "log", "some", "--state-dir", tmp_path],
        env={**os.environ, "PYTHONIOENCODING": "latin-1:strict"}, capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"\\u03b1\\x1b[2J\n")
