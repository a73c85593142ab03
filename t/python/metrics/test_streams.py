"""Metrics: River's figures, empty statistics, gauges; and interval sets."""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from play import Play, document, on_start, submit

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.intervals import IntervalSet
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.metrics.statistic_trial import check_statistic
from flux_ensemble.metrics.statistics import ALWAYS, NUMBER, STATISTICS, Kind
from flux_ensemble.metrics.stream import Stream
from flux_ensemble.metrics.streams import MAX_IGNORED, MAX_NAME, MAX_VARIABLES, Metrics

DEFAULT = [Statistic(name, kind) for name, kind in ALWAYS.items() if name != NUMBER]


def no_ages(group, gauge):
    return ()


def test_empty_statistics_are_none_and_counts_are_zero():
    nested = Metrics(["a"], DEFAULT).snapshot(no_ages)
    for name in ALWAYS.keys() - {NUMBER}:
        assert nested[name] == {"a-duration": None, "a-pending": None}
    assert set(nested["count"]["a"].values()) == {0}


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_statistics_agree_with_the_standard_library(values):
    metrics = Metrics(["a"], DEFAULT)
    for value in values:
        metrics.observe("a", "duration", value)
    got = {
        name: metrics.lookup(MetricPath(name, "a", "duration"))
        for name in ("mean", "variance", "min", "max")
    }
    assert got["mean"] == pytest.approx(statistics.fmean(values), abs=1e-6, rel=1e-6)
    assert got["variance"] == pytest.approx(statistics.variance(values), abs=1e-3, rel=1e-6)
    assert (got["min"], got["max"]) == (min(values), max(values))


@pytest.mark.parametrize("value", [7, 7.0])
def test_a_number_stays_an_integer_or_a_fraction(value):
    # Else a compiled engine would give other bytes than one that is not.
    metrics = Metrics(["a"], DEFAULT)
    metrics.keep_values()
    metrics.observe("a", "x", value)
    assert json.dumps(metrics.lookup(MetricPath("max", "a", "x"))) == json.dumps(value)
    assert json.dumps(metrics.take_values()) == json.dumps([["a", "x", [value]]])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_no_infinity_or_nan_leaves_however_large_the_values(values):
    metrics = Metrics(["a"], DEFAULT)
    for value in values:
        metrics.observe("a", "duration", value)
    json.dumps(metrics.snapshot(no_ages), allow_nan=False)


@pytest.mark.parametrize("kind", ["Sum", "PeakToPeak"])
def test_a_sum_of_whole_numbers_is_one(kind):
    # It is written into commands: "4292", not "4292.0".
    stream = Stream([Statistic("s", kind)])
    for value in (4000, 0, 292):
        stream.update(value)
    assert (stream.get("s"), type(stream.get("s"))) == (
        {"Sum": 4292, "PeakToPeak": 4000}[kind],
        int,
    )
    assert type(stream.extended([8]).get("s")) is int
    assert type(stream.extended([8.0]).get("s")) is float
    assert type(stream.extended([8.0]).extended([1]).get("s")) is float
    assert type(stream.get("s")) is int


