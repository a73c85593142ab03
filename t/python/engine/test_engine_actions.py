"""The engine, event by event: actions, outcomes, limits, requests and the end."""

from __future__ import annotations

import json

import pytest
from play import (
    CallCustom,
    CancelJobs,
    CommandFailed,
    Finish,
    JobEvent,
    Play,
    Reply,
    Request,
    Started,
    StartTimer,
    SubmitJobs,
    UpdateJobs,
    document,
    on_start,
    submit,
)

from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.engine.status import status
from flux_ensemble.words import known_jobs

CUSTOM = "def f(**kwargs): ...\n"


def custom(**given):
    action = {"name": "custom", "label": "f", **given.pop("action", {})}
    return {"trigger": "job-success", "action": action, **given}


@pytest.mark.parametrize(
    ("exceptions", "status", "outcome"),
    [
        ([], 0, "success"),
        ([], 256, "failed"),
        (["timeout"], 36608, "timeout"),
        (["cancel"], 36608, "canceled"),
        (["exec"], 32512, "failed"),
        (["timeout", "cancel"], 15, "timeout"),
        (["cancel"], 0, "success"),
        (["cancel"], None, "canceled"),
        (["alloc"], None, "failed"),
        ([], None, "failed"),
    ],
)
def test_every_job_ends_in_exactly_one_outcome(exceptions, status, outcome):
    trigger = {"failed": "job-fail", "canceled": "job-cancel"}.get(outcome, f"job-{outcome}")
    play = Play(document(rules=[on_start(count=1), {"trigger": trigger, "action": submit("b")}]))
    play.event(1, "submit")
    play.event(1, "validate")
    if status is not None:
        play.event(1, "start")
    for kind in exceptions:
        play.event(1, "exception", type=kind, severity=0)
    if status is not None:
        play.event(1, "finish", status=status)
    play.event(1, "clean")
    counts = play.engine.stats.counts["a"]
    once = dict.fromkeys(("submitted", "finished", "attempts", outcome), 1)
    assert counts == {**dict.fromkeys(counts, 0), **once}
    assert play.submitted("b") == 1


def test_a_job_counts_as_submitted_at_validate_and_an_invalid_one_never_does():
    play = Play(document(rules=[on_start()]))
    play.event(1, "submit")
    play.event(2, "submit")
    assert play.engine.stats.counts["a"]["submitted"] == 0
    play.event(1, "validate")
    play.event(2, "invalidate")
    assert play.engine.stats.counts["a"]["submitted"] == 1
    assert play.status()["groups"]["a"]["pending"] == 1


def test_duplicate_and_late_events_emit_nothing():
    rules = [
        on_start(),
        *(
            {"trigger": f"job-{name}", "action": submit("b", repetitions="unlimited")}
            for name in ("submit", "finish", "clean", "memo")
        ),
    ]
    play = Play(document(rules=rules, finish="never"))
    play.begin(1)
    play.event(1, "memo", x=1)
    play.end(1)
    for name in ("submit", "validate", "start", "finish", "clean", "memo"):
        assert play.event(1, name, status=0) == []
    play.begin(2)
    memo = JobEvent(play.tick(), 2, "memo", {"x": 1})
    assert len(play.post(memo)) == 1
    assert play.post(memo) == []


def test_events_count_and_rules_see_them_though_the_clock_was_set_back():
    rules = [
        on_start(count=1),
        {"trigger": "job-memo", "when": "x > 1", "action": submit("b", repetitions="unlimited")},
    ]
    play = Play(document(rules=rules, finish="never"))
    play.begin(1)
    assert play.event(1, "memo", x=1) == []
    play.t -= 3600
    assert len(play.event(1, "memo", x=2)) == 1
    play.t -= 3600
    assert len(play.event(1, "memo", x=3)) == 1
    play.event(1, "exception", type="cancel")
    play.t -= 3600
    play.event(1, "exception", type="timeout")
    play.end(1, status=15)
    counts = play.engine.stats.counts["a"]
    assert (counts["submitted"], counts["timeout"]) == (1, 1)
    assert play.engine.stats.sizes()[:2] == [["a", "pending", 1], ["a", "x", 3]]


