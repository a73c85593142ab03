"""Jobs whose end was no doing of theirs: they run again, and nobody counts that as a failure."""

from __future__ import annotations

from typing import Any

import pytest
from play import Play, SubmitJobs, document, on_start, submit

from flux_ensemble import eventlog
from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.events import Interrupted
from flux_ensemble.engine.records import decode, encode
from flux_ensemble.engine.retries import Fate


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


def lost(play: Play, job: int, note: str = "gone", kind: str = "lost") -> None:
    """The job is gone with its node, its member or the run."""
    play.event(job, "exception", type=kind, severity=0, note=note)
    play.event(job, "clean")


def test_an_interrupted_job_is_counted_apart_and_is_logged() -> None:
    play = played()
    interrupt(play, 2)
    canceled(play, 2)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["canceled"], counts["finished"]) == (1, 0, 0)
    entry = {"id": 2, "group": "a", "rule": "rule-0", "firing": 0, "index": 1}
    assert play.recorded("interrupted") == [{**entry, "fate": "again", "reason": ""}]
    assert play.status()["interrupted"] == 1


def test_each_fate_of_an_interrupted_job_has_a_sentence_of_its_own() -> None:
    job: dict[str, Any] = {"id": 1, "group": "a", "rule": "r", "firing": 0, "index": 0}
    entries = [eventlog.Interrupted(**job, fate=fate.value, reason="") for fate in Fate]
    assert len({entry.sentence(0.0, str) for entry in entries}) == len(Fate)
    assert len({entry.sentence_of(2) for entry in entries}) == len(Fate)


@pytest.mark.parametrize("trigger", ["job-cancel", "job-fail", "job-exception", "job-finish"])
def test_no_rule_on_jobs_fires_for_an_interrupted_job(trigger: str) -> None:
    play = played({"trigger": trigger, "action": submit("b", repetitions="unlimited")})
    interrupt(play, 1, 2)
    canceled(play, 1)
    canceled(play, 2)
    assert play.submitted("b") == 0


@pytest.mark.parametrize("counter", ["interrupted", "attempts"])
def test_rules_on_its_counters_fire_for_interrupted_jobs(counter: str) -> None:
    rule = {"trigger": "metric", "name": f"count.a.{counter}", "when": 2, "action": submit("b")}
    play = played(rule)
    interrupt(play, 1, 2)
    canceled(play, 1)
    canceled(play, 2)
    assert play.submitted("b") == 1


def test_its_group_is_not_idle_before_it_has_run_again() -> None:
    play = played({"trigger": "idle", "name": "a", "action": submit("b")})
    lost(play, 1)
    play.end(2)
    assert play.submitted("b") == 0
    play.run(3)
    assert play.submitted("b") == 1


def test_an_interrupted_job_runs_again_as_if_it_had_not_run() -> None:
    play = played(retries=1)
    interrupt(play, 1)
    canceled(play, 1)
    again = play.of(SubmitJobs)[-1]
    assert (again.rule, again.first, again.count) == ("retry", 0, 1)
    assert play.recorded("retry")[0]["attempt"] == 0
    assert play.status()["jobs"]["total"] == 2
    play.run(3, status=256)
    assert play.recorded("retry")[1]["attempt"] == 1


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("lost", "the queue does not know the job any more"),
        ("exec", "node failure on n3 (rank 3)"),
        ("exec", "failed to create guest ns: File exists"),
        ("exec", "reattach to running job is not implemented: Function not implemented"),
        ("scheduler-restart", "failed to reallocate R for running job"),
    ],
)
def test_what_is_lost_runs_again_and_has_not_failed(kind: str, note: str) -> None:
    play = played({"trigger": "job-fail", "action": submit("b")})
    lost(play, 1, note, kind)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["failed"], counts["finished"]) == (1, 0, 0)
    assert play.submitted("a") == 3
    assert play.submitted("b") == 0


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("exec", "job shell exec error on n3 (rank 3)"),
        ("alloc", "unsatisfiable request"),
        ("x", ""),
    ],
)
def test_other_exceptions_are_failures(kind: str, note: str) -> None:
    play = played()
    lost(play, 1, note, kind)
    assert play.engine.stats.counts["a"]["failed"] == 1
    assert play.submitted("a") == 2


