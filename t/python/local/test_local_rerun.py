"""`rerun` on the local queue: in the same record, after the end and while a run goes on, and a run
that is killed meanwhile."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from home import Home
from patience import PATIENCE

from flux_ensemble.cli.session.overview import next_steps

DOCUMENT = """\
jobs:
  - name: case
    command: sh case.sh {x}
    params: {x: [1, 2, 3, 4]}
  - {name: sum, command: "true"}
rules:
  - {trigger: start, action: {name: submit, label: case}}
  - trigger: idle
    group: case
    action: {name: submit, label: sum, repetitions: unlimited}
"""

#: Even ones need a table, and those that have begun wait while there is a gate.
CASE = """\
touch began-$1
while [ -e gate ]; do sleep 0.05; done
test $(($1 % 2)) = 1 || cat table
"""


class Cases(Home):
    """The document and its jobs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, {"cases.yaml": DOCUMENT, "case.sh": CASE})

    def outcomes(self) -> list[tuple[str, str]]:
        """The point and the outcome of each job of the group, from an export."""
        self.run("export", "cases", "cases.csv", "--force", "--group", "case")
        with (self.path / "cases.csv").open() as file:
            return sorted((row["params.x"], row["outcome"]) for row in csv.DictReader(file))


def wait(condition: Callable[[], bool]) -> None:
    late = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < late
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Cases:
    home = Cases(tmp_path)
    home.run("run", "--nodes", "2", "--cores", "1", "cases.yaml")
    return home


def test_a_run_that_has_ended_goes_on_in_its_record(home: Cases, tmp_path: Path) -> None:
    names = ("events", "eventlog", "jobs", "status.json", "again", "document")
    before = [(tmp_path / "state/cases" / name).read_bytes() for name in names]
    assert home.run("rerun", "--dry-run", "cases") == "cases: 2 jobs would run again (2 failed)\n"
    assert [(tmp_path / "state/cases" / name).read_bytes() for name in names] == before
    assert not (tmp_path / "state/cases/jobs.new").exists()
    # The document of the record runs, where it was begun, on as many nodes.
    (tmp_path / "cases.yaml").write_text("jobs: []")
    (tmp_path / "table").touch()
    (tmp_path / "elsewhere").mkdir()
    said = home.run("rerun", "cases", "--report", "r.html", cwd=tmp_path / "elsewhere")
    assert "2 attempts that ran again are left out of the outcomes\n" in said
    assert said.startswith("cases: 2 jobs run again (2 failed)\n")
    changed = "cases.yaml has changed since: rerun goes by the document that is kept; 'flux-ensem"
    assert changed in said
    (tmp_path / "cases.yaml").write_text(DOCUMENT)
    assert "2 jobs run again: going on after the end (completed)" in said
    assert "submit sum" in said
    assert "in which it did not run: nothing is active" in said
    assert (tmp_path / "elsewhere/r.html").exists()
    assert home.outcomes() == [(str(x), "success") for x in (1, 2, 3, 4)]
    assert home.run("failures", "cases").startswith("0 of ")
    status = home.client.status("cases")["ensembles"][0]
    assert (status["state"], status["failed"], status["groups"]["case"]["finished"]) == (
        "completed", 0, 4,
    )  # fmt: skip
    none = "cases: no job failed, ran out of time or was canceled: nothing runs again\n"
    assert home.run("rerun", "cases") == none
    none = "cases: no job that is over matches: nothing runs again\n"
    assert home.run("rerun", "cases", "--filter", "job.params.x > 9") == none
    # What was run again can be run again, and its failure is the one that counts.
    (tmp_path / "table").unlink()
    words = ("--filter", "job.params.x == 2", "cases", "--fail-on", "job", "--export", "two.csv")
    home.run("rerun", "-q", *words, code=1)
    assert "failed" in (tmp_path / "two.csv").read_text()
    assert home.outcomes()[1] == ("2", "failed")


