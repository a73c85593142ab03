"""The best job so far: in conditions, in actions, in the metrics and after a recovery."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from play import (
    CommandDone,
    JobEvent,
    Play,
    Started,
    SubmitJobs,
    Tag,
    document,
    on_start,
    submit,
)

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.engine.commands import Ask
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import MemberUp
from flux_ensemble.engine.job_keys import make
from flux_ensemble.engine.snapshot import dump, restore

JOBS = [
    {"name": "a", "command": "run {x}", "params": {"x": [3, 9, 4]}},
    {"name": "b", "command": "refine {x}", "params": {"x": 0}},
]
BEST = {"best": {"name": "top", "of": "a-fom", "mode": "max"}}


LIVE = {"best": {"name": "top", "of": "a-fom", "live": True}}


def played(*rules: dict[str, Any], best: dict[str, Any] = BEST) -> Play:
    return Play(document(jobs=JOBS, metrics=[best], rules=[on_start(), *rules]))


def top(p: Play) -> Any:
    """The best job as everybody has it: the metrics and the status say the same."""
    best = p.engine.metrics(p.t).get("best", {}).get("top")
    (said,) = p.status()["best"]
    assert {key: said[key] for key in ("value", "job", "params")} == (
        best or {"value": None, "job": None, "params": {}}
    )
    return best and best["job"]


def test_a_rule_on_the_best_value_fires_when_a_better_job_has_succeeded() -> None:
    action = submit("b", params={"x": "{best.top.params.x}"}, repetitions="unlimited")
    p = played({"trigger": "metric", "when": "best.top.value > 1", "action": action})
    for job, fom in ((1, 0.5), (2, 2.5), (3, 2.0)):
        p.begin(job)
        p.event(job, "memo", fom=fom)
        p.end(job)
    (command,) = (one for one in p.of(SubmitJobs) if one.group == "b")
    assert command.params == {"x": 9}
    assert p.engine.metrics(p.t)["best"] == {"top": {"value": 2.5, "job": 2, "params": {"x": 9}}}


def test_the_smallest_can_be_the_best_and_a_duration_is_a_value_too() -> None:
    p = played(best={"best": {"name": "top", "of": "a-duration", "mode": "min"}})
    for job, seconds, status in ((1, 5, 0), (2, 3, 0), (3, 1, 256)):
        p.begin(job)
        p.t += seconds
        p.end(job, status)
    # The quickest failed.
    assert p.engine.metrics(p.t)["best"]["top"]["job"] == 2


def test_it_is_kept_in_snapshots() -> None:
    p = played()
    p.begin(1)
    p.event(1, "memo", fom=0.5)
    p.end(1)
    assert top(p) == 1
    kept = json.loads(json.dumps(dump(p.engine)))
    values = [["a", "pending", [0.002]], ["a", "duration", [0.002]], ["a", "fom", [0.5]]]
    engine = restore(p.engine.spec, kept, [values])
    assert engine.metrics(p.t)["best"] == p.engine.metrics(p.t)["best"]


def test_a_job_that_fails_is_never_the_best_though_its_value_was() -> None:
    rule = {
        "trigger": "idle",
        "group": "a",
        "action": submit("b", params={"x": "{best.top.params.x}"}),
    }
    p = played(rule)
    for job, fom, status in ((1, 1.0, 0), (2, 9.0, 256), (3, 2.0, 0)):
        p.begin(job)
        p.event(job, "memo", fom=fom)
        p.end(job, status)
    (command,) = (one for one in p.of(SubmitJobs) if one.group == "b")
    assert command.params == {"x": 4}
    assert top(p) == 3


def test_a_canceled_job_and_one_that_ran_out_of_time_are_no_best_either() -> None:
    p = played()
    for job, kind in ((1, "cancel"), (2, "timeout")):
        p.begin(job)
        p.event(job, "memo", fom=9.0)
        p.event(job, "exception", type=kind, severity=0)
        p.end(job, 15)
    assert top(p) is None


def test_the_value_is_the_one_that_the_job_had_at_its_end() -> None:
    p = played()
    for job, values in ((1, (3.0, 1.0)), (2, (0.5, 2.0)), (3, (9.0, None))):
        p.begin(job)
        for value in values:
            p.event(job, "memo", fom=value)
        p.end(job)
    assert p.engine.metrics(p.t)["best"]["top"] == {"value": 2.0, "job": 2, "params": {"x": 9}}


def test_live_takes_in_jobs_that_run_and_drops_one_that_fails() -> None:
    p = played(best=LIVE)
    for job in (1, 2, 3):
        p.begin(job)
    p.event(1, "memo", fom=1.0)
    p.event(2, "memo", fom=3.0)
    p.event(3, "memo", fom=2.0)
    assert top(p) == 2
    assert p.status()["best"][0]["running"]
    p.end(2, 256)
    # The next one still runs; when it fails too, there is the first.
    assert top(p) == 3
    p.end(1)
    p.end(3, 256)
    assert top(p) == 1
    assert not p.status()["best"][0]["running"]


def test_live_follows_a_job_whose_value_becomes_worse() -> None:
    p = played(best=LIVE)
    for job, fom in ((1, 1.0), (2, 3.0)):
        p.begin(job)
        p.event(job, "memo", fom=fom)
    p.event(2, "memo", fom=0.5)
    assert top(p) == 1
    p.event(1, "memo", fom=None)
    assert top(p) == 2


@pytest.mark.parametrize("live", [False, True])
def test_in_any_history_it_is_what_the_jobs_say_also_after_a_restore(*, live: bool) -> None:
    chance = random.Random(7)
    jobs = [{"name": "a", "command": "run {x}", "params": {"x": list(range(40))}}]
    best = {"best": {"name": "top", "of": "a-fom", "mode": "min", "live": live}}
    p = Play(document(jobs=jobs, metrics=[best], rules=[on_start()]))
    running: dict[int, int | None] = {}
    ended: list[int] = []
    values: list[Any] = []
    p.engine.stats.keep_values()
    for job in range(1, 41):
        p.begin(job)
        running[job] = None
        for _ in range(4):
            other = chance.choice(list(running) or [0])
            if not other:
                continue
            if chance.random() < 0.6:
                running[other] = chance.choice([None, *range(20)])
                p.event(other, "memo", fom=running[other])
            elif chance.random() < 0.5:
                status = chance.choice([0, 0, 256])
                p.end(other, status)
                value = running.pop(other)
                if status == 0 and value is not None:
                    ended.append(value)
            shown = p.engine.metrics(p.t).get("best", {}).get("top")
            among = ended + [one for one in running.values() if one is not None and live]
            assert (shown and shown["value"]) == min(among, default=None)
            values.append(p.engine.stats.take_values())
            kept = json.loads(json.dumps(dump(p.engine)))
            p.engine = restore(p.engine.spec, kept, values)
            p.engine.stats.keep_values()
            p.handle = p.engine.handle
            assert p.engine.metrics(p.t).get("best", {}).get("top") == shown


def test_a_search_and_a_best_of_the_same_key_agree() -> None:
    search = {
        "id": "s",
        "group": "a",
        "variables": {"x": {"low": 0, "high": 9}},
        "minimize": "loss",
        "trials": 6,
        "parallel": 6,
    }
    jobs = [{"name": "a", "command": "run {x}", "params": {"x": 0}}]
    best = {"best": {"name": "top", "of": "a-loss", "mode": "min"}}
    p = Play(
        document(
            jobs=jobs,
            search=[search],
            metrics=[best],
            rules=[{"trigger": "start", "action": {"name": "search", "label": "s"}}],
        )
    )
    (ask,) = p.of(Ask)
    p.done(ask, points=[{"params": {"x": float(x)}} for x in range(6)])
    ends = ((5.0, 4.0, 0), (0.5, 7.0, 0), (1.0, 1.0, 256), (3.0, 2.0, 0), (2.0, None, 0))
    for job, (first, last, status) in enumerate(ends, 1):
        p.begin(job)
        p.event(job, "memo", loss=first)
        p.event(job, "memo", loss=last)
        p.end(job, status)
    best_trial = p.status()["searches"][0]["best"][0]
    (said,) = p.status()["best"]
    assert (said["value"], said["params"]) == (best_trial["value"], best_trial["params"])
    assert best_trial["value"] == 2.0


def test_on_members_it_has_the_id_that_expressions_have_of_the_job() -> None:
    rule = {"trigger": "job-success", "when": "best.top.job == job.id", "action": submit("b")}
    given = document(
        jobs=[{"name": "a", "command": "run"}, {"name": "b", "command": "refine"}],
        members=[{"name": "pool", "count": 1}],
        metrics=[{"best": {"name": "top", "of": "a-fom"}}],
        rules=[on_start(), rule],
    )
    engine, key, t = Engine(load_mapping(given)), make(1, 17), 2.0
    engine.handle(Started(0.0))
    (sent,) = (
        one
        for one in engine.handle(MemberUp(1.0, "pool.0", 1, 1, 2, 0, None))
        if isinstance(one, SubmitJobs)
    )
    engine.handle(CommandDone(t, sent.id, {"ids": [17]}))
    tag = Tag(sent.group, sent.rule, sent.firing, 0)
    engine.handle(JobEvent(t, key, "submit", {}, tag))
    for name, context in (
        ("validate", {}),
        ("start", {}),
        ("memo", {"fom": 1.0}),
    ):
        engine.handle(JobEvent(t, key, name, context))
    commands = engine.handle(JobEvent(t, key, "finish", {"status": 0}))
    assert [one.group for one in commands if isinstance(one, SubmitJobs)] == ["b"]
    assert engine.metrics(t)["best"]["top"]["job"] == "pool.0:17"


def test_statistics_of_success_take_in_what_jobs_had_published_that_succeeded() -> None:
    metrics = [
        {"name": "least", "statistic": "min", "of": "success"},
        {"of": "a-fom", "by": ["x"]},
    ]
    rule = {"trigger": "metric", "when": 'least["a-fom"] < 5', "action": submit("b")}
    p = Play(document(jobs=JOBS, metrics=metrics, rules=[on_start(), rule]))
    for job, fom, status in ((1, 1.0, 256), (2, 7.0, 0), (3, 4.0, 0)):
        p.begin(job)
        p.event(job, "memo", fom=8.0)
        p.event(job, "memo", fom=fom)
        assert p.submitted("b") == 0
        p.end(job, status)
    metrics_now = p.engine.metrics(p.t)
    assert (metrics_now["least"]["a-fom"], metrics_now["min"]["a-fom"]) == (4.0, 1.0)
    assert metrics_now["least"]["a-fom[x=9]"] == 7.0
    assert p.submitted("b") == 1
    assert "a-fom of success" not in metrics_now["min"]


def test_before_there_is_one_a_condition_does_not_hold_and_an_action_fails() -> None:
    p = played(
        {"trigger": "job-start", "when": "best.top.value < 1", "action": submit("b")},
        {"trigger": "job-start", "action": submit("b", params={"x": "{best.top.job}"})},
    )
    p.begin(1)
    assert p.submitted("b") == 0
    (outcome,) = (one for one in p.recorded("outcome") if not one["ok"])
    assert outcome["reason"] == "submit b: params: {best.top.job} has no value"


@pytest.mark.parametrize(
    ("best", "when", "sentence"),
    [
        ({"name": "top", "of": "c-fom"}, "count.a.success > 1", "no job group for 'c-fom'"),
        ({"name": "top", "of": "a-fom"}, "best.top.worth > 1", "no field 'best.top.worth'"),
        ({"name": "top", "of": "a-fom"}, "best.top.params.y > 1", "have no parameter 'y'"),
        ({"name": "top", "of": "a-fom"}, "best.last.value > 1", "no metric named 'best.last"),
        ({"name": "top"}, "count.a.success > 1", "the key 'of' is missing"),
    ],
)
def test_what_is_wrong_with_it_is_said(best: dict[str, Any], when: str, sentence: str) -> None:
    rules = [{"trigger": "metric", "when": when, "action": submit("b")}]
    with pytest.raises(DocumentError) as caught:
        load_mapping(document(jobs=JOBS, metrics=[{"best": best}], rules=rules))
    assert sentence in str(caught.value)
