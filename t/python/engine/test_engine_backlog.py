"""Which waiting jobs are sent first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Play, document, on_start, submit

from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.snapshot import dump, restore


def jobs(**more: dict[str, Any]) -> list[dict[str, Any]]:
    """Groups of one job each with these keys."""
    return [{"name": name, "command": "x", **keys} for name, keys in more.items()]


def sent(play: Play) -> list[tuple[str, int]]:
    """The group and number of jobs of each submission, in order."""
    return [(one.group, one.count) for one in play.of(SubmitJobs)]


def test_jobs_go_by_urgency_and_then_first_in_first_out() -> None:
    groups = jobs(a={"count": 3}, low={"urgency": 8}, b={}, high={"urgency": 31})
    rules = [on_start(label) for label in ("a", "low", "b", "high")]
    play = Play(document(jobs=groups, rules=rules, limits={"active-jobs": 1}))
    for job in range(1, 7):
        play.run(job)
    assert sent(play) == [("high", 1), ("a", 1), ("a", 1), ("a", 1), ("b", 1), ("low", 1)]


def test_a_group_has_at_most_max_active_jobs_and_others_overtake_it() -> None:
    groups = jobs(a={"count": 5, "max-active": 2}, b={"count": 2})
    play = Play(document(jobs=groups, rules=[on_start("a"), on_start("b")]))
    assert sent(play) == [("a", 2), ("b", 2)]
    play.run(1)
    assert sent(play)[2:] == [("a", 1)]
    for job in (2, 3, 4, 5, 6, 7):
        play.run(job)
    assert play.engine.state == "completed"
    assert play.submitted("a") == 5


def test_the_smallest_max_active_of_a_group_counts() -> None:
    groups = [
        {"name": "a", "command": "x", "count": 3, "max-active": 3},
        {"name": "a", "command": "y", "count": 3, "max-active": 1},
        {"name": "a", "command": "z"},
    ]
    assert sent(Play(document(jobs=groups, rules=[on_start("a")]))) == [("a", 1)]


def test_canceled_jobs_leave_the_backlog() -> None:
    groups = jobs(a={"count": 5, "max-active": 1}, b={"max-active": 1, "count": 2})
    rules = [on_start("a"), on_start("b"), on_start("a")]
    play = Play(document(jobs=groups, rules=rules))
    play.request("cancel", group="a")
    assert [firing.group for firing in play.engine.workload.backlog] == ["b"]
    play.run(2)
    assert sent(play)[-1] == ("b", 1)


def test_a_request_that_would_have_to_wait_is_refused() -> None:
    groups = jobs(a={"max-active": 2})
    play = Play(document(jobs=groups, rules=[on_start("a")], finish="never"))
    assert play.request("submit", group="a").errno is None
    reply = play.request("submit", group="a")
    assert (reply.errno, reply.reason) == (
        "EAGAIN",
        "1 more jobs would make 3 active in group 'a', and its max-active is 2",
    )


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_snapshot_keeps_the_order(steps: int) -> None:
    groups = jobs(a={"count": 3, "max-active": 1}, high={"urgency": 31, "count": 2}, b={"count": 2})
    rules = [on_start("a"), on_start("b"), on_start("high"), on_start("a", count=1)]
    play = Play(document(jobs=groups, rules=rules, limits={"active-jobs": 2}))
    play.engine.stats.keep_values()
    for job in range(1, steps + 1):
        play.run(job)
    values = [play.engine.stats.take_values()]
    other = restore(play.engine.spec, json.loads(json.dumps(dump(play.engine))), values)
    kept = [(firing.rule, firing.next) for firing in play.engine.workload.backlog]
    assert [(firing.rule, firing.next) for firing in other.workload.backlog] == kept
    assert kept


def test_the_backlog_of_a_bounded_group_is_passed_over_at_once() -> None:
    more = submit("a", repetitions="unlimited")
    rules = [on_start("b"), {"trigger": "job-memo", "group": "b", "action": more}]
    groups = jobs(a={"max-active": 1}, b={})
    play = Play(document(jobs=groups, rules=rules, limits={"jobs": 10_000}))
    play.begin(1)
    for _ in range(500):
        play.event(1, "memo", x=1)
    assert sent(play).count(("a", 1)) == 1
    assert play.engine.workload.waiting("a") == 500
