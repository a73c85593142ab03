"""Completion: names of what there is, in the shells themselves where they are installed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from patience import PATIENCE

from flux_ensemble.cli.main import ensemble, run_command

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "etc" / "completion"

DOCUMENT = """
jobs:
  - {name: sleepy, command: "true"}
  - {name: snappy, command: "true"}
rules:
  - {id: begin, trigger: start, action: {name: submit, label: sleepy}}
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with an ensemble "study" that has ended."""
    root = tmp_path_factory.mktemp("completion")
    (root / "study.yaml").write_text(DOCUMENT)
    local = ["--queue", "local", "--state-dir", str(root / "state")]
    assert run_command(["run", *local, str(root / "study.yaml")]) == 0
    return root / "state"


@pytest.fixture
def completed(state: Path) -> Callable[..., list[str]]:
    """Completes the last of some words; those after the command have the state directory."""

    def complete(command: str, *words: str) -> list[str]:
        *before, last = words
        shell = BashComplete(ensemble, {}, "flux-ensemble", "_FLUX_ENSEMBLE_COMPLETE")
        given = [command, "--queue", "local", "--state-dir", str(state), *before]
        return [item.value for item in shell.get_completions(given, last)]

    return complete


def test_names_of_ensembles_groups_rules_and_formats_are_completed(
    completed: Callable[..., list[str]],
) -> None:
    assert completed("status", "st") == ["study"]
    assert completed("pause", "") == ["study"]
    assert completed("wait", "study", "st") == []
    assert completed("submit", "study", "s") == ["sleepy", "snappy"]
    assert completed("cancel", "study", "sn") == ["snappy"]
    assert completed("jobs", "study", "--group", "sl") == ["sleepy"]
    assert completed("jobs", "study", "--outcome", "f") == ["failed"]
    assert completed("disable", "study", "") == ["begin"]
    assert completed("log", "study", "--rule", "b") == ["begin"]
    assert completed("list", "-o", "") == ["default", "long", "help"]
    assert completed("metrics", "-o", "d") == ["default"]
    assert completed("why", "nothing", "") == []


def test_options_are_completed_by_their_new_names() -> None:
    shell = BashComplete(ensemble, {}, "flux-ensemble", "_FLUX_ENSEMBLE_COMPLETE")
    offered = {item.value for item in shell.get_completions(["list"], "--")}
    assert "--queue" in offered
    assert not {"--member", "--executor"} & offered
    assert [item.value for item in shell.get_completions(["list", "--queue"], "l")] == ["local"]


def test_an_old_option_before_it_spoils_no_completion(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = BashComplete(ensemble, {}, "flux-ensemble", "_FLUX_ENSEMBLE_COMPLETE")
    given = ["status", "--member", "local", "--state-dir", str(state)]
    assert [item.value for item in shell.get_completions(given, "st")] == ["study"]
    assert capsys.readouterr() == ("", "")


def test_templates_keys_and_files_are_completed() -> None:
    def complete(*words: str) -> list[tuple[str, str]]:
        shell = BashComplete(ensemble, {}, "flux-ensemble", "_FLUX_ENSEMBLE_COMPLETE")
        found = shell.get_completions(list(words[:-1]), words[-1])
        return [(item.type, item.value) for item in found]

    assert complete("init", "hello") == [("plain", "hello-world")]
    assert ("plain", "jobs.retries.times") in complete("explain", "jobs.retries.t")
    assert complete("validate", "a.y") == [("file", "a.y")]
    assert complete("hlep", "") == complete("")


@pytest.mark.parametrize(
    ("shell", "arguments", "script"),
    [
        ("bash", ["--norc", "--noprofile", "-i"], "flux-ensemble.bash"),
        ("zsh", ["-f", "-i"], "_flux-ensemble"),
        ("fish", ["--no-config", "-i"], "flux-ensemble.fish"),
    ],
)
@pytest.mark.parametrize("name", ["flux-ensemble", "flux ensemble"])
def test_shells_complete_a_command_and_a_name(
    shell: str, arguments: list[str], script: str, name: str, state: Path, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    # What is completed is run: this prints its arguments, and asks the command for completions.
    for program in ("flux-ensemble", "flux"):
        path = tmp_path / program
        path.write_text(
            "#!/bin/sh\n"
            f'test -z "$_FLUX_ENSEMBLE_COMPLETE" || exec {sys.executable} -m '
            'flux_ensemble.cli.main "$@"\n'
            'echo "<$*>"\n'
        )
        path.chmod(0o755)
    begin = "autoload -U compinit; compinit -u -D; " if shell == "zsh" else ""
    words = [
        f"{begin}source {SCRIPTS / script}; echo re''ady\n",
        f"{name} paus\t--state-dir {state} stu\t\n",
        "exit\n",
    ]
    said = _typed(shell, arguments, words, tmp_path)
    prefix = "ensemble " if name == "flux ensemble" else ""
    assert f"<{prefix}pause --state-dir {state} study>" in said


def _typed(shell: str, arguments: list[str], words: list[str], directory: Path) -> str:
    """What a shell says on a terminal to what is typed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(
            PATH=f"{directory}:{os.environ['PATH']}", TERM="xterm", HOME=str(directory),
            INPUTRC="/dev/null", COLUMNS="500", FLUX_URI="",
        )  # fmt: skip
        os.chdir(directory)
        os.execvp(shell, [shell, *arguments])
    said = b""
    try:
        for line, awaited in zip(words, (b"ready", b"study>", b""), strict=True):
            os.write(fd, line.encode())
            seen, give_up = len(said), time.monotonic() + PATIENCE
            while awaited and awaited not in said[seen:].replace(b"\r", b""):
                assert time.monotonic() < give_up, repr(said)
                if select.select([fd], [], [], 1)[0]:
                    said += os.read(fd, 1 << 16)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    return said.decode(errors="replace")
