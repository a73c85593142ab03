"""Commands that are recommended work where they are read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flux_ensemble.own_command import own_command, with_program

#: The program of this environment.
PROGRAM = Path(sys.executable).parent / "flux-ensemble"

#: Its jobs call the program, too.
DOCUMENT = """
jobs: [{name: a, command: "sh -c 'flux-ensemble memo y={x} && exit {x}'", params: {x: [0, 3]}}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "flux-ensemble"
    path.parent.mkdir()
    path.touch(mode=0o755)
    return path


def test_a_program_on_path_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(program), "run"])
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command("report", "a b") == "flux-ensemble report 'a b'"
    assert own_command("report", "a", flux=True) == "flux ensemble report a"


def test_a_program_that_is_not_on_path_is_named_as_it_was_called(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(program.parent)
    monkeypatch.setattr(sys, "argv", ["./flux-ensemble", "run"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_command("rm", "a") == "./flux-ensemble rm a"
    assert own_command("rm", "a", flux=True) == "./flux-ensemble rm a"


def test_a_wrapper_on_path_is_called_by_its_name(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the shims of pyenv and the commands of environment modules."""
    wrapper = tmp_path / "other" / "flux-ensemble"
    wrapper.parent.mkdir()
    wrapper.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "run"])
    monkeypatch.setenv("PATH", str(wrapper.parent))
    assert own_command("rm", "a") == "flux-ensemble rm a"


def test_a_notebook_recommends_the_command_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/lib/ipykernel_launcher.py"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_command("rm", "a") == "flux-ensemble rm a"


def test_jobs_find_the_program_that_has_started_them(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program), "run"])
    added = with_program({"PATH": "/bin", "LANG": "C"})
    assert added == {"PATH": f"/bin:{program.parent}", "LANG": "C"}
    assert with_program(added) == added
    other = {"PATH": f"{PROGRAM.parent}:/bin"}
    assert with_program(other) == other


def test_jobs_of_a_notebook_find_the_program_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/lib/ipykernel_launcher.py"])
    assert with_program({"PATH": "/bin"}) == {"PATH": f"/bin:{PROGRAM.parent}"}
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert with_program({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_what_a_run_recommends_at_its_end_works_then(tmp_path: Path) -> None:
    """As after `make demo`, with which no environment is activated."""
    (tmp_path / "my study.yaml").write_text(DOCUMENT)
    kept = {key: value for key, value in os.environ.items() if key != "FLUX_URI"}
    env = {**kept, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def shell(command: str) -> str:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    out = shell(f"{PROGRAM} run --queue local --name study 'my study.yaml'")
    (recommended,) = [line.split("'")[1] for line in out.splitlines() if "see '" in line]
    assert recommended == f"{PROGRAM} failures study --queue local"
    assert "a: exit 3: 1 job" in shell(recommended)
