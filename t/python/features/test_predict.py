"""Predictions of how long jobs take, and the order that follows from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import JobEvent, Play, SubmitJobs, Tag, document, on_start, submit

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.rule_reasons import why
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.engine.status import status
from flux_ensemble.features.predict import engine as predict_engine
from flux_ensemble.features.predict import longest_first
from flux_ensemble.features.predict.document import REMAINING
from flux_ensemble.features.predict.predictions import Predictions

SIZES = [1, 2, 3, 9, 4, 8, 5, 7, 6]
SECONDS_EACH = 10.0


def sized(**more: Any) -> dict[str, Any]:
    """A group of jobs that take 10 n seconds."""
    return {
        "name": "md",
        "command": "md {n}",
        "params": {"n": SIZES},
        "predict": ["n"],
        **more,
    }


def ordered(**more: Any) -> dict[str, Any]:
    return sized(**{"order": "longest-first", "max-active": 1, **more})


def predictions_of(engine: Engine) -> Predictions:
    """The predictions of an engine."""
    (dumped,) = [one.dump for one in engine.hooks.features if one.name == "predictions"]
    found = getattr(dumped, "__self__", None)
    assert isinstance(found, Predictions)
    return found


def size(play: Play, tag: Tag) -> float:
    command = next(
        one for one in play.of(SubmitJobs) if (one.rule, one.firing) == (tag.rule, tag.firing)
    )
    group = play.engine.spec.groups[tag.group]
    _, params = group.submission(command.each, command.params)[tag.index]
    return float(params.get("n", 0))


def take(play: Play, job: int, seconds: float | None = None, status: int = 0) -> None:
    """A job runs for as long as its size says."""
    play.begin(job)
    play.t += size(play, play.queued[job]) * SECONDS_EACH if seconds is None else seconds
    play.end(job, status)


def sent(play: Play) -> list[float]:
    """The sizes of the jobs in the order in which they were sent."""
    return [size(play, tag) for tag in play.queued.values()]


def run(play: Play) -> list[float]:
    """Run all jobs one after the other."""
    job = 1
    while job in play.queued:
        take(play, job)
        job += 1
    return sent(play)


def test_what_waits_is_sent_longest_first_once_three_jobs_are_known() -> None:
    play = Play(document(jobs=[ordered()], rules=[on_start("md")]))
    assert run(play) == [1, 2, 3, 9, 8, 7, 6, 5, 4]
    assert play.engine.state == "completed"


def test_without_an_order_they_are_sent_as_they_were_asked_for() -> None:
    play = Play(document(jobs=[sized(**{"max-active": 1})], rules=[on_start("md")]))
    assert run(play) == SIZES


def test_equal_jobs_stay_first_in_first_out_and_go_in_one_command() -> None:
    group = ordered(**{"max-active": 4, "count": 4, "params": {"n": [1, 5, 2]}})
    play = Play(document(jobs=[group], rules=[on_start("md")]))
    for job in range(1, 5):
        play.begin(job)
    for job in range(1, 5):
        play.t += 10
        play.end(job)
    commands = [(one.first, one.count) for one in play.of(SubmitJobs)]
    assert commands == [(0, 4), (4, 1), (5, 1), (6, 1), (7, 1)]


def test_jobs_of_several_submissions_are_compared() -> None:
    rules = [on_start("md", params={"n": [1, 2, 3, 4]}), on_start("md", params={"n": [5, 3]})]
    play = Play(document(jobs=[ordered()], rules=rules))
    assert run(play) == [1, 2, 3, 5, 4, 3]


def test_an_entry_that_predicts_nothing_goes_first() -> None:
    plain = {"name": "md", "command": "other", "count": 2}
    play = Play(document(jobs=[ordered(), plain], rules=[on_start("md")]))
    for job in (1, 2, 3):
        take(play, job)
    for job in (4, 5):
        take(play, job, 1.0)
    # Before, nothing was known of any.
    assert sent(play) == [1, 2, 3, 0, 0, 9]


def test_other_groups_keep_their_place() -> None:
    rules = [on_start("md"), on_start("b"), on_start("md", params={"n": 50})]
    jobs = [ordered(), {"name": "b", "command": "b"}]
    play = Play(document(jobs=jobs, rules=rules, limits={"active-jobs": 1}))
    job = 1
    while job in play.queued:
        take(play, job)
        job += 1
    groups = [one.group for one in play.of(SubmitJobs)]
    # By its oldest job, as without an order.
    assert groups == ["md"] * 10 + ["b"]
    assert sent(play)[3] == 50


def test_a_job_that_runs_again_is_compared_with_the_others() -> None:
    group = ordered(retries=1)
    play = Play(document(jobs=[group], rules=[on_start("md")]))
    for job in (1, 2, 3):
        take(play, job)
    take(play, 4, status=256)
    assert sent(play) == [1, 2, 3, 9, 9]


def test_what_is_dropped_is_not_sent_and_others_are() -> None:
    jobs = [ordered(), ordered(name="other")]
    rules = [on_start("md"), on_start("other")]
    play = Play(document(jobs=jobs, rules=rules, finish="never"))
    play.request("cancel", group="md")
    play.event(1, "submit")
    play.event(1, "exception", type="cancel", severity=0)
    play.event(1, "clean")
    job = 2
    while job in play.queued:
        take(play, job)
        job += 1
    assert sent(play)[1:] == [1, 2, 3, 9, 8, 7, 6, 5, 4]
    assert play.engine.idle


def test_rules_on_idle_groups_know_of_what_was_dropped_whatever_the_order() -> None:
    rule = {"trigger": "idle", "group": "md", "by": ["n"], "action": {"name": "submit",
            "label": "b", "params": {"n": "{job.params.n}"}}}  # fmt: skip
    after = {"name": "b", "command": "b {n}", "params": {"n": 0}}
    play = Play(document(jobs=[ordered(), after], rules=[on_start("md"), rule], finish="never"))
    for job in (1, 2, 3):
        play.run(job)
    play.request("cancel", group="md")
    *_, under_way = [size(play, tag) for tag in play.queued.values() if tag.group == "md"]
    done = [one.params["n"] for one in play.of(SubmitJobs) if one.group == "b"]
    assert sorted(done) == sorted({*SIZES} - {under_way})


def test_a_request_has_one_answer_whatever_the_order() -> None:
    group = ordered(**{"max-active": 20})
    play = Play(document(jobs=[group], rules=[on_start("md")], finish="never"))
    for job in range(1, 10):
        take(play, job)
    reply = play.request("submit", group="md")
    assert reply.errno is None
    assert len(reply.result["ids"]) == len(SIZES)


def test_of_very_many_those_that_wait_longest_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longest_first, "WINDOW", 2)
    play = Play(document(jobs=[ordered()], rules=[on_start("md")]))
    # Of 9 and 4 the longer, then of 4 and 8, of 4 and 5, and so on.
    assert run(play) == [1, 2, 3, 9, 8, 5, 7, 6, 4]


@pytest.mark.parametrize("window", [2, 10_000])
def test_an_engine_that_is_restored_anywhere_sends_the_same_jobs(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(longest_first, "WINDOW", window)
    again = {
        "trigger": "job-success",
        "when": "job.runtime > 65 and job.predicted > 20",
        "action": submit("md", params={"n": ["{job.params.n + 0.5}", 2]}, repetitions=2),
    }
    given = document(
        jobs=[ordered(**{"max-active": 2, "retries": 1})], rules=[on_start("md"), again]
    )
    spec = load_mapping(given)
    play = Play(given)
    cut = Engine(spec)
    history: list[list[str]] = []
    whole = play.handle

    def handle(event: Any) -> Any:
        nonlocal cut
        state = json.loads(json.dumps(dump(play.engine)))
        cut = restore(spec, state, [])
        commands = whole(event)
        history.append([encode(one) for one in commands])
        assert [encode(one) for one in cut.handle(event)] == history[-1]
        assert dump(cut) == dump(play.engine)
        assert cut.stats.lookup(REMAINING) == play.engine.stats.lookup(REMAINING)
        return commands

    # Streams are not what this is about, and their values are not in a snapshot.
    monkeypatch.setattr("flux_ensemble.engine.snapshot._check_sizes", lambda *sizes: None)
    monkeypatch.setattr("flux_ensemble.metrics.streams.Metrics.sizes", lambda metrics: [])
    play.handle = handle
    job = 1
    while job in play.queued:
        take(play, job, status=256 if job == 5 else 0)
        job += 1
    assert job > len(SIZES) + 3
    assert play.engine.state == "completed"


def test_the_state_of_a_document_that_predicts_nothing_has_nothing_of_it() -> None:
    play = Play(document(rules=[on_start("a")]))
    take(play, 1)
    assert "predictions" not in dump(play.engine)["state"]
    assert "t_predicted" not in play.status()
    assert play.engine.stats.lookup(REMAINING) is None


def test_a_rule_on_the_end_of_a_job_sees_what_was_predicted_without_it() -> None:
    rule = {
        "trigger": "job-success",
        "when": "job.runtime > 3 * job.predicted",
        "action": {"name": "custom", "label": "slow", "repetitions": "unlimited"},
    }
    given = document(
        jobs=[sized(**{"max-active": 1})], rules=[on_start("md"), rule], custom="def slow(**k): ..."
    )
    play = Play(given)
    for job in (1, 2, 3):
        take(play, job)
    before = len(play.commands)
    take(play, 4, 271.0)
    assert any(type(one).__name__ == "CallCustom" for one in play.commands[before:])


def test_jobs_of_several_entries_differ_by_a_factor() -> None:
    fast = ordered(command="fast {n}", params={"n": [1, 2, 4]})
    slow = ordered(command="slow {n}", params={"n": [1, 2, 4]})
    play = Play(document(jobs=[fast, slow, ordered(params={"n": [3, 3]})], rules=[on_start("md")]))
    job, order = 1, []
    while job in play.queued:
        index = play.queued[job].index
        order.append(index)
        take(play, job, (100.0 if 3 <= index < 6 else 1.0) * size(play, play.queued[job]))
        job += 1
    assert sorted(order) == list(range(8))
    predictions = predictions_of(play.engine)
    model = predictions.models["md"]
    ratio = model.predict({"n": 2, "#": "1"}) / model.predict({"n": 2, "#": "0"})  # type: ignore[operator]
    assert 50 < ratio < 200


def test_of_two_entries_each_has_its_own_factor_and_others_have_no_prediction() -> None:
    fast, slow = (ordered(command=f"{name} {{n}}", params={"n": [1, 2]}) for name in ("a", "b"))
    plain = {"name": "md", "command": "plain"}
    play = Play(document(jobs=[plain, fast, slow], rules=[on_start("md")]))
    job = 1
    while job in play.queued:
        index = play.queued[job].index
        take(play, job, 300.0 if index > 2 else 10.0)
        job += 1
    assert job == 6
    predictions = predictions_of(play.engine)
    firing = Firing("r", 0, "md", 0, 5)
    found = [predictions.predicted(firing, index) for index in range(5)]
    assert found[0] is None
    assert found[1] is not None
    assert found[3] is not None
    assert found[3] > 10 * found[1]


def test_equal_jobs_go_in_one_command_though_fewer_are_ranked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(longest_first, "WINDOW", 2)
    group = ordered(**{"max-active": 4, "count": 4, "params": {"n": [1]}})
    play = Play(document(jobs=[group], rules=[on_start("md")]))
    assert [(one.first, one.count) for one in play.of(SubmitJobs)] == [(0, 4)]


# -- time.remaining -----------------------------------------------------------------


def test_the_time_that_remains_is_the_work_on_the_cores_that_jobs_have_had() -> None:
    group = sized(**{"max-active": 2, "params": {"n": [1] * 9}, "cores": 4})
    play = Play(document(jobs=[group], rules=[on_start("md")]))
    left = lambda: play.engine.stats.lookup(REMAINING)  # noqa: E731
    assert left() is None
    play.begin(1)
    play.begin(2)
    assert left() is None
    play.t += 10
    play.end(1)
    play.end(2)
    assert left() is None, "too little is known"
    take(play, 3)
    # Six jobs of 10 seconds, two at a time.
    assert left() == pytest.approx(30, rel=0.05)
    assert play.status()["t_predicted"] == pytest.approx(play.t + 30, abs=2)
    play.begin(4)
    play.t += 5
    play.begin(5)
    assert left() == pytest.approx(27.5, rel=0.05)
    for job in (4, 5):
        play.end(job)
    for job in (6, 7, 8, 9):
        take(play, job)
    assert play.engine.ended
    assert "t_predicted" not in play.status()


def test_it_is_at_least_as_long_as_the_longest_job_still_runs() -> None:
    group = sized(params={"n": [1, 1, 1, 8]})
    play = Play(document(jobs=[group], rules=[on_start("md")]))
    for job in (1, 2, 3, 4):
        play.begin(job)
    play.t += 10
    for job in (1, 2, 3):
        play.end(job)
    # Nothing is known of how the size matters, so it is taken for one of the others.
    assert play.engine.stats.lookup(REMAINING) == pytest.approx(0, abs=1)
    play.t += 500
    play.end(4)
    assert play.engine.ended


def test_an_overdue_job_has_no_time_left_and_no_debt() -> None:
    play = Play(document(jobs=[sized(params={"n": [1] * 5}, count=1)], rules=[on_start("md")]))
    for job in range(1, 6):
        play.begin(job)
    play.t += 10
    for job in (1, 2, 3):
        play.end(job)
    play.t += 1000
    play.end(4)
    assert play.engine.stats.lookup(REMAINING) == 0


def test_a_member_that_shrinks_has_fewer_cores() -> None:
    play = Play(document(jobs=[sized(params={"n": [1] * 12})], rules=[on_start("md")]))
    play.member(4)
    for job in range(1, 5):
        play.begin(job)
    play.t += 10
    for job in range(1, 5):
        play.end(job)
    assert play.engine.stats.lookup(REMAINING) == pytest.approx(20, rel=0.05)
    play.begin(5)
    play.member(1)
    assert play.engine.stats.lookup(REMAINING) == pytest.approx(80, rel=0.05)


class Counting:
    """Predictions that count for how many jobs they are asked."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = predictions
        self.models, self.most_cores = predictions.models, predictions.most_cores
        self.looked = 0

    def job(self, firing: Firing, index: int) -> tuple[float | None, int]:
        self.looked += 1
        return self._predictions.job(firing, index)


