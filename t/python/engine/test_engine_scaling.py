"""Growing and shrinking: one request at a time, within bounds, and what rules get to know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import (
    CommandFailed,
    Finish,
    JobEvent,
    MemberChanged,
    Play,
    Request,
    Scale,
    Started,
    StartTimer,
    StopTimer,
    document,
    on_start,
    submit,
)
from test_engine_snapshot import Cuts, cut_play

from flux_ensemble.engine.codec import command_from_json, encode, event_from_json

GROW: dict[str, Any] = {"name": "grow", "repetitions": "unlimited"}
SHRINK: dict[str, Any] = {"name": "shrink", "repetitions": "unlimited"}


def beat(action: dict[str, Any], **rule: Any) -> dict[str, Any]:
    """A rule that acts at each heartbeat."""
    return {"id": "beat", "trigger": "heartbeat", "action": action, **rule}


def scaling(*rules: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A document with rules that grow or shrink, which goes on until it is ended."""
    return document(rules=list(rules), **{"finish": "never", **given})


def played(*rules: dict[str, Any], size: int = 2, high: int = 4, **given: Any) -> Play:
    """A play of such a document on a member of some size."""
    play = Play(scaling(*rules, **given), start=False)
    play.member(size, high=high)
    play.post(Started(play.t))
    return play


def outcome(play: Play) -> Any:
    """The latest outcome in the log."""
    return play.recorded("outcome")[-1]


def error(play: Play) -> Any:
    """What status says that went wrong with the first rule."""
    return play.status()["rules"][0]["error"]


def queue(play: Play) -> Any:
    """What status says of the queue; it has the same under the name before."""
    status = play.status()
    (old,) = status["members"].values()
    assert old | {"nodes": old["size"]} == status["queue"] | {"size": old["size"]}
    return status["queue"]


# -- requests ---------------------------------------------------------------------------


def test_grow_asks_the_member_for_more_nodes_and_takes_the_size_that_it_confirms() -> None:
    play = played(beat({**GROW, "value": 2}), scaling={"deadline": "2m"})
    play.heartbeat()
    (scale,) = play.of(Scale)
    assert scale == Scale(scale.id, "default", 2, 4)
    assert play.commands[-1] == StartTimer(f"scale:{scale.id}", 120.0)
    (asked,) = play.recorded("scale")
    assert asked == {"rule": "beat", "firing": 0, "member": "default", "by": 2, "to": 4}
    assert queue(play)["request"] == {"rule": "beat", "firing": 0, "by": 2, "to": 4, "t": play.t}
    assert play.engine.pending == [scale]

    commands = play.done(scale, nodes=3, by=1)
    assert commands == [StopTimer(f"scale:{scale.id}")]
    assert outcome(play) == {
        "rule": "beat",
        "firing": 0,
        "member": "default",
        "ok": True,
        "nodes": 3,
        "by": 1,
    }
    assert queue(play) == {"nodes": 3, "low": 1, "high": 4, "request": None, "denied": None}


def test_shrink_asks_for_fewer() -> None:
    play = played(beat({**SHRINK, "value": 5}), size=4)
    play.heartbeat()
    (scale,) = play.of(Scale)
    assert (scale.by, scale.to) == (-3, 1)


@pytest.mark.parametrize(
    ("name", "size", "bounds", "given", "to"),
    [
        ("grow", 2, (1, 4), {}, 4),
        ("grow", 2, (1, 9), {"max-nodes": 5}, 5),
        ("grow", 2, (1, 3), {"max-nodes": 5}, 3),
        ("grow", 2, (3, 9), {"min-nodes": 6}, 9),
        ("shrink", 9, (1, 9), {}, 1),
        ("shrink", 9, (4, 9), {"min-nodes": 2}, 4),
        ("shrink", 9, (2, 9), {"min-nodes": 3}, 3),
        ("shrink", 9, (1, 9), {"max-nodes": 4}, 1),
    ],
)
def test_a_request_stays_within_the_bounds_of_the_member_and_of_the_document(
    name: str, size: int, bounds: tuple[int, int], given: dict[str, int], to: int
) -> None:
    play = Play(scaling(beat({"name": name, "value": 20}), scaling=given))
    play.member(size, low=bounds[0], high=bounds[1])
    play.heartbeat()
    (scale,) = play.of(Scale)
    assert (scale.by, scale.to) == (to - size, to)