def test_the_age_of_a_job_is_told_by_the_clock_as_it_is():
    waits = {"trigger": "metric", "name": "max.a-waiting", "when": "> 600", "action": submit("b")}
    play = Play(document(rules=[on_start(count=1), waits], logging={"heartbeat": 10}))
    play.t -= 3600
    play.event(1, "submit")
    play.event(1, "validate")
    assert play.heartbeat() == []
    play.t += 601
    assert len(play.heartbeat()) == 1


def test_no_more_jobs_than_active_jobs_are_in_the_queue_and_the_rest_follow_in_order():
    play = Play(document(rules=[on_start(count=5)], limits={"active-jobs": 2}))
    assert [(one.first, one.count) for one in play.of(SubmitJobs)] == [(0, 2)]
    assert play.status()["groups"]["a"]["waiting"] == 5
    play.run(1)
    play.run(2)
    assert [(one.first, one.count) for one in play.of(SubmitJobs)] == [(0, 2), (2, 1), (3, 1)]
    for job in (3, 4, 5):
        play.run(job)
    assert play.engine.state == "completed"
    assert play.engine.stats.counts["a"]["success"] == 5


def test_rules_that_submit_each_other_for_ever_fail_with_a_sentence_that_names_them():
    rules = [
        on_start(count=1),
        {
            "id": "ping",
            "trigger": "job-submit",
            "group": "a",
            "action": submit("b", repetitions="unlimited"),
        },
        {
            "id": "pong",
            "trigger": "job-submit",
            "group": "b",
            "action": submit("a", repetitions="unlimited", count=1),
        },
    ]
    play = Play(document(rules=rules, limits={"jobs": 10}))
    job = 1
    while not play.engine.ended:
        play.event(job, "submit")
        job += 1
    assert play.engine.state == "failed"
    assert play.engine.reason == (
        "rule 'pong' would submit group 'a': 11 jobs in all, and limits.jobs is 10; "
        "rules that fire each other: ping, pong"
    )


def test_rules_that_enable_each_other_for_ever_fail_with_a_sentence_that_names_them():
    def switch(name, label):
        return {"name": name, "label": label, "repetitions": "unlimited"}

    rules = [
        on_start(count=1),
        *(
            {
                "id": rule,
                "trigger": "metric",
                "name": "count.a.success",
                "when": ">= 0",
                "enabled": False,
                "action": switch("custom", "f"),
            }
            for rule in ("one", "two")
        ),
        {"trigger": "job-start", "action": {"name": "enable", "label": "one"}},
    ]
    play = Play(document(rules=rules, custom=CUSTOM))
    play.begin(1)
    while not play.engine.ended:
        call = play.of(CallCustom)[-1]
        rule, other = ("one", "two") if call.kwargs["rule"]["id"] == "one" else ("two", "one")
        actions = [switch("disable", rule), switch("enable", other)]
        play.done(call, returned=[{"kind": "action", "value": one} for one in actions])
    assert play.engine.state == "failed"
    assert play.engine.reason == (
        "rules fire each other with no job or time between them: rule-3, one, two"
    )


def test_cancel_takes_active_jobs_those_in_flight_and_those_that_wait():
    rules = [
        on_start(count=4),
        {"trigger": "job-start", "action": {"name": "cancel", "label": "a"}},
    ]
    play = Play(document(rules=rules, limits={"active-jobs": 3}))
    play.event(1, "submit")
    play.event(1, "validate")
    play.event(2, "submit")
    play.event(1, "start")
    assert play.of(CancelJobs) == [CancelJobs(2, (1, 2), "rule 'rule-1'")]
    play.event(3, "submit")
    assert play.of(CancelJobs)[-1].jobs == (3,)
    assert play.submitted("a") == 3
    for job in (1, 2, 3):
        play.event(job, "clean")
    assert play.engine.state == "completed"


