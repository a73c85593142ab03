"""The importance of parameters for values."""

from __future__ import annotations

import random

from flux_ensemble.metrics.importance import ABSENT, MOST, importances


def test_importances_know_effects_that_are_no_trend_and_take_chance_for_nothing() -> None:
    x = [number / 60 for number in range(60)]
    chance = random.Random(1)
    noise = [chance.random() for _ in x]
    many = [f"{number // 2}" for number in range(60)]
    chance.shuffle(many)
    found = importances(
        {"x": x, "noise": noise, "many": many, "same": [1] * 60, "name": [*map(str, range(60))]},
        [(one - 0.5) ** 2 for one in x],
    )
    assert found[0].name == "x"
    shares = {one.name: one.share for one in found}
    assert shares.keys() == {"x", "noise", "many"}
    assert shares["x"] > 0.9
    assert max(shares["noise"], shares["many"]) < 0.2


def test_a_value_that_diverged_does_not_hide_what_matters() -> None:
    x = [number % 10 for number in range(50)]
    y = [number // 10 for number in range(50)]
    found = importances({"x": x, "y": y}, [*map(float, x[:-1]), 1e30])
    assert found[0].name == "x"
    assert found[0].share > 0.8
    assert importances({"x": x}, [1.0] * 50) == []
    assert importances({"x": x[:9]}, [*map(float, x[:9])]) == []


def test_of_very_many_points_evenly_spaced_ones_are_used() -> None:
    x = [number % 7 for number in range(MOST * 3)]
    found = importances({"x": x, "y": x[::-1]}, [*map(float, x)])
    assert found[0].share > 0.99


def test_a_parameter_that_only_some_points_have_is_judged_among_these() -> None:
    chance = random.Random(3)
    opt = ["sgd" if number % 2 else "adam" for number in range(80)]
    momentum = [chance.random() if one == "sgd" else ABSENT for one in opt]
    # Where it is absent, values are far better: that is the effect of `opt`.
    values = [100 + one if isinstance(one, float) else chance.random() for one in momentum]
    found = {one.name: one for one in importances({"opt": opt, "momentum": momentum}, values)}
    assert found["momentum"].share > 0.9
    assert (found["opt"].points, found["momentum"].points) == (80, 40)
    assert 0.6 < found["opt"].share < 0.9


def test_a_parameter_that_too_few_points_have_or_that_changes_nothing_is_left_out() -> None:
    x = [*map(float, range(40))]
    rare = [one if place < 9 else ABSENT for place, one in enumerate(x)]
    flat = [one if place >= 20 else ABSENT for place, one in enumerate(x)]
    values = [*x[:20], *[50.0] * 20]
    found = importances({"x": x, "rare": rare, "flat": flat}, values)
    assert [one.name for one in found] == ["x"]
