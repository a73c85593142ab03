"""What a report says of searches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser import browsing
from reports import simulated, write

from flux_ensemble.report.gather import gather
from flux_ensemble.report.searches import _drawing, course, searches

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
            "variables": {"z": [1, 2, 3]},
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
    assert min(value for _, _, value in values) == pytest.approx(one["best"][0]["value"], rel=1e-4)
    assert html.count("<svg") == 1
    assert f"and to the end, after {len(values)}." in html
    # All of the front, of which the first are shown.
    assert f"Pareto front of {two['front_size']} trials: minimize loss, maximize gain" in html
    assert "; the first 20" in html
    assert "No trial is complete" in html
    assert none["failed"] == 3


@pytest.mark.parametrize(
    ("of_ensemble", "shown"),
    [({"state": "canceled"}, "canceled"), ({"state": "failed", "resumable": True}, "interrupted")],
)
def test_a_search_that_its_ensemble_ended_has_the_state_of_the_ensemble(
    of_ensemble: dict[str, Any], shown: str
) -> None:
    pytest.importorskip("optuna")
    run = gather(simulated(SEARCHES), lambda entry, t: "")
    status: Any = run.source.status
    status["searches"][0] |= {"state": "running", "reason": ""}
    status |= of_ensemble
    table = next(iter(searches(run, "e0")))
    assert f"<td>{shown}</td>" in table
    assert "running" not in table


def test_the_course_of_what_is_better_and_better_is_thinned_and_keeps_its_ends() -> None:
    pytest.importorskip("optuna")
    source = simulated(SEARCHES)
    run = gather(source, lambda entry, t: "")
    run.jobs.trials["trial"] = [(t, float(t), 1e6 / (t + 1)) for t in range(5000)]
    html = next(part for part in searches(run, "e0") if "<svg" in part)
    assert "The axis is logarithmic." in html
    lines = re.findall(r'<path class="best" d="(M[HMV 0-9.]*)"', html)
    assert 100 < sum(line.count("V") for line in lines) <= 401
    # Each goes on where the one before has ended.
    ends = [re.findall(r"[\d.]+", line)[-2:] for line in lines]
    assert [re.findall(r"[\d.]+", line)[:2] for line in lines[1:]] == ends[:-1]
    assert ">200</text>" in html
    assert ">1e+06</text>" in html
    assert len(course([value for _, _, value in run.jobs.trials["trial"]], "minimize")) == 5000


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1234567.0, 6.678221234e-11], ["6.68e-11", "1.23e+06"]),
        ([-6.678221234e-111, -7.1e-5], ["-7.1e-05", "-6.68e-111"]),
        ([100.02, 100.01], ["100.01", "100.02"]),
        ([1.0000002, 1.0000001], ["1", "1"]),
    ],
)
def test_labels_of_a_course_have_no_more_digits_than_they_need(
    values: list[float], labels: list[str]
) -> None:
    drawing = str(_drawing(course(values, "minimize"), len(values), "words"))
    assert re.findall(r">([^<]*)</text>", drawing)[:2] == labels


def test_no_label_of_a_course_is_cut_off(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    loss = {"expression": "-1.23456e-101 - 1e-106 * x"}
    document = {**SEARCHES, "search": [{**SEARCHES["search"][0], "stop": None}]}
    document["search"][0].pop("stop")
    document["rules"] = SEARCHES["rules"][:1]
    document["jobs"] = SEARCHES["jobs"][:1]
    document["simulate"] = {"trial": {"duration": 60, "memo": {"loss": loss}}}
    with browsing() as browser:
        page = browser.open(write(tmp_path / "a.html", simulated(document)))
        left = page.run(
            "return [...document.querySelectorAll('.course text')].map((one) => one.getBBox().x)"
        )
    assert len(left) == 4
    assert min(left) >= 0


#: Searches whose trials know what matters: x twice as much as y, and z and the words not at all.
MATTERS: dict[str, Any] = {
    "name": "matters",
    "seed": 3,
    "search": [
        {
            "id": "one",
            "group": "trial",
            "variables": {
                "x": {"low": 0, "high": 1},
                "y": {"low": 0, "high": 1},
                "z": {"low": 0, "high": 1},
                "words": ["some", "others", "none"],
            },
            "minimize": "loss",
            "maximize": "gain",
            "sampler": "random",
            "trials": 60,
            "parallel": 8,
        }
    ],
    "jobs": [{"name": "trial", "command": "t {x} {y} {z} {words}"}],
    "rules": [{"trigger": "start", "action": {"name": "search", "label": "one"}}],
    "simulate": {
        "trial": {
            "duration": 60,
            "memo": {"loss": {"expression": "2 * x + y"}, "gain": {"expression": "y"}},
        }
    },
}


def importance_tables(document: dict[str, Any]) -> dict[str, list[tuple[str, int]]]:
    """The tables of importances: caption -> the parameters with their percentages."""
    html = "".join(searches(gather(simulated(document), lambda entry, t: ""), "e0"))
    return {
        caption: [
            (name, int(share))
            for name, share in re.findall(r'row">(\w+)</th><td>.*?</svg>(\d+)%</td>', rows)
        ]
        for caption, rows in re.findall(r"<span>(Importance [^<]*)</span>(.*?)</table>", html)
    }


def test_each_objective_has_the_importances_of_the_parameters() -> None:
    pytest.importorskip("optuna")
    tables = importance_tables(MATTERS)
    assert [*tables] == [
        f"Importance of the parameters for {key}, from 60 trials" for key in ("loss", "gain")
    ]
    loss, gain = (dict(one) for one in tables.values())
    assert list(loss)[:2] == ["x", "y"]
    assert loss["x"] > 60 > 30 > loss["y"] > 5 > max(loss["z"], loss["words"])
    assert gain["y"] > 90
    assert max(gain[name] for name in ("x", "z", "words")) < 20


def test_each_objective_has_slices_in_the_order_of_importance() -> None:
    pytest.importorskip("optuna")
    run = gather(simulated(MATTERS), lambda entry, t: "")
    html = "".join(searches(run, "e0"))
    tables = [[name for name, _ in of] for of in importance_tables(MATTERS).values()]
    assert [(one.group, one.key, one.mode, list(one.params)) for one in run.slices] == [
        ("trial", key, mode, names)
        for key, mode, names in zip(("loss", "gain"), ("min", "max"), tables, strict=True)
    ]
    assert re.findall(r'data-slices="(\d)"', html) == ["0", "1"]
    assert "around the one with the highest gain" in html
    # The page may be made again.
    assert "".join(searches(run, "e0")) == html
    assert len(run.slices) == 2


@pytest.mark.parametrize(
    "change", [{"trials": 9}, {"variables": {"x": {"low": 0, "high": 1}}}], ids=["few", "one"]
)
def test_of_few_trials_or_a_single_parameter_there_are_no_importances(
    change: dict[str, Any],
) -> None:
    pytest.importorskip("optuna")
    (search,) = MATTERS["search"]
    few = {**MATTERS, "search": [{**search, **change}]}
    if "variables" in change:
        few["jobs"] = [{"name": "trial", "command": "t {x}"}]
        few["simulate"] = {
            "trial": {
                "duration": 60,
                "memo": {key: {"expression": "x"} for key in ("loss", "gain")},
            }
        }
    assert importance_tables(few) == {}


def test_no_search_no_section() -> None:
    value = {
        "name": "plain",
        "jobs": [{"name": "a", "command": "x"}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
    }
    assert not list(searches(gather(simulated(value), lambda entry, t: ""), "e0"))


def test_a_state_that_no_trial_is_in_is_no_column_and_the_table_fits_on_paper(
    tmp_path: Any,
) -> None:
    pytest.importorskip("optuna")
    file = write(tmp_path / "matters.html", simulated(MATTERS))
    with browsing() as browser:
        page = browser.open(file, width=718)
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        headings = page.run(
            "return [...document.querySelectorAll('#e0-searches table')[0].tHead.rows[0].cells]"
            ".map(cell => [cell.innerText, cell.clientHeight])"
        )
    assert [text for text, _ in headings] == [
        "Search", "State", "Sampler", "Ended", "Complete", "Failed", "Time per suggestion",
        "Idle slot time",
    ]  # fmt: skip
    # No heading has more lines than words, as "Sampl" and "er" would.
    assert len({height for _, height in headings}) == 1


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
