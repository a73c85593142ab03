"""The examples give the same counts on the local queue as on Flux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flux_counts import EXPECTED
from warm import WarmProcess

from flux_ensemble.members.local.states import States

ROOT = Path(__file__).parents[3]

#: Examples whose commands are Flux's own.
NEED_FLUX = frozenset({"job-memo"})

#: Examples that end as failed.
FAIL = frozenset({"fail-fast"})

#: Examples of what a local queue has not: jobs from outside, and another size.
ELSEWHERE = frozenset({"queue-scope", "grow-on-pending", "shrink-when-idle", "minicluster"})


def test_every_example_is_compared() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    assert names == EXPECTED.keys() | ELSEWHERE
    assert EXPECTED.keys() >= FAIL


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - NEED_FLUX - ELSEWHERE))
def test_an_example_gives_the_same_counts_as_on_flux(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Jobs find the command that publishes a memo.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    words = [
        "run", "--member", "local", "--state-dir", str(tmp_path), "--timeout", "60",
        "--nodes", "4", "--cores", "2", str(ROOT / "examples" / f"{name}.yaml"),
    ]  # fmt: skip
    process = WarmProcess(words, tmp_path, subprocess.PIPE)
    _, err = process.communicate()
    assert (process.returncode, err) == (int(name in FAIL), "")
    groups = States(tmp_path).status(name)["groups"]
    outcomes = ("success", "failed", "canceled", "timeout")
    found = {
        f"{group}={'/'.join(str(counts[one]) for one in outcomes)}"
        for group, counts in groups.items()
    }
    assert found == set(EXPECTED[name].split())
