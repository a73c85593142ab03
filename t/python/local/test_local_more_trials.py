"""`search --more` and `--add` on the local queue: of a run that goes on, ended, or is killed."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from home import Home
from patience import PATIENCE

pytest.importorskip("optuna")

DOCUMENT = """\
seed: 7
search:
  - id: hpo
    group: trial
    variables: {x: {low: 0, high: 1}, k: {low: 1, high: 8, integer: true}}
    minimize: loss
    points: [{x: 0.5, k: 3}]
    trials: 5
    parallel: 2
jobs:
  - {name: trial, command: "sh trial.sh {x} {k}"}
rules:
  - {trigger: start, action: {name: search, label: hpo}}
"""

#: A trial waits while there is a gate.
TRIAL = f"""\
touch began-$1
while [ -e gate ]; do sleep 0.05; done
{sys.executable} -m flux_ensemble memo loss=$1
"""


class Search(Home):
    """The document and its jobs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, {"tune.yaml": DOCUMENT, "trial.sh": TRIAL})

    def trials(self) -> list[tuple[float, int]]:
        """The points of all trials, in the order of their numbers; each has one row."""
        rows = sorted(self.client.jobs("tune"), key=lambda row: row["trial"])
        assert [row["trial"] for row in rows] == list(range(len(rows)))
        return [(row["params"]["x"], row["params"]["k"]) for row in rows]

    def search(self) -> tuple[str, int, int]:
        (search,) = self.client.status("tune")["ensembles"][0]["searches"]
        return search["state"], search["complete"], search["trials"]


def wait(condition: Callable[[], bool]) -> None:
    late = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < late
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Search:
    return Search(tmp_path)


def test_a_search_of_a_run_that_has_ended_goes_on_in_its_record(home: Search) -> None:
    home.run("run", "--nodes", "2", "--cores", "1", "tune.yaml")
    before = home.trials()
    assert before[0] == (0.5, 3)
    said = home.run("search", "tune", "--more", "3", "--add", "x=0.25,k=4")
    assert "   going on after the end (completed)\n   hpo: 4 more trials, 9 in all\n" in said
    assert re.search("tune: completed after .*, not counting .* in which it did not run", said)
    after = home.trials()
    assert (after[:5], after[5], len(after)) == (before, (0.25, 4), 9)
    assert home.search() == ("done", 9, 9)
    assert "9/9" in home.run("search", "tune")
    home.run("export", "--to", "optuna", "tune", "tune.journal")
    home.run("report", "tune")
    assert "hpo: 4 more trials, 9 in all" in (home.path / "tune.html").read_text()


def test_what_is_refused_leaves_the_record_as_it_was(home: Search) -> None:
    home.run("run", "tune.yaml")
    names = ("events", "eventlog", "jobs", "status.json", "again")
    before = [(home.path / "state/tune" / name).read_bytes() for name in names]
    said = home.run("search", "tune", "--add", "x=0.5,k=0", code=1)
    assert "points[0]: k: expected an integer >= 1 and <= 8, not 0" in said
    said = home.run("search", "tune", "hpx", "--more", "1", code=1)
    assert "no search 'hpx' (did you mean 'hpo'? searches: hpo)" in said
    said = home.run("search", "tune", "--add", "0.5", code=2)
    assert "expected a point such as lr=0.01,layers=2, not '0.5'" in said
    said = home.run("search", "tune", "--quiet", code=2)
    assert "--quiet is for --more and --add" in said
    assert [(home.path / "state/tune" / name).read_bytes() for name in names] == before
    assert not (home.path / "state/tune/jobs.new").exists()


def test_a_run_takes_points_and_trials_while_it_goes_on(home: Search) -> None:
    (home.path / "gate").touch()
    process = home.begin("run", "--nodes", "2", "--cores", "1", "tune.yaml")
    wait((home.path / "began-0.5").exists)
    said = home.run("search", "tune", "--add", "x=0.125,k=8", "--more", "2")
    assert said == "tune: 3 more trials of hpo, 8 in all\n"
    (home.path / "gate").unlink()
    assert process.wait(PATIENCE) == 0
    assert home.search() == ("done", 8, 8)
    assert Counter(home.trials())[0.125, 8] == 1


def test_one_that_is_killed_meanwhile_is_continued_and_each_point_is_tried_once(
    home: Search,
) -> None:
    home.run("run", "--nodes", "2", "--cores", "1", "tune.yaml")
    (home.path / "gate").touch()
    process = home.begin("search", "tune", "--add", "x=0.25,k=4", "--more", "3")
    wait((home.path / "began-0.25").exists)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    (home.path / "gate").unlink()
    said = home.run("search", "tune", "--more", "1", code=1)
    assert "rerun" in said
    assert "--resume tune" in said
    home.run("rerun", "--resume", "tune")
    assert home.search() == ("done", 9, 9)
    assert Counter(home.trials())[0.25, 4] == 1
