"""How long jobs take, learned from their parameters."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.features.predict.durations import FEWEST, MAX_TERMS, Durations

FACTORS = {"lj": 1.0, "eam": 3.0, "reax": 40.0}

COSTS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "n": lambda job: 1e-3 * job["n"] * FACTORS[job["potential"]],
    "n²": lambda job: 1e-6 * job["n"] ** 2 * FACTORS[job["potential"]],
    "√n": lambda job: 0.1 * math.sqrt(job["n"]) * FACTORS[job["potential"]],
    "1/n": lambda job: 1e6 / job["n"] * FACTORS[job["potential"]],
}


def jobs(number: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    sizes = (1000, 2000, 4000, 8000, 16000)
    return [
        {"n": draw.choice(sizes), "potential": draw.choice(sorted(FACTORS))} for _ in range(number)
    ]


@pytest.mark.parametrize("cost", COSTS)
def test_what_grows_as_a_power_is_learned_from_twenty_jobs(cost: str) -> None:
    model, noise = Durations(), random.Random(1)
    for job in jobs(20):
        model.learn(job, COSTS[cost](job) * noise.lognormvariate(0, 0.1))
    errors = []
    for job in jobs(100, seed=2):
        predicted = model.predict(job)
        assert predicted is not None
        errors.append(abs(math.log(predicted / COSTS[cost](job))))
    assert median(errors) < 0.1
    assert max(errors) < 0.3


def test_it_gives_what_river_gives() -> None:
    from river.linear_model import BayesianLinearRegression

    ours, rivers = Durations(), BayesianLinearRegression(alpha=0.01, beta=1.0)
    sample = jobs(60)
    base = math.log(COSTS["n"](sample[0]))
    origin = math.log(sample[0]["n"])

    def features(job: Mapping[str, Any]) -> dict[str, float]:
        return {"": 1.0, "n": math.log(job["n"]) - origin, job["potential"]: 1.0}

    for number, job in enumerate(sample):
        if number >= FEWEST:
            predicted = ours.predict(job)
            assert predicted is not None
            expected = rivers.predict_one(features(job)) + base
            assert math.log(predicted) == pytest.approx(expected, abs=1e-6)
        ours.learn(job, COSTS["n"](job))
        rivers.learn_one(features(job), math.log(COSTS["n"](job)) - base)


def test_nothing_is_predicted_from_fewer_than_three_jobs() -> None:
    model = Durations()
    for number in range(FEWEST):
        assert model.predict({"n": 1}) is None
        assert model.rank({"n": 1}) is None
        model.learn({"n": number + 1}, 5.0)
    assert model.predict({"n": 1}) == pytest.approx(5.0, rel=0.05)


def test_ranks_change_when_twice_as_many_jobs_are_known() -> None:
    model, versions = Durations(), []
    for job in jobs(50):
        model.learn(job, COSTS["n"](job))
        versions.append(model.version)
    assert sorted(set(versions)) == [0, 3, 6, 12, 24, 48]


def test_its_memory_is_bounded_whatever_values_there_are() -> None:
    model = Durations()
    for number in range(500):
        model.learn({"n": number, "name": f"{number}" * 100}, 1.0 + number % 7)
    state = model.dump()
    assert len(state["terms"]) == MAX_TERMS
    assert len(json.dumps(state)) < 30_000
    assert model.predict({"n": 3, "name": "never seen"}) is not None


def test_a_prediction_does_not_go_astray_far_from_what_was_seen() -> None:
    model = Durations()
    for n in (1.0, 1.001, 1.002, 1.003):
        model.learn({"n": n}, math.exp(n * 3000 - 3000))
    predicted = model.predict({"n": 1e300})
    assert predicted is not None
    assert 0 < predicted < math.inf


VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=100),
    st.lists(st.integers(), max_size=3),
)
JOBS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abc"), VALUES), st.floats(0, 1e9, allow_nan=False)),
    max_size=30,
)


@given(JOBS)
def test_any_values_give_finite_predictions_and_a_state_that_comes_back(
    given_jobs: list[tuple[dict[str, Any], float]],
) -> None:
    model = Durations()
    for values, seconds in given_jobs:
        other = Durations()
        if model.count:
            other.load(json.loads(json.dumps(model.dump(), allow_nan=False)))
        for one in (model, other):
            one.learn(values, seconds)
        assert other.dump() == model.dump()
        for ask in (model.predict, model.rank):
            predicted = ask(values)
            assert predicted is None or 0 < predicted < math.inf
        assert other.predict(values) == model.predict(values)


def test_a_long_text_that_is_no_unicode_is_a_value_like_others() -> None:
    model = Durations()
    for seconds, letter in ((1.0, "a"), (30.0, "\udcff")):
        for _ in range(FEWEST):
            model.learn({"x": letter * 1000}, seconds)
    fast, slow = (model.predict({"x": letter * 1000}) for letter in ("a", "\udcff"))
    assert fast is not None
    assert slow is not None
    assert slow > 5 * fast
