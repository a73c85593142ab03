"""The features of documents together, in each situation of a local run; t/seams/README.md."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "t"))

from seams import matrix  # noqa: E402
from seams.evidence import Evidence  # noqa: E402
from seams.features import FEATURES, build  # noqa: E402
from seams.judge import Happened, judge  # noqa: E402
from seams.local import SITUATIONS, Local, other_user_can, play  # noqa: E402
from seams.onflux import ON_FLUX  # noqa: E402

#: Situations that happen to one run: each takes the time of some jobs, and each run that of all.
TOGETHER = (
    ("killed", "terminal-closed"),
    ("switched-off", "terminated"),
    ("helper-killed", "reran"),
    ("paused", "simulated"),
    ("other-user", "replayed", "again"),
    ("other-python",),
)

#: Of the run whose evidence is forged.
MIXED = [FEATURES[name] for name in ("lowest", "search", "retries", "failing")]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that a second user can get to."""
    path = Path(tempfile.mkdtemp(prefix="seams-"))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_all_features_come_to_what_they_have_to_where(
    names: Sequence[str], directory: Path
) -> None:
    missing = {name: reason for name in names if (reason := SITUATIONS[name].missing())}
    if missing.keys() == set(names):
        pytest.skip("; ".join(missing.values()))
    situations = [SITUATIONS[name] for name in names if name not in missing]
    features = [
        feature
        for feature in FEATURES.values()
        if all(feature in matrix.together(situation) for situation in situations)
    ]
    problems = play(directory, features, situations, matrix.AT)
    assert matrix.expected(problems, features, situations) == []


def test_each_situation_is_tried() -> None:
    assert {name for names in TOGETHER for name in names} == {*SITUATIONS}


def test_what_a_second_user_can_do_is_noticed(directory: Path) -> None:
    if reason := SITUATIONS["other-user"].missing():
        pytest.skip(reason)
    state = directory / "state"
    state.mkdir()
    (state / "status.json").touch()
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(state / "control"))
        control.listen()
        (state / "control").chmod(0o777)
        assert other_user_can(directory, state) == []
        directory.chmod(0o755)
        found = {"look", "list the state", "read status.json", "pause", "cancel", "terminate"}
        assert set(other_user_can(directory, state)) == found


@pytest.mark.parametrize("name", FEATURES)
def test_names_of_a_feature_begin_with_its_own(name: str) -> None:
    document, _ = build([FEATURES[name]], "study")
    assert {job["name"].split("-")[0] for job in document["jobs"]} <= {name, *_pools(document)}
    assert {rule["id"].split("-")[0] for rule in document["rules"]} <= {name}
    assert {*FEATURES[name].ends, *FEATURES[name].failed} <= {
        job["name"] for job in document["jobs"]
    }


def _pools(document: Mapping[str, Any]) -> set[str]:
    return {pool["name"] for pool in document.get("members", ())}


def test_each_cell_runs_or_says_why_not() -> None:
    table = list(matrix.cells())
    assert len(table) == len(FEATURES) * (len(SITUATIONS) + len(ON_FLUX))
    assert any(not cell.reason for cell in table)
    assert all(cell.reason.count(" ") > 3 for cell in table if cell.reason)


def test_documents_on_flux_have_all_features_that_make_sense_there() -> None:
    for name, situation in ON_FLUX.items():
        rows = [row.split("+") for row in matrix.rows_on_flux(name)]
        assert {feature for row in rows for feature in row} == {
            feature.name for feature in matrix.together(situation)
        }


def test_what_is_known_to_be_wrong_and_is_not_any_more_is_a_problem() -> None:
    known = matrix.Known("sweep", "killed", "there is no best", "the best is not known")
    features, situations = [FEATURES["sweep"]], [SITUATIONS["killed"]]
    assert matrix.expected(["there is no best"], features, situations, [known]) == []
    (problem,) = matrix.expected([], features, situations, [known])
    assert "the best is not known" in problem
    assert matrix.expected(["else"], features, [SITUATIONS["again"]], [known]) == ["else"]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """What is known of a run in which all is well."""
    local = Local(tmp_path_factory.mktemp("seams"), MIXED)
    ((seen, _),) = local.play([], [])
    return seen


def _status(seen: Evidence, **fields: Any) -> Evidence:
    return replace(seen, status={**seen.status, **fields})


def _group(seen: Evidence, name: str, **counts: int) -> Evidence:
    groups = seen.status["groups"]
    return _status(seen, groups={**groups, name: {**groups[name], **counts}})