def test_a_cancel_has_one_outcome_however_late_its_jobs_show():
    rules = [
        on_start(count=3),
        {"trigger": "job-start", "action": {"name": "cancel", "label": "a"}},
    ]
    play = Play(document(rules=rules))
    play.event(1, "submit")
    play.event(1, "validate")
    play.event(1, "start")
    for job in (2, 3):
        play.event(job, "submit")
    assert [one.jobs for one in play.of(CancelJobs)] == [(1,), (2,), (3,)]
    outcomes = [one.context["rule"] for one in play.records if one.name == "outcome"]
    assert outcomes == ["rule-0", "rule-1"]


def test_cancel_of_a_group_leaves_later_submissions_of_it_alone():
    rules = [
        on_start(count=1),
        {"trigger": "job-start", "action": {"name": "cancel", "label": "a"}},
        {"trigger": "job-cancel", "action": submit("a", count=1)},
    ]
    play = Play(document(rules=rules))
    play.begin(1)
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, status=9)
    play.run(2)
    assert play.engine.stats.counts["a"]["success"] == 1
    assert play.engine.state == "completed"


def test_terminate_completes_the_ensemble_at_once_and_no_rule_fires_after_it():
    rules = [
        on_start(),
        {"trigger": "job-success", "action": {"name": "terminate"}},
        {"trigger": "job-clean", "action": submit("b")},
    ]
    play = Play(document(rules=rules))
    play.begin(1)
    play.begin(2)
    play.end(1)
    assert play.of(Finish) == [Finish("completed", "a terminate action ran (rule 'rule-1')")]
    play.end(2)
    assert play.submitted("b") == 0
    assert play.engine.stats.counts["a"]["success"] == 2


def test_terminate_with_cancel_ends_when_the_jobs_are_gone():
    rules = [
        on_start(),
        {"trigger": "job-success", "action": {"name": "terminate", "cancel": True}},
    ]
    play = Play(document(rules=rules))
    play.begin(1)
    play.begin(2)
    play.event(1, "finish", status=0)
    assert play.engine.state == "ending"
    assert play.of(CancelJobs)[0].jobs == (2,)
    play.event(1, "clean")
    play.event(2, "clean")
    assert play.engine.state == "completed"


def test_update_sets_the_urgency_of_jobs_that_wait_and_the_duration_of_all():
    def update(**given):
        return {"trigger": "job-start", "action": {"name": "update", "label": "a", **given}}

    play = Play(document(rules=[on_start(), update(urgency=31), update(duration="1h")]))
    play.event(1, "submit")
    play.event(1, "validate")
    play.begin(2)
    assert [(one.jobs, one.urgency, one.duration) for one in play.of(UpdateJobs)] == [
        ((1,), 31, None),
        ((1, 2), None, 3600.0),
    ]


def test_a_failed_job_is_tried_again_as_often_as_its_group_allows():
    jobs = [{"name": "a", "command": "run {x}", "params": {"x": [1, 2]}, "retries": 2}]
    play = Play(document(jobs=jobs, rules=[on_start()]))
    play.run(2, status=1)
    play.run(3, status=1)
    play.run(4, status=1)
    play.run(1)
    assert [(one.rule, one.firing, one.first, one.count) for one in play.of(SubmitJobs)] == [
        ("rule-0", 0, 0, 2),
        ("retry", 0, 1, 1),
        ("retry", 1, 1, 1),
    ]
    assert play.engine.stats.counts["a"]["failed"] == 3
    assert play.engine.state == "completed"


def test_a_submission_that_the_queue_refuses_fails_the_ensemble():
    play = Play(document(rules=[on_start()]), accept=False)
    play.failed(play.of(SubmitJobs)[0], "unknown queue 'q'")
    reason = "the queue refused jobs of group 'a': unknown queue 'q'"
    assert play.of(Finish) == [Finish("failed", reason)]


def test_what_runs_goes_on_before_a_refused_submission_fails_the_ensemble():
    jobs = [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "count": 9}]
    rules = [on_start(), on_start("b")]
    play = Play(document(jobs=jobs, rules=rules), accept=False)
    first, second = play.of(SubmitJobs)
    play.done(first, ids=play.enqueue(first))
    play.failed(second, "unknown queue 'q'")
    assert play.engine.state == "running"
    state = play.status()
    assert state["groups"]["b"]["refused"] == 9
    assert "refused" not in state["groups"]["a"]
    assert state["rules"][1]["error"] == "9 jobs of group 'b' refused: unknown queue 'q'"
    play.run(1)
    reason = "the queue refused jobs of group 'b': unknown queue 'q'"
    assert play.of(Finish) == [Finish("failed", reason)]


