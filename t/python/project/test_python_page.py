"""The examples of docs/python.md run as they are written, on this machine and on Flux."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "python.md"

#: Runs the blocks in one module, as a notebook would run its cells.
SCRIPT = """
import ast, asyncio, inspect, sys
names = {"__name__": "__main__"}
async def run():
    for number, block in enumerate(sys.stdin.read().split("\\f")):
        code = compile(block, f"block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
asyncio.run(run())
"""


def blocks(*, flux: bool) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [block for block in found if flux or "AsyncClient" not in block]


def run(words: list[str], texts: list[str], directory: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [*words, sys.executable, "-c", SCRIPT],
        input="\f".join(texts),
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "XDG_STATE_HOME": str(directory / "state"), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def promised(texts: list[str]) -> list[str]:
    """What the comments behind `print` say is printed."""
    return re.findall(r"print\(.*\)  # (.*)", "\n".join(texts))


def check(printed: list[str], texts: list[str]) -> None:
    text = "\n".join(printed)
    for words in promised(texts):
        # The place of an error is another one here, and its sentence goes on.
        assert words.partition("study.py:4: ")[2].removesuffix(" ...") in text
        assert "study.py" in words or words in printed
    assert "fired on" in text


def test_the_examples_run_on_this_machine(tmp_path: Path) -> None:
    texts = blocks(flux=False)
    check(run([], texts, tmp_path, FLUX_URI=""), texts)
    assert (tmp_path / "sweep.yaml").read_text().startswith("name: sweep\n")


@pytest.mark.flux
def test_the_examples_run_on_flux(tmp_path: Path) -> None:
    texts = blocks(flux=True)
    check(run(["flux", "start", "-s1"], texts, tmp_path), texts)
