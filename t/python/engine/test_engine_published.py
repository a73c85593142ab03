"""The values of a job that was interrupted and runs again: statistics have them once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from play import Play, SubmitJobs, document, on_start, submit
from test_engine_snapshot import Cuts

from flux_ensemble.engine.events import Started
from flux_ensemble.engine.jobs import MAX_COUNTED
from flux_ensemble.engine.records import decode, encode
from flux_ensemble.metrics.streams import MAX_IGNORED, MAX_NAME

#: What the job of each place in the sweep publishes, one memo after the other.
MEMOS: list[list[dict[str, Any]]] = [
    [{"x": 1}, {"x": 2, "y": 10}, {"x": 3}],
    [{"x": 7, "t": "warm"}, {"t": "hot"}, {"y": None}, {"x": 4.5}],
    [],
    [{"x": 5}, {"x": "none"}, {"x": 5}, {"y": 30, "duration": 3}],
]


def sweep(*rules: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A document whose group a has a job for each of `MEMOS`."""
    jobs: list[dict[str, Any]] = [
        {"name": "a", "command": "run {p}", "params": {"p": list(range(len(MEMOS)))}},
        {"name": "b", "command": "true"},
    ]
    metrics = [
        {"of": "a-x", "by": ["p"]},
        {"name": "mean_ok", "statistic": "mean", "of": "success"},
        {"best": {"name": "top", "of": "a-x", "live": True}},
    ]
    known = {"jobs": jobs, "metrics": metrics, "finish": "never", "limits": {"losses": 1000}}
    return document(**{**known, "rules": [on_start(), *rules], **given})


def publish_again(play: Play) -> None:
    """The job that runs again publishes all that a first job does."""
    again = len(play.queued)
    play.begin(again)
    for memo in MEMOS[0]:
        play.event(again, "memo", **memo)


def lost(play: Play, job: int) -> None:
    """The job is gone with its node, its member or the run."""
    play.event(job, "exception", type="lost", severity=0, note="gone")
    play.event(job, "clean")


def shown(play: Play, *left_out: str) -> dict[str, Any]:
    """The statistics of what jobs have published, the values without statistics, and the best."""
    metrics = play.engine.metrics(play.t)
    names = ("n", "mean", "min", "max", "variance", "mean_ok")
    found: dict[str, Any] = {
        name: {
            variable: pytest.approx(value) if name in ("mean", "variance") else value
            for variable, value in metrics[name].items()
            if not variable.endswith(("duration", "pending", "waiting", "running", *left_out))
        }
        for name in names
    }
    best = metrics.get("best", {}).get("top")
    return {
        **found,
        "ignored": metrics.get("memo-ignored"),
        "best": best and (best["value"], best["params"]),
    }


def test_values_that_an_interrupted_attempt_has_published_count_once() -> None:
    play = Play(sweep())
    play.begin(1)
    play.event(1, "memo", x=1)
    play.event(1, "memo", x=2, y=10)
    lost(play, 1)
    again = len(play.queued)
    play.begin(again)
    for memo in MEMOS[0]:
        play.event(again, "memo", **memo)
    play.end(again)
    stats = play.engine.metrics(play.t)
    assert (stats["n"]["a-x"], stats["mean"]["a-x"], stats["max"]["a-x"]) == (3, 2, 3)
    assert (stats["n"]["a-x[p=0]"], stats["n"]["a-y"]) == (3, 1)


def test_a_job_that_goes_on_from_a_checkpoint_has_its_first_values_left_out() -> None:
    play = Play(sweep())
    play.begin(1)
    play.event(1, "memo", x=1)
    play.event(1, "memo", x=2)
    lost(play, 1)
    again = len(play.queued)
    play.begin(again)
    for x in (3, 4, 5):
        play.event(again, "memo", x=x)
    stats = play.engine.metrics(play.t)
    assert (stats["n"]["a-x"], stats["max"]["a-x"], stats["mean"]["a-x"]) == (3, 5, 8 / 3)


def test_what_was_published_before_is_the_most_that_an_interrupted_attempt_published() -> None:
    play = Play(sweep())
    for many in (2, 1, 0):
        job = 1 if many == 2 else len(play.queued)
        play.begin(job)
        for memo in MEMOS[0][:many]:
            play.event(job, "memo", **memo)
        lost(play, job)
    publish_again(play)
    assert play.engine.metrics(play.t)["n"]["a-x"] == 3