def test_nothing_is_kept_of_groups_that_have_no_values():
    metrics = Metrics([f"g{number}" for number in range(50_000)], DEFAULT)
    assert metrics.lookup(MetricPath("mean", "g7", "duration")) is None
    assert metrics.sizes() == []
    metrics.observe("g7", "duration", 1.0)
    assert metrics.sizes() == [["g7", "duration", 1]]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (None, None),
        (7, 7),
        (7.5, 7.5),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, float(2**63)),
        (-(10**300), -1e300),
        (10**400, None),
        (-(10**400), None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_a_number_is_finite_and_not_large_or_there_is_none(value, number):
    assert finite(value) == number
    assert type(finite(value)) is type(number)


# -- memos -------------------------------------------------------------------------------


def running(**given):
    """An ensemble with one job, 1, that runs."""
    play = Play(document(rules=[on_start(count=1)], **given))
    play.begin(1)
    return play


def test_a_number_that_is_too_large_is_left_out_of_the_statistics():
    play = running(metrics=["sum", "kurtosis"])
    for _ in range(50):
        play.event(1, "memo", long=int("9" * 400), large=10**300, fom=1.5, word="x", many=[1])
    metrics = play.engine.metrics(play.t)
    assert metrics["max"]["a-fom"] == 1.5
    assert metrics["max"]["a-large"] == 1e300
    variables = [name for name in metrics["max"] if name.startswith("a-")]
    assert variables == ["a-duration", "a-fom", "a-large", "a-pending", "a-running"]
    assert play.recorded("memo-left-out") == []
    assert metrics["memo-ignored"] == {"a": {"long": 50, "word": 50, "many": 50}}


@pytest.mark.parametrize("value", ["0.5", "nan", float("nan"), float("inf"), None, True, [1], {}])
def test_metrics_say_how_many_values_of_memos_were_ignored(value):
    play = running()
    assert "memo-ignored" not in play.engine.metrics(play.t)
    play.event(1, "memo", fom=value)
    play.event(1, "memo", fom=1.5, duration=3)
    play.event(1, "memo", fom=value)
    metrics = play.engine.metrics(play.t)
    assert metrics["memo-ignored"] == {"a": {"fom": 2, "duration": 1}}
    assert metrics["mean"]["a-fom"] == 1.5


def test_what_is_ignored_is_counted_for_so_many_keys_and_after_a_recovery_too():
    play = Play(document(rules=[on_start(count=1)]))
    play.engine.stats.keep_values()
    play.begin(1)
    for number in range(MAX_IGNORED + 50):
        play.event(1, "memo", **{f"k{number}": "text", "x" * 300: "text"})
    ignored = play.engine.metrics(play.t)["memo-ignored"]["a"]
    assert len(ignored) == MAX_IGNORED
    assert sum(ignored.values()) == 2 * (MAX_IGNORED + 50)
    values = [play.engine.stats.take_values()]
    engine = restore(play.engine.spec, json.loads(json.dumps(dump(play.engine))), values)
    assert engine.metrics(play.t) == play.engine.metrics(play.t)


def test_a_group_has_statistics_of_so_many_memo_keys_and_the_log_says_so_once():
    play = running()
    for number in range(MAX_VARIABLES + 50):
        play.event(1, "memo", **{f"k{number}": number, "same": number})
    streams = [variable for group, variable, _ in play.engine.stats.sizes() if group == "a"]
    # The first memo brought two keys.
    assert len(streams) == MAX_VARIABLES + 1
    assert f"k{MAX_VARIABLES - 2}" in streams
    assert f"k{MAX_VARIABLES - 1}" not in streams
    assert play.engine.stats.sizes()[-1] == ["a", "same", MAX_VARIABLES + 50]
    [left_out] = play.recorded("memo-left-out")
    assert left_out["group"] == "a"
    assert "the memo key 'k999'" in left_out["reason"]
    assert "at most 1000 memo keys, of at most 256 characters" in left_out["reason"]


def test_a_memo_key_of_any_length_has_no_statistics_and_is_quoted_briefly():
    play = running()
    play.event(1, "memo", **{"k" * MAX_NAME: 1, "k" * (MAX_NAME + 1): 2, "k" * 10**6: 3})
    assert play.engine.stats.sizes() == [["a", "k" * MAX_NAME, 1], ["a", "pending", 1]]
    [left_out] = play.recorded("memo-left-out")
    assert len(left_out["reason"]) < 300


def test_what_was_said_of_memo_keys_is_not_said_again_by_an_engine_that_was_restored():
    play = running()
    assert "crowded" not in dump(play.engine)["state"]
    play.engine.stats.keep_values()
    play.event(1, "memo", **{"k" * 1000: 1})
    snapshot = json.loads(json.dumps(dump(play.engine)))
    values = [["a", "pending", [0.002]]]
    play.engine = restore(play.engine.spec, snapshot, [values])
    play.handle = play.engine.handle
    play.event(1, "memo", **{"j" * 1000: 1})
    assert len(play.recorded("memo-left-out")) == 1
    assert dump(play.engine)["state"]["crowded"] == ["a"]


def test_a_view_counts_waiting_jobs_as_pending_without_touching_the_stream():
    metrics = Metrics(["a"], DEFAULT)
    metrics.observe("a", "pending", 1.0)
    ages = {"waiting": [5.0, 9.0], "running": []}
    view = metrics.at(lambda group, gauge: ages[gauge])
    assert view.lookup(MetricPath("mean", "a", "pending")) == 5.0
    assert view.lookup(MetricPath("max", "a", "waiting")) == 9.0
    assert view.lookup(MetricPath("max", "a", "running")) is None
    assert view.lookup(MetricPath("count", "a", "success")) == 0
    assert metrics.lookup(MetricPath("mean", "a", "pending")) == 1.0


def test_a_configured_statistic_is_kept_for_every_stream():
    metrics = Metrics(["a"], [*DEFAULT, Statistic("p90", "Quantile", {"q": 0.9})])
    for value in range(101):
        metrics.observe("a", "duration", float(value))
    assert metrics.lookup(MetricPath("p90", "a", "duration")) == pytest.approx(90, abs=1)


@pytest.mark.parametrize(
    ("kind", "arguments", "name"),
    [
        ("skew", {}, "Skew"),
        ("ew_mean", {"fading_factor": 0.3}, "EWMean"),
        ("Quantile", {"q": 0.5}, "Quantile"),
        ("rolling_max", {"window_size": 3}, "RollingMax"),
    ],
)
def test_a_univariate_statistic_of_river_is_found_by_its_name(kind, arguments, name):
    assert check_statistic(kind, arguments) == name


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("median", {}, "River has no univariate statistic 'median' (statistics: AbsMax,"),
        ("cov", {}, "River has no univariate statistic 'cov'"),
        ("link", {}, "River has no univariate statistic 'link'"),
        ("rolling_max", {}, "refused {}: RollingMax.__init__() missing"),
        ("mean", {"depth": 3}, "refused {'depth': 3}"),
    ],
)
def test_another_statistic_or_argument_is_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_statistic(kind, arguments)


