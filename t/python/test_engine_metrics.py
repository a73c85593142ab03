"""Metrics: River's figures, empty statistics, gauges; and interval sets."""

from __future__ import annotations

import json
import re
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.engine.intervals import IntervalSet
from flux_ensemble.engine.metrics import Metrics, check_statistic
from flux_ensemble.engine.paths import MetricPath
from flux_ensemble.spec.model import DEFAULT_STATISTICS, Statistic

DEFAULT = [Statistic(name, kind) for name, kind in DEFAULT_STATISTICS.items()]


def no_ages(group, gauge):
    return ()


def test_empty_statistics_are_none_and_counts_are_zero():
    nested = Metrics(["a"], DEFAULT).snapshot(no_ages)
    for name in DEFAULT_STATISTICS:
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
