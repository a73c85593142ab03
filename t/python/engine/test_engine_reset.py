"""The action `reset`: statistics that forget, in rules, requests, snapshots and recoveries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Play, Request, TimerFired, document, on_start, submit
from test_engine_snapshot import Cuts

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.engine.snapshot import dump, restore

RESET = {"name": "reset", "label": "a-fom", "repetitions": "unlimited"}


def played(*rules: dict[str, Any], **given: Any) -> Play:
    return Play(document(rules=[on_start(), *rules], **given))


def memo(play: Play, *values: float, job: int = 1, key: str = "fom") -> None:
    for value in values:
        play.event(job, "memo", **{key: value})


def mean(play: Play) -> dict[str, Any]:
    metrics: dict[str, Any] = play.engine.metrics(play.t)["mean"]
    return metrics


def test_a_reset_forgets_the_values_of_one_metric_of_a_group():
    play = played({"trigger": "job-success", "action": RESET})
    play.begin(1)
    play.begin(2)
    memo(play, 1.0, 3.0)
    memo(play, 5.0, key="err")
    assert mean(play)["a-fom"] == 2.0
    play.end(1)
    assert "a-fom" not in mean(play)
    memo(play, 7.0, job=2)
    assert mean(play)["a-fom"] == 7.0
    assert mean(play)["a-err"] == 5.0
    assert play.engine.metrics(play.t)["count"]["a"]["success"] == 1


@pytest.mark.parametrize(
    ("label", "left"),
    [
        ("a", {"b-duration", "b-pending"}),
        ("a-duration", {"a-pending", "a-fom", "b-duration", "b-pending"}),
        ("a-pending", {"a-duration", "a-fom", "b-duration", "b-pending"}),
        ("b-never", {"a-duration", "a-pending", "a-fom", "b-duration", "b-pending"}),
    ],
)
def test_the_label_is_a_group_or_one_of_its_metrics(label: str, left: set[str]):
    rule = {"trigger": "idle", "group": "b", "action": {"name": "reset", "label": label}}
    after = {"trigger": "job-success", "group": "a", "action": submit("b")}
    metrics = [{"name": "longest", "statistic": "max", "of": "finished"}]
    play = played(after, rule, metrics=metrics)
    for job in (1, 3):
        play.begin(job)
        if job == 1:
            memo(play, 0.5)
        play.end(job)
    assert {name for name, value in mean(play).items() if value is not None} == left
    longest = play.engine.metrics(play.t)["longest"]
    assert (longest["a-duration"] is None) == ("a-duration" not in left)


def test_a_group_goes_before_a_metric_of_a_shorter_one():
    jobs = [{"name": name, "command": "true"} for name in ("a", "a-b")]
    rules = [on_start(), {"trigger": "job-success", "action": {"name": "reset", "label": "a-b"}}]
    play = Play(document(jobs=jobs, rules=rules))
    play.begin(1)
    memo(play, 0.5, key="b")
    play.end(1)
    assert mean(play)["a-b"] == 0.5


def test_the_rules_after_a_reset_see_it_and_it_triggers_none():
    when = 'mean["a-fom"] > 1'
    unlimited = submit("b", repetitions="unlimited")
    play = played(
        {"trigger": "metric", "when": 'not mean["a-fom"] > 0', "action": submit("b")},
        {"trigger": "job-memo", "when": when, "action": unlimited},
        {"trigger": "job-memo", "when": "fom > 9", "action": RESET},
        {"trigger": "job-memo", "when": when, "action": unlimited},
    )
    play.begin(1)
    memo(play, 10.0)
    assert play.submitted("b") == 1
    memo(play, 5.0)
    assert play.submitted("b") == 3


@pytest.mark.parametrize(("first", "fires"), [("reset", 0), ("metric", 2)])
def test_a_metric_rule_sees_what_a_reset_at_the_same_event_leaves(first: str, fires: int):
    reset = {"trigger": "job-memo", "group": "a", "action": RESET}
    action = submit("b", repetitions="unlimited")
    metric = {"trigger": "metric", "name": "mean.a-fom", "when": "> 1", "action": action}
    play = played(*((reset, metric) if first == "reset" else (metric, reset)))
    play.begin(1)
    memo(play, 10.0)
    memo(play, 5.0)
    play.heartbeat()
    assert play.submitted("b") == fires


def test_what_a_heartbeat_counts_as_pending_is_reset_within_it_too():
    heartbeat = {"trigger": "heartbeat", "action": {**RESET, "label": "a-pending"}}
    when = 'max["a-pending"] > 50'
    more = [
        {"trigger": "heartbeat", "when": when, "action": submit("b", repetitions="unlimited")}
        for _ in range(2)
    ]
    play = played(more[0], heartbeat, more[1], logging={"heartbeat": 10})
    play.event(1, "submit")
    play.event(1, "validate")
    play.t += 60
    play.event(1, "start")
    play.post(TimerFired(play.tick(), "heartbeat"))
    assert play.submitted("b") == 1


def test_a_reset_is_in_the_log_with_how_many_metrics_had_values():
    play = played({"trigger": "job-success", "action": {**RESET, "label": "a"}})
    play.begin(1)
    memo(play, 0.5)
    play.end(1)
    play.run(2)
    outcomes = [one["streams"] for one in play.recorded("outcome") if "streams" in one]
    assert outcomes == [3, 2]


def test_a_reset_can_be_asked_for():
    play = played()
    play.begin(1)
    memo(play, 0.5)
    action = {"name": "reset", "label": "a-fom"}
    play.post(Request(play.tick(), 1, "action", {"action": action}))
    assert "a-fom" not in mean(play)


def test_a_reset_makes_room_for_other_memo_keys():
    play = played({"trigger": "job-memo", "when": "full > 0", "action": {**RESET, "label": "a"}})
    play.begin(1)
    for number in range(1001):
        memo(play, 1.0, key=f"k{number}")
    assert "a-k1000" not in mean(play)
    memo(play, 1.0, key="full")
    assert "a-full" not in mean(play)
    play = played({"trigger": "job-memo", "when": "k1000 > 0", "action": {**RESET, "label": "a"}})
    play.begin(1)
    for number in range(1002):
        memo(play, 1.0, key=f"k{number}")
    assert mean(play)["a-k1001"] == 1.0


def test_resets_survive_a_recovery_at_any_event():
    play = played({"trigger": "job-memo", "when": "fom > 5", "action": {**RESET, "label": "a"}})
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    play.begin(1)
    memo(play, 1.0, 9.0, 2.0, 3.0, 8.0, 7.0, 1.0)
    play.end(1)
    cuts.check()


def test_a_reset_is_in_what_is_kept_between_two_snapshots():
    play = played({"trigger": "job-memo", "when": "fom > 5", "action": RESET})
    play.engine.stats.keep_values()
    play.begin(1)
    memo(play, 1.0, 2.0, 9.0, 4.0)
    kept = play.engine.stats.take_values()
    assert [one for one in kept if one[1] == "fom"] == [["a", "fom", [None, 4.0]]]
    snapshot = json.loads(json.dumps(dump(play.engine)))
    with pytest.raises(ValueError, match="'x' is not a finite number"):
        restore(play.engine.spec, snapshot, [[["a", "f", ["x"]]]])


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ({"name": "reset"}, "the action 'reset' needs a 'label', a job group or GROUP-VARIABLE"),
        ({"name": "reset", "label": "fom"}, "label: no job group for 'fom': expected GROUP-VARI"),
        ({"name": "reset", "label": "a-running"}, "label: 'a-running' is computed at each heart"),
        ({"name": "reset", "label": "a", "count": 1}, "'count' means nothing to the action 'res"),
    ],
)
def test_what_is_wrong_with_a_reset_is_said(action: dict[str, Any], sentence: str):
    with pytest.raises(DocumentError) as caught:
        load_mapping(document(rules=[{"trigger": "start", "action": action}]))
    assert sentence in str(caught.value)
