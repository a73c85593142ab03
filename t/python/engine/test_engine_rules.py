"""The engine, event by event: triggers, conditions and how often a rule runs."""

from __future__ import annotations

from typing import Any

import pytest
from play import Finish, Play, StartTimer, StopTimer, SubmitJobs, document, on_start, submit

from flux_ensemble.engine.snapshot import dump


def test_a_start_rule_submits_its_group_once_and_says_so_exactly():
    play = Play(document(rules=[on_start()]))
    assert play.of(SubmitJobs) == [SubmitJobs(1, "a", "rule-0", 0, 0, 2)]
    assert play.recorded("fire") == [
        {
            "rule": "rule-0",
            "firing": 0,
            "trigger": "start",
            "action": {"name": "submit", "label": "a"},
            "cause": {"trigger": "start"},
            "jobs": [{"name": "a", "command": "true", "count": 2, "nodes": 1}],
        }
    ]
    assert play.recorded("outcome") == [{"rule": "rule-0", "firing": 0, "ok": True, "jobs": 2}]


def test_a_count_metric_fires_when_it_equals_the_number():
    rule = {"trigger": "metric", "name": "count.a.success", "when": 2, "action": submit("b")}
    play = Play(document(rules=[on_start(count=3), rule]))
    play.run(1)
    assert play.submitted("b") == 0
    play.run(2)
    assert play.submitted("b") == 1
    play.run(3)
    assert play.submitted("b") == 1
    cause = play.recorded("fire")[1]["cause"]
    assert (cause["metric"], cause["value"], cause["job"]) == ("count.a.success", 2, 2)


def test_a_failed_job_does_not_count_as_a_success():
    rule = {"trigger": "metric", "name": "count.a.success", "when": 1, "action": submit("b")}
    play = Play(document(rules=[on_start(), rule]))
    play.run(1, status=256)
    assert play.submitted("b") == 0
    assert play.engine.stats.counts["a"]["failed"] == 1


@pytest.mark.parametrize(
    ("when", "fires"),
    [("> 1.5", True), ("< 1.5", False), ("mean['a-duration'] > 1", True), ("> 5", False)],
)
def test_a_metric_rule_compares_a_statistic(when, fires):
    rule = {"trigger": "metric", "name": "mean.a-duration", "when": when, "action": submit("b")}
    play = Play(document(rules=[on_start(), rule]))
    play.begin(1)
    play.t += 2.0
    play.end(1)
    assert play.submitted("b") == fires


def test_an_expression_without_a_name_is_evaluated_when_any_metric_in_it_changes():
    when = "count.a.success >= 1 and count.b.failed >= 1"
    rule = {"trigger": "metric", "when": when, "action": submit("a", count=7)}
    play = Play(document(rules=[on_start(), on_start("b"), rule]))
    play.run(1)
    play.run(3, status=1)
    assert play.of(SubmitJobs)[-1].each == 7


@pytest.mark.parametrize(
    ("trigger", "event"),
    [("job-run", "start"), ("job-sched", "priority"), ("job-cleanup", "clean")],
)
def test_older_trigger_names_mean_their_events(trigger, event):
    rule = {"trigger": trigger, "group": "a", "action": submit("b")}
    play = Play(document(rules=[on_start(count=1), rule]))
    assert event in play.engine.wants_events
    play.event(1, "submit")
    play.event(1, "validate")
    if event == "priority":
        play.event(1, "priority")
    else:
        play.event(1, "start")
        if event == "clean":
            play.end(1)
    assert play.submitted("b") == 1


def test_a_job_rule_without_a_group_is_about_every_job_of_the_ensemble():
    rule = {
        "trigger": "job-finish",
        "action": submit("b", repetitions="unlimited", count=1),
        "group": "a",
    }
    play = Play(document(rules=[on_start(), rule]))
    play.run(1)
    play.run(2)
    assert play.submitted("b") == 2