def test_jobs_of_a_refused_submission_that_wait_are_not_sent():
    jobs = [{"name": "a", "command": "true", "count": 9, "max-active": 2}]
    play = Play(document(jobs=jobs, rules=[on_start()]), accept=False)
    play.failed(play.of(SubmitJobs)[0], "unknown queue 'q'")
    assert [command.count for command in play.of(SubmitJobs)] == [2]
    assert play.status()["groups"]["a"]["refused"] == 9


def test_a_retry_that_the_queue_refuses_fails_the_ensemble_when_the_others_are_done():
    jobs = [{"name": "a", "command": "true", "count": 2, "retries": 1}]
    play = Play(document(jobs=jobs, rules=[on_start()]), accept=False)
    first = play.of(SubmitJobs)[0]
    play.done(first, ids=play.enqueue(first))
    play.run(1, status=1)
    play.failed(play.of(SubmitJobs)[1], "unknown queue 'q'")
    assert play.engine.state == "running"
    play.run(2)
    assert play.engine.state == "failed"


def test_a_refusal_is_in_the_snapshot():
    jobs = [{"name": "a", "command": "true"}, {"name": "b", "command": "true"}]
    rules = [on_start(), on_start("b")]
    play = Play(document(jobs=jobs, rules=rules), accept=False)
    first, second = play.of(SubmitJobs)
    play.done(first, ids=play.enqueue(first))
    play.failed(second, "unknown queue 'q'")
    again = restore(play.engine.spec, json.loads(json.dumps(dump(play.engine))), ())
    assert status(again) == status(play.engine)
    assert again.refusal == play.engine.refusal


def test_jobs_of_a_refused_submission_that_show_all_the_same_are_counted():
    play = Play(document(rules=[on_start()]), accept=False)
    command = play.of(SubmitJobs)[0]
    play.enqueue(command)
    play.failed(command)
    play.run(1)
    play.run(2)
    assert play.engine.stats.counts["a"]["success"] == 2
    assert play.engine.idle


def test_a_custom_function_is_called_with_what_it_needs():
    play = Play(document(rules=[on_start(), custom()], custom=CUSTOM))
    play.run(1)
    (call,) = play.of(CallCustom)
    assert (call.function, call.timeout) == ("f", 60.0)
    assert call.kwargs["metrics"]["count"]["a"]["success"] == 1
    assert (call.kwargs["event"]["job"], call.kwargs["event"]["group"]) == (1, "a")
    assert call.kwargs["rule"]["id"] == "rule-1"
    assert call.kwargs["action"] == {"name": "custom", "label": "f"}


def test_what_a_custom_function_returns_is_performed():
    play = Play(document(rules=[on_start(), custom()], custom=CUSTOM))
    play.run(1)
    rule = {"trigger": "metric", "name": "count.b.success", "when": 3, "action": submit("a")}
    returned = [
        {"kind": "action", "value": submit("b", count=3)},
        {"kind": "rule", "value": rule},
    ]
    play.done(play.of(CallCustom)[0], returned=returned)
    play.run(2)
    last = play.of(SubmitJobs)[-1]
    assert (last.group, last.rule, last.firing, last.count) == ("b", "rule-1", 1, 3)
    for job in (3, 4, 5):
        play.run(job)
    assert play.of(SubmitJobs)[-1].rule == "rule-2"


def test_a_returned_rule_gets_an_id_that_is_free():
    given = custom(id="rule-2")
    play = Play(document(rules=[on_start(), given], custom=CUSTOM))
    play.run(1)
    value = {"trigger": "start", "action": submit("b")}
    play.done(play.of(CallCustom)[0], returned=[{"kind": "rule", "value": value}] * 2)
    assert list(play.engine.rules.states) == ["rule-0", "rule-2", "rule-3", "rule-4"]


