"""Rates and time: how fast jobs finish, how long it has been, and how long there is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Finish, Play, Started, StartTimer, StopTimer, document, on_start, submit

from flux_ensemble.engine.events import Absent, AllocationChanged, ShareChanged
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.metrics.paths import MetricPath, parse_path

RATE = MetricPath("rate", "a", "")
SLOW = {"trigger": "metric", "name": "rate.a", "when": "< 0.1", "action": submit("b")}


def play(*rules: dict[str, Any], **given: Any) -> Play:
    base = {"logging": {"heartbeat": 10}, "finish": "never"}
    return Play(document(**{**base, "rules": [on_start(count=100), *rules], **given}))


def rate(p: Play) -> float | None:
    return p.engine.stats.lookup(RATE)


def expires(p: Play, t: float | None) -> None:
    p.post(AllocationChanged(p.tick(), t))


def test_a_rate_is_of_the_last_window_and_empty_before_the_first_is_over() -> None:
    p = play(SLOW)
    for job in range(1, 31):
        p.t += 1
        p.run(job)
    assert rate(p) is None
    p.t += 31
    p.heartbeat()
    assert rate(p) == pytest.approx(0.5, abs=0.02)
    assert p.submitted("b") == 0
    p.t += 27
    p.heartbeat()
    assert p.submitted("b") == 1
    p.t += 60
    p.heartbeat()
    assert rate(p) == 0.0


def test_a_rule_on_a_rate_is_evaluated_when_a_job_finishes_however_it_ends() -> None:
    fast = {"trigger": "metric", "name": "rate.a", "when": ">= 0.2", "action": submit("b")}
    p = play(fast, **{"rate-window": "10s"})
    p.t += 10
    p.run(1)
    assert p.submitted("b") == 0
    p.run(2, status=256)
    assert p.submitted("b") == 1


def test_rates_are_kept_for_the_groups_that_rules_read() -> None:
    p = play(SLOW)
    p.run(1)
    assert list(p.engine.metrics(p.t)["rate"]) == ["a"]
    assert "rate" not in play().engine.metrics(p.t)


def test_a_rate_needs_as_little_memory_however_many_jobs_finish() -> None:
    p = play(SLOW, limits={"jobs": 10_000, "active-jobs": 10_000})
    for job in range(1, 101):
        p.t += 5
        p.run(job)
    (parts,) = [value[1] for value in dump(p.engine)["state"]["rates"].values()]
    assert len(parts) <= 60


def test_time_elapsed_is_since_the_start() -> None:
    late = {"trigger": "job-success", "when": "time.elapsed > 60", "action": submit("b")}
    p = play(late)
    p.run(1)
    p.t += 60
    p.run(2)
    assert p.submitted("b") == 1


def test_time_left_is_empty_where_the_allocation_has_no_limit() -> None:
    rules = [
        {"trigger": "job-success", "when": f"time.left {compare} 60", "action": submit("b")}
        for compare in ("<", ">=")
    ]
    p = play(*rules)
    p.run(1)
    expires(p, None)
    p.run(2)
    assert p.submitted("b") == 0
    expires(p, p.t + 100)
    p.run(3)
    assert p.submitted("b") == 1
    p.t += 50
    p.run(4)
    assert p.submitted("b") == 2
    p.t += 500
    assert p.heartbeat() == []
    assert p.engine.stats.lookup(MetricPath("time", "default", "left")) == 0


def test_time_left_fires_once_when_less_is_left_than_it_says() -> None:
    p = play({"trigger": "time-left", "below": "20m", "action": submit("b")})
    assert p.of(StartTimer) == [StartTimer("heartbeat", 10, 10)]
    t = p.t + 3600
    expires(p, t)
    (timer,) = p.of(StartTimer)[1:]
    assert (timer.key, timer.after) == ("rule:rule-1", pytest.approx(2400, abs=0.01))
    p.t = t - 1200
    p.timer("rule:rule-1")
    assert p.submitted("b") == 1
    cause = p.recorded("fire")[1]["cause"]
    assert (cause["trigger"], cause["left"]) == ("time-left", pytest.approx(1200, abs=0.01))


def test_time_left_follows_changes_of_the_allocation() -> None:
    p = play({"trigger": "time-left", "below": "20m", "action": submit("b")})
    t = p.t
    expires(p, t + 3600)
    expires(p, t + 7200)
    assert p.of(StopTimer) == [StopTimer("rule:rule-1")]
    assert p.of(StartTimer)[-1].after == pytest.approx(6000, abs=0.01)
    expires(p, None)
    assert len(p.of(StopTimer)) == 2
    assert p.timer("rule:rule-1") == []
    expires(p, t + 60)
    assert p.of(StartTimer)[-1].after == 0.0


def test_time_left_that_was_disabled_has_its_timer_when_it_is_enabled() -> None:
    rule = {"trigger": "time-left", "below": 60, "enabled": False, "action": submit("b")}
    p = play(rule)
    expires(p, p.t + 100)
    assert len(p.of(StartTimer)) == 1
    p.request("rules", id="rule-1", enabled=True)
    assert p.of(StartTimer)[-1].after == pytest.approx(40, abs=0.01)


def test_time_left_keeps_no_ensemble_from_ending() -> None:
    p = play(
        {"trigger": "time-left", "below": 60, "action": submit("b")},
        rules=[
            on_start(count=1),
            {"trigger": "time-left", "below": 60, "action": submit("b")},
        ],
        finish="idle",
    )
    expires(p, p.t + 100)
    p.run(1)
    assert p.of(Finish)
    assert StopTimer("rule:rule-1") in p.of(StopTimer)


def test_an_expiration_from_before_the_start_counts() -> None:
    rule = {"trigger": "time-left", "below": 60, "action": submit("b")}
    p = Play(document(rules=[rule]), start=False)
    expires(p, p.t + 100)
    assert p.of(StartTimer) == []
    p.post(Started(p.tick()))
    assert [timer.key for timer in p.of(StartTimer)] == ["rule:rule-0"]


def test_rates_and_time_are_those_after_a_recovery_too() -> None:
    p = play(SLOW, {"trigger": "time-left", "below": "20m", "action": submit("b")})
    p.engine.stats.keep_values()
    expires(p, p.t + 100)
    p.request("submit", group="b")
    values = [p.engine.stats.take_values()]
    text = json.dumps(dump(p.engine))
    engine = restore(p.engine.spec, json.loads(text), values)
    assert json.dumps(dump(engine)) == text
    assert engine.metrics(p.t) == p.engine.metrics(p.t)
    for name in ("elapsed", "left"):
        path = MetricPath("time", "default", name)
        assert engine.stats.lookup(path) == p.engine.stats.lookup(path) is not None


def test_names_of_rates_and_times_are_as_in_documents() -> None:
    for text in ("rate.a-b.c", "time.left", "time.elapsed"):
        assert str(parse_path(text, ["a-b.c"], ["mean"])) == text
    with pytest.raises(ValueError, match=r"no metric named 'time\.over'"):
        parse_path("time.over", [], [])


# -- groups with a time limit ------------------------------------------------------------


def limited(t_left: float | None, *rules: dict[str, Any], **group: Any) -> Play:
    """Group a, whose jobs may take 60 s, where the allocation lasts for so long."""
    jobs = [
        {"name": "a", "command": "true", "count": 2, "duration": 60, **group},
        {"name": "b", "command": "true"},
    ]
    p = Play(document(jobs=jobs, rules=[on_start(), on_start("b"), *rules]), start=False)
    expires(p, None if t_left is None else p.t + t_left)
    p.post(Started(p.tick()))
    return p


def test_a_group_is_started_where_the_allocation_lasts_as_long_as_its_jobs_may_take() -> None:
    for p in (limited(None), limited(66), limited(10, start="always"), limited(1, duration=0)):
        assert (p.submitted("a"), p.submitted("b")) == (2, 1)
        assert p.recorded("not-started") == []


def test_a_group_that_may_take_longer_than_there_is_time_waits_and_others_do_not() -> None:
    p = limited(50)
    assert (p.submitted("a"), p.submitted("b")) == (0, 1)
    (entry,) = p.recorded("not-started")
    assert entry["group"] == "a"
    assert entry["reason"] == (
        "its jobs are not started: they may take 60 seconds, and the allocation lasts for 50 more"
    )
    p.run(1)
    assert p.engine.state == "running"
    reply = p.request("submit", group="a")
    assert (reply.errno, reply.reason.startswith("group 'a': its jobs are not started")) == (
        "EAGAIN",
        True,
    )


def test_what_waits_is_started_in_order_when_the_allocation_is_extended() -> None:
    again = {"trigger": "job-success", "group": "b", "action": submit("a", count=1)}
    p = limited(50, again)
    p.run(1)
    assert len(p.recorded("not-started")) == 1
    expires(p, p.t + 600)
    assert p.submitted("a") == 3
    for job in (2, 3, 4):
        p.run(job)
    assert p.engine.state == "completed"


def test_what_waits_can_be_cancelled() -> None:
    p = limited(50)
    p.run(1)
    p.request("cancel", group="a")
    assert p.engine.state == "completed"


def test_a_job_is_not_tried_again_where_there_is_no_time() -> None:
    p = limited(100, retries=1)
    p.t += 50
    p.run(1, status=1)
    assert p.submitted("a") == 2
    assert len(p.recorded("not-started")) == 1


def test_what_waits_for_time_waits_after_a_recovery_too() -> None:
    p = limited(50)
    text = json.dumps(dump(p.engine))
    engine = restore(p.engine.spec, json.loads(text), [])
    engine.check()
    assert json.dumps(dump(engine)) == text
    p.handle = engine.handle
    p.engine = engine
    expires(p, p.t + 600)
    assert p.submitted("a") == 2


def test_rules_read_the_share_of_the_queue_and_act_when_it_changes() -> None:
    few = {"trigger": "metric", "name": "share.queue", "when": "< 0.5", "action": submit("b")}
    many = {"trigger": "start", "when": "share.queue == 1", "action": submit("a")}
    p = play(few, many)
    assert p.engine.wants_share
    assert (p.submitted("b"), p.submitted("a")) == (0, 102)
    assert "share" not in p.engine.metrics(p.t)
    p.post(ShareChanged(p.tick(), 0.5))
    assert p.submitted("b") == 0
    p.post(ShareChanged(p.tick(), 0.25))
    assert p.submitted("b") == 1
    assert p.engine.metrics(p.t)["share"] == {"queue": 0.25}
    # It is not lost with a snapshot.
    again = restore(p.engine.spec, json.loads(json.dumps(dump(p.engine))), [])
    assert again.metrics(p.t)["share"] == {"queue": 0.25}
    p.post(ShareChanged(p.tick(), 1.0))
    assert p.engine.metrics(p.t)["share"] == {"queue": 1.0}


def test_a_share_that_no_rule_reads_is_nothing_to_tell() -> None:
    assert not play(SLOW).engine.wants_share
    read = {**SLOW, "action": {"name": "submit", "label": "b", "count": "{1 + share.queue}"}}
    assert play(read).engine.wants_share


def test_a_job_does_not_wait_while_there_is_no_instance() -> None:
    p = play({"trigger": "job-start", "when": "job.pending > 8", "action": submit("b")})
    p.event(1, "submit")
    p.event(2, "submit")
    since = p.t + 5
    p.t = since + 60
    p.post(Absent(p.t, since))
    ages = list(p.engine.workload.ages("a", "waiting", p.t + 1.0))
    assert ages == [pytest.approx(6.0, abs=0.1)] * 2
    again = restore(p.engine.spec, json.loads(json.dumps(dump(p.engine))), [])
    assert list(again.workload.ages("a", "waiting", p.t + 1.0)) == ages
    p.t += 2
    for name in ("validate", "start"):
        p.event(1, name)
    assert p.engine.metrics(p.t)["mean"]["a-pending"] == pytest.approx(7.0, abs=0.1)
    assert p.submitted("b") == 0, "job.pending is no more than that, too"
    (job,) = [each for each in p.engine.workload.jobs.values() if each.id == 1]
    describer = Describer(p.engine.spec, "/", str, absences=p.engine.workload.absences)
    assert describer.describe(job, p.t)["pending"] == pytest.approx(7.0, abs=0.1)