def test_repetitions_and_backoff_skip_matching_evaluations_between_runs():
    rule = {
        "trigger": "job-finish",
        "name": "a",
        "action": submit("b", repetitions=3, backoff=2),
    }
    play = Play(document(rules=[on_start(count=9), rule]))
    fired_at = []
    for job in range(1, 10):
        before = play.submitted("b")
        play.run(job)
        if play.submitted("b") > before:
            fired_at.append(job)
    assert fired_at == [1, 4, 7]


def test_cooldown_is_a_minimum_time_between_runs():
    rule = {
        "trigger": "job-finish",
        "name": "a",
        "action": submit("b", repetitions="unlimited", cooldown="30s"),
    }
    play = Play(document(rules=[on_start(count=4), rule]))
    play.run(1)
    play.run(2)
    assert play.submitted("b") == 1
    play.t += 30
    play.run(3)
    play.run(4)
    assert play.submitted("b") == 2


def test_rules_that_one_event_triggers_act_in_document_order():
    rules = [
        on_start(count=1),
        {"trigger": "metric", "name": "count.a.finished", "when": 1, "action": submit("b")},
        {"trigger": "job-finish", "action": submit("a", count=5)},
        {"trigger": "job-success", "action": submit("b", count=3)},
    ]
    play = Play(document(rules=rules))
    play.begin(1)
    before = len(play.of(SubmitJobs))
    play.event(1, "finish", status=0)
    assert [(one.rule, one.group) for one in play.of(SubmitJobs)[before:]] == [
        ("rule-1", "b"),
        ("rule-2", "a"),
        ("rule-3", "b"),
    ]


def test_a_disabled_rule_does_not_fire_until_it_is_enabled():
    rules = [
        on_start(),
        {"id": "later", "trigger": "job-success", "enabled": False, "action": submit("b")},
        {"trigger": "job-start", "action": {"name": "enable", "label": "later"}},
    ]
    play = Play(document(rules=rules))
    play.run(1)
    assert play.submitted("b") == 1
    assert play.recorded("rule-enabled") == [{"rule": "later", "reason": "rule 'rule-2'"}]


def test_a_metric_rule_is_evaluated_when_it_is_enabled():
    rules = [
        on_start(),
        {
            "id": "later",
            "trigger": "metric",
            "name": "count.a.success",
            "when": ">= 1",
            "enabled": False,
            "action": submit("b"),
        },
        {"trigger": "job-clean", "action": {"name": "enable", "label": "later"}},
    ]
    play = Play(document(rules=rules))
    play.run(1)
    assert play.submitted("b") == 1


def test_a_timer_fires_once_after_or_again_every():
    rules = [
        {"id": "once", "trigger": "timer", "after": "5s", "action": submit("a")},
        {
            "id": "often",
            "trigger": "timer",
            "every": 2,
            "action": submit("b", repetitions=2),
        },
    ]
    play = Play(document(rules=rules))
    assert play.of(StartTimer) == [StartTimer("rule:once", 5, 0), StartTimer("rule:often", 2, 2)]
    for _ in range(3):
        play.timer("rule:often")
    play.timer("rule:once")
    play.timer("rule:once")
    assert (play.submitted("a"), play.submitted("b")) == (2, 2)
    assert play.of(StopTimer) == [StopTimer("rule:often")]


def test_an_ensemble_with_a_timer_to_come_has_not_ended():
    play = Play(document(rules=[{"trigger": "timer", "after": 5, "action": submit("a")}]))
    assert play.engine.state == "running"
    play.timer("rule:rule-0")
    play.run(1)
    play.run(2)
    assert play.engine.state == "completed"


def test_idle_fires_when_the_last_job_of_a_group_is_gone():
    rules = [
        on_start(),
        on_start("b"),
        {"trigger": "idle", "name": "a", "action": submit("b", count=4)},
        {"trigger": "idle", "action": submit("b", count=5)},
    ]
    play = Play(document(rules=rules))
    play.run(1)
    assert play.submitted("b") == 1
    play.run(2)
    assert play.submitted("b") == 5
    for job in range(3, 8):
        play.run(job)
    assert play.submitted("b") == 10


