"""What simulated jobs draw: uniform numbers, and the quantile functions that they go through."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from statistics import fmean, pstdev

import pytest

from flux_ensemble.document.distributions import (
    Constant,
    Drawable,
    Empirical,
    Exponential,
    Lognormal,
    Normal,
    Param,
    Uniform,
)
from flux_ensemble.engine.events import Tag
from flux_ensemble.queues.simulation.uniforms import Uniforms, uniform

TAG = Tag("a", "rule-0", 3, 4)

#: The least and the greatest number that can come, and the middles of 1,000 parts.
LEAST, MOST = uniform(0), uniform(2**64 - 1)
GRID = [(part + 0.5) / 1000 for part in range(1000)]

#: The share of a normal distribution that is less than a standard deviation above its mean.
ONE_SIGMA = (1 + math.erf(math.sqrt(0.5))) / 2


def take(count: int, numbers: Iterator[float]) -> list[float]:
    return list(islice(numbers, count))


def draw(distribution: Drawable, *numbers: float) -> list[float]:
    """A value for each of the numbers."""
    left = iter(numbers)
    return [distribution.draw(left, {}) for _ in numbers]


def test_uniform_numbers_are_above_0_and_below_1() -> None:
    assert 0.0 < LEAST < uniform(2**63) < MOST < 1.0
    assert LEAST == 1.0 - MOST


def test_uniform_numbers_are_spread_evenly_over_the_jobs() -> None:
    uniforms = Uniforms(0)
    numbers = [next(uniforms.of(Tag("a", "rule-0", 0, index))) for index in range(10_000)]
    tenths = Counter(int(10 * number) for number in numbers)
    assert sorted(tenths) == list(range(10))
    assert all(900 < many < 1100 for many in tenths.values())


def test_the_numbers_of_a_job_do_not_repeat() -> None:
    assert len(set(take(100, Uniforms(0).of(TAG)))) == 100


def test_a_job_has_the_same_numbers_whatever_other_jobs_draw() -> None:
    uniforms = Uniforms(0)
    other, numbers = uniforms.of(TAG._replace(index=0)), uniforms.of(TAG)
    found = []
    for _ in range(20):
        next(other)
        found.append(next(numbers))
    assert found == take(20, Uniforms(0).of(TAG))


def test_a_seed_gives_the_same_numbers_everywhere() -> None:
    numbers = take(9, Uniforms(0).of(TAG))
    assert (numbers[0], numbers[8]) == (0.11302006436741208, 0.5966554739110307)


@pytest.mark.parametrize(
    "other",
    [
        TAG._replace(group="b"),
        TAG._replace(rule="rule-1"),
        TAG._replace(firing=4),
        TAG._replace(index=3),
    ],
    ids=str,
)
def test_a_job_with_another_tag_has_other_numbers(other: Tag) -> None:
    uniforms = Uniforms(0)
    assert not set(take(20, uniforms.of(TAG))) & set(take(20, uniforms.of(other)))


def test_another_seed_has_other_numbers() -> None:
    assert not set(take(20, Uniforms(0).of(TAG))) & set(take(20, Uniforms(1).of(TAG)))


@pytest.mark.parametrize(
    ("distribution", "share", "value"),
    [
        (Uniform(10, 20), 0.25, 12.5),
        (Normal(50, 5), 0.5, 50),
        (Normal(50, 5), ONE_SIGMA, 55),
        (Normal(50, 0), 0.9, 50),
        (Lognormal(10, 0.5), 0.5, 10),
        (Lognormal(10, 0.5), ONE_SIGMA, 10 * math.exp(0.5)),
        (Exponential(20), 0.5, 20 * math.log(2)),
        (Exponential(20), 1 - math.exp(-3), 60),
        (Empirical((7, 9, 8)), 0.5, 9),
    ],
    ids=str,
)
def test_a_share_of_the_values_is_below_the_quantile(
    distribution: Drawable, share: float, value: float
) -> None:
    assert draw(distribution, share) == [pytest.approx(value, rel=1e-12)]


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        (Uniform(10, 20), 15, 10 / math.sqrt(12)),
        (Normal(50, 5), 50, 5),
        (Lognormal(10, 0.5), 10 * math.exp(0.125), 10 * math.sqrt(math.exp(0.5) - math.exp(0.25))),
        (Exponential(20), 20, 20),
        (Empirical((7, 9, 8, 8)), 8, math.sqrt(0.5)),
    ],
    ids=str,
)
def test_the_values_have_the_mean_and_the_deviation_of_their_distribution(
    distribution: Drawable, mean: float, deviation: float
) -> None:
    values = draw(distribution, *GRID)
    assert fmean(values) == pytest.approx(mean, rel=0.001)
    assert pstdev(values) == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize(
    ("distribution", "least", "most"),
    [
        (Uniform(10, 20), 10, 20),
        (Normal(50, 5), 50 - 8.3 * 5, 50 + 8.3 * 5),
        (Lognormal(10, 0.5), 0, 10 * math.exp(8.3 * 0.5)),
        (Exponential(20), 0, 20 * 37),
        (Empirical((7, 8, 9)), 7, 9),
    ],
)
def test_the_least_and_the_greatest_number_give_a_value(
    distribution: Drawable, least: float, most: float
) -> None:
    low, high = draw(distribution, LEAST, MOST)
    assert least <= low < high <= most


def test_a_constant_and_a_parameter_take_no_number() -> None:
    none = iter(())
    assert Constant(5).draw(none, {}) == 5
    assert Param("x").draw(none, {"x": 3}) == 3.0
