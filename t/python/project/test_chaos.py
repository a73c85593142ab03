"""The check of the record of jobs against the queue's own journal finds whatever is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.features.search.suggester import suggesting

FAULT = Path(__file__).parents[2] / "fault"
sys.path.append(str(FAULT))

import search_kinds  # noqa: E402
import told  # noqa: E402
import verify  # noqa: E402
from witness import Job  # noqa: E402


def job(id: int, *events: tuple[str, float, dict[str, Any]], ranks: tuple[str, ...] = ()) -> Job:
    """A job by its events."""
    made = Job(id)
    made.tag = {"name": "e", "run": 1, "group": "a", "rule": "r", "firing": 0, "index": id - 1}
    made.ranks = list(ranks)
    for name, t, context in events:
        made.take({"name": name, "timestamp": t, "context": context})
    return made


def jobs() -> list[Job]:
    """One on three nodes, one that was killed, one that never began, one whose shell tells that."""
    ran: list[tuple[str, float, dict[str, Any]]]
    ran = [("submit", 1.0, {}), ("alloc", 1.5, {}), ("start", 2.0, {})]
    cancel = ("exception", 2.5, {"type": "cancel", "severity": 0})
    return [
        job(1, *ran, ("finish", 3.0, {"status": 0}), ("clean", 4.0, {}), ranks=("0,2", "3")),
        job(2, *ran, ("finish", 3.0, {"status": 9}), ("clean", 4.0, {}), ranks=("1",)),
        job(3, ("submit", 1.0, {}), cancel, ("clean", 4.0, {})),
        job(4, *ran, ("finish", 3.0, {"status": 137 << 8}), ("clean", 4.0, {}), ranks=("1",)),
    ]


def rows() -> list[dict[str, Any]]:
    """What the record has to say of them."""
    base = {"group": "a", "rule": "r", "firing": 0, "state": "inactive", "t_submit": 1.0}
    ran = {**base, "t_alloc": 1.5, "t_run": 2.0, "t_end": 3.0}
    unborn = {"nnodes": None, "t_alloc": None, "t_run": None, "t_end": 4.0}
    well, killed, neither = (
        {"returncode": code, "signal": signal}
        for code, signal in ((0, None), (-9, 9), (None, None))
    )
    return [
        {**ran, **well, "id": 1, "index": 0, "outcome": "success", "nnodes": 3},
        {**ran, **killed, "id": 2, "index": 1, "outcome": "failed", "nnodes": 1},
        {**base, **unborn, **neither, "id": 3, "index": 2, "outcome": "canceled"},
        {**ran, **killed, "id": 4, "index": 3, "outcome": "failed", "nnodes": 1},
    ]


def problems(record: list[dict[str, Any]]) -> list[str]:
    findings = verify.Findings()
    verify.check_record(jobs(), record, findings)
    return findings.problems


def test_a_record_that_says_what_the_queue_says_is_right() -> None:
    assert problems(rows()) == []


def test_a_job_that_is_not_there_or_there_twice_is_found() -> None:
    assert problems(rows()[1:]) == ["1 jobs that are not in the record: 1"]
    assert problems([*rows(), rows()[1]]) == ["1 jobs twice in the record: 2"]
    more = [*rows(), {**rows()[0], "id": 7}]
    assert problems(more) == ["1 jobs of the record that never were: 7"]


@pytest.mark.parametrize("key", sorted(rows()[0].keys() - {"id"}))
def test_each_value_that_differs_is_found(key: str) -> None:
    for number, row in enumerate(rows()):
        record = rows()
        value = row[key]
        record[number][key] = "other" if isinstance(value, str) else (value or 0) + 1
        (problem,) = problems(record)
        assert problem.startswith(f"job {number + 1} in the record: {key}: expected {value!r}, ")


# -- searches -------------------------------------------------------------------------------

SEARCHING = {
    "name": "e",
    "seed": 7,
    "search": [
        {
            "id": "s", "group": "t", "variables": {"x": {"low": 0, "high": 1}}, "minimize": "loss",
            "sampler": "qmc", "trials": 4, "parallel": 4,
            "stop": {"policy": "asha", "step": "epoch", "eta": 2},
        }
    ],
    "jobs": [{"name": "t", "command": "true {x}"}],
    "rules": [{"trigger": "start", "action": {"name": "search", "label": "s"}}],
}  # fmt: skip

Searched = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]


def trial(number: int, loss: float, *, stopped: bool) -> Job:
    """The job of a trial with one epoch."""
    t = 2.0 + number / 10
    memo = ("memo", t, {"epoch": 1, "loss": loss})
    cancel = [("exception", t + 1, {"type": "cancel"})] if stopped else []
    made = job(number + 1, memo, *cancel, ("finish", t + 2, {"status": 15 if stopped else 0}))
    made.tag = {**(made.tag or {}), "rule": "search:s", "firing": number, "index": 0}
    return made


def searched() -> Searched:
    """What a status, a record and a log say of them."""
    (given,) = searches_of(load_mapping(SEARCHING))
    request = {"count": 4, "points": [], "attributes": {}, "ends": []}
    points = suggesting(described(given, 7)).answer(request)["points"]
    state = {
        "id": "s",
        "state": "done",
        "reason": "trials",
        "complete": 2,
        "failed": 0,
        "pruned": 2,
    }
    rows = [
        {
            "id": number + 1,
            "group": "t",
            "trial": number,
            "params": point["params"],
            "outcome": "canceled" if number in (1, 3) else "success",
        }
        for number, point in enumerate(points)
    ]
    stops = [{"name": "pruned", "context": {"search": "s", "trial": number}} for number in (1, 3)]
    return [state], rows, stops


def objections(found: Searched) -> list[str]:
    losses = (0.5, 0.7, 0.4, 0.6)
    jobs = [trial(number, loss, stopped=number % 2 > 0) for number, loss in enumerate(losses)]
    problems, _ = told.check(SEARCHING, *found, jobs)
    return problems


def test_searches_that_are_as_their_jobs_have_it_are_right() -> None:
    assert objections(searched()) == []


@pytest.mark.parametrize("what", ["point", "row", "order", "stop", "count", "state"])
def test_whatever_is_wrong_with_a_search_is_found(what: str) -> None:
    state, rows, stops = searched()
    match what:
        case "point":
            rows[2]["params"] = rows[1]["params"]
        case "row":
            rows.pop()
        case "order":
            stops.reverse()
        case "stop":
            stops.pop()
        case "count":
            state[0]["complete"] += 1
        case "state":
            state[0]["reason"] = "exhausted"
    assert len(objections((state, rows, stops))) == 1


# -- kinds of searches ----------------------------------------------------------------------


def of_kinds(directory: Path, **changes: Any) -> search_kinds.Outcome:
    """Two trials of a search, one that is stopped, and a member of a population.

    Args:
        directory: for what the jobs noted.
        changes: of the rows, the status and the notes.
    """
    directory.mkdir(exist_ok=True)
    at: Any = {"params": {"x": 0.25}, "outcome": "success", "index": 0}
    rows = [
        {**at, "group": "where", "trial": 0, "outcome": "interrupted"},
        {**at, "group": "where", "trial": 0},
        {**at, "group": "where", "trial": 1, "params": {"x": 0.5}},
        {**at, "group": "patience", "trial": 0, "outcome": "canceled", "trial_state": "pruned"},
        {**at, "group": "population", "params": {"x": 0.25, "round": 0, "member": 2}},
    ]
    search = {"id": "where", "state": "done", "reason": "trials", "trials": 2}
    search |= {"complete": 2, "failed": 0, "canceled": 0, "best": [{"trial": 1, "value": 0.5}]}
    rows += changes.get("more", [])
    for place, change in changes.get("rows", {}).items():
        rows[place] |= change
    notes = changes.get("notes", ['["where", {"x": 0.25}]', '["where", {"x": 0.5}]'])
    (directory / "done").write_text("\n".join(notes))
    status = {"state": "completed", "searches": [{**search, **changes.get("search", {})}]}
    stops = [{"search": "patience", "trial": 0}, {"search": "percentile", "trial": 1}]
    entries = [{"name": "pruned", "context": one} for one in changes.get("stops", stops)]
    return search_kinds.outcome(directory, status, rows, entries)


def test_an_outcome_is_that_of_its_control_however_often_jobs_were_interrupted(
    tmp_path: Path,
) -> None:
    again = [{"group": "where", "trial": 1, "index": 0, "params": {"x": 0.5}}]
    made = of_kinds(tmp_path / "killed", more=[{**again[0], "outcome": "interrupted"}])
    assert made.problems(of_kinds(tmp_path / "control")) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": {2: {"params": {"x": 0.75}}}}, "parameters of ('where', 1, 0)"),
        ({"rows": {0: {"params": {"x": 0.75}}}}, "parameters of ('where', 0, 0)"),
        ({"rows": {4: {"params": {"x": 1, "round": 0, "member": 2}}}}, "parameters of ('pop"),
        ({"rows": {2: {"outcome": "interrupted"}}}, "('where', 1, 0) has ended 0 times"),
        ({"rows": {0: {"outcome": "success"}}}, "('where', 0, 0) has ended 2 times"),
        ({"rows": {2: {"trial": 7}}}, "parameters of ('where', 7, 0)"),
        ({"stops": []}, "alone: "),
        ({"stops": [{"search": "patience", "trial": 1}]}, "alone: "),
        ({"search": {"failed": 1}}, "searches: "),
        ({"search": {"reason": "failures"}}, "searches: "),
        ({"search": {"best": [{"trial": 0, "value": 0.5}]}}, "best: "),
        ({"notes": ['["where", {"x": 0.25}]']}, "jobs that came to their end"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_is_not_as_in_the_control_is_found(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    found = of_kinds(tmp_path / "killed", **changes).problems(of_kinds(tmp_path / "control"))
    assert any(words in problem for problem in found), found
