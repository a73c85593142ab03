"""Jobs that run again: when, how much later, with what, and what happens when they give up."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from play import (
    Finish,
    Play,
    Request,
    StartTimer,
    StopTimer,
    SubmitJobs,
    document,
    on_start,
    submit,
)
from test_engine_snapshot import Cuts

from flux_ensemble.engine.events import Interrupted, TimerFired
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.engine.status import status

YEAR = 365 * 86400.0


def played(retries: Any, *rules: dict[str, Any], **given: Any) -> Play:
    """Group sim has two jobs that may run again."""
    sim = {
        "name": "sim",
        "command": "simulate {x}",
        "params": {"x": [1, 2]},
        "duration": "10m",
        "retries": retries,
    }
    jobs = [sim, {"name": "after", "command": "analyse"}]
    return Play(document(jobs=jobs, rules=[on_start("sim"), *rules], **given))


def again(play: Play) -> list[SubmitJobs]:
    """What was sent of the group sim after the start."""
    return [command for command in play.of(SubmitJobs) if command.group == "sim"][1:]


def fail(play: Play, job: int, kind: str = "") -> None:
    play.begin(job)
    if kind:
        play.event(job, "exception", type=kind, severity=0)
    play.end(job, 3 << 8)


@pytest.mark.parametrize(
    ("on", "kind", "runs"),
    [
        ("failed", "", True),
        ("failed", "timeout", False),
        ("timeout", "timeout", True),
        (["failed", "timeout"], "timeout", True),
        (["failed", "timeout"], "cancel", False),
        ("canceled", "cancel", True),
        ("job.returncode == 3", "", True),
        ("job.returncode == 4", "", False),
        (["timeout", "job.params.x == 2"], "", True),
        (["timeout", "job.params.x == 1"], "", False),
        ("count.sim.failed < 1", "", False),
        ("job.exception.type == 'oom'", "oom", True),
        ("job.memo.none / 0 > 1", "", False),
    ],
)
def test_what_a_job_runs_again_after(on: Any, kind: str, runs: bool) -> None:
    play = played({"times": 1, "on": on})
    fail(play, 2, kind)
    assert len(again(play)) == int(runs)


def test_a_job_that_succeeded_does_not_run_again() -> None:
    play = played({"times": 1, "on": "1 == 1"})
    play.run(1)
    assert not again(play)


def test_a_job_keeps_its_place_and_counts_its_attempts() -> None:
    rule = {
        "trigger": "job-start",
        "when": "job.attempt > 0",
        "action": submit("after", repetitions="unlimited", workdir="/{job.index}/{job.attempt}"),
    }
    play = played({"times": 2}, rule)
    for job in (2, 3, 5):
        fail(play, job)
    assert [(one.first, one.count) for one in again(play)] == [(1, 1), (1, 1)]
    sent = [one.overrides for one in play.of(SubmitJobs) if one.group == "after"]
    assert sent == [{"workdir": "/1/1"}, {"workdir": "/1/2"}]


def test_what_is_other_than_before_adds_up() -> None:
    play = played({"times": 3, "with": {"duration": "{job.duration * 2}", "cores": 2}})
    for job in (2, 3, 4, 5):
        fail(play, job)
    assert [one.overrides for one in again(play)] == [
        {"duration": 1200.0, "cores": 2},
        {"duration": 2400.0, "cores": 2},
        {"duration": 4800.0, "cores": 2},
    ]


def test_jobs_of_other_sizes_go_over_what_a_rule_says() -> None:
    play = Play(
        document(
            jobs=[{"name": "a", "command": "true", "retries": {"times": 1, "with": {"nodes": 3}}}],
            rules=[on_start("a", nodes=2, urgency=7)],
        )
    )
    play.run(1, 256)
    assert [one.overrides for one in play.of(SubmitJobs)] == [
        {"nodes": 2, "urgency": 7},
        {"nodes": 3, "urgency": 7},
    ]


@pytest.mark.parametrize(
    ("factor", "delays"),
    [(1, [30, 30, 30]), (2, [30, 60, 120]), (1e6, [30, 3e7, YEAR]), (1e300, [30, YEAR, YEAR])],
)
def test_the_delay_grows_by_its_factor_up_to_a_year(factor: float, delays: list[float]) -> None:
    play = played({"times": 3, "after": "30s", "factor": factor})
    for number, job in enumerate((2, 3, 4)):
        fail(play, job)
        assert len(again(play)) == number
        assert play.status()["groups"]["sim"]["waiting"] >= 1
        play.timer(f"again:{number}")
        assert len(again(play)) == number + 1
    assert [one.after for one in play.of(StartTimer)] == delays


def test_a_delay_beyond_a_year_stays_as_it_is_written() -> None:
    play = played({"times": 3, "after": "500d", "factor": 2})
    for number, job in enumerate((2, 3)):
        fail(play, job)
        play.timer(f"again:{number}")
    assert [one.after for one in play.of(StartTimer)] == [500 * 86400.0] * 2


def test_a_job_gives_up_once_and_rules_see_it() -> None:
    rule = {
        "trigger": "job-gave-up",
        "group": "sim",
        "when": "job.attempt == 1",
        "action": submit("after", params={}, repetitions="unlimited"),
    }
    play = played({"times": 1, "on": ["failed"]}, rule)
    fail(play, 1, "timeout")
    fail(play, 2)
    assert not play.submitted("after")
    fail(play, 3)
    assert play.submitted("after") == 1


def test_rules_on_failures_fire_at_every_attempt() -> None:
    rule = {"trigger": "job-fail", "action": submit("after", repetitions="unlimited")}
    play = played(2, rule)
    for job in (2, 3, 5):
        fail(play, job)
    assert play.submitted("after") == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"cores": "{job.memo.cores}"}, "cores: {job.memo.cores} has no value"),
        ({"nodes": "{1 / 2}"}, "nodes: expected an integer >= 1, not 0.5"),
        ({"queue": "{job.memo.odd}"}, "queue: expected text without the character '\\0'"),
        (
            {"workdir": "{job.memo.word}" * 100},
            "expected a path in 'workdir' of at most 131071 bytes, not 200000",
        ),
    ],
)
def test_a_job_gives_up_where_it_cannot_be_other_than_before(
    value: dict[str, Any], reason: str
) -> None:
    rule = {"trigger": "job-gave-up", "action": submit("after")}
    play = played({"times": 5, "with": value}, rule)
    play.begin(2)
    play.event(2, "memo", odd="\0", word="x" * 2000)
    play.end(2, 256)
    assert not again(play)
    assert [entry["reason"] for entry in play.recorded("gave-up")] == [f"retries: with: {reason}"]
    assert play.submitted("after") == 1


def test_a_job_that_the_shutdown_ended_runs_again_whatever_it_is_to_run_after() -> None:
    play = played({"times": 1, "on": "timeout"})
    play.begin(1)
    play.post(Interrupted(play.tick(), (1,)))
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, 15)
    assert len(again(play)) == 1


def test_a_job_that_the_ensemble_cancels_does_not_run_again() -> None:
    rule = {"trigger": "job-start", "action": {"name": "cancel", "jobs": "trigger"}}
    play = played({"times": 1, "on": ["failed", "canceled"]}, rule)
    fail(play, 1, "cancel")
    assert not again(play)


# -- while a job waits ------------------------------------------------------------------


def waiting(*rules: dict[str, Any]) -> tuple[Play, Cuts]:
    """Job 1 has failed and waits for its next try; job 2 is over."""
    play = played({"times": 1, "after": "30s"}, *rules)
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    play.run(2)
    fail(play, 1)
    assert play.of(StartTimer)[-1] == StartTimer("again:0", 30.0, 0.0)
    return play, cuts


def test_a_job_that_waits_keeps_its_group_and_the_ensemble_busy() -> None:
    play, cuts = waiting({"trigger": "idle", "action": submit("after")})
    assert play.engine.state == "running"
    assert not play.submitted("after")
    play.timer("again:0")
    play.run(3)
    assert play.submitted("after") == 1
    cuts.check()


@pytest.mark.parametrize(
    ("op", "args", "state"),
    [
        ("cancel", {}, "canceled"),
        ("cancel", {"group": "sim"}, "completed"),
        ("terminate", {}, "completed"),
        ("terminate", {"cancel": True}, "completed"),
    ],
)
def test_a_job_that_waits_is_dropped_with_its_timer(
    op: str, args: dict[str, Any], state: str
) -> None:
    play, cuts = waiting()
    play.request(op, **args)
    assert play.of(StopTimer) == [StopTimer("again:0")]
    assert [one.state for one in play.of(Finish)] == [state]
    assert play.timer("again:0") == []
    assert not again(play)
    cuts.check()


def test_a_job_of_another_group_goes_on_waiting() -> None:
    play, _ = waiting()
    play.request("cancel", group="after")
    assert not play.of(StopTimer)
    play.timer("again:0")
    assert len(again(play)) == 1


@pytest.mark.parametrize("first", ["timer", "resume"])
def test_a_pause_holds_the_job_and_not_its_timer(first: str) -> None:
    play, cuts = waiting()
    play.request("pause")
    if first == "timer":
        play.timer("again:0")
        assert not again(play)
        play.request("resume")
    else:
        play.request("resume")
        assert not again(play)
        play.timer("again:0")
    assert len(again(play)) == 1
    play.timer("again:0")
    assert len(again(play)) == 1
    cuts.check()


def test_what_ends_the_ensemble_as_failed_drops_the_job() -> None:
    rule = {"trigger": "timer", "after": 5, "action": {"name": "terminate", "state": "failed"}}
    play, cuts = waiting({**rule, "id": "t"})
    play.timer("rule:t")
    assert [one.state for one in play.of(Finish)] == ["failed"]
    assert StopTimer("again:0") in play.of(StopTimer)
    cuts.check()


def test_more_jobs_than_the_ensemble_may_have_end_it() -> None:
    play = played({"times": 5}, limits={"jobs": 3})
    for job in (1, 2):
        fail(play, job)
    (finish,) = play.of(Finish)
    assert finish.state == "failed"
    assert finish.reason.startswith("a retry would submit group 'sim': 4 jobs in all")


def test_the_log_has_every_try() -> None:
    play, _ = waiting()
    (entry,) = play.recorded("retry")
    wanted = {"rule": "rule-0", "firing": 0, "index": 0, "attempt": 1, "retry": 0}
    assert entry == {**wanted, "group": "sim", "point": "x=1"}
    json.dumps(entry)


def counts(play: Play) -> dict[str, int]:
    of_sim = play.engine.stats.counts["sim"]
    return {name: of_sim[name] for name in ("finished", "attempts", "gave-up", "failed")}


def test_finished_counts_jobs_and_attempts_counts_attempts() -> None:
    rules = [
        {"trigger": "metric", "name": f"count.sim.{name}", "when": when, "action": submit("after")}
        for name, when in (("finished", 1), ("gave-up", 1), ("attempts", 2))
    ]
    play = played(1, *rules)
    fail(play, 1)
    assert counts(play) == {"finished": 0, "attempts": 1, "gave-up": 0, "failed": 1}
    assert play.submitted("after") == 0
    play.run(2)
    assert counts(play) == {"finished": 1, "attempts": 2, "gave-up": 0, "failed": 1}
    assert play.submitted("after") == 2
    fail(play, next(id for id, tag in play.queued.items() if tag.rule == "retry"))
    assert counts(play) == {"finished": 2, "attempts": 3, "gave-up": 1, "failed": 2}
    assert play.submitted("after") == 3


def test_a_job_that_does_not_run_again_for_another_reason_has_not_given_up() -> None:
    play = played({"times": 3, "on": "timeout"})
    fail(play, 1)
    fail(play, 2, "timeout")
    assert counts(play) == {"finished": 1, "attempts": 2, "gave-up": 0, "failed": 1}


def test_jobs_that_ran_out_of_time_at_last_are_counted_also_after_a_restore() -> None:
    play = played({"times": 1, "on": "failed"})
    fail(play, 1, "timeout")
    fail(play, 2)
    fail(play, 3, "timeout")
    stored = json.loads(json.dumps(dump(play.engine)))
    again = restore(play.engine.spec, stored, [[["sim", "pending", [0.0] * 3]]])
    for engine in (play.engine, again):
        told = status(engine)
        assert (told["failed"], told["timed_out"]) == (2, 2)


@pytest.mark.parametrize("asked", [("cancel", {"group": "sim"}), ("cancel", {}), ("terminate", {})])
def test_a_job_whose_further_attempt_is_dropped_has_finished(
    asked: tuple[str, dict[str, Any]],
) -> None:
    play = played({"times": 1, "after": "1h"})
    fail(play, 1)
    assert counts(play)["finished"] == 0
    play.post(Request(play.tick(), 1, *asked))
    assert counts(play)["finished"] == 1


def test_a_job_that_cannot_run_again_for_a_limit_has_finished() -> None:
    play = played(1, limits={"jobs": 2})
    fail(play, 1)
    assert play.engine.state in ("ending", "failed")
    assert counts(play)["finished"] == 1


def test_counts_of_the_first_versions_go_on() -> None:
    play = played(1)
    fail(play, 1)
    snapshot = dump(play.engine)
    old = snapshot["state"]["counts"]["sim"]
    old["finished"] = old.pop("attempts")
    del old["gave-up"]
    text = json.dumps(snapshot["state"], sort_keys=True, separators=(",", ":"))
    snapshot["digest"] = hashlib.sha256(text.encode()).hexdigest()
    values = [["sim", variable, [0.002]] for variable in ("pending",)]
    engine = restore(play.engine.spec, json.loads(json.dumps(snapshot)), [values])
    assert engine.stats.counts["sim"]["attempts"] == 1
    assert engine.stats.counts["sim"]["gave-up"] == 0


@pytest.mark.parametrize("also", [{}, {"with": {"duration": "{job.duration * 2}"}}])
def test_texts_of_a_job_have_how_often_it_was_tried_before(also: dict[str, Any]) -> None:
    sim = {
        "name": "sim",
        "command": "simulate {x}",
        "params": {"x": [1, 2]},
        "duration": "10m",
        "output": "{x}-{attempt}.txt",
        "environment": {"TRY": "{attempt}"},
        "retries": {"times": 2, **also},
    }
    play = Play(document(jobs=[sim], rules=[on_start("sim")]))
    group = play.engine.spec.groups["sim"]
    fail(play, 2)
    fail(play, 3)
    for command, attempt in zip(play.of(SubmitJobs), range(3), strict=True):
        submission = group.submission(command.each, command.params, command.overrides)
        job_set, params = submission[command.first + command.count - 1]
        fill = job_set.filler(params)
        assert fill(job_set.output or "") == f"2-{attempt}.txt"
        assert fill(job_set.environment["TRY"]) == str(attempt)
        assert job_set.duration == (600.0 * 2**attempt if also else 600.0)


def test_a_parameter_of_the_name_is_that_and_others_have_no_override() -> None:
    named = {"name": "sim", "command": "simulate {attempt}", "params": {"attempt": [7]},
             "retries": {"times": 1}}  # fmt: skip
    play = Play(document(jobs=[named], rules=[on_start("sim")]))
    fail(play, 1)
    (first, second) = play.of(SubmitJobs)
    assert (first.overrides, second.overrides) == (None, None)
    ((job_set, params),) = play.engine.spec.groups["sim"].submission()
    assert job_set.filler(params)("{attempt}") == "7"


def fail_on(play: Play, job: int, ranks: str, kind: str = "") -> None:
    """A job fails that ran on some ranks, or is lost there."""
    for name in ("submit", "validate"):
        play.event(job, name)
    play.event(job, "start", t_alloc=play.t, ranks=ranks)
    if kind:
        play.event(job, "exception", type=kind, severity=0)
        play.event(job, "clean")
    else:
        play.end(job, 3 << 8)


def test_what_runs_again_is_kept_off_the_ranks_where_it_failed_the_latest_last() -> None:
    play = played(4)
    for job, ranks in ((1, "1"), (3, "0,2"), (4, "1"), (5, "3")):
        fail_on(play, job, ranks)
    assert [one.off for one in again(play)] == [
        ("1",),
        ("1", "0,2"),
        ("0,2", "1"),
        ("0,2", "1", "3"),
    ]


def test_a_job_that_was_lost_is_kept_off_the_node_that_lost_it_without_retries() -> None:
    play = played(0)
    fail_on(play, 1, "2", "lost")
    assert [one.off for one in again(play)] == [("2",)]


def test_a_job_that_an_end_in_order_interrupted_may_run_where_it_ran() -> None:
    play = played(0)
    play.event(1, "submit")
    play.event(1, "validate")
    play.event(1, "start", t_alloc=play.t, ranks="1")
    play.post(Interrupted(play.tick(), (1,)))
    play.event(1, "exception", type="cancel", severity=0)
    play.event(1, "clean")
    assert [one.off for one in again(play)] == [()]


def test_of_a_job_of_which_nobody_knows_where_it_ran_nothing_is_kept_off() -> None:
    play = played(1)
    fail(play, 1)
    assert [one.off for one in again(play)] == [()]


def test_a_group_can_say_that_nodes_are_not_avoided() -> None:
    sim = {"name": "sim", "command": "simulate", "retries": 2, "avoid-nodes": False}
    play = Play(document(jobs=[sim], rules=[on_start("sim")]))
    fail_on(play, 1, "1")
    assert [one.off for one in again(play)] == [()]


def test_where_a_job_failed_is_in_snapshots() -> None:
    play = played({"times": 2, "after": "1h"})
    engine = play.engine
    engine.stats.keep_values()
    fail_on(play, 1, "1")
    stored = json.loads(json.dumps(dump(engine)))
    restored = restore(engine.spec, stored, [engine.stats.take_values()])
    (timer,) = [one.key for one in play.of(StartTimer) if one.key.startswith("again:")]
    sent = [restored.handle(TimerFired(play.t + 3600.0, timer)), play.timer(timer)]
    for commands in sent:
        assert [one.off for one in commands if isinstance(one, SubmitJobs)] == [("1",)]


def test_the_environment_of_a_further_attempt_is_over_that_of_the_one_before() -> None:
    sim = {
        "name": "sim",
        "command": "simulate",
        "environment": {"A": 1, "B": 2},
        "retries": {"times": 2, "with": {"environment": {"C": "{job.attempt}"}}},
    }
    play = Play(document(jobs=[sim], rules=[on_start("sim", environment={"B": 3, "D": 4})]))
    for job in (1, 2):
        fail(play, job)
    group = play.engine.spec.groups["sim"]
    found = [
        group.submission(one.each, one.params, one.overrides)[one.first][0].environment
        for one in again(play)
    ]
    assert found == [{"A": "1", "B": "3", "D": "4", "C": text} for text in "01"]


def of_params(given: dict[str, Any], *rules: dict[str, Any], **more: Any) -> tuple[Play, Cuts]:
    """Group sim has jobs with x 1 and 2 and a step that is not that of the document again."""
    sim = {
        "name": "sim",
        "command": "simulate {x} {dt}",
        "params": {"x": [1, 2], "dt": {"written": "4e-1"}},
        "retries": {"times": 3, "with": {"params": given}},
        **more,
    }
    jobs = [sim, {"name": "after", "command": "analyse {x} {dt}", "params": {"x": 0, "dt": 0}}]
    play = Play(document(jobs=jobs, rules=[on_start("sim"), *rules]))
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    return play, cuts


def ran(play: Play) -> list[dict[str, Any]]:
    """The parameters of each job that was sent again."""
    group = play.engine.spec.groups["sim"]
    return [
        group.submission(one.each, one.params, one.overrides)[one.first][1] for one in again(play)
    ]


def test_parameters_are_other_than_in_the_attempt_before() -> None:
    rule = {
        "trigger": "job-fail",
        "action": submit("after", params="trigger", repetitions="unlimited"),
    }
    play, cuts = of_params({"dt": "{job.params.dt / 2}"}, rule)
    for job in (2, 3, 5):
        fail(play, job)
    assert ran(play) == [{"x": 2, "dt": 0.2}, {"x": 2, "dt": 0.1}, {"x": 2, "dt": 0.05}]
    assert [(one.first, one.count) for one in again(play)] == [(1, 1)] * 3
    sent = [one.params for one in play.of(SubmitJobs) if one.group == "after"]
    assert sent == [
        {"x": 2, "dt": {"written": "4e-1"}}, {"x": 2, "dt": 0.2}, {"x": 2, "dt": 0.1}
    ]  # fmt: skip
    assert [entry["params"] for entry in play.recorded("retry")] == [
        {"dt": 0.2}, {"dt": 0.1}, {"dt": 0.05}
    ]  # fmt: skip
    cuts.check()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"dt": {"written": "1.10"}}, "1.10"),
        ({"dt": "{job.params.dt}"}, "4e-1"),
        ({"dt": "{index}"}, 1),
        ({"dt": 7}, 7),
    ],
)
def test_parameters_of_a_further_attempt_keep_their_spelling(given: Any, value: Any) -> None:
    play, cuts = of_params(given)
    fail(play, 2)
    assert [one["dt"] for one in ran(play)] == [value]
    cuts.check()


def test_a_rule_on_idle_waits_for_the_combination_that_was_asked_for() -> None:
    rule = {
        "trigger": "idle",
        "group": "sim",
        "by": ["x", "dt"],
        "when": "idle.success == 1",
        "action": submit("after", params="trigger", repetitions="unlimited"),
    }
    play, cuts = of_params({"dt": "{job.params.dt / 2}"}, rule)
    fail(play, 1)
    play.run(2)
    assert play.submitted("after") == 1
    again_id = next(id for id, tag in play.queued.items() if tag.rule == "retry")
    play.run(again_id)
    sent = [one.params for one in play.of(SubmitJobs) if one.group == "after"]
    assert sent == [{"x": x, "dt": {"written": "4e-1"}} for x in (2, 1)]
    cuts.check()


def test_an_interrupted_attempt_keeps_its_parameters() -> None:
    play, _ = of_params({"dt": "{job.params.dt / 2}"})
    fail(play, 1)
    job = next(id for id, tag in play.queued.items() if tag.rule == "retry")
    play.begin(job)
    play.post(Interrupted(play.tick(), (job,)))
    play.event(job, "exception", type="cancel", severity=0)
    play.end(job, 15)
    assert ran(play) == [{"x": 1, "dt": 0.2}] * 2


def test_sizes_follow_the_parameters_of_a_further_attempt() -> None:
    play, _ = of_params({"x": "{job.params.x * 3}"}, tasks="{x}")
    fail(play, 2)
    (command,) = again(play)
    group = play.engine.spec.groups["sim"]
    job_set, params = group.submission(command.each, command.params, command.overrides)[1]
    assert (job_set.tasks, params["x"]) == (6, 6)


@pytest.mark.parametrize(
    ("given", "more", "reason"),
    [
        ({"dt": "{job.memo.none}"}, {}, "params: {job.memo.none} has no value"),
        (
            {"dt": "{job.params.dt}s"}, {},
            "params.dt: expected a number, as the parameter has, not '4e-1s'",
        ),
        (
            {"x": "{job.params.x / 4}"}, {"tasks": "{x}"},
            "expected an integer >= 1, not '0.5', which is a value of the parameter 'x'",
        ),
    ],
)  # fmt: skip
def test_a_job_gives_up_where_a_parameter_cannot_be_other(
    given: Any, more: Any, reason: str
) -> None:
    play, _ = of_params(given, **more)
    fail(play, 2)
    assert not again(play)
    assert [entry["reason"] for entry in play.recorded("gave-up")] == [f"retries: with: {reason}"]
