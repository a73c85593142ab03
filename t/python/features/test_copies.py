"""Jobs that run a second time beside themselves, and rules on jobs that run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import (
    CancelJobs,
    JobEvent,
    Play,
    StartTimer,
    StopTimer,
    SubmitJobs,
    document,
    on_start,
    submit,
)

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.engine.commands import Command
from flux_ensemble.engine.events import Event
from flux_ensemble.engine.snapshot import dump, restore

#: A copy of each job that runs for more than 10 seconds.
COPY = {
    "id": "copy",
    "trigger": "job-running",
    "group": "a",
    "every": 5,
    "when": "not job.copied and job.runtime > 10",
    "action": {"name": "copy", "repetitions": "unlimited"},
}
AFTER = {
    "id": "after",
    "trigger": ["job-success", "job-fail", "job-cancel", "job-timeout", "job-gave-up"],
    "group": "a",
    "action": submit("b", repetitions="unlimited"),
}
IDLE = {"id": "idle", "trigger": "idle", "group": "a", "action": submit("b")}


def copied(*rules: Any, **group: Any) -> Play:
    """An ensemble whose job 1 runs, and gets a copy, job 2."""
    jobs = [{"name": "a", "command": "x", **group}, {"name": "b", "command": "y"}]
    play = Play(document(jobs=jobs, rules=[on_start(), COPY, *rules]))
    play.engine.stats.keep_values()
    play.begin(1)
    look(play)
    return play


def look(play: Play, seconds: float = 11) -> None:
    """Time passes, and the jobs that run are looked at."""
    play.t += seconds
    play.timer("rule:copy")


def fired(play: Play, rule: str) -> int:
    """How often a rule has fired."""
    return sum(one.name == "fire" and one.context["rule"] == rule for one in play.records)


def counts(play: Play) -> dict[str, int]:
    """The counts of group a that are not 0."""
    return {name: count for name, count in play.engine.stats.counts["a"].items() if count}


def test_a_rule_on_running_jobs_looks_so_often_and_fires_once_for_each_job() -> None:
    rule = {**COPY, "action": submit("b", repetitions="unlimited")}
    play = Play(document(rules=[on_start(), rule]))
    assert StartTimer("rule:copy", 5.0, 5.0) in play.commands
    play.begin(1)
    look(play, 5)
    assert fired(play, "copy") == 0
    play.begin(2)
    look(play, 8)
    look(play, 1)
    assert fired(play, "copy") == 1
    look(play, 5)
    look(play, 5)
    assert fired(play, "copy") == 2


def test_a_rule_on_running_jobs_keeps_no_ensemble_from_its_end() -> None:
    play = copied()
    assert play.engine.state == "running"
    for job in (1, 2):
        play.run(job) if job == 2 else play.end(job)
    assert play.engine.state == "completed"
    assert StopTimer("rule:copy") in play.commands


def test_a_copy_is_the_same_job_of_the_same_group() -> None:
    rules = [on_start(count=3, params={"p": [7, 8]}, nodes=2), COPY]
    jobs = [{"name": "a", "command": "x {p}", "params": {"p": 1}}]
    play = Play(document(jobs=jobs, rules=rules))
    play.begin(5)
    look(play)
    first, copy = play.of(SubmitJobs)
    assert (copy.rule, copy.first, copy.count) == ("copy", 4, 1)
    assert (copy.each, copy.params, copy.overrides) == (first.each, first.params, first.overrides)


def starts(play: Play, job: int, ranks: str) -> None:
    """A job starts on some ranks."""
    for name in ("submit", "validate"):
        play.event(job, name)
    play.event(job, "start", t_alloc=play.t, ranks=ranks)


def placed(*ranks: str, **group: Any) -> Play:
    """An ensemble whose job fails on some ranks, and then runs on the last of them."""
    jobs = [{"name": "a", "command": "x", **group}, {"name": "b", "command": "y"}]
    play = Play(document(jobs=jobs, rules=[on_start(), COPY]))
    play.engine.stats.keep_values()
    for job, where in enumerate(ranks, 1):
        starts(play, job, where)
        if job < len(ranks):
            play.end(job, 256)
    return play


def kept_off(play: Play) -> tuple[str, ...]:
    """The ranks that the copy of the job is kept off."""
    look(play)
    (copy,) = [one for one in play.of(SubmitJobs) if one.rule == "copy"]
    return copy.off


def test_a_copy_is_kept_off_the_ranks_of_its_original_and_not_the_original() -> None:
    play = placed("0-1", nodes=2)
    assert kept_off(play) == ("0-1",)
    assert play.of(SubmitJobs)[0].off == ()


def test_a_copy_is_kept_off_where_its_original_failed_before_too() -> None:
    assert kept_off(placed("3", "1", retries=1)) == ("3", "1")


def test_a_copy_runs_anywhere_where_its_group_avoids_no_nodes_or_nobody_knows_the_ranks() -> None:
    assert kept_off(placed("1", **{"avoid-nodes": False})) == ()
    play = copied()
    assert play.of(SubmitJobs)[-1].off == ()


def test_what_fails_beside_a_copy_and_then_as_a_copy_is_kept_off_both_nodes() -> None:
    play = placed("1", retries=1)
    kept_off(play)
    starts(play, 2, "2")
    play.end(1, 256)
    play.end(2, 256)
    (again,) = [one for one in play.of(SubmitJobs) if one.rule == "retry"]
    assert again.off == ("1", "2")


def test_a_snapshot_has_what_a_copy_that_waits_is_kept_off() -> None:
    play = placed("1", **{"max-active": 1})
    look(play)
    assert len(play.of(SubmitJobs)) == 1
    snapshot = json.loads(json.dumps(dump(play.engine)))
    other = restore(play.engine.spec, snapshot, [play.engine.stats.take_values()])
    sent: list[SubmitJobs] = []
    for name, context in (("finish", {"status": 256}), ("clean", {})):
        commands = other.handle(JobEvent(play.tick(), 1, name, context))
        sent += [one for one in commands if isinstance(one, SubmitJobs)]
    assert [one.off for one in sent] == [("1",)]


@pytest.mark.parametrize("copies", [True, False])
def test_where_jobs_run_is_asked_for_where_a_copy_keeps_off_it(copies: bool) -> None:
    spec = load_mapping({**document(rules=[on_start(), *[COPY][:copies]]), "records": False})
    assert spec.keeps_off is copies


@pytest.mark.parametrize(("winner", "loser"), [(1, 2), (2, 1)])
def test_the_first_to_succeed_counts_and_the_other_is_cancelled(winner: int, loser: int) -> None:
    play = copied(AFTER, IDLE)
    play.begin(2)
    play.end(winner)
    (cancel,) = play.of(CancelJobs)
    assert cancel.jobs == (loser,)
    outcomes = [one.context for one in play.records if one.name == "outcome"]
    assert sum(one["rule"] == "copy" for one in outcomes) == 1
    assert fired(play, "idle") == 0
    play.event(loser, "exception", type="cancel", severity=0)
    play.end(loser, 15)
    assert (fired(play, "after"), fired(play, "idle")) == (1, 1)
    assert counts(play) == {
        "submitted": 2,
        "success": 1,
        "canceled": 1,
        "attempts": 2,
        "finished": 1,
    }
    assert "copies" not in dump(play.engine)["state"]


def test_one_that_succeeds_before_it_is_cancelled_does_not_count() -> None:
    play = copied(AFTER)
    play.begin(2)
    play.end(1)
    play.end(2)
    assert fired(play, "after") == 1
    assert (counts(play)["success"], counts(play)["finished"]) == (1, 1)
    assert play.engine.stats.snapshot(lambda *_: iter(()))["n"]["a-duration"] == 1


def test_a_copy_that_was_not_sent_is_dropped() -> None:
    play = copied(AFTER, **{"max-active": 1})
    assert len(play.of(SubmitJobs)) == 1
    play.end(1)
    assert (fired(play, "after"), counts(play)["finished"]) == (1, 1)
    assert not play.of(CancelJobs)
    assert [one.group for one in play.of(SubmitJobs)] == ["a", "b"]
    assert "copies" not in dump(play.engine)["state"]


def test_a_copy_that_shows_late_is_cancelled() -> None:
    play = copied()
    play.end(1)
    assert not play.of(CancelJobs)
    play.event(2, "submit")
    assert [one.jobs for one in play.of(CancelJobs)] == [(2,)]


def test_a_job_that_fails_beside_its_copy_does_not_run_again() -> None:
    play = copied(AFTER, retries=1)
    play.begin(2)
    play.end(1, 256)
    assert (fired(play, "after"), counts(play).get("finished", 0)) == (1, 0)
    assert len([one for one in play.of(SubmitJobs) if one.group == "a"]) == 2
    play.end(2, 256)
    assert [one.rule for one in play.of(SubmitJobs) if one.group == "a"][2:] == ["retry"]
    (again,) = (job for job, tag in play.queued.items() if tag.rule == "retry")
    play.run(again)
    assert (counts(play)["finished"], counts(play)["success"]) == (1, 1)


def test_a_job_that_fails_after_the_success_of_its_copy_is_no_outcome() -> None:
    play = copied(AFTER, retries=3)
    play.begin(2)
    play.end(2)
    play.end(1, 256)
    assert (fired(play, "after"), counts(play)["finished"]) == (1, 1)
    assert "failed" not in counts(play)


def test_a_job_has_one_copy() -> None:
    play = copied({**COPY, "id": "more", "when": "job.runtime > 10"})
    play.begin(2)
    look(play)
    play.timer("rule:more")
    assert len(play.of(SubmitJobs)) == 2
    reasons = [one.context["reason"] for one in play.records if "reason" in one.context]
    assert reasons == ["the job has a copy, or is one"] * 2


def test_a_copy_that_limits_do_not_allow_is_left_out() -> None:
    jobs = [{"name": "a", "command": "x"}]
    play = Play(document(jobs=jobs, limits={"jobs": 1}, rules=[on_start(), COPY]))
    play.begin(1)
    look(play)
    assert play.engine.state == "running"
    assert play.records[-1].context["reason"] == "limits.jobs is 1"


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_a_work_whose_jobs_are_cancelled_or_fail_is_finished_once(end: str) -> None:
    rule = {"trigger": "job-memo", "group": "a", "action": {"name": "cancel", "label": "a"}}
    play = copied(rule, IDLE)
    play.begin(2)
    if end == "cancel":
        play.event(1, "memo", x=1)
    for job in (1, 2):
        play.end(job, 256)
    assert (counts(play)["finished"], fired(play, "idle")) == (1, 1)


@pytest.mark.parametrize("steps", range(6))
def test_a_snapshot_has_the_copies_and_for_which_jobs_rules_have_fired(steps: int) -> None:
    play = copied(AFTER, IDLE)
    story = [
        lambda: [play.event(2, name) for name in ("submit", "validate", "start")],
        lambda: look(play),
        lambda: play.event(2, "finish", status=0),
        lambda: play.event(1, "exception", type="cancel", severity=0),
        lambda: play.end(1, 15),
    ]
    for step in story[:steps]:
        step()
    values = play.engine.stats.take_values()
    snapshot = json.loads(json.dumps(dump(play.engine)))
    other = restore(play.engine.spec, snapshot, [values])
    seen: list[Any] = []

    def handle(event: Event) -> list[Command]:
        commands = play.engine.handle(event)
        seen.append((event, commands))
        return commands

    play.handle = handle
    for step in story[steps:]:
        step()
    for event, commands in seen:
        assert other.handle(event) == commands
    assert dump(other) == dump(play.engine)


def test_a_snapshot_of_a_document_without_copies_says_nothing_of_them() -> None:
    play = Play(document(rules=[on_start()]))
    play.begin(1)
    text = json.dumps(dump(play.engine))
    assert "copies" not in text
    assert "told" not in text
    assert 'work"' not in text


def test_an_event_of_a_job_that_is_over_changes_nothing() -> None:
    play = copied(AFTER)
    play.begin(2)
    play.end(1)
    play.end(2)
    before = dump(play.engine)["state"]["counts"]
    play.post(JobEvent(play.tick(), 2, "finish", {"status": 0}, None))
    assert dump(play.engine)["state"]["counts"] == before


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (
            {"trigger": "start", "action": {"name": "copy"}},
            "rules[0].action: no job triggers this (only rules on 'job-*', 'drift' and",
        ),
        (
            {"trigger": "job-start", "action": {"name": "copy", "label": "a"}},
            "rules[0].action.label: 'label' means nothing to the action 'copy'",
        ),
        (
            {"trigger": ["job-running", "job-fail"], "action": {"name": "copy"}},
            "rules[0].trigger: a rule on 'job-running' has no other trigger",
        ),
        (
            {"trigger": "job-running", "scope": "queue", "action": submit("a")},
            "rules[0].scope: a rule on 'job-running' has no other trigger, and looks at jobs of",
        ),
        (
            {"trigger": "job-running", "every": 0, "action": {"name": "copy"}},
            "rules[0].every: expected a duration > 0, not 0",
        ),
        (
            {"trigger": "job-running", "when": "job.outcome == 'x'", "action": {"name": "copy"}},
            "rules[0].when: 'job.outcome' is not known yet at the trigger 'job-running'",
        ),
        (
            {"trigger": "idle", "group": "a", "by": ["p"], "action": {"name": "copy"}},
            "rules[0].action: no job triggers this",
        ),
    ],
)
def test_what_cannot_be_is_refused(rule: dict[str, Any], told: str) -> None:
    jobs = [{"name": "a", "command": "x", "params": {"p": [1, 2]}}]
    with pytest.raises(DocumentError) as raised:
        load_mapping({"name": "test", "jobs": jobs, "rules": [rule]})
    assert f"document: {told}" in str(raised.value)
