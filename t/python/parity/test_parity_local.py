"""The examples do the same on the local queue as on Flux."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flux_counts import EXPECTED, MEMBERS, ON_FLUX, OUTCOMES, VARY, end_of
from forks import forked_commands
from warm import WarmProcess

from flux_ensemble.queues.local.states import States
from flux_ensemble.runtime.recording import replay

ROOT = Path(__file__).parents[3]

#: Examples that end as failed, and what they say.
FAIL = {"fail-fast": "3 cases have failed, the last one with exit code 3"}


@pytest.fixture(scope="module")
def forks() -> Iterator[Mapping[str, str]]:
    """Variables with which the memos that jobs publish are sent by forks of one process."""
    with forked_commands(os.environ) as variables:
        yield variables


@pytest.fixture
def environment(forks: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the jobs find the command that publishes a memo."""
    for name, value in forks.items():
        monkeypatch.setenv(name, value)


def test_every_example_is_compared() -> None:
    names = {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    assert names == EXPECTED.keys() | ON_FLUX | VARY
    assert EXPECTED.keys() >= FAIL.keys()


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - MEMBERS))
def test_an_example_does_the_same_as_on_flux(name: str, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    status = run(name, tmp_path, "--record", str(recording))
    assert end_of(status) == EXPECTED[name]
    replayed = replay(recording)
    assert replayed.difference is None
    assert replayed.events > 0


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("name", "trials"), [("tune", 20), ("asha", 9), ("median-stop", 9)])
def test_a_search_stops_trials_early_on_the_local_queue(
    name: str, trials: int, tmp_path: Path
) -> None:
    status = run(name, tmp_path)
    complete, failed, canceled, timeout = map(status["groups"]["trial"].get, OUTCOMES)
    assert (complete + canceled, failed, timeout) == (trials, 0, 0)
    assert [status["groups"]["final"][one] for one in OUTCOMES] == [1, 0, 0, 0]
    (search,) = status["searches"]
    assert (search["state"], search["pruned"]) == ("done", canceled)


def run(name: str, directory: Path, *options: str) -> Mapping[str, Any]:
    """Run an example on the local queue; returns its status at the end."""
    words = [
        "run", "--queue", "local", "--state-dir", str(directory), "--timeout", "600",
        "--nodes", "4", "--cores", "2", *options, str(ROOT / "examples" / f"{name}.yaml"),
    ]  # fmt: skip
    process = WarmProcess(words, directory, subprocess.PIPE)
    out, err = process.communicate()
    assert (process.returncode, err) == (int(name in FAIL), "")
    assert FAIL.get(name, "") in out
    return States(directory).status(name)