class Variation:
    """The standard deviation, divided by the mean."""

    def __init__(self, least: int = 2) -> None:
        self._least = least
        self._values: list[float] = []

    def update(self, value: float) -> None:
        self._values.append(value)

    def get(self) -> float | None:
        if len(self._values) < self._least:
            return None
        return statistics.stdev(self._values) / statistics.mean(self._values)


def test_a_row_of_the_table_makes_a_statistic_that_documents_ask_for(monkeypatch):
    monkeypatch.setitem(STATISTICS, "cv", Kind("the variation", Variation))
    wanted = {"name": "spread", "statistic": "cv", "least": 3}
    spec = load_mapping(document(metrics=["cv", wanted], rules=[]))
    assert spec.statistics[-2:] == (
        Statistic("cv", "cv"),
        Statistic("spread", "cv", {"least": 3}),
    )
    metrics = Metrics(["a"], spec.statistics)
    for value in (1.0, 3.0):
        metrics.observe("a", "duration", value)
    assert metrics.lookup(MetricPath("cv", "a", "duration")) == pytest.approx(2**0.5 / 2)
    assert metrics.lookup(MetricPath("spread", "a", "duration")) is None


def test_an_argument_that_a_statistic_of_ours_does_not_take_is_refused(monkeypatch):
    monkeypatch.setitem(STATISTICS, "cv", Kind("the variation", Variation))
    with pytest.raises(ValueError, match=re.escape("cv(least: 'int' = 2) refused {'depth': 3}")):
        check_statistic("CV", {"depth": 3})
    with pytest.raises(ValueError, match=r"'median' \(statistics: AbsMax,.*, cv\b"):
        check_statistic("median", {})