@pytest.mark.parametrize(
    ("name", "size", "given", "reason"),
    [
        ("grow", 4, {}, "is at its maximum of 4 nodes"),
        ("grow", 3, {"max-nodes": 3}, "is at its maximum of 3 nodes"),
        ("grow", 3, {"max-nodes": 2}, "is above its maximum of 2 nodes"),
        ("shrink", 1, {}, "is at its minimum of 1 node"),
        ("shrink", 2, {"min-nodes": 2}, "is at its minimum of 2 nodes"),
        ("shrink", 2, {"min-nodes": 3}, "is below its minimum of 3 nodes"),
    ],
)
def test_a_request_of_which_the_bounds_leave_nothing_is_denied(
    name: str, size: int, given: dict[str, int], reason: str
) -> None:
    play = played(beat({"name": name}), size=size, scaling=given)
    play.heartbeat()
    assert not play.of(Scale)
    assert outcome(play) == {
        "rule": "beat",
        "firing": 0,
        "member": "default",
        "ok": False,
        "reason": f"the instance {reason}",
        "detail": "",
    }
    denied = {"rule": "beat", "firing": 0, "reason": f"the instance {reason}", "t": play.t}
    assert queue(play)["denied"] == denied


def test_a_member_that_has_said_nothing_and_one_of_fixed_size_are_not_asked() -> None:
    play = Play(scaling(beat(GROW)))
    play.heartbeat()
    assert "size of the instance is fixed, as on the local queue" in outcome(play)["reason"]
    play.member(2, low=2, high=2)
    play.heartbeat()
    assert outcome(play)["reason"] == "the instance has a fixed size"
    assert not play.of(Scale)


def test_a_rule_can_grow_at_the_start() -> None:
    play = played({"trigger": "start", "action": {"name": "grow"}})
    assert len(play.of(Scale)) == 1


def test_there_is_one_request_at_a_time() -> None:
    play = played(beat(GROW), size=1)
    play.heartbeat()
    play.heartbeat()
    assert outcome(play)["reason"] == "the instance is changing its size to 2 nodes already"
    (scale,) = play.of(Scale)
    play.done(scale, nodes=2, by=1)
    play.heartbeat()
    assert [one.to for one in play.of(Scale)] == [2, 3]


def test_a_paused_ensemble_asks_when_it_is_resumed() -> None:
    play = played(beat(GROW), {"trigger": "job-submit", "action": {"name": "grow"}}, on_start())
    play.request("pause")
    play.event(1, "submit")
    assert not play.of(Scale)
    play.request("resume")
    assert len(play.of(Scale)) == 1


def test_a_cooldown_keeps_a_rule_from_asking() -> None:
    play = played(beat({**GROW, "cooldown": 60}), size=1)
    play.heartbeat()
    play.done(play.of(Scale)[0], nodes=2, by=1)
    play.heartbeat()
    assert len(play.of(Scale)) == 1
    play.t += 60
    play.heartbeat()
    assert len(play.of(Scale)) == 2


# -- what rules are told ----------------------------------------------------------------


def test_rules_are_told_that_the_size_has_changed() -> None:
    play = played(
        beat(GROW),
        {"trigger": "scale-done", "action": submit("a")},
        {"trigger": "scale-done", "name": "beat", "when": "nodes.size == 3", "action": submit("b")},
        {"trigger": "scale-done", "name": "rule-1", "action": submit("b", count=7)},
        {"trigger": "scale-denied", "action": submit("b", count=9)},
    )
    play.heartbeat()
    assert play.submitted("a") == 0
    t = play.t + 0.001
    play.done(play.of(Scale)[0], nodes=3, by=1)
    assert (play.submitted("a"), play.submitted("b")) == (2, 1)
    fire = next(one for one in play.recorded("fire") if one["trigger"] == "scale-done beat")
    assert fire["cause"] == {
        "trigger": "scale-done",
        "rule": "beat",
        "firing": 0,
        "member": "default",
        "timestamp": t,
        "nodes": 3,
        "by": 1,
    }