def test_a_start_rule_that_a_custom_function_returns_fires_at_once():
    play = Play(document(rules=[on_start(), custom()], custom=CUSTOM))
    play.run(1)
    value = {"trigger": "start", "action": submit("b")}
    play.done(play.of(CallCustom)[0], returned=[{"kind": "rule", "value": value}])
    assert play.submitted("b") == 1


def test_a_returned_action_that_cannot_be_used_is_a_failure_of_the_rule():
    play = Play(document(rules=[on_start(), custom()], custom=CUSTOM))
    play.run(1)
    play.done(play.of(CallCustom)[0], returned=[{"kind": "action", "value": submit("nope")}])
    (entry,) = play.recorded("outcome")[-1:]
    assert "no job group named 'nope' (groups: a, b)" in entry["reason"]
    assert not play.engine.rules.states["rule-1"].enabled


@pytest.mark.parametrize(
    ("on_error", "state", "enabled"),
    [("disable", "running", False), ("fail", "failed", True), ("retry", "running", True)],
)
def test_on_error_says_what_a_failing_custom_function_does(on_error, state, enabled):
    play = Play(document(rules=[on_start(), custom(**{"on-error": on_error})], custom=CUSTOM))
    play.run(1)
    play.failed(play.of(CallCustom)[0], "custom function 'f' raised ValueError: no")
    assert (play.engine.state, play.engine.rules.states["rule-1"].enabled) == (state, enabled)
    assert play.recorded("custom-error")[0]["reason"].endswith("raised ValueError: no")


def test_retry_calls_again_three_times_with_growing_delays_and_then_disables():
    play = Play(document(rules=[on_start(), custom(**{"on-error": "retry"})], custom=CUSTOM))
    play.run(1)
    play.run(2)
    for _ in range(3):
        play.failed(play.of(CallCustom)[-1])
        assert play.engine.state == "running"
        play.timer(play.of(StartTimer)[-1].key)
    play.failed(play.of(CallCustom)[-1])
    assert [one.after for one in play.of(StartTimer)] == [1.0, 2.0, 4.0]
    assert len(play.of(CallCustom)) == 4
    assert play.engine.state == "completed"


def test_a_rule_that_succeeds_after_all_has_not_failed():
    play = Play(document(rules=[on_start(), custom(**{"on-error": "retry"})], custom=CUSTOM))
    play.run(1)
    play.failed(play.of(CallCustom)[-1], "not yet")
    assert play.status()["rules"][1]["error"] == "not yet"
    play.timer(play.of(StartTimer)[-1].key)
    play.done(play.of(CallCustom)[-1])
    assert play.status()["rules"][1]["error"] is None


def test_a_rule_that_somebody_enables_again_has_not_failed():
    play = Play(document(rules=[on_start(), custom()], custom=CUSTOM))
    play.run(1)
    play.failed(play.of(CallCustom)[-1], "no")
    assert play.status()["rules"][1]["error"] == "no"
    play.request("rules", id="rule-1", enabled=True)
    assert play.status()["rules"][1]["error"] is None


def test_what_fires_during_a_pause_is_done_at_the_resume():
    rules = [on_start(), {"trigger": "job-success", "action": submit("b")}]
    play = Play(document(rules=rules))
    assert play.request("pause").result == {"state": "paused"}
    play.run(1)
    play.run(2)
    assert (play.submitted("b"), play.engine.stats.counts["a"]["success"]) == (0, 2)
    assert play.request("submit", group="b").errno == "EAGAIN"
    assert play.request("resume").result == {"state": "running"}
    assert play.submitted("b") == 1
    play.run(3)
    assert play.engine.state == "completed"


def test_a_request_to_submit_is_answered_with_the_ids_of_its_jobs():
    play = Play(document(rules=[on_start()]))
    reply = play.request("submit", group="b", count=2)
    assert reply.result == {"ids": [3, 4], "firing": 0}
    assert play.of(SubmitJobs)[-1] == SubmitJobs(2, "b", "request", 0, 0, 2, 2)


def test_a_request_that_the_queue_refuses_is_answered_and_the_ensemble_goes_on():
    play = Play(document(rules=[on_start()]), accept=False)
    play.post(Request(play.tick(), 7, "submit", {"group": "b"}))
    play.failed(play.of(SubmitJobs)[-1], "no such queue")
    assert play.of(Reply) == [Reply(7, errno="EINVAL", reason="no such queue")]