def test_a_row_of_a_class_of_river_is_for_every_stream() -> None:
    # Documents ask for these by the name of the class, so a row alone would have no effect.
    for name, kind in STATISTICS.items():
        assert kind.always or callable(kind.make), name


@given(st.lists(st.integers(0, 40), max_size=60))
def test_an_interval_set_is_a_set(numbers):
    intervals = IntervalSet()
    for number in numbers:
        intervals.add(number)
    assert len(intervals) == len(set(numbers))
    assert [number for number in range(42) if number in intervals] == sorted(set(numbers))
    assert all(
        stop < start
        for (_, stop), (start, _) in zip(intervals.intervals, intervals.intervals[1:], strict=False)
    )


def ended(*metrics: Any, rules: tuple[Any, ...] = ()) -> Play:
    """A job of 1 s that succeeded, one of 2 s that failed, and one of 3 s that was cancelled."""
    play = Play(document(metrics=list(metrics), rules=[on_start(count=3), *rules], finish="never"))
    for job in (1, 2, 3):
        play.begin(job)
        play.t += job - 0.001
        if job == 3:
            play.event(job, "exception", type="cancel", severity=0)
        play.event(job, "finish", status=int(job > 1))
        play.event(job, "clean")
    return play


def test_durations_are_of_the_jobs_that_succeeded() -> None:
    metrics = ended().engine.metrics(0.0)
    assert metrics["max"]["a-duration"] == pytest.approx(1.0, abs=0.01)
    assert metrics["count"]["a"]["finished"] == 3


def test_a_statistic_can_be_of_all_finished_jobs() -> None:
    play = ended({"name": "longest", "statistic": "max", "of": "finished"})
    metrics = play.engine.metrics(0.0)
    assert metrics["max"]["a-duration"] == pytest.approx(1.0, abs=0.01)
    assert metrics["longest"]["a-duration"] == pytest.approx(3.0, abs=0.01)
    assert metrics["longest"]["a-pending"] == metrics["max"]["a-pending"]
    assert list(metrics["longest"]) == list(metrics["max"])


def test_a_rule_on_a_statistic_of_all_finished_jobs_is_evaluated_when_a_job_fails() -> None:
    rule = {"trigger": "metric", "when": "> 1.5", "action": submit("b")}
    longest = {"name": "longest", "statistic": "max", "of": "finished"}
    assert ended(longest, rules=({**rule, "name": "longest.a-duration"},)).submitted("b") == 1
    assert ended(longest, rules=({**rule, "name": "max.a-duration"},)).submitted("b") == 0


def test_a_rule_on_durations_is_not_evaluated_when_a_job_fails() -> None:
    action = submit("b", repetitions="unlimited")
    rule = {"trigger": "metric", "name": "max.a-duration", "action": action}
    assert ended(rules=(rule,)).submitted("b") == 1


def test_durations_of_all_finished_jobs_are_those_after_a_recovery_too() -> None:
    play = Play(
        document(
            metrics=[{"name": "longest", "statistic": "max", "of": "finished"}],
            rules=[on_start()],
            finish="never",
        )
    )
    play.engine.stats.keep_values()
    play.run(1)
    play.run(2, status=1)
    values = [play.engine.stats.take_values()]
    engine = restore(play.engine.spec, json.loads(json.dumps(dump(play.engine))), values)
    assert engine.metrics(0.0) == play.engine.metrics(0.0)


def test_a_memo_cannot_pass_for_a_duration() -> None:
    play = Play(document(rules=[on_start(count=1)], finish="never"))
    play.begin(1)
    play.event(1, "memo", **{"duration of finished": 9.0, "duration": 9.0})
    assert play.engine.stats.sizes() == [["a", "pending", 1]]