def test_rules_are_told_that_a_request_is_denied_and_why() -> None:
    play = played(
        beat(GROW),
        {"trigger": "scale-denied", "name": "beat", "action": submit("a")},
        {"trigger": "scale-done", "action": submit("b")},
    )
    play.heartbeat()
    play.failed(play.of(Scale)[0], "no budget is left")
    assert (play.submitted("a"), play.submitted("b")) == (2, 0)
    cause = play.recorded("fire")[-1]["cause"]
    assert (cause["trigger"], cause["reason"]) == ("scale-denied", "no budget is left")
    assert outcome(play)["ok"] is True  # of the submission
    assert queue(play)["denied"]["reason"] == "no budget is left"
    (rule, *_) = play.status()["rules"]
    # A rule has dealt with it.
    assert (rule["error"], rule["enabled"]) == (None, True)


def test_rules_are_told_of_a_request_that_is_denied_at_once() -> None:
    play = played(
        on_start("b"),
        {"id": "less", "trigger": "idle", "action": SHRINK},
        {"trigger": "scale-denied", "name": "less", "action": {"name": "terminate"}},
        size=1,
    )
    play.run(1)
    assert play.engine.state == "completed"


def test_a_member_that_does_not_answer_in_time_has_denied() -> None:
    play = played(beat(GROW), {"trigger": "scale-denied", "action": submit("a")})
    play.heartbeat()
    (scale,) = play.of(Scale)
    play.timer(f"scale:{scale.id}")
    assert play.submitted("a") == 2
    reason = "the instance did not answer within 600 seconds"
    assert queue(play)["denied"]["reason"] == reason
    assert queue(play)["request"] is None
    play.heartbeat()
    assert [one.to for one in play.of(Scale)] == [3, 3]
    play.timer(f"scale:{scale.id}")
    assert queue(play)["request"] is not None


def test_what_a_member_refused_is_a_failure_of_the_rule_until_a_request_of_it_is_met() -> None:
    play = played(beat(GROW))
    play.heartbeat()
    play.failed(play.of(Scale)[0], "no budget is left")
    assert error(play) == "no budget is left"
    play.heartbeat()
    play.done(play.of(Scale)[1], nodes=3, by=1)
    assert error(play) is None


def test_a_request_past_its_deadline_is_a_failure_of_the_rule_until_it_is_met_after_all() -> None:
    play = played(beat(GROW))
    play.heartbeat()
    (scale,) = play.of(Scale)
    play.timer(f"scale:{scale.id}")
    assert error(play) == "the instance did not answer within 600 seconds"
    play.done(scale, nodes=3, by=1)
    assert error(play) is None


def test_a_rule_that_acts_on_the_denial_makes_up_for_it_and_one_that_does_not_act_does_not() -> (
    None
):
    for when, left in (("True", None), ("False", "no budget is left")):
        play = played(beat(GROW), {"trigger": "scale-denied", "when": when, "action": submit("a")})
        play.heartbeat()
        play.failed(play.of(Scale)[0], "no budget is left")
        assert error(play) == left
        assert queue(play)["denied"]["reason"] == "no budget is left"


def test_an_answer_after_the_deadline_does_not_mend_a_rule_that_was_disabled() -> None:
    play = played(beat(GROW), scaling={"refusals": 1})
    play.heartbeat()
    (scale,) = play.of(Scale)
    play.timer(f"scale:{scale.id}")
    play.done(scale, nodes=3, by=1)
    assert error(play) == "the instance did not answer within 600 seconds"
    assert not play.status()["rules"][0]["enabled"]