def test_an_attempt_that_runs_again_by_retries_counts_with_all_its_values() -> None:
    jobs = [{"name": "a", "command": "true", "retries": 1}, {"name": "b", "command": "true"}]
    play = Play(sweep(jobs=jobs, metrics=[]))
    play.begin(1)
    play.event(1, "memo", x=1)
    lost(play, 1)
    for job in (2, 3):
        play.begin(job)
        play.event(job, "memo", x=1)
        play.end(job, status=256)
    assert play.engine.metrics(play.t)["n"]["a-x"] == 2


def test_a_job_that_has_failed_for_good_as_it_was_interrupted_keeps_its_values() -> None:
    jobs = [{"name": "a", "command": "true", "on-lost": "fail", "retries": 1}]
    play = Play(sweep(jobs=[*jobs, {"name": "b", "command": "true"}], metrics=[]))
    play.begin(1)
    play.event(1, "memo", x=1)
    lost(play, 1)
    play.begin(2)
    play.event(2, "memo", x=1)
    assert play.engine.metrics(play.t)["n"]["a-x"] == 2


def test_a_copy_publishes_beside_its_original_and_both_count() -> None:
    rule = {"trigger": "job-memo", "group": "a", "when": "memo.x == 3"}
    play = Play(sweep({**rule, "action": {"name": "copy"}}))
    play.begin(1)
    play.event(1, "memo", x=1)
    lost(play, 1)
    again = len(play.queued)
    play.begin(again)
    play.event(again, "memo", x=1)
    play.event(again, "memo", x=3)
    copy = len(play.queued)
    play.begin(copy)
    play.event(copy, "memo", x=1)
    assert play.engine.metrics(play.t)["n"]["a-x"] == 3
    # The original goes: its copy is what runs of it, and counts by itself.
    lost(play, again)
    play.event(copy, "memo", x=3)
    assert play.engine.metrics(play.t)["n"]["a-x"] == 4


def test_a_reset_forgets_also_what_an_interrupted_attempt_had_published() -> None:
    play = Play(sweep())
    play.begin(1)
    play.event(1, "memo", x=1)
    play.event(1, "memo", x=2)
    play.request("action", action={"name": "reset", "label": "a-x"})
    assert "a-x" not in {f"{group}-{name}" for group, name, _ in play.engine.stats.sizes()}
    lost(play, 1)
    again = len(play.queued)
    play.begin(again)
    for x in (1, 2, 3):
        play.event(again, "memo", x=x)
    stats = play.engine.metrics(play.t)
    assert (stats["n"]["a-x"], stats["mean"]["a-x"], stats["n"]["a-x[p=0]"]) == (1, 3, 1)


def test_rules_and_the_memo_of_the_job_see_each_publication() -> None:
    seen = {"trigger": "job-memo", "group": "a", "action": submit("b", repetitions="unlimited")}
    anomaly = {
        "trigger": "anomaly",
        "name": "a-x",
        "detector": {"quantile": {"q": 0.5, "warm-up": 1}},
        "action": submit("b", repetitions="unlimited"),
    }
    play = Play(sweep(seen, anomaly))
    play.begin(1)
    play.event(1, "memo", x=1)
    play.event(1, "memo", x=9)
    assert play.submitted("b") == 3
    lost(play, 1)
    again = max(job for job, tag in play.queued.items() if tag.group == "a")
    play.begin(again)
    play.event(again, "memo", x=9)
    play.event(again, "memo", x=99)
    # Two memos, and no anomaly: these values were taken in before.
    assert play.submitted("b") == 5
    assert play.engine.workload.jobs[again].memo == {"x": 99}


def test_a_running_attempt_that_is_interrupted_is_not_the_best_any_more() -> None:
    play = Play(sweep())
    for job, x in ((1, 9), (2, 4)):
        play.begin(job)
        play.event(job, "memo", x=x)
    assert play.engine.stats.bests.lookup("top.value") == 9
    lost(play, 1)
    assert play.engine.stats.bests.lookup("top.value") == 4
    again = len(play.queued)
    play.begin(again)
    play.event(again, "memo", x=5)
    assert play.engine.stats.bests.lookup("top.job") == again