def _row(seen: Evidence, number: int, **fields: Any) -> Evidence:
    rows = [*seen.rows[:number], {**seen.rows[number], **fields}, *seen.rows[number + 1 :]]
    return replace(seen, rows=rows, jsonl=rows)


def _without_entry(seen: Evidence, name: str) -> Evidence:
    number = next(n for n, entry in enumerate(seen.entries) if entry["name"] == name)
    return replace(seen, entries=[*seen.entries[:number], *seen.entries[number + 1 :]])


def _success(seen: Evidence) -> int:
    return next(n for n, row in enumerate(seen.rows) if row["outcome"] == "success")


def _without_job(seen: Evidence) -> Evidence:
    gone = seen.rows[_success(seen)]["id"]
    return replace(seen, began=[one for one in seen.began if one.id != gone])


#: What could be told wrongly, and how it would be.
FORGED: Mapping[str, Callable[[Evidence], Evidence]] = {
    "a job counts that has not run": _without_job,
    "a job has run that nothing knows": lambda seen: replace(
        seen, rows=seen.rows[1:], jsonl=seen.rows[1:], csv=seen.csv[1:], sqlite=seen.sqlite[1:]
    ),
    "a group has one success more": lambda seen: _group(
        seen, "lowest", success=seen.status["groups"]["lowest"]["success"] + 1
    ),
    "a failed job is given as a success": lambda seen: _row(
        seen, next(n for n, row in enumerate(seen.rows) if row["outcome"] == "failed"),
        outcome="success",
    ),
    "the state is another": lambda seen: _status(seen, state="failed"),
    "the list has another reason": lambda seen: replace(
        seen, listed={**seen.listed, "reason": "none"}
    ),
    "a row is missing in CSV": lambda seen: replace(seen, csv=seen.csv[1:]),
    "a row is missing in SQLite": lambda seen: replace(seen, sqlite=seen.sqlite[1:]),
    "a row is missing in JSON lines": lambda seen: replace(seen, jsonl=seen.jsonl[1:]),
    "the report has one job less": lambda seen: replace(
        seen, report=replace(seen.report, rows=seen.report.rows - 1)
    ),
    "the report shows another best point": lambda seen: replace(
        seen, report=replace(seen.report, best=("17", "x = 17"))
    ),
    "failures counts one more": lambda seen: replace(seen, failures="99 of 100 jobs failed\n"),
    "the worst is the best": lambda seen: replace(
        seen, metrics={**seen.metrics, "best": {"lowest_top": {"value": 6.0, "params": {"x": 6}}}}
    ),
    "a statistic lacks a value": lambda seen: replace(
        seen, metrics={**seen.metrics, "n": {**seen.metrics["n"], "lowest-fom": 3}}
    ),
    "a trial was lost": lambda seen: _status(
        seen, searches=[{**seen.status["searches"][0], "complete": 7}]
    ),
    "the best trial is the second": lambda seen: _status(
        seen, searches=[{**one, "best": one["best"][1:]} for one in seen.status["searches"]]
    ),
    "a firing is not in the log": lambda seen: _without_entry(seen, "fire"),
    "a retry is not in the log": lambda seen: _without_entry(seen, "retry"),
    "the end is not in the log": lambda seen: _without_entry(seen, "finish"),
    "the exit code is 1": lambda seen: replace(
        seen, run=seen.run and replace(seen.run, code=1)
    ),
    "the summary counts otherwise": lambda seen: replace(
        seen, summary={**(seen.summary or {}), "jobs": dict.fromkeys(
            ("success", "failed", "canceled", "timeout", "interrupted"), 1)}
    ),
    "the last words are of no failures": lambda seen: replace(
        seen, run=seen.run and replace(seen.run, out="study: completed after 1s: as usual\n")
    ),
    "the recording is no replay": lambda seen: replace(
        seen, replay=seen.replay and replace(seen.replay, code=1)
    ),
}  # fmt: skip


def test_nothing_is_wrong_with_evidence_that_is_not_forged(evidence: Evidence) -> None:
    assert judge(MIXED, evidence, Happened()) == []


@pytest.mark.parametrize("what", FORGED)
def test_the_judge_notices_where(what: str, evidence: Evidence) -> None:
    before = judge(MIXED, evidence, Happened())
    assert set(judge(MIXED, FORGED[what](evidence), Happened())) - set(before)