def test_a_request_that_the_bounds_or_another_one_leave_no_room_for_is_no_failure() -> None:
    play = played(beat(GROW), size=3)
    play.heartbeat()
    play.heartbeat()
    assert "already" in outcome(play)["reason"]
    assert error(play) is None
    play.done(play.of(Scale)[0], nodes=4, by=1)
    play.heartbeat()
    assert "at its maximum" in queue(play)["denied"]["reason"]
    assert error(play) is None


@pytest.mark.parametrize("state", ["running", "paused"])
def test_an_outcome_after_the_deadline_is_recorded_and_its_size_taken(state: str) -> None:
    play = played(
        beat({"name": "grow"}),
        {"trigger": "scale-done", "action": submit("a")},
        {"trigger": "metric", "name": "nodes.size", "when": 3, "action": submit("b")},
    )
    play.heartbeat()
    (scale,) = play.of(Scale)
    if state == "paused":
        play.request("pause")
    play.timer(f"scale:{scale.id}")
    play.done(scale, nodes=3, by=1)
    play.done(scale, nodes=4, by=2)
    late = next(one for one in play.recorded("outcome") if "late" in one)
    assert late == {
        "rule": "beat",
        "firing": 0,
        "member": "default",
        "ok": True,
        "nodes": 3,
        "by": 1,
        "late": True,
    }
    assert queue(play)["nodes"] == 3
    play.request("resume" if state == "paused" else "rules", id="beat", enabled=True)
    assert (play.submitted("a"), play.submitted("b")) == (0, 1)


def test_a_refusal_after_the_deadline_is_recorded_and_no_more() -> None:
    play = played(
        beat(GROW),
        {"trigger": "scale-denied", "action": submit("b", repetitions=5)},
        scaling={"refusals": 2},
    )
    play.heartbeat()
    (scale,) = play.of(Scale)
    play.timer(f"scale:{scale.id}")
    play.failed(scale, "too late")
    assert outcome(play)["late"] is True
    assert play.submitted("b") == 1
    assert play.engine.rules.states["beat"].enabled


def test_an_ensemble_that_ends_does_not_wait_for_a_request() -> None:
    play = played(beat({"name": "grow"}))
    play.heartbeat()
    (scale,) = play.of(Scale)
    play.request("terminate")
    assert [type(one) for one in play.commands[-3:-1]] == [StopTimer, Finish]
    assert play.engine.pending == []
    play.done(scale, nodes=3, by=1)
    assert outcome(play)["late"] is True
    assert play.engine.state == "completed"


def test_an_ensemble_waits_for_a_request_that_can_bring_about_more() -> None:
    play = played(
        {"trigger": "start", "action": {"name": "grow"}},
        {"trigger": "scale-done", "action": submit("b")},
        finish="idle",
        logging={"heartbeat": 10},
    )
    assert play.engine.state == "running"
    play.done(play.of(Scale)[0], nodes=3, by=1)
    assert play.submitted("b") == 1
    play.run(1)
    assert play.engine.state == "completed"


# -- too much ---------------------------------------------------------------------------


def refuse(play: Play, times: int) -> None:
    """The member refuses what the heartbeat asks for."""
    for _ in range(times):
        play.heartbeat()
        play.failed(play.of(Scale)[-1], "no budget is left")


@pytest.mark.parametrize(("given", "refusals"), [({}, 3), ({"refusals": 1}, 1)])
def test_a_rule_is_disabled_when_the_member_refuses_again_and_again(
    given: dict[str, int], refusals: int
) -> None:
    play = played(beat(GROW), scaling=given)
    refuse(play, refusals - 1)
    assert not play.recorded("rule-disabled")
    refuse(play, 1)
    (disabled,) = play.recorded("rule-disabled")
    times = "3 times in a row" if refusals == 3 else "once"
    sentence = f"the instance did not change its size {times}: no budget is left"
    assert disabled == {"rule": "beat", "reason": sentence}
    play.heartbeat()
    assert len(play.of(Scale)) == refusals
    play.request("rules", id="beat", enabled=True)
    refuse(play, refusals - 1)
    assert play.engine.rules.states["beat"].enabled
    refuse(play, 1)
    assert not play.engine.rules.states["beat"].enabled


