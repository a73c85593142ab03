"""What a report says of searches."""

from __future__ import annotations

import re
from typing import Any

import pytest
from browser import browsing
from reports import simulated, write

from flux_ensemble.report.gather import gather
from flux_ensemble.report.searches import course, searches

SEARCHES: dict[str, Any] = {
    "name": "tune",
    "search": [
        {
            "id": "one",
            "group": "trial",
            "variables": {"x": {"low": 0, "high": 1}},
            "minimize": "loss",
            "sampler": "random",
            "trials": 30,
            "parallel": 4,
            "stop": {"policy": "asha", "step": "epoch", "eta": 2},
        },
        {
            "id": "two",
            "group": "both",
            "variables": {"y": {"low": 0, "high": 1}},
            "minimize": "loss",
            "maximize": "gain",
            "sampler": "random",
            "trials": 25,
            "parallel": 4,
        },
        {
            "id": "none",
            "group": "failing",
            "variables": {"z": [1, 2]},
            "minimize": "loss",
            "sampler": "random",
            "trials": 3,
        },
    ],
    "jobs": [
        {"name": "trial", "command": "x {x}", "predict": ["x"]},
        {"name": "both", "command": "y {y}"},
        {"name": "failing", "command": "z {z}"},
    ],
    "rules": [
        {"trigger": "start", "action": {"name": "search", "label": id}}
        for id in ("one", "two", "none")
    ],
    "simulate": {
        "trial": {
            "duration": 60,
            "memo": {"loss": {"expression": "(x - 0.5) ** 2", "step": "epoch", "steps": 4}},
        },
        "both": {
            "duration": 60,
            "memo": {"loss": {"expression": "y"}, "gain": {"expression": "y ** 2"}},
        },
        "failing": {"duration": 60, "failure-rate": 1},
    },
}


def test_a_report_has_trials_by_state_the_best_and_the_course_of_the_best_value() -> None:
    pytest.importorskip("optuna")
    source = simulated(SEARCHES)
    run = gather(source, lambda entry, t: "")
    one, two, none = source.status["searches"]
    html = "".join(searches(run, "e0"))
    assert f">{one['complete']}</td>" in html
    assert f">{one['pruned']}</td>" in html
    # The course ends with the best of the status, and those that were stopped are not in it.
    values = run.jobs.trials["trial"]
    assert len(values) == one["complete"] < 30
    assert min(value for _, value in values) == pytest.approx(one["best"][0]["value"], rel=1e-4)
    assert html.count("<svg") == 1
    assert f"and to the end, after {len(values)}." in html
    # All of the front, of which the first are shown.
    assert f"Pareto front of {two['front_size']} trials: minimize loss, maximize gain" in html
    assert "; the first 20" in html
    assert "No trial is complete" in html
    assert none["failed"] == 3


def test_the_course_of_what_is_better_and_better_is_thinned_and_keeps_its_ends() -> None:
    pytest.importorskip("optuna")
    source = simulated(SEARCHES)
    run = gather(source, lambda entry, t: "")
    run.jobs.trials["trial"] = [(float(t), 1e6 / (t + 1)) for t in range(5000)]
    html = next(part for part in searches(run, "e0") if "<svg" in part)
    lines = re.findall(r'<path class="best" d="(M[HMV 0-9.]*)"', html)
    assert 100 < sum(line.count("V") for line in lines) <= 401
    # Each goes on where the one before has ended.
    ends = [re.findall(r"[\d.]+", line)[-2:] for line in lines]
    assert [re.findall(r"[\d.]+", line)[:2] for line in lines[1:]] == ends[:-1]
    assert ">200</text>" in html
    assert ">1e+06</text>" in html
    assert len(course([value for _, value in run.jobs.trials["trial"]], "minimize")) == 5000


def test_no_search_no_section() -> None:
    value = {
        "name": "plain",
        "jobs": [{"name": "a", "command": "x"}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    assert not list(searches(gather(simulated(value), lambda entry, t: ""), "e0"))


def test_a_browser_draws_the_course_and_says_nothing(tmp_path: Any) -> None:
    pytest.importorskip("optuna")
    file = write(tmp_path / "tune.html", simulated(SEARCHES))
    with browsing() as browser:
        for width in (1280, 400):
            page = browser.open(file, width=width)
            assert page.complaints() == []
            box = "document.querySelector('svg.course').getBoundingClientRect()"
            assert 200 < page.run(f"return {box}.width") <= width
            root = "document.documentElement"
            assert page.run(f"return {root}.scrollWidth - {root}.clientWidth") == 0
