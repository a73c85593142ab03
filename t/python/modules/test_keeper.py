"""The files that Flux's own Python reads: the grammar of 3.6, and run by each Python here."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
LOGIC = PROJECT / "t" / "lib" / "keeper_logic.py"
FILES = [*sorted((PROJECT / "flux_ensemble" / "modules").glob("*.py")), *PROJECT.glob("etc/*/*.py")]
VERSIONS = [f"3.{minor}" for minor in range(6, 15)]


def interpreter(version: str) -> str | None:
    """A Python of this version: on PATH, or pyenv's."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python3"))
    found = [*map(str, kept), shutil.which(f"python{version}")]
    for command in filter(None, found):
        # pyenv's shims are there for versions that are not chosen.
        if subprocess.run([command, "-c", ""], capture_output=True).returncode == 0:
            return command
    return None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_files_have_the_grammar_of_python_3_6(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_all_of_them_are_looked_at() -> None:
    assert {file.name for file in FILES} >= {"ensemble.py", "ensemble-keeper.py"}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_python_that_is_here_reads_them_and_runs_the_keepers_logic(
    version: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    for number, file in enumerate(FILES):
        compiled = "import py_compile, sys; py_compile.compile(*sys.argv[1:], doraise=True)"
        arguments = [str(file), str(tmp_path / f"{number}.pyc")]
        subprocess.run([python, "-c", compiled, *arguments], check=True)
    # -B: no cache of theirs is left among the sources.
    done = subprocess.run([python, "-B", str(LOGIC)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