def test_an_exception_that_is_not_fatal_interrupts_nothing() -> None:
    play = played()
    play.event(1, "exception", type="exec", severity=2, note="node failure on n3 (shell rank 3)")
    play.end(1, status=256)
    assert play.engine.stats.counts["a"]["failed"] == 1


def test_a_job_that_is_lost_each_time_is_given_up() -> None:
    rules = (
        {"trigger": "job-fail", "action": submit("b", repetitions="unlimited")},
        {"trigger": "job-gave-up", "action": submit("b", repetitions="unlimited")},
    )
    play = played(*rules, retries=5)
    for job in (1, 3, 4, 5):
        if job > 2:
            play.begin(job)
        lost(play, job)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["failed"], counts["gave-up"]) == (3, 1, 1)
    [entry] = play.recorded("gave-up")
    assert entry["reason"] == "it was lost 4 times, the last time: lost: gone"
    assert play.submitted("b") == 2


def test_a_job_that_was_tried_again_has_failed_once_or_not() -> None:
    play = played(retries=1)
    play.end(1, status=256)
    lost(play, 2)
    assert play.status()["failed"] == 0
    play.run(3, status=256)
    play.run(4)
    assert play.status()["failed"] == 1


def test_a_document_says_how_often_a_job_may_be_lost() -> None:
    given = document(
        jobs=[{"name": "a", "command": "true"}],
        rules=[on_start()],
        limits={"losses": 0},
        finish="never",
    )
    play = Play(given)
    play.begin(1)
    lost(play, 1)
    assert play.engine.stats.counts["a"]["failed"] == 1
    assert play.recorded("gave-up")[0]["reason"] == "it was lost once, the last time: lost: gone"


def test_what_ends_in_order_can_do_so_any_number_of_times() -> None:
    play = played()
    for job in (1, 3, 4, 5, 6, 7):
        if job > 2:
            play.begin(job)
        interrupt(play, job)
        canceled(play, job)
    assert play.engine.stats.counts["a"]["interrupted"] == 6
    assert play.submitted("a") == 8


def on_lost(value: str, **of_group: Any) -> Play:
    """Group a has a job, which runs."""
    job = {"name": "a", "command": "true", "on-lost": value, **of_group}
    fails = {"trigger": "job-fail", "when": "job.interrupted", "action": submit("b")}
    jobs = [job, {"name": "b", "command": "true"}]
    play = Play(document(jobs=jobs, rules=[on_start(), fails], finish="never"))
    play.begin(1)
    return play


def test_a_group_that_does_not_begin_twice_fails() -> None:
    play = on_lost("fail")
    lost(play, 1)
    counts = play.engine.stats.counts["a"]
    assert (counts["failed"], counts["interrupted"], counts["finished"]) == (1, 0, 1)
    assert play.submitted("a") == 1
    assert play.submitted("b") == 1


@pytest.mark.parametrize(("status", "outcome"), [(0, "success"), (256, "failed")])
def test_what_is_lost_when_it_has_finished_has_the_outcome_that_it_had(
    status: int, outcome: str
) -> None:
    play = played({"trigger": "job-clean", "group": "a", "action": submit("b")})
    play.engine.records.keep()
    play.event(1, "finish", status=status)
    lost(play, 1)
    assert play.submitted("a") == 2
    assert play.submitted("b") == 1
    (job,) = play.engine.records.take()
    assert (job.outcome, job.interrupted) == (outcome, False)


def test_its_retries_can_have_it_run_again() -> None:
    play = on_lost("fail", retries=1)
    lost(play, 1)
    assert play.submitted("a") == 2
    assert play.recorded("retry")[0]["attempt"] == 1


def test_it_runs_where_it_had_not_started() -> None:
    job = {"name": "a", "command": "true", "on-lost": "fail"}
    play = Play(document(jobs=[job], rules=[on_start()], finish="never"))
    play.event(1, "submit")
    play.event(1, "validate")
    interrupt(play, 1)
    play.event(1, "exception", type="cancel", severity=0)
    play.event(1, "clean")
    assert play.submitted("a") == 2