def test_a_request_that_is_met_starts_the_count_of_refusals_anew() -> None:
    play = played(beat(GROW), size=1)
    refuse(play, 2)
    play.heartbeat()
    play.done(play.of(Scale)[-1], nodes=2, by=1)
    refuse(play, 2)
    assert not play.recorded("rule-disabled")


def test_requests_that_time_out_count_as_refusals() -> None:
    play = played(beat(GROW), scaling={"deadline": 5, "refusals": 2})
    for _ in range(2):
        play.heartbeat()
        play.timer(f"scale:{play.of(Scale)[-1].id}")
    (disabled,) = play.recorded("rule-disabled")
    reason = "the instance did not answer within 5 seconds"
    assert disabled["reason"].endswith(f"2 times in a row: {reason}")


def test_what_is_denied_without_asking_the_member_is_no_refusal() -> None:
    play = played(beat(GROW), size=3)
    play.heartbeat()
    for _ in range(5):
        play.heartbeat()
    play.done(play.of(Scale)[-1], nodes=4, by=1)
    for _ in range(5):
        play.heartbeat()
    assert not play.recorded("rule-disabled")
    play.member(3)
    play.heartbeat()
    assert len(play.of(Scale)) == 2


def test_refusals_fail_the_ensemble_where_the_rule_says_so() -> None:
    play = played(beat(GROW, **{"on-error": "fail"}), scaling={"refusals": 2})
    refuse(play, 2)
    assert play.engine.state == "failed"
    assert play.engine.reason == (
        "rule 'beat': the instance did not change its size 2 times in a row: no budget is left"
    )


def test_rules_that_answer_each_other_s_denials_without_end_fail_the_ensemble() -> None:
    again = {"trigger": "scale-denied", "action": GROW}
    play = played(beat(GROW), {"id": "x", **again}, {"id": "y", **again}, size=4)
    play.heartbeat()
    assert play.engine.state == "failed"
    assert play.engine.reason.startswith("rules fire each other with no job or time between them:")
    assert play.engine.firings < 250


def test_idle_rules_and_denials_that_bring_about_each_other_without_end_fail_the_ensemble() -> None:
    unlimited = {"repetitions": "unlimited"}
    play = played(
        on_start("b"),
        {"trigger": "idle", "name": "a", "action": GROW},
        {"trigger": "scale-denied", "action": submit("a", **unlimited)},
        {"trigger": "scale-denied", "action": {"name": "cancel", "label": "a", **unlimited}},
        beat(GROW),
        size=4,
        limits={"active-jobs": 1},
    )
    play.heartbeat()
    assert play.engine.state == "failed"
    assert play.engine.firings < 500


def test_an_ensemble_ends_when_all_that_is_left_is_to_shrink_at_the_minimum() -> None:
    play = played(
        on_start("b"),
        {"trigger": "metric", "when": "nodes.free > 0", "action": SHRINK},
        finish="idle",
        logging={"heartbeat": 10},
        size=2,
    )
    play.member(2, free=1)
    (scale,) = play.of(Scale)
    play.run(1)
    assert play.engine.state == "running"
    play.done(scale, nodes=1, by=-1)
    assert play.engine.state == "completed"


