"""Jobs that end because the instance shut down: nobody wanted that, so no rule acts on it."""

from __future__ import annotations

from typing import Any

import pytest
from play import Play, SubmitJobs, document, on_start, submit

from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.events import Interrupted


def played(*rules: dict[str, Any], retries: int = 0) -> Play:
    """Group a has two jobs, which run; the rules submit b."""
    given = document(
        jobs=[
            {"name": "a", "command": "true", "count": 2, "retries": retries},
            {"name": "b", "command": "true"},
        ],
        rules=[on_start(), *rules],
        finish="never",
    )
    play = Play(given)
    for job in (1, 2):
        play.begin(job)
    return play


def interrupt(play: Play, *jobs: int) -> None:
    """The instance shut down while the jobs ran, and they were cancelled."""
    assert play.post(Interrupted(play.tick(), jobs)) == []


def canceled(play: Play, job: int) -> None:
    """The job ends by a cancel exception."""
    play.event(job, "exception", type="cancel", severity=0)
    play.end(job, status=15)


def test_an_interrupted_job_counts_as_canceled_and_is_logged() -> None:
    play = played()
    interrupt(play, 2)
    canceled(play, 2)
    assert play.engine.stats.counts["a"]["canceled"] == 1
    entry = {"id": 2, "group": "a", "rule": "rule-0", "firing": 0, "index": 1}
    assert play.recorded("interrupted") == [entry]
    assert play.status()["interrupted"] == 1


@pytest.mark.parametrize("trigger", ["job-cancel", "job-fail"])
def test_no_rule_on_cancels_or_failures_fires_for_an_interrupted_job(trigger: str) -> None:
    play = played({"trigger": trigger, "action": submit("b", repetitions="unlimited")})
    interrupt(play, 1, 2)
    canceled(play, 1)
    canceled(play, 2)
    assert play.submitted("b") == 0


@pytest.mark.parametrize(
    "trigger",
    [
        {"trigger": "job-finish"},
        {"trigger": "job-clean", "group": "a"},
        {"trigger": "job-exception"},
        {"trigger": "metric", "name": "count.a.canceled", "when": 2},
        {"trigger": "metric", "name": "count.a.finished", "when": 2},
        {"trigger": "idle"},
        {"trigger": "idle", "name": "a"},
    ],
    ids=str,
)
def test_other_rules_fire_for_interrupted_jobs_as_usual(trigger: dict[str, Any]) -> None:
    play = played({**trigger, "action": submit("b")})
    interrupt(play, 1, 2)
    canceled(play, 1)
    canceled(play, 2)
    assert play.submitted("b") == 1


def test_an_interrupted_job_is_tried_again_while_its_group_has_retries() -> None:
    play = played(retries=1)
    interrupt(play, 1)
    canceled(play, 1)
    first = play.of(SubmitJobs)[-1]
    assert (first.rule, first.first, first.count) == ("retry", 0, 1)
    assert play.recorded("retry")[0]["attempt"] == 1
    play.begin(3)
    interrupt(play, 3)
    canceled(play, 3)
    assert len(play.of(SubmitJobs)) == 2


def test_a_job_that_ends_otherwise_is_not_interrupted() -> None:
    play = played({"trigger": "job-fail", "action": submit("b")}, retries=1)
    interrupt(play, 1, 2)
    play.end(1)
    play.end(2, status=256)
    assert play.recorded("interrupted") == []
    assert play.status()["interrupted"] == 0
    assert play.submitted("b") == 1
    assert play.engine.stats.counts["a"]["failed"] == 1


def test_jobs_that_are_unknown_gone_or_of_others_are_ignored() -> None:
    play = played({"trigger": "job-cancel", "scope": "queue", "action": submit("b")})
    play.end(1)
    play.foreign(99, "start")
    interrupt(play, 1, 77, 99)
    play.foreign(99, "exception", type="cancel", severity=0)
    play.foreign(99, "finish", status=15)
    assert play.submitted("b") == 1
    assert play.recorded("interrupted") == []


def test_a_job_whose_outcome_is_known_is_not_interrupted() -> None:
    play = played()
    play.event(1, "exception", type="cancel", severity=0)
    play.event(1, "finish", status=15)
    interrupt(play, 1)
    play.event(1, "clean")
    assert play.recorded("interrupted") == []


def test_a_job_that_the_ensemble_cancels_itself_is_not_interrupted() -> None:
    play = played({"trigger": "job-cancel", "action": submit("b")}, retries=1)
    play.request("cancel", group="a")
    interrupt(play, 1, 2)
    canceled(play, 1)
    assert play.recorded("interrupted") == []
    assert play.recorded("retry") == []
    assert play.submitted("b") == 1


def test_an_interrupted_job_that_never_ran_is_tried_again_too() -> None:
    given = document(
        jobs=[{"name": "a", "command": "true", "retries": 1}], rules=[on_start()], finish="never"
    )
    play = Play(given)
    play.event(1, "submit")
    play.event(1, "validate")
    interrupt(play, 1)
    play.event(1, "exception", type="cancel", severity=0)
    play.event(1, "clean")
    assert len(play.recorded("interrupted")) == 1
    assert play.of(SubmitJobs)[-1].rule == "retry"


def test_the_event_goes_through_json() -> None:
    event = Interrupted(5.0, (1, 2))
    assert to_json(event) == {"type": "Interrupted", "t": 5.0, "jobs": (1, 2)}
    assert event_from_json({"type": "Interrupted", "t": 5.0, "jobs": [1, 2]}) == event