def test_a_metric_rule_on_the_best_sees_that_an_interrupted_attempt_is_out() -> None:
    rule = {"trigger": "metric", "when": "best.top.value == 4", "action": submit("b")}
    play = Play(sweep(rule))
    for job, x in ((1, 9), (2, 4)):
        play.begin(job)
        play.event(job, "memo", x=x)
    lost(play, 1)
    assert play.submitted("b") == 1


def test_what_comes_of_a_job_after_it_was_interrupted_is_left_to_the_attempt_that_runs() -> None:
    play = Play(sweep())
    play.begin(1)
    play.event(1, "memo", x=1)
    play.event(1, "exception", type="lost", severity=0, note="gone")
    play.event(1, "finish", status=9)
    play.event(1, "memo", x=2)
    play.event(1, "clean")
    publish_again(play)
    assert play.engine.metrics(play.t)["n"]["a-x"] == 3


def test_an_attempt_is_replaced_only_if_its_job_runs_again() -> None:
    play = Play(sweep())
    play.engine.records.keep()
    for job in (1, 2):
        play.begin(job)
    lost(play, 1)
    play.request("cancel")
    lost(play, 2)
    first, second = decode(encode(play.engine.records.take()))
    assert (first.id, first.replaced, second.id, second.replaced) == (1, 0, 2, None)


def test_the_keys_that_are_counted_are_bounded() -> None:
    play = Play(sweep())
    play.begin(1)
    names = [f"k{number}" for number in range(MAX_COUNTED + 50)]
    for name in (*names, "x" * (MAX_NAME + 1)):
        play.event(1, "memo", **{name: 1})
    job = play.engine.workload.jobs[1]
    assert list(job.published or ()) == names[:MAX_COUNTED]
    lost(play, 1)
    again = len(play.queued)
    play.begin(again)
    for number in range(50):
        play.event(again, "memo", **{f"more{number}": 1})
    lost(play, again)
    firing = play.engine.workload.firings.get("retry", 1)
    assert firing is not None
    assert list(firing.published or ()) == names[:MAX_COUNTED]
    assert len(play.engine.stats.ignored["a"]) <= MAX_IGNORED + 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_history_with_interruptions_has_the_statistics_of_an_undisturbed_one(
    data: st.DataObject,
) -> None:
    plain = Play(sweep())
    for index, memos in enumerate(MEMOS):
        plain.begin(index + 1)
        for memo in memos:
            plain.event(index + 1, "memo", **memo)
        plain.end(index + 1)

    play = Play(sweep(), start=False)
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    play.post(Started(play.t))
    # The job that stands for each place, and how many memos it has published; -1 before it runs.
    at = {index: (index + 1, -1) for index in range(len(MEMOS))}
    interruptions = 0
    while at:
        index = data.draw(st.sampled_from(sorted(at)))
        job, step = at[index]
        if step < 0:
            play.begin(job)
            at[index] = job, 0
        elif interruptions < 12 and data.draw(st.booleans()):
            interruptions += 1
            lost(play, job)
            at[index] = max(play.queued), -1
        elif step < len(MEMOS[index]):
            play.event(job, "memo", **MEMOS[index][step])
            at[index] = job, step + 1
        else:
            play.end(job)
            del at[index]
    assert shown(play) == shown(plain)
    counts = play.engine.stats.counts["a"]
    assert (counts["interrupted"], counts["finished"]) == (interruptions, len(MEMOS))
    if data.draw(st.integers(0, 19)) == 0:
        cuts.check()


def test_a_snapshot_has_what_was_published() -> None:
    play = Play(sweep(), start=False)
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    play.post(Started(play.t))
    play.begin(1)
    for memo in MEMOS[0][:2]:
        play.event(1, "memo", **memo)
    lost(play, 1)
    again = len(play.queued)
    play.begin(again)
    for memo in MEMOS[0]:
        play.event(again, "memo", **memo)
    play.end(again)
    cuts.check()
    assert Counter(one.group for one in play.of(SubmitJobs)) == {"a": 2}