def test_the_size_of_an_elastic_member_is_news_and_so_is_what_a_rule_reads() -> None:
    def said(size: int, up: int, free: int, low: int, high: int) -> MemberChanged:
        return MemberChanged(1.0, "default", size, up, free, low, high)

    starts = {"trigger": "start", "action": submit("a")}
    untold = Play(scaling(starts), start=False).engine.nodes.is_news
    assert not untold(said(4, 4, 2, 4, 4))
    assert untold(said(4, 4, 2, 1, 4))
    news = played(starts, size=2, high=4).engine.nodes.is_news
    assert not news(said(2, 1, 2, 1, 4))
    assert news(said(3, 2, 0, 1, 4))
    assert news(said(2, 2, 0, 1, 3))
    reads = {"trigger": "metric", "name": "nodes.up", "when": 9, "action": submit("a")}
    assert Play(scaling(reads), start=False).engine.nodes.is_news(said(4, 4, 2, 4, 4))
    news = played(reads, size=2, high=4).engine.nodes.is_news
    assert news(said(2, 1, 0, 1, 4))
    assert not news(said(2, 2, 1, 1, 4))


# -- metrics ----------------------------------------------------------------------------


def test_rules_see_what_the_member_has_when_it_changes() -> None:
    play = played(
        {"trigger": "metric", "name": "nodes.up", "when": ">= 3", "action": submit("a")},
        {
            "trigger": "metric",
            "when": "nodes.free == 2 and nodes.size > 2",
            "action": submit("b", repetitions=9),
        },
    )
    assert play.engine.wants_nodes == {"up", "free", "size"}
    play.member(2, free=2)
    assert play.submitted("a") == play.submitted("b") == 0
    t = play.t + 0.001
    play.member(3, free=2)
    assert (play.submitted("a"), play.submitted("b")) == (2, 1)
    assert play.recorded("fire")[0]["cause"] == {
        "trigger": "member",
        "member": "default",
        "size": 3,
        "up": 3,
        "free": 2,
        "timestamp": t,
        "metric": "nodes.up",
        "value": 3,
    }
    play.member(3, free=2)
    assert play.submitted("b") == 1
    assert play.engine.metrics(play.t)["nodes"] == {"size": 3, "up": 3, "free": 2}


def test_what_the_member_has_at_the_start_is_news_to_rules() -> None:
    play = played({"trigger": "metric", "name": "nodes.size", "action": submit("b")})
    assert play.submitted("b") == 1


def test_pending_nodes_are_those_of_the_jobs_in_the_queue_that_have_not_started() -> None:
    jobs = [
        {"name": "a", "command": "true", "nodes": 2},
        {"name": "a", "command": "true", "nodes": 3},
        {"name": "b", "command": "true", "nodes": 5},
    ]
    play = played(on_start(), on_start("b"), jobs=jobs)

    def pending() -> Any:
        return play.engine.metrics(play.t)["queue"]["pending-nodes"]

    assert pending() == 0
    for job, nodes in ((1, 2), (2, 5), (3, 10)):
        play.event(job, "submit")
        play.event(job, "validate")
        assert pending() == nodes
    play.event(2, "start")
    assert pending() == 7
    play.event(1, "exception", type="cancel")
    play.event(1, "clean")
    assert pending() == 5
    play.event(3, "finish", status=256)
    assert pending() == 0
    play.end(2)
    play.event(3, "clean")
    assert pending() == 0


def test_pending_nodes_trigger_rules_when_jobs_come_start_and_go() -> None:
    action = {"name": "disable", "label": "none", "repetitions": "unlimited"}
    rule = {"trigger": "metric", "name": "queue.pending-nodes", "action": action}
    play = played(on_start(), beat(GROW, id="none"), rule)

    def values() -> list[Any]:
        causes = [one["cause"] for one in play.recorded("fire")]
        return [one["value"] for one in causes if "metric" in one]

    play.begin(1)
    assert values() == [1, 0]
    play.event(2, "submit")
    play.event(2, "invalidate")
    assert values() == [1, 0, 1, 0]
    play.end(1)
    assert values() == [1, 0, 1, 0]


def test_a_memo_may_have_a_key_that_is_called_like_a_metric() -> None:
    rule = {"trigger": "job-memo", "when": "nodes > 3 and nodes.free > 1", "action": submit("b")}
    play = played(on_start(), rule)
    play.member(4, free=2)
    play.begin(1)
    play.event(1, "memo", nodes=3)
    assert play.submitted("b") == 0
    play.event(1, "memo", nodes=4)
    assert play.submitted("b") == 1