def test_each_of_two_requests_with_the_same_number_has_its_reply():
    """Numbers begin anew with each service, and one before may have left a command behind."""
    play = Play(document(rules=[on_start()]), accept=False)
    for _ in range(2):
        play.post(Request(play.tick(), 7, "submit", {"group": "b"}))
    _, first, second = play.of(SubmitJobs)
    play.done(second, ids=[2])
    assert play.of(Reply) == [Reply(7, {"ids": [2], "firing": second.firing})]
    play.done(first, ids=[1])
    assert play.of(Reply)[1:] == [Reply(7, {"ids": [1], "firing": first.firing})]
    assert play.engine.state == "running"


@pytest.mark.parametrize(
    ("op", "args", "errno", "reason"),
    [
        ("submit", {"group": "c"}, "ENOENT", "no job group named 'c' (groups: a, b)"),
        ("cancel", {"group": "c"}, "ENOENT", "no job group named 'c' (groups: a, b)"),
        (
            "submit",
            {"group": "a", "count": 50},
            "EAGAIN",
            "50 more jobs would make 52 active, and limits.active-jobs is 10",
        ),
        (
            "submit",
            {"group": "b", "params": {"x": 1}},
            "EINVAL",
            "group 'b' has no parameter 'x' (parameters: none)",
        ),
        ("rules", {"id": "x", "enabled": True}, "ENOENT", "no rule with id 'x' (rules: rule-0)"),
        (
            "action",
            {"action": {"name": "grow"}},
            "EINVAL",
            "action: 'grow' needs an instance that can change its nodes",
        ),
        ("dance", {}, "EINVAL", "no request named 'dance'"),
    ],
)
def test_a_request_that_cannot_be_met_is_answered_with_an_error(op, args, errno, reason):
    play = Play(document(rules=[on_start()], limits={"active-jobs": 10}))
    reply = play.request(op, **args)
    assert (reply.errno, reply.reason) == (errno, reason)


def test_cancel_by_the_user_ends_the_ensemble_as_canceled_when_its_jobs_are_gone():
    play = Play(document(rules=[on_start()]))
    play.begin(1)
    play.event(2, "submit")
    assert play.request("cancel").result == {"state": "ending"}
    for job in (1, 2):
        play.event(job, "clean")
    assert play.of(Finish) == [Finish("canceled", "canceled by the user")]
    assert play.request("submit", group="a").errno == "EINVAL"


def test_terminate_by_the_user_completes_the_ensemble_and_leaves_the_jobs_alone():
    play = Play(document(rules=[on_start()]))
    play.begin(1)
    assert play.request("terminate").result == {"state": "completed"}
    assert play.of(CancelJobs) == []
    assert play.status()["jobs"]["active"] == 1


def test_a_request_can_perform_any_action_and_switch_rules():
    rules = [on_start(), {"id": "r", "trigger": "job-success", "action": submit("b")}]
    play = Play(document(rules=rules))
    assert play.request("rules", id="r", enabled=False).result == {}
    play.run(1)
    assert play.submitted("b") == 0
    assert play.request("action", action=submit("b")).result == {"ids": [3], "firing": 0}
    assert play.request("action", action={"name": "terminate"}).result == {"firing": 1}
    assert play.engine.state == "completed"
    assert play.request("action", action={"name": "terminate"}).errno == "EINVAL"


def test_finished_jobs_and_closed_firings_leave_nothing_behind():
    rule = {"trigger": "job-success", "action": submit("a", count=1, repetitions="unlimited")}
    play = Play(document(rules=[on_start(count=1), rule]))
    for job in range(1, 200):
        play.run(job)
    assert len(play.engine.workload.jobs) == 0
    assert len(list(play.engine.workload.firings)) == 1


def test_jobs_that_are_being_cancelled_are_not_updated():
    play = Play(document(rules=[on_start()], finish="never"))
    for job in (1, 2):
        play.event(job, "submit")
        play.event(job, "validate")
    play.accept = False
    play.request("cancel", group="a")
    play.request("action", action={"name": "update", "label": "a", "urgency": 20})
    assert play.of(UpdateJobs) == []