@pytest.mark.parametrize("number", [5, 999, 1000, 1001, 30_000])
def test_of_many_jobs_a_part_stands_for_all(number: int) -> None:
    group = sized(params={"n": {"range": [1, number + 1]}}, **{"max-active": 3})
    play = Play(document(jobs=[group], rules=[on_start("md")]))
    for job in (1, 2, 3):
        take(play, job)
    engine = play.engine
    counting = Counting(predictions_of(engine))
    left = predict_engine.remaining(engine, counting)  # type: ignore[arg-type]
    assert left == engine.stats.lookup(REMAINING)
    assert 0 < counting.looked <= 2 * predict_engine.MOST
    expected = SECONDS_EACH * sum(range(4, number + 1))
    assert left == pytest.approx(expected, rel=0.15)


def test_a_rule_can_act_on_what_is_predicted() -> None:
    rule = {
        "trigger": "metric",
        "name": "time.remaining",
        "when": "> 60",
        "action": submit("b"),
    }
    given = document(
        jobs=[sized(**{"max-active": 1}), {"name": "b", "command": "b"}],
        rules=[on_start("md"), rule],
        logging={"heartbeat": 10},
    )
    play = Play(given)
    play.heartbeat()
    assert not play.submitted("b")
    for job in (1, 2, 3):
        take(play, job)
    play.heartbeat()
    assert play.submitted("b") == 1
    assert status(play.engine)["t_predicted"] > play.t
    ((term,),) = (rule["terms"] for rule in why(play.engine, play.t) if rule["terms"])
    assert term["holds"]
    assert term["values"]["time.remaining"] == pytest.approx(420, rel=0.1)


def test_a_job_that_never_finished_gives_its_cores_back() -> None:
    play = Play(document(jobs=[sized(**{"max-active": 1})], rules=[on_start("md")]))
    play.begin(1)
    play.event(1, "exception", type="lost", severity=0)
    play.event(1, "clean")
    assert predictions_of(play.engine).cores == 0
    play.post(JobEvent(play.tick(), 1, "clean"))