# -- requests by users ------------------------------------------------------------------


def test_users_can_ask_a_member_that_can_change_its_size() -> None:
    play = played()
    reply = play.request("action", action={"name": "grow"})
    assert reply.result == {"firing": 0}
    (scale,) = play.of(Scale)
    play.failed(scale, "no budget is left")
    assert outcome(play)["rule"] == "request"
    assert queue(play)["denied"]["rule"] == "request"
    play.member(2, low=2, high=2)
    reply = play.request("action", action={"name": "grow"})
    assert (reply.errno, reply.reason) == (
        "EINVAL",
        "action: 'grow' needs an instance that can change its nodes",
    )


# -- snapshots and records --------------------------------------------------------------


def all_of_it() -> tuple[Play, Cuts]:
    """A history with some of everything, cut before each event."""
    play, cuts = cut_play(
        scaling(
            on_start(),
            beat(GROW),
            {"trigger": "scale-denied", "name": "beat", "action": submit("b", repetitions=2)},
            {"trigger": "metric", "when": "queue['pending-nodes'] > nodes.free", "action": SHRINK},
            scaling={"refusals": 2, "max-nodes": 5},
            jobs=[
                {"name": "a", "command": "true", "nodes": 2},
                {"name": "a", "command": "true", "nodes": 3},
                {"name": "b", "command": "true"},
            ],
        )
    )
    play.member(2, free=2, high=9)
    play.heartbeat()
    play.event(1, "submit")
    play.event(2, "submit")
    (first,) = play.of(Scale)
    play.timer(f"scale:{first.id}")
    play.event(1, "validate")
    play.heartbeat()
    play.done(first, nodes=3, by=1)
    play.post(CommandFailed(play.tick(), play.of(Scale)[1].id, "EPERM", "no", "detail"))
    play.request("action", action={"name": "grow"})
    play.post(Request(play.tick(), 99, "pause", {}))
    play.member(4, free=1, high=9)
    play.event(1, "start")
    play.post(Request(play.tick(), 100, "terminate", {}))
    play.done(play.of(Scale)[-1], nodes=5, by=1)
    return play, cuts


def test_snapshots_have_all_of_it() -> None:
    play, cuts = all_of_it()
    assert len(play.of(Scale)) >= 3
    cuts.check()


def test_an_outstanding_request_is_pending_after_a_crash() -> None:
    _, cuts = all_of_it()
    requests = [
        one
        for cut in range(len(cuts.events))
        for one in cuts.restored(cut).pending
        if isinstance(one, Scale)
    ]
    assert requests


def test_events_and_commands_of_scaling_round_trip_through_json() -> None:
    event = MemberChanged(1.0, "default", 3, 2, 1, 1, 4)
    assert event_from_json(json.loads(encode(event))) == event
    command = Scale(7, "default", -2, 1)
    assert command_from_json(json.loads(encode(command))) == command


def test_firings_that_are_over_leave_nothing_behind() -> None:
    play = Play(
        document(
            custom="def f(**kwargs): ...\n",
            rules=[beat({"name": "custom", "label": "f", "repetitions": "unlimited"})],
            finish="never",
            logging={"heartbeat": 10},
        )
    )
    # Every other firing submits nothing.
    for _ in range(3):
        (call,) = play.heartbeat()
        play.done(call, returned=[{"kind": "action", "value": submit("b")}])
        play.run(max(play.queued))
    assert play.engine.firings == 6
    assert not list(play.engine.workload.firings)
    assert not play.engine.workload.backlog


def test_a_tag_of_a_firing_that_is_over_is_not_expected_again() -> None:
    play = Play(document(rules=[on_start("b")], finish="never"))
    play.run(1)
    tag = play.queued[1]
    assert not play.engine.expects(tag)
    assert play.post(JobEvent(play.tick(), 9, "submit", {}, tag)) == []
