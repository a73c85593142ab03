"""The best job so far: in conditions, in actions, in the metrics and after a recovery."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Play, SubmitJobs, document, on_start, submit

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.engine.snapshot import dump, restore

JOBS = [
    {"name": "a", "command": "run {x}", "params": {"x": [3, 9, 4]}},
    {"name": "b", "command": "refine {x}", "params": {"x": 0}},
]
BEST = {"best": {"name": "top", "of": "a-fom", "mode": "max"}}


def played(*rules: dict[str, Any], best: dict[str, Any] = BEST) -> Play:
    return Play(document(jobs=JOBS, metrics=[best], rules=[on_start(), *rules]))


def test_a_rule_on_the_best_value_fires_when_it_has_become_better() -> None:
    action = submit("b", params={"x": "{best.top.params.x}"}, repetitions="unlimited")
    p = played({"trigger": "metric", "when": "best.top.value > 1", "action": action})
    for job, fom in ((1, 0.5), (2, 2.5), (3, 2.0)):
        p.begin(job)
        p.event(job, "memo", fom=fom)
    (command,) = (one for one in p.of(SubmitJobs) if one.group == "b")
    assert command.params == {"x": 9}
    assert p.engine.metrics(p.t)["best"] == {"top": {"value": 2.5, "job": 2, "params": {"x": 9}}}


def test_the_smallest_can_be_the_best_and_a_duration_is_a_value_too() -> None:
    p = played(best={"best": {"name": "top", "of": "a-duration", "mode": "min"}})
    for job, seconds, status in ((1, 5, 0), (2, 3, 0), (3, 1, 256)):
        p.begin(job)
        p.t += seconds
        p.end(job, status)
    # The quickest failed.
    assert p.engine.metrics(p.t)["best"]["top"]["job"] == 2


def test_it_is_kept_in_snapshots() -> None:
    p = played()
    p.begin(1)
    p.event(1, "memo", fom=0.5)
    kept = json.loads(json.dumps(dump(p.engine)))
    engine = restore(p.engine.spec, kept, [[["a", "pending", [0.002]], ["a", "fom", [0.5]]]])
    assert engine.metrics(p.t)["best"] == p.engine.metrics(p.t)["best"]


def test_before_there_is_one_a_condition_does_not_hold_and_an_action_fails() -> None:
    p = played(
        {"trigger": "job-start", "when": "best.top.value < 1", "action": submit("b")},
        {"trigger": "job-start", "action": submit("b", params={"x": "{best.top.job}"})},
    )
    p.begin(1)
    assert p.submitted("b") == 0
    (outcome,) = (one for one in p.recorded("outcome") if not one["ok"])
    assert outcome["reason"] == "submit b: params: {best.top.job} has no value"


@pytest.mark.parametrize(
    ("best", "when", "sentence"),
    [
        ({"name": "top", "of": "c-fom"}, "count.a.success > 1", "no job group for 'c-fom'"),
        ({"name": "top", "of": "a-fom"}, "best.top.worth > 1", "no field 'best.top.worth'"),
        ({"name": "top", "of": "a-fom"}, "best.top.params.y > 1", "have no parameter 'y'"),
        ({"name": "top", "of": "a-fom"}, "best.last.value > 1", "no metric named 'best.last"),
        ({"name": "top"}, "count.a.success > 1", "the key 'of' is missing"),
    ],
)
def test_what_is_wrong_with_it_is_said(best: dict[str, Any], when: str, sentence: str) -> None:
    rules = [{"trigger": "metric", "when": when, "action": submit("b")}]
    with pytest.raises(DocumentError) as caught:
        load_mapping(document(jobs=JOBS, metrics=[{"best": best}], rules=rules))
    assert sentence in str(caught.value)