def test_idle_waits_for_jobs_that_another_rule_submits_at_the_same_event():
    rules = [
        on_start(count=1),
        {"trigger": "idle", "name": "a", "action": submit("b")},
        {"trigger": "job-clean", "action": submit("a", count=1)},
    ]
    play = Play(document(rules=rules))
    play.run(1)
    assert play.submitted("b") == 0
    play.run(2)
    assert play.submitted("b") == 1


def test_a_memo_rule_sees_the_keys_of_the_memo_and_its_mean():
    rules = [
        on_start(),
        {
            "trigger": "job-memo",
            "when": "fom > 3 and count.a.submitted == 2",
            "action": submit("b"),
        },
        {"trigger": "metric", "name": "mean.a-fom", "when": "> 3", "action": submit("b", count=2)},
    ]
    play = Play(document(rules=rules))
    play.begin(1)
    play.begin(2)
    play.event(1, "memo", fom=2)
    assert play.submitted("b") == 0
    play.event(2, "memo", fom=8.0, note="text is no number", flag=True)
    assert play.submitted("b") == 3


def test_memo_values_that_are_no_finite_numbers_or_take_reserved_names_are_left_out():
    play = Play(document(rules=[on_start()]))
    play.begin(1)
    play.event(1, "memo", fom=float("inf"), bad=float("nan"), duration=5, pending=5, waiting=1)
    metrics = play.engine.metrics(play.t)
    assert metrics["mean"]["a-duration"] is None
    assert not [name for name in metrics["mean"] if name in ("a-fom", "a-bad")]


def test_a_queue_rule_sees_the_jobs_of_others_and_an_ensemble_rule_does_not():
    rules = [
        {"trigger": "job-success", "scope": "queue", "group": "x", "action": submit("b")},
        {"trigger": "job-success", "action": submit("a")},
    ]
    play = Play(document(rules=rules))
    assert play.engine.wants_foreign
    for name in ("submit", "validate", "start"):
        play.foreign(901, name)
        play.foreign(902, name, job_name="y")
    play.foreign(902, "finish", job_name="y", status=0)
    assert play.submitted("b") == 0
    play.foreign(901, "finish", status=0)
    assert (play.submitted("a"), play.submitted("b")) == (0, 1)
    assert not play.engine.wants_foreign


def test_an_ensemble_that_has_ended_wants_no_jobs_of_others_though_a_rule_is_left():
    rule = {"trigger": "job-success", "scope": "queue", "action": submit("a")}
    play = Play(document(rules=[rule], finish="never"))
    before = play.engine.wants_foreign, play.engine.wants_version
    play.request("terminate")
    assert before[0]
    assert not play.engine.wants_foreign
    assert before[1] != play.engine.wants_version


def test_a_queue_rule_about_a_name_wants_no_events_of_other_jobs():
    rules = [
        {"trigger": "job-finish", "scope": "queue", "group": "x", "action": submit("b")},
        {"trigger": "job-start", "scope": "queue", "group": "y", "action": submit("b")},
        {"trigger": "job-finish", "group": "a", "action": submit("a")},
    ]
    play = Play(document(rules=rules))
    wants = play.engine.wants_job
    assert [wants(name) for name in ("x", "y", "a", None)] == [True, True, False, False]
    play.foreign(901, "submit", job_name="x")
    play.foreign(902, "start", job_name="y")
    assert [wants(name) for name in ("x", "y")] == [True, False]
    assert dump(play.engine)["state"]["foreign"]["id"] == [901]


def test_a_queue_rule_about_no_name_wants_the_events_of_all_jobs():
    rules = [
        {"trigger": "job-finish", "scope": "queue", "group": "x", "action": submit("b")},
        {"trigger": "job-finish", "scope": "queue", "action": submit("b")},
    ]
    engine = Play(document(rules=rules)).engine
    assert all(engine.wants_job(name) for name in ("x", "y", None))


