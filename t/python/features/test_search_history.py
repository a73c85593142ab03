"""A search in full: what it tries, as a document can have it, and each trial as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from reports import simulated
from test_search_outcomes import DOCUMENT as BOUNDED
from test_search_studies import DOCUMENT

from flux_ensemble.features.search.history import StudyError, in_full, logged_searches
from flux_ensemble.report.source import Source


def full(document: Mapping[str, Any]) -> tuple[Source, list[dict[str, Any]]]:
    """A simulation, and its searches in full."""
    source = simulated(document)
    jobs = list(source.jobs)
    return replace(source, jobs=jobs), [
        in_full(search, [job for job in jobs if job["group"] == search.group])
        for search in logged_searches(source.entries)
    ]


def test_the_variables_are_those_of_a_document() -> None:
    source, told = full(DOCUMENT)
    again = [
        {**entry, "variables": one["variables"]}
        for entry, one in zip(DOCUMENT["search"], told, strict=True)
    ]
    loaded = {"timestamp": 1.0, "name": "load", "context": {"document": {"search": again}}}
    assert logged_searches([loaded]) == logged_searches(source.entries)
    assert told[0]["variables"]["layers"] == {
        "low": 1, "high": 8, "log": False, "integer": True, "step": 2
    }  # fmt: skip
    assert told[0]["variables"]["opt"] == {"choices": ["sgd", "adam"]}
    assert "where" not in told[0]


def test_each_trial_has_its_state_its_point_its_values_and_its_jobs() -> None:
    source, (one, two) = full(DOCUMENT)
    shown: list[Mapping[str, Any]] = source.status["searches"]
    for status, told in zip(shown, (one, two), strict=True):
        trials = told["all_trials"]
        assert [trial["trial"] for trial in trials] == list(range(status["trials"]))
        states = Counter(trial["trial_state"] for trial in trials)
        assert states == {key: status[key] for key in states}
    best = shown[0]["best"][0]
    trial = one["all_trials"][best["trial"]]
    assert (trial["params"], trial["memo"]) == (best["params"], {"loss": best["value"]})
    # What came of a trial that ran again is what counts.
    jobs = {job["id"] for job in source.jobs if job["group"] == "both"}
    assert {id for trial in two["all_trials"] for id in trial["jobs"]} == jobs
    assert any(len(trial["jobs"]) > 1 for trial in two["all_trials"])
    for trial in shown[1]["front"]:
        assert list(two["all_trials"][trial["trial"]]["memo"].values()) == trial["values"]


def test_a_trial_has_no_value_that_its_point_has_not_and_where_is_there() -> None:
    variables = {"y": {"low": 0, "high": 1}, "z": {"choices": [1, None], "when": "y > 0.5"}}
    document = {
        "search": [{**DOCUMENT["search"][1], "variables": variables, "where": "y < 0.9"}],
        "jobs": DOCUMENT["jobs"][1:],
        "rules": DOCUMENT["rules"][1:],
        "simulate": {"both": DOCUMENT["simulate"]["both"]},
    }
    _, (told,) = full({"name": "tune", **document})
    assert told["variables"]["z"] == variables["z"]
    assert told["where"] == ["y < 0.9"]
    points = [trial["params"] for trial in told["all_trials"]]
    assert {("z" in point) == (point["y"] > 0.5) for point in points} == {True}
    assert {point.get("z", 0) for point in points} == {0, 1, None}


@pytest.mark.parametrize("repeats", [1, 3])
def test_constraints_are_judged_by_what_a_trial_published(repeats: int) -> None:
    (given,) = BOUNDED["search"]
    source, (told,) = full({**BOUNDED, "search": [{**given, "repeats": repeats}]})
    (shown,) = source.status["searches"]
    trials = told["all_trials"]
    states = Counter(trial["trial_state"] for trial in trials)
    assert states == {"complete": shown["complete"], "infeasible": shown["infeasible"]}
    assert {len(trial["jobs"]) for trial in trials} == {repeats}
    for trial in trials:
        assert list(trial["memo"]) == ["loss", "mass"]
        assert (trial["memo"]["mass"] > 0.5) == (trial["trial_state"] == "infeasible")


def test_a_trial_that_has_published_nothing_has_no_values() -> None:
    (search,) = logged_searches([
        {"timestamp": 1.0, "name": "load", "context": {"document": BOUNDED}}
    ])  # fmt: skip
    job = {"id": 5, "params": {"x": 0.5}, "trial": 0, "trial_state": "active"}
    memo = {"loss": True, "mass": float("nan")}
    (trial,) = in_full(search, [{**job, "memo": memo}, {**job, "trial": None}])["all_trials"]
    assert (trial["trial_state"], trial["memo"]) == ("active", {"loss": None, "mass": None})


def test_a_document_that_cannot_be_read_any_more_is_said() -> None:
    (given,) = BOUNDED["search"]
    odd = {"search": [{**given, "sampler": "of-a-later-version"}]}
    with pytest.raises(StudyError, match=r"its document cannot be read again: .*sampler"):
        logged_searches([{"timestamp": 1.0, "name": "load", "context": {"document": odd}}])
