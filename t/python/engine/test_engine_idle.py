"""Rules on `idle`: not before what jobs have brought about is done, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import CallCustom, CancelJobs, Play, SubmitJobs, document, on_start, submit

from flux_ensemble.engine.codec import encode
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