def test_functions_are_called_with_numbers_where_the_document_has_a_spelling():
    text = """
name: test
custom: "def f(**kwargs): ..."
metrics: [{best: {name: top, of: a-loss, mode: min}}]
jobs: [{name: a, command: "true {t}", params: {t: [0.10]}}]
rules:
  - {trigger: start, action: {name: submit, label: a}}
  - {trigger: job-success, action: {name: custom, label: f}}
"""
    play = Play(text)
    play.begin(1)
    play.event(1, "memo", loss=2.0)
    play.end(1)
    (call,) = play.of(CallCustom)
    assert json.loads(json.dumps(call.kwargs["metrics"]))["best"]["top"]["params"] == {"t": 0.1}


def test_jobs_that_were_never_sent_are_told_after_a_cancel():
    jobs = [{"name": "a", "command": "false", "count": 9, "max-active": 2, "retries": 3}]
    play = Play(document(jobs=jobs, rules=[on_start()]))
    play.engine.stats.keep_values()
    play.run(1, status=1)
    play.request("cancel")
    left = play.status()["groups"]["a"]
    # Three were sent; the first of them, which was to be tried again, is in the record.
    assert left["unsent"] == 6
    assert known_jobs(left) == 9
    values = [play.engine.stats.take_values()]
    restored = restore(play.engine.spec, dump(play.engine), values)
    assert status(restored)["groups"]["a"]["unsent"] == left["unsent"]


def test_a_rerun_sends_what_was_never_sent_as_it_would_have_been():
    jobs = [{"name": "a", "command": "false", "count": 9, "max-active": 2}]
    play = Play(document(jobs=jobs, rules=[on_start()], limits={"jobs": 9}))
    play.engine.stats.keep_values()
    play.run(1, status=1)
    for job in (2, 3):
        play.begin(job)
    play.request("cancel")
    for job in (2, 3):
        play.event(job, "exception", type="cancel", severity=0)
        play.end(job, status=15)
    assert play.status()["state"] == "canceled"
    values = [play.engine.stats.take_values()]
    again = restore(play.engine.spec, json.loads(json.dumps(dump(play.engine))), values)
    assert dump(again) == dump(play.engine)
    play.engine, play.handle = again, again.handle
    # One that does not ask for them leaves them as they are.
    assert play.request("rerun", firings=[]).result == {"jobs": 0, "reopened": False}
    chosen = [
        {"rule": "rule-0", "firing": 0, "group": "a", "jobs": [[1, 2, "canceled", 0, 0, None]]}
    ]
    answer = play.request("rerun", firings=chosen, unsent=True).result
    assert answer == {"jobs": 7, "unsent": 6, "reopened": True}
    assert play.recorded("rerun")[-1]["unsent"] == 6
    assert "unsent" not in play.status()["groups"]["a"]
    job = 3
    while play.status()["state"] == "running":
        job += 1
        play.run(job)
    assert play.status()["state"] == "completed"
    tags = {play.queued[id] for id in range(4, job + 1)}
    assert {tag.index for tag in tags if tag.rule == "rule-0"} == set(range(3, 9))
    assert len(tags) == 7
    assert play.request("rerun", firings=[], unsent=True).result["jobs"] == 0


def test_an_ensemble_that_goes_on_has_no_reason_to_have_ended_and_its_timers():
    rules = [
        on_start(),
        {"id": "often", "trigger": "timer", "every": 9, "action": submit("b", repetitions=9)},
        {"id": "once", "trigger": "timer", "after": 5, "action": submit("b")},
    ]
    play = Play(document(rules=rules))
    play.engine.stats.keep_values()
    play.timer("rule:once")
    play.timer("rule:often")
    for job in list(play.queued):
        play.run(job)
    play.request("terminate")
    assert (play.engine.ended, play.engine.reason) == (True, "terminated by the user")
    before = len(play.commands)
    chosen = [
        {"rule": "rule-0", "firing": 0, "group": "a", "jobs": [[0, 1, "success", 0, 0, None]]}
    ]
    play.request("rerun", firings=chosen)
    assert (play.engine.state, play.engine.reason) == ("running", "")
    started = [one.key for one in play.commands[before:] if isinstance(one, StartTimer)]
    assert started == ["rule:often"]


