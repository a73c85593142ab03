"""Rules on `idle`: not before what jobs have brought about is done, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import (
    CallCustom,
    CancelJobs,
    CommandFailed,
    Play,
    Request,
    Started,
    SubmitJobs,
    document,
    on_start,
    submit,
)

from flux_ensemble.engine import combinations
from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.combinations import MAX_COMBINATIONS
from flux_ensemble.engine.rule_state import Turns
from flux_ensemble.engine.snapshot import dump, restore

ENSEMBLE = {"trigger": "idle", "action": submit("b", count=5)}
GROUP = {"trigger": "idle", "group": "a", "action": submit("b", count=4)}


def call(trigger: str, **rule: Any) -> dict[str, Any]:
    """A rule that calls a custom function."""
    action = {"name": "custom", "label": "f", "repetitions": "unlimited"}
    return {"trigger": trigger, "action": action, **rule}


def play(*rules: dict[str, Any], **given: Any) -> Play:
    return Play(document(rules=list(rules), custom="def f(**kwargs): ...", **given))


@pytest.mark.parametrize("idle", [ENSEMBLE, GROUP], ids=["ensemble", "group"])
def test_idle_waits_for_the_custom_calls_that_the_last_jobs_brought_about(idle):
    p = play(on_start(), call("job-success"), idle)
    p.run(1)
    p.run(2)
    first, second = p.of(CallCustom)
    p.done(first)
    assert p.submitted("b") == 0
    p.done(second)
    assert p.submitted("b") == idle["action"]["count"]


def test_idle_waits_until_a_failed_call_has_had_its_last_try():
    p = play(on_start(count=1), call("job-success", **{"on-error": "retry"}), GROUP, ENSEMBLE)
    p.run(1)
    for attempt in range(3):
        p.failed(p.of(CallCustom)[attempt])
        assert p.submitted("b") == 0
        p.timer("retry:rule-1:0")
    p.failed(p.of(CallCustom)[3])
    assert p.submitted("b") == 4


def test_idle_waits_for_calls_that_a_pause_holds():
    p = play(on_start(count=1), call("job-success"), GROUP, finish="never")
    p.begin(1)
    p.request("pause")
    p.end(1)
    assert [entry["rule"] for entry in p.recorded("fire")] == ["rule-0", "rule-1"]
    p.request("resume")
    assert p.submitted("b") == 0
    p.done(p.of(CallCustom)[0])
    assert p.submitted("b") == 4


def test_a_group_does_not_wait_for_the_calls_of_another_one_and_the_ensemble_does():
    p = play(on_start(count=1), on_start("b"), call("job-success", group="b"), GROUP, ENSEMBLE)
    p.run(2)
    p.run(1)
    assert p.submitted("b") == 1 + 4
    for job in range(3, 7):
        p.run(job)
    for each in p.of(CallCustom)[:-1]:
        p.done(each)
        assert p.submitted("b") == 1 + 4
    p.done(p.of(CallCustom)[-1])
    assert p.submitted("b") == 1 + 4 + 5


def test_a_group_waits_for_the_call_of_a_metric_rule_about_it():
    rule = call("metric", name="max.a-duration", when="> 1")
    p = play(on_start(), rule, GROUP, logging={"heartbeat": 10})
    p.begin(1)
    p.begin(2)
    p.t += 5
    p.event(1, "finish", status=0)
    p.heartbeat()
    assert len(p.of(CallCustom)) == 2
    p.event(1, "clean")
    p.end(2)
    *calls, last = p.of(CallCustom)
    for each in calls:
        p.done(each)
    assert p.submitted("b") == 0
    p.done(last)
    assert p.submitted("b") == 4


def test_what_a_call_returns_is_waited_for_too():
    p = play(on_start(count=1), call("job-success"), GROUP)
    p.run(1)
    again = {"kind": "action", "value": {"name": "custom", "label": "f"}}
    p.done(p.of(CallCustom)[0], returned=[again])
    assert p.submitted("b") == 0
    p.done(p.of(CallCustom)[1])
    assert p.submitted("b") == 4


def test_jobs_that_a_call_returns_put_idle_off_until_they_are_gone():
    p = play(on_start(count=1), call("job-success"), GROUP)
    p.run(1)
    more = {"kind": "action", "value": submit("a", count=1)}
    p.done(p.of(CallCustom)[0], returned=[more])
    assert p.submitted("b") == 0
    p.run(2)
    assert p.submitted("b") == 0
    p.done(p.of(CallCustom)[1])
    assert p.submitted("b") == 4


def test_idle_of_the_ensemble_waits_for_the_call_of_idle_of_a_group_and_fires_once():
    p = play(
        on_start(count=1),
        call("idle", group="a"),
        call("idle"),
        {"trigger": "idle", "action": submit("b", repetitions="unlimited")},
    )
    p.run(1)
    assert len(p.of(CallCustom)) == 1
    p.done(p.of(CallCustom)[0])
    assert len(p.of(CallCustom)) == 2
    assert p.submitted("b") == 0
    p.done(p.of(CallCustom)[1])
    assert (len(p.of(CallCustom)), p.submitted("b")) == (2, 1)


def test_idle_of_the_ensemble_waits_for_the_outcome_of_a_submission():
    p = Play(document(rules=[on_start(count=1), ENSEMBLE]), accept=False)
    (sent,) = p.of(SubmitJobs)
    p.enqueue(sent)
    p.run(1)
    assert p.submitted("b") == 0
    p.done(sent, ids=[1])
    assert p.submitted("b") == 5


def test_idle_does_not_fire_after_the_end():
    p = play(on_start(count=1), call("job-success"), ENSEMBLE)
    p.run(1)
    p.request("terminate")
    assert p.submitted("b") == 0
    assert p.engine.state == "completed"


def test_a_disabled_rule_that_waited_does_not_fire():
    p = play(on_start(count=1), call("job-success"), {"id": "late", **ENSEMBLE})
    p.run(1)
    p.request("rules", id="late", enabled=False)
    p.done(p.of(CallCustom)[0])
    assert p.submitted("b") == 0
    assert p.engine.state == "completed"


def test_jobs_that_are_cancelled_by_hand_while_a_call_is_open_let_idle_fire_once():
    p = play(on_start(), call("job-success"), GROUP)
    p.run(1)
    p.begin(2)
    p.request("cancel", group="a")
    assert p.of(CancelJobs)
    p.event(2, "exception", type="cancel", severity=0)
    p.event(2, "finish", status=15)
    p.event(2, "clean")
    assert p.submitted("b") == 0
    p.done(p.of(CallCustom)[0])
    assert p.submitted("b") == 4


@pytest.mark.parametrize("idle", [ENSEMBLE, GROUP], ids=["ensemble", "group"])
def test_idle_that_waits_fires_after_a_recovery_too(idle):
    p = play(on_start(count=1), call("job-success"), idle)
    p.engine.stats.keep_values()
    p.run(1)
    snapshot = json.loads(json.dumps(dump(p.engine)))
    engine = restore(p.engine.spec, snapshot, [p.engine.stats.take_values()])
    (open_call,) = p.of(CallCustom)
    before = len(p.commands)
    p.done(open_call)
    assert p.submitted("b") == idle["action"]["count"]
    p.engine = engine
    p.handle = engine.handle
    commands = p.commands
    p.commands = commands[:before]
    p.done(open_call)
    assert [encode(one) for one in p.of(SubmitJobs)] == [
        encode(one) for one in commands if isinstance(one, SubmitJobs)
    ]


# -- by ------------------------------------------------------------------------------------


def swept(*rules: dict[str, Any], by: tuple[str, ...] = ("t",), **given: Any) -> Play:
    """Group a has jobs 1 to 4: seeds 1 and 2 of t 300, then of t 310; b is submitted by idle."""
    action = {**submit("b"), **given.pop("action", {})}
    params = given.pop("params", {"t": [300, 310], "seed": [1, 2]})
    return Play(
        document(
            jobs=[
                {"name": "a", "command": "run {t} {seed}", "params": params, **given.pop("a", {})},
                {"name": "b", "command": "true"},
            ],
            rules=[
                on_start(),
                {"trigger": "idle", "group": "a", "by": list(by), "action": action},
                *rules,
            ],
            **given,
        )
    )


def reduced(p: Play) -> list[Any]:
    """The combinations that the rule has fired for, in order."""
    fired = [entry["cause"] for entry in p.recorded("fire") if entry["rule"] == "rule-1"]
    return [cause["params"] for cause in fired]


def test_idle_by_a_parameter_fires_for_each_of_its_values_when_all_its_jobs_are_gone():
    p = swept()
    p.run(2)
    p.run(3)
    assert reduced(p) == []
    p.run(1)
    assert reduced(p) == [{"t": 300}]
    p.run(4)
    assert reduced(p) == [{"t": 300}, {"t": 310}]
    assert p.submitted("b") == 2
    entry = p.recorded("fire")[1]
    assert entry["trigger"] == "idle a by t"
    assert list(entry["cause"]) == ["trigger", "group", "timestamp", "params"]


def test_the_condition_of_idle_by_can_name_the_parameters():
    also = {"when": "job.params.t > 300", "action": submit("b")}
    p = swept({"id": "hot", "trigger": "idle", "group": "a", "by": ["t"], **also})
    for job in (1, 2, 3, 4):
        p.run(job)
    assert [entry["cause"]["params"] for entry in p.recorded("fire") if entry["rule"] == "hot"] == [
        {"t": 310}
    ]


def test_idle_by_all_parameters_fires_for_each_job():
    p = swept(by=("seed", "t"))
    for job in (4, 1, 2, 3):
        p.run(job)
    assert [tuple(params.items()) for params in reduced(p)] == [
        (("seed", 2), ("t", 310)),
        (("seed", 1), ("t", 300)),
        (("seed", 2), ("t", 300)),
        (("seed", 1), ("t", 310)),
    ]


def test_jobs_that_wait_or_are_tried_again_are_waited_for():
    p = swept(a={"retries": 1}, limits={"active-jobs": 1})
    p.run(1)
    p.run(2, status=1)
    assert reduced(p) == []
    p.run(3)
    p.run(4)
    assert reduced(p) == [{"t": 310}]
    p.run(5)
    assert reduced(p) == [{"t": 310}, {"t": 300}]


def test_idle_by_waits_for_the_calls_of_jobs_of_the_same_values_and_of_no_others():
    p = swept(
        {"trigger": "job-success", "group": "a", **call("job-success")},
        custom="def f(**kwargs): ...",
    )
    p.run(1)
    p.run(3)
    p.run(4)
    p.run(2)
    assert reduced(p) == []
    of_1, of_3, of_4, of_2 = p.of(CallCustom)
    p.done(of_3)
    p.done(of_2)
    assert reduced(p) == []
    p.done(of_4)
    assert reduced(p) == [{"t": 310}]
    p.done(of_1)
    assert reduced(p) == [{"t": 310}, {"t": 300}]


def test_repetitions_count_for_each_combination():
    p = swept(action={"repetitions": 2}, finish="never")
    for job in (1, 2, 3, 4):
        p.run(job)
    first = 5 + 2
    for _ in range(2):
        p.request("submit", group="a", params={"t": [300], "seed": [7]})
        p.run(first)
        first += 1 + (len(reduced(p)) == 3)
    assert reduced(p) == [{"t": 300}, {"t": 310}, {"t": 300}]
    assert p.status()["rules"][1]["fired"] == 3


def test_backoff_and_cooldown_count_for_each_combination():
    for given in ({"backoff": 1}, {"cooldown": 100}):
        p = swept(action={"repetitions": "unlimited", **given}, finish="never")
        for job in (1, 2, 3, 4):
            p.run(job)
        assert len(reduced(p)) == 2
        p.request("submit", group="a", params={"t": [300], "seed": [7]})
        p.run(max(p.queued))
        assert len(reduced(p)) == 2
        p.t += 100
        p.request("submit", group="a", params={"t": [300, 320], "seed": [7]})
        last = max(p.queued)
        p.run(last)
        p.run(last - 1)
        assert reduced(p)[2:] == [{"t": 320}, {"t": 300}]


def test_values_are_told_apart_by_their_types():
    p = swept(params={"t": [1, 1.0, "1", True, 1], "seed": [1]})
    for job in (2, 3, 4, 1):
        p.run(job)
    assert [repr(params["t"]) for params in reduced(p)] == ["1.0", "'1'", "True"]
    p.run(5)
    assert [repr(params["t"]) for params in reduced(p)] == ["1.0", "'1'", "True", "1"]


def test_idle_by_fires_for_jobs_that_are_cancelled_and_for_those_that_never_ran():
    p = swept(limits={"active-jobs": 3}, finish="never")
    p.begin(1)
    p.event(2, "submit")
    p.event(3, "submit")
    p.request("cancel", group="a")
    for job in (1, 2, 3):
        p.event(job, "exception", type="cancel", severity=0)
    p.end(1, status=15)
    p.event(2, "clean")
    assert reduced(p) == [{"t": 300}]
    p.event(3, "clean")
    assert reduced(p) == [{"t": 300}, {"t": 310}]


def test_jobs_that_the_queue_refuses_are_over_once_it_is_known_which():
    p = Play(
        document(
            jobs=[
                {"name": "a", "command": "{t}", "params": {"t": [1, 2, 3]}},
                {"name": "b", "command": "true"},
            ],
            rules=[{"trigger": "idle", "group": "a", "by": ["t"], "action": submit("b")}],
            finish="never",
        ),
        accept=False,
    )
    before = len(p.commands)
    p.post(Request(p.tick(), 7, "submit", {"group": "a"}))
    (sent,) = p.commands[before:]
    assert isinstance(sent, SubmitJobs)
    p.enqueue(sent)
    p.event(2, "submit")
    p.post(CommandFailed(p.tick(), sent.id, "EIO", "no", ids=(2, 3)))
    assert p.recorded("fire")[1:] == []
    p.event(3, "submit")
    assert [entry["cause"]["params"] for entry in p.recorded("fire")[1:]] == [{"t": 1}]
    p.event(1, "submit")
    p.event(1, "clean")
    assert len(p.recorded("fire")) == 2


def test_many_combinations_that_are_idle_at_once_are_no_chain():
    p = swept(params={"t": {"range": [0, 300]}, "seed": [1]}, limits={"active-jobs": 1})
    p.event(1, "submit")
    p.request("cancel", group="a")
    assert len(reduced(p)) == 299
    assert p.engine.state == "running"


def test_too_many_combinations_at_once_fail_the_ensemble_with_a_sentence():
    p = swept(params={"t": {"range": [0, 1_000_000]}, "seed": [1, 2]}, limits={"jobs": 10_000_000})
    assert p.engine.state == "failed"
    assert p.engine.reason == (
        "rule 'rule-0' would submit group 'a': more than 250000 combinations of values would have "
        "jobs for a rule with 'by'; give it fewer parameters"
    )


@pytest.mark.parametrize(("values", "state"), [(4, "running"), (5, "failed")])
def test_as_many_combinations_may_have_jobs_as_the_bound_says_and_no_more(
    values: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combinations, "MAX_COMBINATIONS", 4)
    p = swept(params={"t": {"range": [0, values]}, "seed": [1, 2]})
    assert p.engine.state == state


def test_a_rule_that_has_fired_for_too_many_combinations_fails_the_ensemble_with_a_sentence():
    p = swept(finish="never")
    turns = p.engine.rules.states["rule-1"].turns
    turns.update((f'a{{"t":{number}}}', Turns()) for number in range(1000, MAX_COMBINATIONS + 999))
    for job in (1, 2):
        p.run(job)
    assert p.engine.state == "running"
    for job in (3, 4):
        p.run(job)
    assert p.engine.state == "failed"
    assert p.engine.reason == (
        "rule 'rule-1' fired for more than 250000 combinations of values; with 'repetitions: "
        "unlimited' it need not remember them, or give it fewer parameters in 'by'"
    )


def test_many_jobs_of_few_combinations_are_counted_at_once():
    params = {"t": [300, 310], "seed": {"range": [0, 10**9]}}
    rule = {"trigger": "idle", "group": "a", "by": ["t"], "action": {"name": "terminate"}}
    given = document(
        jobs=[{"name": "a", "command": "true", "params": params}],
        rules=[on_start(), rule],
        limits={"jobs": 2**31 - 1, "active-jobs": 1},
    )
    p = Play(given, start=False, accept=False)
    p.handle(Started(1000.0))
    assert p.engine.workload.busy_of('a{"t":300}') == 10**9


@pytest.mark.parametrize("active", [1, 3, 20, 39])
def test_jobs_that_never_were_sent_are_over_when_they_are_cancelled(active):
    params = {"t": {"range": [0, 4]}, "seed": {"range": [0, 10]}}
    p = swept(params=params, limits={"active-jobs": active}, finish="never")
    for job in range(1, active + 1):
        p.event(job, "submit")
    p.request("cancel", group="a")
    for job in range(1, active + 1):
        p.event(job, "exception", type="cancel", severity=0)
        p.event(job, "clean")
    assert sorted(params["t"] for params in reduced(p)) == [0, 1, 2, 3]


def test_combinations_that_fired_and_need_not_be_remembered_are_not():
    p = swept(action={"repetitions": "unlimited"}, finish="never")
    for job in (1, 2, 3, 4):
        p.run(job)
    assert "turns" not in dump(p.engine)["state"]


def test_a_rule_that_joins_later_knows_the_jobs_that_there_are():
    late = {"trigger": "idle", "group": "a", "by": ["seed"], "action": submit("b")}
    p = swept(call("job-start"), custom="def f(**kwargs): ...", limits={"active-jobs": 3})
    p.run(1)
    p.done(p.of(CallCustom)[0], returned=[{"kind": "rule", "value": late}])
    for job in (2, 3, 4):
        p.run(job)
    for each in p.of(CallCustom)[1:]:
        p.done(each)
    causes = [entry["cause"] for entry in p.recorded("fire") if entry["rule"] == "rule-3"]
    assert [cause["params"] for cause in causes] == [{"seed": 1}, {"seed": 2}]


def test_idle_by_goes_on_after_a_recovery():
    rules = (call("job-success", group="a"),)
    p = swept(*rules, custom="def f(**kwargs): ...", action={"repetitions": 2, "backoff": 1})
    p.engine.stats.keep_values()
    values: list[Any] = []
    for step in range(8):
        if step < 4:
            p.run(step + 1)
        else:
            p.done(p.of(CallCustom)[step - 4])
        values.append(p.engine.stats.take_values())
        text = json.dumps(dump(p.engine))
        engine = restore(p.engine.spec, json.loads(text), values)
        engine.check()
        assert json.dumps(dump(engine)) == text
        p.engine = engine
        p.handle = engine.handle
        engine.stats.keep_values()
    assert reduced(p) == [{"t": 300}, {"t": 310}]
