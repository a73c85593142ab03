"""Detectors: what they say of streams of values."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.metrics.detector import Detector, Watch

ADWIN: dict[str, Any] = {
    "delta": 0.002,
    "clock": 1,
    "grace-period": 10,
    "min-window-length": 5,
    "mode": "both",
}
PAGE_HINKLEY: dict[str, Any] = {
    "min-instances": 10,
    "delta": 0.1,
    "threshold": 5.0,
    "alpha": 0.9999,
    "mode": "both",
}
QUANTILE: dict[str, Any] = {"q": 0.99, "warm-up": 100, "window": 1000, "mode": "up"}
KINDS = {"adwin": ADWIN, "page-hinkley": PAGE_HINKLEY, "quantile": QUANTILE}


def watch(kind: str, since: int = 0, **arguments: Any) -> Watch:
    return Watch("r", Detector("a", "x", kind, {**KINDS[kind], **arguments}), since)


def detected(watched: Watch, values: Any) -> list[int]:
    """The positions of the values that trigger the rule."""
    return [number for number, value in enumerate(values) if watched.take(number + 1, value)]


def steps(*levels: float, each: int = 100) -> list[float]:
    """So many noisy values around each level."""
    noise = random.Random(1)
    return [level + noise.random() for level in levels for _ in range(each)]


@pytest.mark.parametrize("kind", ["adwin", "page-hinkley"])
@pytest.mark.parametrize(
    ("mode", "changes"), [("up", [100, 300]), ("down", [200]), ("both", [100, 200, 300])]
)
def test_a_drift_is_found_soon_and_in_the_direction_that_was_asked_for(
    kind: str, mode: str, changes: list[int]
) -> None:
    found = detected(watch(kind, mode=mode), steps(0, 5, 0, 5))
    assert len(found) == len(changes)
    assert all(0 <= at - change < 20 for at, change in zip(found, changes, strict=True))


def scattered(sigma: float, shift: float = 0.0) -> list[float]:
    """Values that scatter by so much; after 3,000 of them they are higher by `shift` times that."""
    noise = random.Random(3)
    return [noise.gauss(shift * sigma * (at >= 3000), sigma) for at in range(3100)]


@pytest.mark.parametrize("sigma", [0.01, 1.0, 10.0])
def test_page_hinkley_gives_no_false_alarm_with_the_numbers_that_are_advised(sigma: float) -> None:
    """docs/metrics.md: a quarter to a half of the standard deviation, and 20 to 50 times it."""
    scaled = partial(watch, "page-hinkley", delta=sigma / 2)
    assert detected(scaled(threshold=50 * sigma), scattered(sigma)) == []
    (found,) = detected(scaled(threshold=20 * sigma), scattered(sigma, shift=3.0))
    assert 3000 <= found < 3050


@pytest.mark.parametrize("sigma", [1.0, 10.0])
def test_the_defaults_of_page_hinkley_are_for_values_that_scatter_less(sigma: float) -> None:
    """As docs/metrics.md warns: a false alarm in some 1,500 values, and in some 34."""
    spec = load_mapping(
        {
            "name": "test",
            "jobs": [{"name": "a", "command": "a"}],
            "rules": [
                {"trigger": "start", "action": {"name": "submit", "label": "a"}},
                {"trigger": "drift", "name": "a-x", "detector": {"page-hinkley": {}},
                 "action": {"name": "terminate"}},
            ],
        }
    )  # fmt: skip
    detector = spec.rules[1].detector
    assert detector is not None
    assert detected(Watch("r", detector, 0), scattered(sigma / 1000)) == []
    assert len(detected(Watch("r", detector, 0), scattered(sigma))) >= (1 if sigma == 1.0 else 30)


@pytest.mark.parametrize(
    ("mode", "anomalies"), [("up", [500]), ("down", [501]), ("both", [500, 501])]
)
def test_an_anomaly_is_found_on_the_side_that_was_asked_for(
    mode: str, anomalies: list[int]
) -> None:
    values = [*steps(0, each=500), 50.0, -50.0, 0.5]
    found = detected(watch("quantile", mode=mode, q=0.999), values)
    assert [at for at in found if at >= 500] == anomalies


@pytest.mark.parametrize("q", [0.9, 0.99])
def test_about_as_many_values_are_anomalies_as_the_quantile_says(q: float) -> None:
    noise = random.Random(2)
    window = round(10 / (1 - q))
    values = [noise.gauss(0, 1) for _ in range(20_000)]
    found = detected(watch("quantile", q=q, window=window), values)
    assert 0.7 * (1 - q) < len(found) / len(values) < 1.6 * (1 - q)


def test_nothing_is_an_anomaly_while_it_warms_up_or_where_all_values_are_the_same() -> None:
    assert detected(watch("quantile", **{"warm-up": 3}), [0.0, 1.0, 9.0, 99.0]) == [3]
    assert detected(watch("quantile"), repeat(7, 500)) == []


def test_wild_values_do_not_hide_those_after_them() -> None:
    values = [*steps(0, each=1000), *repeat(1e9, 5), 10.0]
    found = detected(watch("quantile"), values)
    assert [at for at in found if at >= 1000] == [1000, 1001, 1002, 1003, 1004, 1005]


def test_what_is_no_longer_rare_is_no_anomaly_any_more() -> None:
    found = detected(watch("quantile"), steps(0, 3, each=1000))
    assert {1000, 1001} <= set(found)
    assert len([at for at in found if at >= 1500]) < 25


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_values_neither_break_a_detector_nor_blind_it(kind: str) -> None:
    extremes = [1.7976931348623157e308, -1.7976931348623157e308, 2**63 - 1, -(2**63), 5e-324, -0.0]
    watched = watch(kind)
    detected(watched, extremes * 50)
    watched.restart()
    low, high = repeat(0.0, 200), repeat(1e300, 50)
    assert any(at >= 200 for at in detected(watched, chain(low, high)))


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_it_is_as_at_first(kind: str) -> None:
    watched, values = watch(kind), steps(0, 5, 1)
    first = detected(watched, values)
    assert first
    watched.restart()
    assert detected(watched, values) == first


@pytest.mark.parametrize("kind", KINDS)
def test_values_from_before_are_not_for_it(kind: str) -> None:
    values = steps(0, 5, 1)
    late = detected(watch(kind, since=150), values)
    assert late == [at + 150 for at in detected(watch(kind), values[150:])]


def test_most_of_river_is_not_imported_for_a_detector() -> None:
    script = (
        "import sys\n"
        "from flux_ensemble.metrics.detector import Detector, Watch\n"
        "assert 'river' not in sys.modules\n"
        f"arguments = {KINDS!r}\n"
        "for kind in arguments:\n"
        "    Watch('r', Detector('a', 'x', kind, arguments[kind])).take(1, 1)\n"
        "assert 'river.stats' in sys.modules\n"
        "heavy = {'river.drift', 'scipy.stats', 'pandas'}.intersection(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