def test_a_rerun_that_is_killed_is_continued_and_each_job_counts_once(
    home: Cases, tmp_path: Path
) -> None:
    (tmp_path / "table").touch()
    (tmp_path / "gate").touch()
    (tmp_path / "began-2").unlink()
    process = home.begin("rerun", "cases", "--export", "all.csv")
    wait((tmp_path / "began-2").exists)
    # What runs again is no failure of now; the metrics have each attempt.
    counts = home.client.status("cases")["ensembles"][0]["groups"]["case"]
    assert (counts["failed"], counts["attempts"], counts["finished"]) == (0, 2, 2)
    assert home.client.metrics("cases")["count"]["case"]["failed"] == 2
    table = home.run("status", "cases").splitlines()
    (row,) = (line.split() for line in table if line.startswith("case "))
    assert row[4:] == ["2", "2", "0", "0", "0"]
    goes_on = "the run of 'cases' goes on: 'flux-ensemble watch cases"
    assert goes_on in home.run("rerun", "--resume", "cases", code=1)
    # It has ended once, and is steered as any run.
    assert "has not ended" in home.run("rm", "cases", code=1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    refused = home.run("rerun", "cases", code=1)
    assert "rerun --nodes 2 --cores 1 --export all.csv --resume cases" in refused
    (tmp_path / "gate").unlink()
    home.run("rerun", "--resume", "cases", "-q")
    assert home.outcomes() == [(str(x), "success") for x in (1, 2, 3, 4)]
    status = home.client.status("cases")["ensembles"][0]
    assert (status["state"], status["failed"], status["groups"]["case"]["finished"]) == (
        "completed", 0, 4,
    )  # fmt: skip
    assert status["groups"]["case"]["failed"] == 0
    said = home.run("rerun", "--resume", "cases", code=1)
    assert "the run of 'cases' was not interrupted: it has ended" in said


def test_a_run_that_goes_on_takes_jobs_that_are_over_among_the_others(
    home: Cases, tmp_path: Path
) -> None:
    (tmp_path / "slow.yaml").write_text(
        DOCUMENT.replace("command: sh case.sh {x}", "command: sh slow.sh {x}")
    )
    (tmp_path / "slow.sh").write_text("[ $1 = 1 ] && while [ -e gate ]; do sleep 0.05; done\n"
                                      "test $1 = 1 || cat table\n")  # fmt: skip
    (tmp_path / "gate").touch()
    process = home.begin("run", "slow.yaml")
    path = tmp_path / "state/slow/status.json"

    def failed() -> int:
        if not path.exists():
            return 0
        count: int = home.client.status("slow")["ensembles"][0]["groups"]["case"]["failed"]
        return count

    wait(lambda: failed() == 3)
    (tmp_path / "table").touch()
    refused = home.run("rerun", "slow", "--export", "all.csv", code=2)
    assert "'slow' goes on, and rerun does not wait for its end: there is no report and" in refused
    assert home.run("rerun", "slow") == "slow: 3 jobs run again (3 failed)\n"
    rows = list(home.client.jobs("slow", interrupted=True))
    assert sum("replaced" in row for row in rows) == 3
    (tmp_path / "gate").unlink()
    assert process.wait(timeout=PATIENCE) == 0
    assert [job["outcome"] for job in home.client.jobs("slow", group="case")] == ["success"] * 4


def test_what_was_never_sent_before_a_cancel_runs_by_a_rerun(home: Cases, tmp_path: Path) -> None:
    text = DOCUMENT.replace("[1, 2, 3, 4]}", "[1, 3, 5, 7, 9]}\n    max-active: 2")
    (tmp_path / "part.yaml").write_text(text)
    (tmp_path / "began-1").unlink()
    (tmp_path / "gate").touch()
    process = home.begin("run", "part.yaml")
    wait((tmp_path / "began-1").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130
    never = "3 of 5 jobs were never submitted: 'flux-ensemble rerun part"
    told = home.run("status", "part")
    assert never in told
    assert "runs them, and 2 that were canceled" in told
    would = "part: 2 jobs would run again (2 canceled), and 3 that were never submitted\n"
    assert home.run("rerun", "--dry-run", "part") == would
    said = home.run("rerun", "--failed", "part")
    assert said.startswith("part: no job failed or ran out of time: nothing runs again\n")
    assert never in said
    (tmp_path / "gate").unlink()
    said = home.run("rerun", "part")
    assert "2 jobs run again, and 3 that were never submitted: going on after the end" in said
    assert "submit sum" in said
    status = home.client.status("part")["ensembles"][0]
    assert (status["state"], status["groups"]["case"]["success"]) == ("completed", 5)
    assert "never" not in home.run("status", "part")
    assert sorted(job["params"]["x"] for job in home.client.jobs("part", group="case")) == [
        1, 3, 5, 7, 9,
    ]  # fmt: skip


def test_a_rerun_while_jobs_are_being_cancelled_waits_until_they_are_gone(
    home: Cases, tmp_path: Path
) -> None:
    (tmp_path / "slow.yaml").write_text(
        DOCUMENT.replace("sh case.sh {x}", "sh slow.sh {x}").replace("[1, 2, 3, 4]", "[1]")
    )
    # It is killed five seconds after its cancellation.
    (tmp_path / "slow.sh").write_text("trap '' TERM; touch began; while :; do sleep 0.1; done\n")
    process = home.begin("run", "slow.yaml")
    wait((tmp_path / "began").exists)
    home.run("cancel", "slow")
    said = home.run("rerun", "slow", "--dry-run")
    assert "'slow' is about to end: waiting until 1 job that it cancels is gone" in said
    assert "1 job would run again (1 canceled)" in said
    assert process.wait(timeout=PATIENCE) == 3


TUNE = """\
search: [{id: hpo, group: case, trials: TRIALS, parallel: 2, minimize: loss, sampler: random,
          variables: {x: {low: 11, high: 99, integer: true}}}]
jobs: [{name: case, command: "sh case.sh {x}"}]
rules: [{trigger: start, action: {name: search, label: hpo}}]
"""


def begin_tuning(home: Cases, trials: int) -> subprocess.Popen[bytes]:
    """Begin a search, two of whose trials wait."""
    (home.path / "tune.yaml").write_text(TUNE.replace("TRIALS", str(trials)))
    (home.path / "gate").touch()
    with (home.path / "out").open("wb") as out:
        process = subprocess.Popen(home.command("run", "tune.yaml"), cwd=home.path, stdout=out)
    wait(lambda: len(list(home.path.glob("began-??"))) == 2)
    return process


def test_a_warm_start_from_an_ensemble_without_a_search_is_refused(home: Cases) -> None:
    home.run("run", "cases.yaml", "--quiet")
    warm = "minimize: loss, warm-start: {from: cases}"
    text = TUNE.replace("TRIALS", "2").replace("minimize: loss", warm).replace("random", "tpe")
    (home.path / "warm.yaml").write_text(text)
    assert "warm-start.from: 'cases' has no trials: it has no search" in home.run(
        "run", "warm.yaml", code=2
    )


def test_what_is_no_number_of_trials_is_told_so(home: Cases) -> None:
    said = home.run("search", "tune", "--more", "x", code=2)
    assert "invalid value for '--more': expected a whole number such as 20, not 'x'" in said


def test_a_search_whose_last_trials_were_canceled_names_what_goes_on_with_it(home: Cases) -> None:
    process = begin_tuning(home, trials=2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130
    out = (home.path / "out").read_text()
    assert "'search tune --more N' goes on with its search later; for a run that --resume" in out
    cut = "2 of 2 trials of search 'hpo' were canceled: 'flux-ensemble search tune --more 2"
    for shown in (out, *(home.run(word, "tune") for word in ("rerun", "status", "why"))):
        assert cut in shown
    (status,) = home.client.status("tune")["ensembles"]
    steps = dict(next_steps([status], lambda *words: " ".join(words)))
    assert steps["search tune --more 2"] == "goes on with its search"


def test_of_a_search_whose_run_was_killed_only_what_goes_on_with_it_is_named(home: Cases) -> None:
    process = begin_tuning(home, trials=9)
    wait(lambda: home.client.status("tune")["ensembles"][0]["jobs"]["active"] == 2)
    process.kill()
    process.wait(timeout=PATIENCE)
    wait(lambda: home.client.status("tune")["ensembles"][0].get("resumable") is True)
    shown = home.run("status", "tune")
    assert "--resume tune.yaml' goes on with it" in shown
    assert "--more" not in shown
    # Its trials wait, as its jobs do.
    (status,) = home.client.status("tune")["ensembles"]
    assert (status["jobs"]["waiting"], status["jobs"]["active"]) == (2, 0)
    (search,) = status["searches"]
    assert (search["active"], search["stock"]) == (0, 9)


def test_a_rerun_of_a_search_that_was_cut_short_names_what_goes_on_with_it(
    home: Cases, tmp_path: Path
) -> None:
    process = begin_tuning(home, trials=9)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130
    said = home.run("rerun", "tune")
    assert "tune: no job but trials of searches failed, ran out of time or was canceled" in said
    left = "7 of 9 trials of search 'hpo' were never run: 'flux-ensemble search tune --more 2"
    assert left in said
    for words in (("status", "tune"), ("why", "tune")):
        assert left in home.run(*words)
    (tmp_path / "gate").unlink()
    home.run("search", "tune", "--more", "2", code=1)
    status = home.client.status("tune")["ensembles"][0]
    assert (status["state"], status["groups"]["case"]["attempts"]) == ("completed", 11)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nothing",), 1, "no ensemble named 'nothing'"),
        (("casse",), 1, "did you mean 'cases'?"),
        (("cases.yaml",), 1, "'cases.yaml' is a document: name its ensemble, 'flux-ensemble rerun"),
        (("cases", "--filter", "job.nope > 1"), 2, "ERROR: filter: a job has no field 'nope'"),
        (("cases", "--filter", "job.params.x >"), 2, "filter: expected an expression such as"),
        (("cases", "--filter", ""), 2, "filter: expected an expression such as"),
        (("cases", "--filter", "job.params.y > 1"), 0, "no job has 'params.y' (did you mean 'par"),
        (("cases", "--failed", "--filter", "job.params.x > 1"), 2, "give one of them"),
        (("cases", "--resume", "--failed"), 2, "--resume chooses no jobs"),
        (("cases", "--detach"), 2, "--detach is for the service in a Flux instance"),
        (("cases", "--export", "cases.yaml"), 2, "--export: "),
        (("cases", "--export", "case.csv"), 2, "case.csv exists: --force replaces it"),
        (("cases", "--export", "best:b.csv"), 2, "keeps no best job"),
        (("cases", "--report", "no/r.html"), 2, "its directory is not there"),
    ],
)
def test_what_cannot_be_run_again_is_said(
    home: Cases, words: tuple[str, ...], code: int, said: str
) -> None:
    (home.path / "case.csv").touch()
    before = home.outcomes()
    assert said in home.run("rerun", *words, code=code)
    assert home.outcomes() == before


def test_what_interrupts_from_elsewhere_is_continued_where_it_was_begun(
    home: Cases, tmp_path: Path
) -> None:
    (tmp_path / "gate").touch()
    (tmp_path / "began-2").unlink()
    (tmp_path / "elsewhere").mkdir()
    words = home.command("rerun", "cases", "--export", "all.csv")
    words[words.index("--state-dir") + 1] = "../state"
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, cwd=tmp_path / "elsewhere", stdout=quiet, stderr=quiet)
    wait((tmp_path / "began-2").exists)
    process.kill()
    process.wait()
    (tmp_path / "gate").unlink()
    (tmp_path / "table").touch()
    again = (tmp_path / "state/cases/again").read_text()
    assert f"--export {tmp_path}/elsewhere/all.csv --resume cases" in again
    done = [sys.executable, "-m", *again.replace("flux-ensemble", "flux_ensemble").split()]
    assert subprocess.run(done, cwd=tmp_path, stdout=quiet).returncode == 0
    assert (tmp_path / "elsewhere/all.csv").exists()
    assert home.outcomes() == [(str(x), "success") for x in (1, 2, 3, 4)]


def test_a_run_of_a_later_version_is_left_alone(home: Cases, tmp_path: Path) -> None:
    (tmp_path / "state/cases/format").write_text('{"format": 99}')
    assert "99" in home.run("rerun", "cases", code=1)