def test_a_group_can_have_it_held() -> None:
    play = on_lost("hold")
    lost(play, 1)
    assert play.of(SubmitJobs)[-1].overrides == {"urgency": 0}


def test_a_job_that_the_ensemble_cancels_and_that_is_lost_is_canceled() -> None:
    play = played()
    play.request("cancel", group="a")
    lost(play, 1)
    counts = play.engine.stats.counts["a"]
    assert (counts["canceled"], counts["interrupted"], counts["failed"]) == (1, 0, 0)


def test_it_tells_nothing_of_how_long_jobs_run() -> None:
    statistic = {"name": "longest", "statistic": "Max", "of": "finished"}
    given = document(rules=[on_start()], metrics=[statistic], finish="never")
    play = Play(given)
    play.begin(1)
    play.t += 1000
    play.event(1, "exception", type="exec", severity=0, note="node failure on n3 (rank 3)")
    play.end(1, status=9)
    assert play.engine.metrics(play.t)["longest"].get("a-duration") is None


def test_the_record_has_what_an_attempt_was() -> None:
    play = played()
    play.engine.records.keep()
    lost(play, 1)
    play.end(2)
    rows = decode(encode(play.engine.records.take()))
    assert [(job.outcome, job.interrupted) for job in rows] == [
        ("interrupted", True),
        ("success", False),
    ]


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


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("kind", ["lost", "member-lost"])
def test_a_job_of_others_that_was_interrupted_has_failed(kind: str, started: bool) -> None:
    rules = [
        {"trigger": "job-fail", "scope": "queue", "when": "job.interrupted", "action": submit("b")},
        {"trigger": "job-cancel", "scope": "queue", "action": submit("b", count=9)},
    ]
    play = played(*rules)
    names = ("submit", "validate", "start", "exception", "finish", "clean")
    contexts: dict[str, dict[str, Any]] = {
        "exception": {"type": kind, "severity": 0},
        "finish": {"status": 9},
    }
    for name in names:
        if started or name not in ("start", "finish"):
            play.foreign(99, name, **contexts.get(name, {}))
    assert play.submitted("b") == 1
    assert play.status()["interrupted"] == 0


def test_a_job_of_others_that_succeeds_after_an_exception_was_not_interrupted() -> None:
    rules = [
        {"trigger": f"job-{outcome}", "scope": "queue", "action": submit("b", count=count)}
        for count, outcome in enumerate(("success", "fail"), start=1)
    ]
    play = played(*rules)
    play.foreign(99, "start")
    play.foreign(99, "exception", type="lost", severity=0)
    play.foreign(99, "finish", status=0)
    assert play.submitted("b") == 1


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


def cancel(play: Play) -> dict[str, int]:
    """Cancel group a; its counts then."""
    play.request("cancel", group="a")
    return play.engine.stats.counts["a"]


def test_a_lost_job_that_is_cancelled_while_it_waits_to_run_again_is_finished() -> None:
    play = played()
    play.request("pause")
    lost(play, 1)
    play.end(2)
    assert play.engine.stats.counts["a"]["finished"] == 1
    counts = cancel(play)
    assert (counts["finished"], counts["interrupted"], counts["canceled"]) == (2, 1, 0)
    play.engine.check()


def test_a_job_that_was_never_submitted_is_not_finished_when_it_is_cancelled() -> None:
    play = Play(document(rules=[on_start(count=3)], finish="never", limits={"active-jobs": 1}))
    play.begin(1)
    counts = cancel(play)
    canceled(play, 1)
    assert (counts["submitted"], counts["finished"]) == (1, 1)
    play.engine.check()


@pytest.mark.parametrize("retries", [0, 2])
def test_the_end_of_an_ensemble_finishes_lost_jobs_that_wait_to_run_again(retries: int) -> None:
    play = played(retries=retries)
    play.request("pause")
    lost(play, 1)
    lost(play, 2)
    play.request("terminate")
    assert play.engine.stats.counts["a"]["finished"] == 2
    play.engine.check()
