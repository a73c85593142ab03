"""The examples give the same counts on the local queue as on Flux."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from flux_counts import EXPECTED, VARY
from warm import WarmProcess

from flux_ensemble.members.local.states import States

ROOT = Path(__file__).parents[3]

#: Examples whose commands are Flux's own.
NEED_FLUX = frozenset({"job-memo"})

#: Examples that end as failed.
FAIL = frozenset({"fail-fast"})

#: Examples of what a local queue has not: jobs from outside, another size, and members.
ELSEWHERE = frozenset(
    {"queue-scope", "grow-on-pending", "shrink-when-idle", "minicluster"}
    | {"members", "pinned", "member-lost", "rolling-allocations"}
)


OUTCOMES = ("success", "failed", "canceled", "timeout")


def test_every_example_is_compared() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    assert names == EXPECTED.keys() | ELSEWHERE | VARY
    assert EXPECTED.keys() >= FAIL


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - NEED_FLUX - ELSEWHERE))
def test_an_example_gives_the_same_counts_as_on_flux(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = run(name, tmp_path, monkeypatch)["groups"]
    found = {
        f"{group}={'/'.join(str(counts[one]) for one in OUTCOMES)}"
        for group, counts in groups.items()
    }
    assert found == set(EXPECTED[name].split())


@pytest.mark.parametrize(("name", "trials"), [("tune", 20), ("asha", 9), ("median-stop", 9)])
def test_a_search_stops_trials_early_on_the_local_queue(
    name: str, trials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = run(name, tmp_path, monkeypatch)
    complete, failed, canceled, timeout = map(status["groups"]["trial"].get, OUTCOMES)
    assert (complete + canceled, failed, timeout) == (trials, 0, 0)
    assert [status["groups"]["final"][one] for one in OUTCOMES] == [1, 0, 0, 0]
    (search,) = status["searches"]
    assert (search["state"], search["pruned"]) == ("done", canceled)


def run(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Run an example on the local queue; returns its status at the end."""
    # Jobs find the command that publishes a memo.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    words = [
        "run", "--member", "local", "--state-dir", str(directory), "--timeout", "600",
        "--nodes", "4", "--cores", "2", str(ROOT / "examples" / f"{name}.yaml"),
    ]  # fmt: skip
    process = WarmProcess(words, directory, subprocess.PIPE)
    _, err = process.communicate()
    assert (process.returncode, err) == (int(name in FAIL), "")
    return States(directory).status(name)