@pytest.mark.parametrize("first", ["validate", "start", "finish", "clean"])
def test_a_foreign_job_that_was_there_before_gets_its_outcome_once_it_is_known(first):
    rules = [
        {"trigger": f"job-{outcome}", "scope": "queue", "action": submit("b", count=count)}
        for count, outcome in enumerate(("success", "fail"), start=1)
    ]
    play = Play(document(rules=rules))
    names = ("validate", "start", "finish", "clean")
    for name in names[names.index(first) :]:
        context: dict[str, Any] = {"status": 0} if name == "finish" else {}
        play.foreign(901, name, **context)
    assert play.submitted("b") == (0 if first == "clean" else 1)


def test_a_heartbeat_evaluates_heartbeat_and_metric_rules():
    rules = [
        on_start(),
        {"trigger": "heartbeat", "action": submit("b")},
        {
            "trigger": "metric",
            "name": "max.a-waiting",
            "when": "> 50",
            "action": submit("b", count=2),
        },
        {
            "trigger": "metric",
            "name": "mean.a-pending",
            "when": "> 50",
            "action": submit("b", count=3),
        },
    ]
    play = Play(document(rules=rules, logging={"heartbeat": 10}))
    assert play.of(StartTimer) == [StartTimer("heartbeat", 10, 10)]
    play.event(1, "submit")
    play.event(1, "validate")
    play.heartbeat()
    assert play.submitted("b") == 1
    play.t += 60
    play.heartbeat()
    assert play.submitted("b") == 6


def test_a_heartbeat_never_touches_the_recorded_streams():
    rule = {"trigger": "metric", "name": "mean.a-pending", "when": "> 1e9", "action": submit("b")}
    play = Play(document(rules=[on_start(), rule], logging={"heartbeat": 10}))
    play.begin(1)
    play.event(2, "submit")
    before = play.engine.metrics(play.t)["mean"]["a-pending"]
    play.t += 1000
    play.heartbeat()
    assert play.engine.metrics(play.t)["mean"]["a-pending"] == before


def test_the_ensemble_completes_when_nothing_is_active_and_no_rule_can_fire():
    play = Play(document(rules=[on_start()]))
    play.run(1)
    assert play.engine.state == "running"
    play.run(2)
    reason = "nothing is active and no rule can fire any more"
    assert play.of(Finish) == [Finish("completed", reason)]
    assert (play.engine.state, play.engine.t_end) == ("completed", play.t)


def test_finish_never_keeps_the_ensemble_running():
    play = Play(document(rules=[on_start(count=1)], finish="never"))
    play.run(1)
    assert play.engine.state == "running"
    assert play.engine.idle


def test_an_engine_reacts_to_jobs_as_long_as_one_of_its_rules_can():
    rules = [on_start(), {"trigger": "job-fail", "action": submit("b")}]
    play = Play(document(rules=rules, finish="never"))
    assert play.engine.reacts
    play.run(1, status=256)
    assert not play.engine.reacts


def test_the_log_has_each_action_as_it_was_filled_in_for_its_job():
    jobs = [
        {"name": "a", "command": "true {t}", "params": {"t": list(range(20))}},
        {"name": "b", "command": "true {t}", "params": {"t": 0}},
    ]
    each = {
        "trigger": "job-success",
        "group": "a",
        "actions": [
            submit("b", repetitions="unlimited"),
            submit("b", params={"t": "{job.params.t}"}),
        ],
    }
    play = Play(document(jobs=jobs, rules=[on_start(), each]))
    for job in range(1, 21):
        play.run(job)
    filled = [
        entry["action"]["params"]["t"]
        for entry in play.recorded("fire")
        if "params" in entry["action"]
    ]
    assert filled == list(range(20))
