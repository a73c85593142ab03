"""Rules on drift and anomalies: when they fire, for which job, and after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from play import CallCustom, CancelJobs, JobEvent, Play, document, on_start, submit
from test_engine_snapshot import cut_play

from flux_ensemble.engine.rule_reasons import why

UNLIMITED = {"repetitions": "unlimited"}
#: At least two values, of which the last is more than 1 above their mean.
DRIFT = {
    "trigger": "drift",
    "name": "a-x",
    "detector": {
        "page-hinkley": {"min-instances": 2, "delta": 0, "threshold": 1, "alpha": 1, "mode": "up"}
    },
}
#: Beyond three values or more before.
ANOMALY = {
    "trigger": "anomaly",
    "name": "a-x",
    "detector": {"quantile": {"q": 0.99, "warm-up": 3, "mode": "both"}},
}
JOBS = [
    {"name": "a", "command": "run {p}", "params": {"p": [10, 20]}},
    {"name": "b", "command": "run {p}", "params": {"p": 0}},
]


def given(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return document(jobs=JOBS, rules=[on_start(), *rules], **more)


def publish(play: Play, values: Iterable[Any], job: int = 1, key: str = "x") -> None:
    """The job, which has begun, publishes values one after the other."""
    for value in values:
        play.event(job, "memo", **{key: value})


def begun(*rules: dict[str, Any], **more: Any) -> Play:
    """Jobs 1 and 2 of group a run."""
    play = Play(given(*rules, **more))
    for job in (1, 2):
        play.begin(job)
    return play


def causes(play: Play, rule: str = "rule-1") -> list[Any]:
    return [entry["cause"] for entry in play.recorded("fire") if entry["rule"] == rule]


def test_a_drift_fires_at_the_value_that_shows_it_with_the_job_that_published_it():
    play = begun({**DRIFT, "action": submit("b", params="trigger")})
    publish(play, [0, 0, 0.1])
    assert play.submitted("b") == 0
    publish(play, [5], job=2)
    (cause,) = causes(play)
    assert cause["job"] == 2
    assert (cause["trigger"], cause["metric"], cause["value"]) == ("job-memo", "a-x", 5)
    assert play.recorded("fire")[-1]["trigger"] == "drift a-x"
    assert play.recorded("fire")[-1]["action"]["params"] == {"p": 20}


def test_an_anomaly_cancels_the_job_that_published_it_alone():
    play = begun({**ANOMALY, "action": {"name": "cancel", "jobs": "trigger", **UNLIMITED}})
    publish(play, [1, 2, 3, 2])
    publish(play, [2, 50], job=2)
    (cancel,) = play.of(CancelJobs)
    assert cancel.jobs == (2,)


def test_a_condition_and_an_expression_are_about_that_job():
    action = submit("b", params={"p": "{job.memo.x * 2}"}, **UNLIMITED)
    play = begun({**ANOMALY, "when": "job.params.p == 20", "action": action})
    publish(play, [1, 1, 1, 50])
    assert causes(play) == []
    publish(play, [60], job=2)
    assert play.recorded("fire")[-1]["action"]["params"] == {"p": 120}


def test_a_custom_function_is_told_the_trigger_the_name_and_the_value():
    call = {"name": "custom", "label": "f"}
    play = begun({**ANOMALY, "action": call}, custom="def f(**kwargs): ...\n")
    publish(play, [1, 1, 1, 50])
    (called,) = play.of(CallCustom)
    event = called.kwargs["event"]
    assert (event["trigger"], event["metric"], event["value"]) == ("anomaly", "a-x", 50)
    assert event["params"] == {"p": 10}


@pytest.mark.parametrize(
    "odd", [float("nan"), float("inf"), -float("inf"), "7", None, [7], True, 10**400]
)
def test_what_is_no_finite_number_is_no_value(odd: Any):
    play = begun({**ANOMALY, "action": submit("b", **UNLIMITED)})
    publish(play, [1, 1, odd, odd, odd])
    # These were the second and the third value otherwise.
    publish(play, [50])
    assert causes(play) == []
    publish(play, [1e300])
    assert len(causes(play)) == 1


def test_durations_and_waits_are_watched_too():
    quick = {"quantile": {"q": 0.5, "warm-up": 1}}
    play = Play(
        given(
            {**ANOMALY, "name": "a-duration", "detector": quick, "action": submit("b")},
            {**ANOMALY, "name": "a-pending", "detector": quick, "action": submit("b")},
        )
    )
    play.run(1)
    play.event(2, "submit")
    play.event(2, "validate")
    play.t += 100
    play.event(2, "start")
    assert [cause["trigger"] for cause in causes(play, "rule-2")] == ["job-start"]
    play.t += 100
    assert causes(play) == []
    play.event(2, "finish", status=0)
    assert [cause["trigger"] for cause in causes(play)] == ["job-finish"]


def test_a_stream_by_value_is_one_of_its_own():
    by = {"of": "a-x", "by": ["p"]}
    rule = {**ANOMALY, "name": "a-x[p=20]", "action": submit("b", **UNLIMITED)}
    play = begun(rule, metrics=[by])
    publish(play, [1, 1, 1, 50])
    publish(play, [9, 9, 9], job=2)
    assert causes(play) == []
    publish(play, [50], job=2)
    assert [cause["job"] for cause in causes(play)] == [2]


def test_rules_of_one_event_act_in_the_order_of_the_document():
    play = begun(
        {"trigger": "metric", "name": "max.a-x", "when": "> 40", "action": submit("b")},
        {**ANOMALY, "action": submit("b")},
        {"trigger": "job-memo", "when": "x > 40", "action": submit("b")},
        {**DRIFT, "action": submit("b")},
    )
    publish(play, [1, 1, 1, 50])
    fired = [entry["rule"] for entry in play.recorded("fire")[1:]]
    assert fired == ["rule-1", "rule-2", "rule-3", "rule-4"]


def test_a_reset_has_a_detector_begin_anew():
    rule = {**ANOMALY, "action": submit("b", **UNLIMITED)}
    play = begun(rule)
    publish(play, [1, 1, 1])
    play.request("action", action={"name": "reset", "label": "a-x"})
    publish(play, [50, 50, 50, 50])
    assert causes(play) == []
    publish(play, [51])
    assert len(causes(play)) == 1


def test_a_disabled_rule_takes_in_values_and_does_not_make_up_for_them():
    play = begun({**ANOMALY, "enabled": False, "action": submit("b", **UNLIMITED)})
    publish(play, [1, 1, 1, 50])
    play.request("rules", id="rule-1", enabled=True)
    publish(play, [1])
    assert causes(play) == []
    publish(play, [1000])
    assert len(causes(play)) == 1


def added_rule(play: Play) -> None:
    """A custom function returns a rule on anomalies of a-x."""
    (call,) = play.of(CallCustom)
    rule = {**ANOMALY, "id": "late", "action": submit("b", **UNLIMITED)}
    play.done(call, returned=[{"kind": "rule", "value": rule}])


LATE = given(
    {"trigger": "job-memo", "when": "x == 2", "action": {"name": "custom", "label": "f"}},
    {**DRIFT, "action": {"name": "reset", "label": "a-x", **UNLIMITED}},
    {**ANOMALY, "action": submit("b", **UNLIMITED)},
    custom="def f(**kwargs): ...\n",
)


def test_a_rule_that_comes_later_takes_in_what_comes_after_it():
    play = Play(LATE)
    play.begin(1)
    publish(play, [3, 2])
    added_rule(play)
    publish(play, [1, 1])
    assert play.engine.stats.watches["late"].since == 2
    # The fifth value of one, and the third of the other.
    publish(play, [0.5])
    assert (len(causes(play, "rule-3")), len(causes(play, "late"))) == (2, 0)
    publish(play, [0.1])
    assert len(causes(play, "late")) == 1


def test_a_restored_engine_goes_on_from_any_value():
    play, cuts = cut_play(LATE)
    play.begin(1)
    publish(play, [1, 2, 0.5, 1, "off", 0.5])
    added_rule(play)
    publish(play, [1, 0.5, 1, 0.7, 1.2])
    # A drift, and so a reset, which makes both of one age.
    publish(play, [50, 1, 1, 1, 1.5, 1, 0.1])
    assert causes(play, "rule-2")
    assert causes(play, "rule-3")
    assert causes(play, "late")
    assert play.engine.stats.watches["late"].since == 0
    cuts.check()


def test_the_same_events_fire_the_same_rules_whatever_else_watches():
    rules = [{**DRIFT, "action": submit("b", **UNLIMITED)} for _ in range(3)]
    play = begun(*rules)
    publish(play, [0, 0, 0, 5, 0, 0, 5, 0, 9, 9, 30])
    first, *others = (
        [cause["value"] for cause in causes(play, f"rule-{number}")] for number in (1, 2, 3)
    )
    assert first
    assert others == [first, first]


def test_an_event_that_is_seen_again_is_taken_in_once():
    play = begun({**ANOMALY, "action": submit("b", **UNLIMITED)})
    publish(play, [1, 1, 1, 50])
    # One of a job that is gone, and of nobody's.
    play.end(1)
    play.post(JobEvent(play.tick(), 1, "memo", {"x": 99}))
    play.post(JobEvent(play.tick(), 77, "memo", {"x": 99}))
    assert len(causes(play)) == 1


def test_why_says_what_it_waits_for():
    play = Play(given({**ANOMALY, "action": submit("b")}, {**DRIFT, "action": submit("b")}))
    play.begin(1)
    publish(play, [1, 1])
    anomaly, drift = why(play.engine, play.t)[1:]
    assert anomaly["waits"] == (
        "waits for an anomaly of a-x: the first 3 values show none, and there are 2"
    )
    assert drift["waits"] == "waits for a drift of a-x, which has had 2 values"
    assert json.dumps(anomaly, allow_nan=False)


def test_why_says_that_no_job_is_left_to_publish_anything():
    # One more group, so that the ensemble goes on.
    jobs = [*JOBS, {"name": "c", "command": "true"}]
    rules = [on_start(), on_start("c"), {**ANOMALY, "action": submit("b")}]
    play = Play(document(jobs=jobs, rules=rules))
    for job in (1, 2):
        play.run(job)
    assert why(play.engine, play.t, "rule-2")[0]["never"] == (
        "no job of group 'a' is active, and no rule that can still fire submits one"
    )
