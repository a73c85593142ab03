"""The allocation of the instance ends: nothing more is started, and what it hits runs again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Play, SubmitJobs, document, on_start, submit

from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.events import AllocationChanged, AllocationEnding, Interrupted
from flux_ensemble.engine.snapshot import dump, restore

#: Seconds from an event to the end of the allocation.
LEFT = 100.0


def played(*rules: dict[str, Any], count: int = 2, **of_group: Any) -> Play:
    """Group a has jobs, of which the first two run; the rules submit b."""
    given = document(
        jobs=[
            {"name": "a", "command": "true", "count": count, **of_group},
            {"name": "b", "command": "true"},
        ],
        rules=[on_start(), *rules],
        finish="never",
    )
    play = Play(given)
    play.engine.stats.keep_values()
    for job in (1, 2):
        play.begin(job)
    return play


def ending(play: Play) -> float:
    """The allocation is about to end; returns when it does."""
    t_expires = play.tick() + LEFT
    play.post(AllocationEnding(play.t, t_expires))
    return t_expires


def expired(play: Play, job: int, t: float) -> None:
    """The job ends at `t` by a timeout."""
    play.t = t
    play.event(job, "exception", type="timeout", severity=0, note="resource allocation expired")
    play.end(job, status=14)


def more_time(play: Play) -> list[Any]:
    return play.post(AllocationChanged(play.tick(), None))


def test_nothing_is_sent_until_there_is_time_again() -> None:
    play = played({"trigger": "job-success", "group": "a", "action": submit("b")})
    ending(play)
    play.end(1)
    assert play.submitted("b") == 0
    assert play.recorded("walltime") == [
        {"t_expires": play.engine.t_walltime, "active": 2, "waiting": 0}
    ]
    assert [type(command) for command in more_time(play)][-1] is SubmitJobs
    assert play.submitted("b") == 1
    assert play.recorded("allocation") == [{"t_expires": None}]


def test_that_it_ends_is_said_once() -> None:
    play = played()
    t_expires = ending(play)
    play.post(AllocationEnding(play.tick(), t_expires))
    assert len(play.recorded("walltime")) == 1


@pytest.mark.parametrize("trigger", ["job-timeout", "job-fail", "job-exception", "job-finish"])
def test_no_rule_fires_for_a_job_that_the_end_hits(trigger: str) -> None:
    play = played({"trigger": trigger, "group": "a", "action": submit("b")})
    expired(play, 1, ending(play))
    more_time(play)
    assert play.submitted("b") == 0


def test_it_runs_again_without_retries_as_if_it_had_not_run() -> None:
    play = played()
    expired(play, 1, ending(play))
    assert play.status()["interrupted"] == 1
    assert play.status()["jobs"] == {"waiting": 1, "active": 1, "total": 2}
    command = more_time(play)[-1]
    assert (command.group, command.first, command.count) == ("a", 0, 1)
    [entry] = play.recorded("retry")
    assert entry["attempt"] == 0
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["canceled"], counts["failed"]) == (1, 0, 0)
    assert play.status()["jobs"]["total"] == 2


def test_a_limit_on_jobs_does_not_count_it_twice() -> None:
    given = document(
        jobs=[{"name": "a", "command": "true", "count": 2}],
        rules=[on_start()],
        limits={"jobs": 2},
    )
    play = Play(given)
    play.begin(1)
    expired(play, 1, ending(play))
    assert play.engine.state == "running"
    more_time(play)
    assert play.submitted("a") == 3


def test_a_time_limit_of_the_job_itself_is_no_end_of_the_allocation() -> None:
    play = played({"trigger": "job-timeout", "group": "a", "action": submit("b")})
    t_expires = ending(play)
    expired(play, 1, t_expires - 2)
    more_time(play)
    assert play.submitted("b") == 1
    assert play.engine.stats.counts["a"]["timeout"] == 1


def test_a_job_that_the_ensemble_cancels_is_not_run_again() -> None:
    cancel = {"trigger": "job-success", "group": "a", "action": {"name": "cancel", "label": "a"}}
    play = played(cancel)
    t_expires = ending(play)
    play.end(1)
    expired(play, 2, t_expires)
    more_time(play)
    assert play.submitted("a") == 2


def test_jobs_that_the_shutdown_cancels_after_it_run_again_too() -> None:
    play = played()
    t_expires = ending(play)
    play.t = t_expires
    play.post(Interrupted(t_expires, (1,)))
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, status=15)
    more_time(play)
    assert play.submitted("a") == 3


def test_it_goes_on_from_a_snapshot() -> None:
    play = played()
    t_expires = ending(play)
    values = [play.engine.stats.take_values()]
    snapshot = json.loads(json.dumps(dump(play.engine)))
    play.engine = restore(play.engine.spec, snapshot, values)
    assert play.engine.t_walltime == t_expires
    assert play.engine.wants_of_member[1]
    expired(play, 1, t_expires)
    more_time(play)
    assert play.submitted("a") == 3


def test_the_event_is_in_recordings() -> None:
    event = AllocationEnding(5.0, 15.0)
    assert event_from_json(json.loads(json.dumps(to_json(event)))) == event


def test_an_ensemble_that_has_ended_is_not_told() -> None:
    play = Play(document(jobs=[{"name": "a", "command": "true"}], rules=[on_start()]))
    play.run(1)
    assert play.engine.ended
    ending(play)
    assert play.recorded("walltime") == []


@pytest.mark.parametrize("status", [15, 143 << 8, 1 << 8, 9])
def test_what_fails_after_the_end_was_hit_by_it_however_it_exits(status: int) -> None:
    play = played({"trigger": "job-fail", "group": "a", "action": submit("b")}, retries=1)
    play.t = ending(play) + 1.0
    play.end(1, status=status)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["failed"]) == (1, 0)
    more_time(play)
    assert play.submitted("b") == 0


def test_a_job_that_many_ends_of_allocations_hit_is_not_given_up() -> None:
    play = played()
    for job in (1, 3, 4, 5, 6, 7):
        if job > 2:
            play.begin(job)
        play.t = ending(play) + 1.0
        play.end(job, status=15)
        more_time(play)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["failed"]) == (6, 0)
    assert play.submitted("a") == 8


def test_what_fails_just_before_the_end_has_failed_by_itself() -> None:
    play = played()
    play.t = ending(play) - 1.0
    play.end(1, status=1 << 8)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["failed"]) == (0, 1)


def test_what_succeeds_after_the_end_has_succeeded() -> None:
    play = played()
    play.t = ending(play) + 1.0
    play.end(1, status=0)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["success"]) == (0, 1)