def test_a_rerun_sends_what_was_never_sent_beside_jobs_that_still_run():
    jobs = [{"name": "a", "command": "true", "count": 5, "max-active": 2}]
    play = Play(document(jobs=jobs, rules=[on_start()]))
    play.begin(1)
    play.begin(2)
    play.engine.fail("no more")
    assert play.status()["groups"]["a"]["unsent"] == 3
    assert play.request("rerun", unsent=True).result["unsent"] == 3
    for job in (1, 2):
        play.end(job)
    for job in (3, 4, 5):
        play.run(job)
    assert play.status()["state"] == "completed"
    assert play.status()["groups"]["a"]["success"] == 5


def test_a_rerun_sends_no_job_twice_that_was_sent_and_has_not_appeared_yet():
    jobs = [{"name": "a", "command": "true", "count": 9, "max-active": 5}]
    play = Play(document(jobs=jobs, rules=[on_start()]), start=False, accept=False)
    play.post(Started(play.t))
    (command,) = play.of(SubmitJobs)
    play.enqueue(command)
    play.engine.fail("no more")
    # The queue has two jobs of five, and their events are still to come.
    play.post(CommandFailed(play.tick(), command.id, "ECANCELED", "it ended", ids=(1, 2)))
    play.accept = True
    assert play.request("rerun", unsent=True).result["unsent"] == 4
    for job in (1, 2):
        play.run(job)
    job = 6
    while play.engine.state == "running":
        play.run(job)
        job += 1
    tags = list(play.queued.values())
    assert len(tags) == len(set(tags))
    assert play.status()["groups"]["a"]["success"] == 2 + 4


@pytest.mark.parametrize("arrived", [(), (1, 2), (1, 3)])
def test_jobs_that_did_not_reach_the_queue_before_a_cancel_are_sent_by_a_rerun(arrived):
    jobs = [{"name": "a", "command": "true", "count": 9, "max-active": 5}]
    play = Play(document(jobs=jobs, rules=[on_start()]), start=False, accept=False)
    play.engine.stats.keep_values()
    play.post(Started(play.t))
    (command,) = play.of(SubmitJobs)
    ids = play.enqueue(command)
    play.request("cancel")
    for job in arrived:
        play.event(job, "submit")
    play.post(CommandFailed(play.tick(), command.id, "ECANCELED", "it ended", ids=arrived))
    play.accept = True
    for job in arrived:
        play.event(job, "exception", type="cancel", severity=0)
        play.event(job, "clean")
    for cancel in play.of(CancelJobs):
        play.done(cancel)
    assert play.status()["state"] == "canceled"
    left = 9 - len(arrived)
    assert play.status()["groups"]["a"]["unsent"] == left
    assert play.request("rerun", unsent=True).result["unsent"] == left
    job = len(ids)
    while play.status()["state"] == "running":
        job += 1
        play.run(job)
    assert play.status()["groups"]["a"]["success"] == left
    again = [play.queued[one].index for one in range(len(ids) + 1, job + 1)]
    assert sorted([*again, *(one - 1 for one in arrived)]) == list(range(9))


def test_jobs_that_a_rule_leaves_out_are_not_told_as_never_sent():
    jobs = [{"name": "a", "command": "true", "count": 9, "max-active": 2}]
    play = Play(document(jobs=jobs, rules=[on_start()]))
    play.request("terminate", cancel=True)
    assert "unsent" not in play.status()["groups"]["a"]


def test_a_rule_on_jobs_that_run_is_about_those_of_each_group_if_it_names_none():
    rule = {
        "id": "long",
        "trigger": "job-running",
        "every": 5,
        "action": {"name": "cancel", "jobs": "trigger", "repetitions": 9},
    }
    play = Play(document(rules=[on_start("a"), on_start("b"), rule]))
    for job in (1, 2, 3):
        play.begin(job)
    play.timer("rule:long")
    assert [one.jobs for one in play.of(CancelJobs)] == [(1,), (2,), (3,)]
