"""The sampler of a search: the same points whichever process gives them, and what it does wrong."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import pytest
from local_queue import children, command_of

import flux_ensemble
from flux_ensemble import scalars
from flux_ensemble.engine.commands import Ask
from flux_ensemble.features.search import gaussian
from flux_ensemble.features.search.advisers import Advice, Asker, described
from flux_ensemble.features.search.model import Objective, Search, Stop, Variable
from flux_ensemble.features.search.samplers import BEST, LATEST, MANY, SearchSampler, seed_of
from flux_ensemble.features.search.space import NoPointError
from flux_ensemble.features.search.suggester import suggesting
from flux_ensemble.features.search.trials import COMPLETE, FAILED, PRUNED, Trials
from flux_ensemble.features.search.unit_cube import sequence_seed
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.scalars import identity, spelled

pytest.importorskip("optuna")
# It takes longer to import than all else here, so each worker would wait for it as it begins.
if find_spec("sklearn") is None:
    pytest.skip("sklearn is not installed", allow_module_level=True)

VARIABLES = (
    Variable("x", 1e-4, 1.0, log=True),
    Variable("n", 1, 8, integer=True),
    Variable("kind", choices=("p", "q", True, 1)),
)

SAMPLERS = ["random", "qmc", "tpe", "cma", "nsga2", "gp"]

ONE = (Objective("loss"),)
TWO = (Objective("loss"), Objective("gain", maximize=True))

#: How many trials show what a sampler learns: NSGA-II's generations have 50.
ENOUGH = {"nsga2": 120, "gp": 13}


def search(sampler: str, **given: Any) -> Search:
    # CMA-ES has no choices.
    variables = VARIABLES[:2] if sampler == "cma" else VARIABLES
    given = {"objectives": ONE, "trials": 10_000, **given}
    return Search("hpo", "a", variables, sampler=sampler, **given)


def loss(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 0.01) ** 2 + (params["n"] - 3) ** 2)


class Asked:
    """A search of which each trial ends before the next point is asked for."""

    def __init__(self, given: Search, seed: int = 7) -> None:
        self.search = given
        self.trials = Trials(given)
        self.seed = seed
        self.sampling: Any = suggesting(described(given, seed))
        self._known = 0, 0

    def anew(self) -> None:
        """Another process, which is told of all trials."""
        self.sampling = suggesting(described(self.search, self.seed))
        self._known = 0, 0

    def ask(self, count: int = 1) -> list[dict[str, Any]]:
        """Points, which are under way then."""
        first, last = len(self.trials.all), len(self.trials.ended)
        seen = self.trials.seen(*self._known, first, last)
        points = self.sampling.answer({"count": count, **seen})["points"]
        self._known = first + len(points), last
        for point in points:
            self.trials.add(point["params"], point.get("attributes"))
            self.trials.next(0.0)
        return [point["params"] for point in points]

    def end(self, number: int) -> None:
        """A trial ends; each seventh fails."""
        params = self.trials.params(self.trials.all[number])
        value: Any = loss(params)
        if self.trials.search.several:
            value = value, params["x"]
        if number % 7 == 6:
            self.trials.end(number, FAILED, None, 1.0)
        elif self.trials.search.stop is not None and number % 3 == 1:
            self.trials.end(number, PRUNED, value + 1.0, 1.0, number % 5 + 1)
        else:
            self.trials.end(number, COMPLETE, value, 1.0)

    def run(self, count: int, slots: int, again: int = 0) -> list[dict[str, Any]]:
        """The points of so many trials, with a new process before each `again`th ask."""
        points = self.ask(slots)
        for number in range(count - slots):
            self.end(number)
            if again and number % again == 0:
                self.anew()
            points += self.ask()
        return points


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_new_process_that_is_told_of_all_trials_goes_on_as_the_one_before(
    sampler: str, slots: int
) -> None:
    given = search(sampler, parallel=slots)
    count = ENOUGH.get(sampler, 40)
    straight = Asked(given).run(count, slots)
    assert Asked(given).run(count, slots, again=3) == straight
    assert Asked(given, seed=8).run(count, slots) != straight


def named(values: tuple[Any, ...]) -> dict[str, Any]:
    """A point of `VARIABLES`."""
    return {one.name: value for one, value in zip(VARIABLES, values, strict=False)}


@pytest.mark.parametrize("sampler", [*SAMPLERS, "grid"])
def test_the_values_that_a_point_of_the_user_lacks_are_those_of_the_sampler(sampler: str) -> None:
    given = search("qmc" if sampler == "grid" else sampler, parallel=2)
    if sampler == "grid":
        steps = Variable("x", 0.25, 1.0, step=0.25)
        given = replace(given, sampler=sampler, variables=(steps, *VARIABLES[1:]))

    def run(again: int) -> list[Mapping[str, Any]]:
        asked = Asked(given)
        asked.run(20, 2)
        assert asked.trials.give([{"n": 5}, named((0.5, 2, "q")[: len(given.variables)])]) == 20
        assert asked.trials.give([{"x": 0.25}]) == 22
        points: list[Mapping[str, Any]] = []
        for number in range(18, 28):
            asked.end(number)
            if again and number % again == 0:
                asked.anew()
            points += asked.ask(2 if number == 18 else 1)
        return points

    points = run(again=0)
    assert points[0]["n"] == 5
    assert (points[1]["x"], points[1]["n"]) == (0.5, 2)
    assert points[2]["x"] == 0.25
    assert len({point["x"] for point in points[3:]}) > 2
    assert [given.objection(point) for point in points] == [None] * len(points)
    assert run(again=2) == points


def test_a_point_without_some_values_is_that_of_optuna() -> None:
    import optuna

    asked = Asked(search("tpe"))
    asked.trials.give([{"n": 5}])
    (point,) = asked.ask()
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed_of(described(asked.search, 7), 0))
    )
    study.enqueue_trial({"n": 5})
    trial = study.ask()
    x = trial.suggest_float("x", 1e-4, 1.0, log=True)
    assert (point["x"], point["n"]) == (x, trial.suggest_int("n", 1, 8))


def test_a_finite_space_has_a_point_again_only_if_its_values_leave_no_other() -> None:
    variables = Variable("a", choices=(1, None)), Variable("b", choices=("p", "q"))
    for sampler in ("grid", "random"):
        asked = Asked(Search("hpo", "a", variables, ONE, sampler=sampler, trials=9))
        asked.trials.give([{"a": None}, {"a": None}, {"a": None}])
        points = [tuple(point.values()) for point in asked.ask(5)]
        assert {*points[:2]} == {(None, "p"), (None, "q")}
        assert points[2] in points[:2]
        assert {*points[3:]} == {(1, "p"), (1, "q")}
        assert not asked.ask()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_points_of_the_user_are_learned_from_by_each_process_alike(sampler: str) -> None:
    given = search(sampler, parallel=4)
    many, size = ENOUGH.get(sampler, 40), len(given.variables)

    def run(first: float, again: int) -> list[dict[str, Any]]:
        asked = Asked(given)
        asked.trials.give(
            named((first / (number + 1), number % 8 + 1, "p")[:size]) for number in range(10)
        )
        for number in range(10):
            asked.trials.next(0.0)
            asked.end(number)
        for number in range(10, many):
            # Some are added later, too.
            if number % 9 == 0:
                asked.trials.give([named((first, 8, "q")[:size])])
                asked.trials.next(0.0)
            else:
                asked.ask()
            asked.end(number)
            if again and number % again == 0:
                asked.anew()
        return [asked.trials.params(trial) for trial in asked.trials.all]

    straight = run(0.01, again=0)
    assert run(0.01, again=3) == straight
    learns = sampler not in ("random", "qmc")
    suggested = [number for number in range(10, many) if number % 9]
    others = run(0.9, again=0)
    assert learns == any(straight[number] != others[number] for number in suggested)


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe", "nsga2"])
def test_with_several_objectives_too(sampler: str) -> None:
    given = search(sampler, parallel=4, objectives=TWO)
    straight = Asked(given).run(70, 4)
    assert Asked(given).run(70, 4, again=3) == straight
    assert [given.objection(point) for point in straight] == [None] * 70


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_with_trials_that_were_stopped_early_too(sampler: str) -> None:
    given = search(sampler, stop=Stop("asha", "epoch"))
    count = 20 if sampler == "gp" else 40
    straight = Asked(given).run(count, 1)
    assert Asked(given).run(count, 1, again=7) == straight
    if sampler == "tpe":
        assert Asked(search(sampler)).run(count, 1) != straight


def test_the_pareto_front_is_what_optuna_finds_in_the_same_trials() -> None:
    import optuna

    asked = Asked(search("random", objectives=TWO))
    asked.run(150, 1)
    study = optuna.create_study(directions=["minimize", "maximize"])
    complete = [trial for trial in asked.trials.all if trial.state == COMPLETE]
    for trial in complete:
        assert isinstance(trial.value, tuple)
        study.add_trial(optuna.trial.create_trial(values=trial.value))
    expected = {complete[trial.number].number for trial in study.best_trials}
    front = [trial.number for trial in asked.trials.front]
    assert set(front) == expected
    assert 1 < len(front) == len(expected) < 150
    # It can be read again from a snapshot.
    again = Trials(asked.search)
    again.load(asked.trials.dump())
    assert [trial.number for trial in again.front] == front


def test_a_gaussian_process_comes_nearer_with_few_trials_than_random_points() -> None:
    def least(sampler: str, seed: int) -> float:
        variables = (Variable("x", 0.0, 1.0), Variable("y", 1e-3, 1.0, log=True))
        given = Search("hpo", "a", variables, ONE, sampler=sampler, trials=100)
        sampling = SearchSampler(described(given, seed))
        values: list[float] = []
        for number in range(18):
            ends = [[number - 1, values[-1]]] if values else []
            request = {"count": 1, "points": [], "attributes": {}, "ends": ends}
            (point,) = sampling.answer(request)["points"]
            x, y = point["params"]["x"], point["params"]["y"]
            values.append((x - 0.3) ** 2 + (math.log10(y) + 1.7) ** 2)
        return min(values)

    assert 3 * least("gp", 7) < min(least("random", seed) for seed in range(8))


def test_a_gaussian_process_of_many_trials_goes_on_in_a_new_process_and_has_some_of_them() -> None:
    given = Search("hpo", "a", VARIABLES[:2], ONE, sampler="gp", trials=1000)
    many = gaussian.MANY + 5
    points = [[0.0002 + 0.0015 * number, number % 8 + 1] for number in range(many)]
    ends = [[number, (point[0] - 0.1) ** 2 + point[1]] for number, point in enumerate(points)]
    told = {"count": 1, "points": points, "attributes": {}, "ends": ends}
    sampling = SearchSampler(described(given, 7))
    (first,) = sampling.answer(told)["points"]
    (second,) = sampling.answer({**told, "points": [], "ends": [[many, 0.5]]})["points"]
    again = SearchSampler(described(given, 7))
    points.append(list(first["params"].values()))
    ends.append([many, 0.5])
    assert again.answer(told)["points"] == [second]
    process: Any = again._sampler
    seen, costs, bounds = process._seen(many + 1)
    assert len(seen) == len(costs) == len(bounds) == gaussian.MANY
    # The best one is among them, and the latest.
    kept = {tuple(point) for point in seen.tolist()}
    best = min(ends, key=lambda end: float(end[1]))[0]
    assert {tuple(process._points[number]) for number in (best, many)} <= kept


def test_the_improvement_that_a_gaussian_process_expects_is_that_of_its_formula() -> None:
    import numpy as np
    from scipy.stats import norm

    by, deviation = np.linspace(-3.0, 3.0, 61), 0.7
    z = by / deviation
    expected = by * norm.cdf(z) + deviation * norm.pdf(z)
    assert np.allclose(np.exp(gaussian._log_improvement(by, deviation)), expected, rtol=1e-6)
    # Where that is too small for a number, a candidate that is farther away is worth less.
    far = gaussian._log_improvement(np.linspace(-300.0, -3.0, 100), deviation)
    assert (np.diff(far) > 0).all()


def test_the_lengths_of_a_gaussian_process_are_fitted_when_there_are_a_tenth_more_trials() -> None:
    fitted = [gaussian._fitted_to(count) for count in range(10, 400)]
    assert fitted == sorted(fitted)
    assert all(0.9 * count <= of <= count for count, of in enumerate(fitted, 10))
    assert len(set(fitted)) < 60


@pytest.mark.parametrize("last", [1.0, 40.0, 1e20, 1e308])
def test_values_of_a_gaussian_process_are_told_apart_whatever_diverged(last: float) -> None:
    costs = numpy.array([3.0, 1.0, 2.0, 5.0, 8.0, 13.0, 0.5, 21.0, last, -0.5, 2 * last - last / 2])
    normal = gaussian._normal(costs)
    assert (
        numpy.argsort(normal, kind="stable").tolist()
        == numpy.argsort(costs, kind="stable").tolist()
    )
    assert len(set(numpy.round(normal, 3))) == len(set(costs))
    assert (round(normal.mean(), 9), round(normal.std(), 9)) == (0.0, 1.0)
    assert not gaussian._normal(numpy.array([4.0] * 12)).any()


def test_a_gaussian_process_finds_the_choice_and_the_integer_in_spite_of_noise() -> None:
    variables = (
        Variable("x", 1e-5, 0.1, log=True),
        Variable("n", 1, 9, integer=True),
        Variable("kind", choices=("p", "q", "r")),
    )
    given = Search("hpo", "a", variables, ONE, sampler="gp", trials=100)
    sampling = SearchSampler(described(given, 3))
    chance = random.Random(3)
    ends: list[list[float]] = []
    found: list[tuple[int, str]] = []
    for number in range(40):
        (point,) = sampling.answer({"count": 1, "points": [], "attributes": {}, "ends": ends})[
            "points"
        ]
        x, n, kind = point["params"].values()
        value = (math.log10(x) + 3) ** 2 + (n - 6) ** 2 + 2 * (kind != "q") + chance.gauss(0, 0.2)
        # Values with a skew: most are small.
        ends = [[number, math.exp(value)]]
        found.append((n, kind))
    assert found[-15:].count((6, "q")) > 7


@pytest.mark.parametrize(("n", "next_to_it"), [(1, {2}), (4, {3, 5}), (8, {7})])
def test_beside_a_point_of_a_gaussian_process_are_its_next_integers_and_other_choices(
    n: int, next_to_it: set[int]
) -> None:
    given = Search("hpo", "a", VARIABLES, ONE, sampler="gp", trials=100)
    process = gaussian.Gaussian(described(given, 7))
    row = process._back([0.1, n, "q"])
    beside = [tuple(process._params(one)[1:]) for one in process._beside(row)]
    assert len(beside) == len(next_to_it) + 3
    assert {other for other, kind in beside if kind == "q"} == next_to_it
    assert [kind for other, kind in beside if other == n] == ["p", True, 1]


def test_points_of_a_gaussian_process_are_not_given_twice_while_there_are_others() -> None:
    variables = (Variable("n", 1, 6, integer=True), Variable("kind", choices=("p", "q", "r")))
    given = Search("hpo", "a", variables, ONE, sampler="gp", trials=100)
    sampling = SearchSampler(described(given, 7))
    request = {"count": 10, "points": [], "attributes": {}, "ends": []}
    points = sampling.answer(request)["points"]
    ends = [[number, float(point["params"]["n"])] for number, point in enumerate(points)]
    begun = {tuple(point["params"].values()) for point in points}
    # All are under way but the first ten.
    new = sampling.answer({**request, "count": 18 - len(begun), "ends": ends})["points"]
    assert begun.union(tuple(point["params"].values()) for point in new) == {
        (n, kind) for n in range(1, 7) for kind in "pqr"
    }


STEPS = (
    Variable("x", 0.1, 0.75, step=0.1),
    Variable("n", 2, 11, integer=True, step=3),
    Variable("m", 0, 10, step=5),
)


@pytest.mark.parametrize("sampler", [*SAMPLERS, "grid"])
def test_a_range_with_steps_has_these_values_and_the_sampler_learns(sampler: str) -> None:
    given = Search("hpo", "a", STEPS, ONE, sampler=sampler, trials=100)
    points = Asked(given).run(20, 2)
    x = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}
    assert {point["x"] for point in points} <= x
    assert {point["n"] for point in points} <= {2, 5, 8, 11}
    assert {point["m"] for point in points} <= {0, 5, 10}
    assert {type(point["n"]) for point in points} == {int}
    assert Asked(given).run(20, 2, again=3) == points
    assert (given.size, given.objection(points[0])) == (7 * 4 * 3, None)


def test_a_value_between_steps_is_none_of_a_range_with_steps() -> None:
    variable = STEPS[0]
    assert variable.objection(0.3) is None
    expected = "expected 0.1 and steps of 0.1 up to 0.75, not 0.35"
    assert variable.objection(0.35) == expected
    assert variable.objection(0.75) == expected.replace("0.35", "0.75")
    # What a computation made of a step is the step.
    assert (variable.read(0.1 + 0.2), variable.read("0.7")) == (0.3, 0.7)
    assert variable.read(0.3 - 0.2) == 0.1
    assert (STEPS[1].read("5"), type(STEPS[1].read(5.0))) == (5, int)


FINITE = (
    Variable("n", 1, 5, integer=True),
    Variable("kind", choices=("p", "q", True, 1)),
    Variable("m", 8, 10, integer=True),
)


@pytest.mark.parametrize("again", [0, 7])
@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_each_point_of_a_finite_space_is_suggested_once(sampler: str, again: int) -> None:
    asked = Asked(Search("hpo", "a", FINITE, ONE, sampler=sampler, trials=100))
    asked.trials.give([{"n": 2, "kind": True, "m": 9}, {"n": 5, "kind": "q", "m": 8}])
    for _ in range(2):
        asked.trials.next(0.0)
    count = 0
    while points := asked.ask(9):
        assert (len(points) == 9) == (count < 54)
        count += len(points)
        if again:
            asked.anew()
    found = [tuple(map(identity, trial.params)) for trial in asked.trials.all]
    assert (count, len(found), len(set(found))) == (58, 60, 60)


def test_the_first_points_of_a_grid_have_all_values_of_each_variable() -> None:
    asked = Asked(Search("hpo", "a", FINITE, ONE, sampler="grid"))
    points = asked.ask(10)
    values = [{identity(point[one.name]) for point in points} for one in FINITE]
    assert list(map(len, values)) == [5, 4, 3]


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_a_point_of_these_follows_from_its_number_alone(sampler: str) -> None:
    asked = Asked(search(sampler))
    assert asked.ask(20) == Asked(search(sampler)).run(20, 1)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_points_are_in_the_bounds_and_of_the_types_of_their_variables(sampler: str) -> None:
    given = search(sampler)
    count = ENOUGH.get(sampler, 60)
    points = Asked(given).run(count, 1)
    assert [given.objection(point) for point in points] == [None] * count
    assert {type(point["n"]) for point in points} == {int}
    assert len({point["n"] for point in points}) > 3


@pytest.mark.parametrize(
    "choices",
    [
        (0, 1, 2, False),
        (1, 1.0, 2),
        (True, 1, 5),
        (spelled("NO"), 0, 2),
        (spelled("1.10"), 1.1, "1.1"),
    ],
    ids=str,
)
@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "nsga2", "gp", "grid"])
def test_choices_that_are_equal_in_python_are_told_apart(
    sampler: str, choices: tuple[Any, ...]
) -> None:
    variable = Variable("c", choices=choices)
    given = Search("hpo", "a", (variable,), ONE, sampler=sampler, trials=10_000)
    asked = Asked(given)
    best = asked.search.variables[0].choices[-1]
    # Of a finite space `random` and `grid` suggest each point once.
    many = {"gp": ENOUGH["gp"], "random": len(choices), "grid": len(choices)}
    points = _played(asked, best, many.get(sampler, 60))
    kinds = Counter(identity(point["c"]) for point in points)
    assert kinds.keys() == {identity(choice) for choice in choices}
    if sampler == "tpe":
        # It learns which of them it is.
        assert kinds[identity(best)] > 35


def _played(asked: Asked, best: Any, count: int) -> Iterator[Mapping[str, Any]]:
    """The points of so many trials, of which those with one choice are the best."""
    for number in range(count):
        # Through JSON, as between processes.
        (point,) = json.loads(json.dumps(asked.ask()))
        value = 0.0 if identity(point["c"]) == identity(best) else 1.0
        asked.trials.end(number, COMPLETE, value, 1.0)
        yield point


def test_a_choice_that_json_had_is_the_one_of_the_document_again() -> None:
    choices = (spelled("1.10"), "1.1", spelled("NO"), True)
    trials = Trials(Search("hpo", "a", (Variable("c", choices=choices),), ONE, trials=9))
    for point in json.loads(json.dumps([{"c": choice} for choice in choices])):
        trials.add(point, None)
    again = Trials(trials.search)
    again.load(json.loads(json.dumps(trials.dump())))
    for one in (trials, again):
        assert [type(trial.params[0]) for trial in one.all] == list(map(type, choices))
        assert [scalars.number(trial.params[0]) for trial in one.all] == [1.1, "1.1", False, True]


@pytest.mark.filterwarnings("ignore:QMCSampler is experimental")
@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe", "cma", "nsga2"])
def test_points_are_those_of_optuna_with_the_same_seeds(sampler: str) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kinds: dict[str, Callable[..., Any]] = {
        "random": optuna.samplers.RandomSampler,
        "qmc": partial(optuna.samplers.QMCSampler, scramble=True),
        "tpe": optuna.samplers.TPESampler,
        "cma": optuna.samplers.CmaEsSampler,
        "nsga2": optuna.samplers.NSGAIISampler,
    }
    given = search(sampler)
    if sampler != "cma":
        given = replace(given, variables=(Variable("one", choices=("only",)), *given.variables))
    asked = Asked(given)
    points = asked.run(ENOUGH.get(sampler, 30), 1)
    study = optuna.create_study()
    distributions: dict[str, Any] = {
        "x": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "n": optuna.distributions.IntDistribution(1, 8),
        # Their places: of True and 1, which are equal, Optuna would see one alone.
        "kind": optuna.distributions.CategoricalDistribution(range(4)),
        "one": optuna.distributions.CategoricalDistribution(("only",)),
    }
    space = {variable.name: distributions[variable.name] for variable in given.variables}
    words = described(given, 7)
    if sampler == "qmc":
        # Optuna's sequence begins with the second trial: the first tells it of the variables.
        study.sampler = kinds["random"]()
        study.tell(study.ask(space), 0.0)
    for number, point in enumerate(points):
        # A sequence has one seed.
        seed = sequence_seed(words) if sampler == "qmc" else seed_of(words, number)
        study.sampler = kinds[sampler](seed=seed)
        trial = study.ask(space)
        kinds_of = {"kind": VARIABLES[2].choices[trial.params["kind"]]} if "kind" in point else {}
        assert list(map(identity, {**trial.params, **kinds_of}.values())) == list(
            map(identity, point.values())
        )
        if number % 7 == 6:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, loss(point))


#: Twelve variables, most of them under conditions, also of others that have one.
CONDITIONAL = (
    Variable("model", choices=("net", "trees", "line")),
    Variable("lr", 1e-5, 0.1, log=True, when="model != 'trees'"),
    Variable("opt", choices=("sgd", "adam", None), when="model == 'net'"),
    Variable("momentum", 0.0, 1.0, when="opt == 'sgd'"),
    Variable("nesterov", choices=(True, False), when="momentum > 0.5"),
    Variable("beta", 0.9, 0.999, when="opt == 'adam'"),
    Variable("layers", 1, 4, integer=True, when="model == 'net'"),
    Variable("width1", 8, 256, log=True, integer=True, when="layers >= 1"),
    Variable("width2", 8, 256, log=True, integer=True, when="layers >= 2"),
    Variable("depth", 2, 32, integer=True, when="model == 'trees'"),
    Variable("rate", 0.25, 1.0, step=0.25, when="depth > 8"),
    Variable("seed", 0, 3, integer=True),
)


def worth(params: Mapping[str, Any]) -> float:
    """An objective of points that have few of the variables, or many."""
    return sum(
        float(value) if type(value) in (int, float) else 0.25 * len(str(value))
        for value in params.values()
    )


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2"])
def test_variables_under_conditions_are_those_of_a_program_of_optuna(sampler: str) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kinds: dict[str, Callable[..., Any]] = {
        "random": optuna.samplers.RandomSampler,
        "tpe": optuna.samplers.TPESampler,
        "nsga2": optuna.samplers.NSGAIISampler,
    }

    def asked_for(trial: Any) -> dict[str, Any]:
        params: dict[str, Any] = {}

        def choice(name: str, choices: tuple[Any, ...]) -> None:
            params[name] = choices[trial.suggest_categorical(name, range(len(choices)))]

        choice("model", ("net", "trees", "line"))
        if params["model"] != "trees":
            params["lr"] = trial.suggest_float("lr", 1e-5, 0.1, log=True)
        if params["model"] == "net":
            choice("opt", ("sgd", "adam", None))
            if params["opt"] == "sgd":
                params["momentum"] = trial.suggest_float("momentum", 0.0, 1.0)
                if params["momentum"] > 0.5:
                    choice("nesterov", (True, False))
            elif params["opt"] == "adam":
                params["beta"] = trial.suggest_float("beta", 0.9, 0.999)
            params["layers"] = trial.suggest_int("layers", 1, 4)
            params["width1"] = trial.suggest_int("width1", 8, 256, log=True)
            if params["layers"] >= 2:
                params["width2"] = trial.suggest_int("width2", 8, 256, log=True)
        elif params["model"] == "trees":
            params["depth"] = trial.suggest_int("depth", 2, 32)
            if params["depth"] > 8:
                params["rate"] = 0.25 * (trial.suggest_int("rate", 0, 3) + 1)
        params["seed"] = trial.suggest_int("seed", 0, 3)
        return params

    given = Search("hpo", "a", CONDITIONAL, ONE, sampler=sampler, trials=10_000)
    # Of a conditional space all points are not counted in advance, but tried once each.
    study, asked, words = optuna.create_study(), Asked(given), described(given, 7)
    for number in range(80):
        (point,) = asked.ask()
        study.sampler = kinds[sampler](seed=seed_of(words, number))
        trial = study.ask()
        assert point == asked_for(trial)
        assert given.objection(point) is None
        study.tell(trial, worth(point))
        asked.trials.end(number, COMPLETE, worth(point), 1.0)
        if number % 9 == 0:
            asked.anew()


def test_a_gaussian_process_has_variables_under_conditions() -> None:
    given = Search("hpo", "a", CONDITIONAL, ONE, sampler="gp", trials=100)

    def run(again: int) -> list[dict[str, Any]]:
        asked, points = Asked(given), []
        for number in range(30):
            points += asked.ask()
            wrong = 3.0 * (points[-1]["model"] != "net") + 2.0 * (points[-1].get("opt") != "sgd")
            value = wrong + abs(points[-1].get("momentum", 1.0) - 0.25)
            asked.trials.end(number, COMPLETE, value, 1.0)
            if again and number % again == 0:
                asked.anew()
        return points

    points = run(0)
    assert [given.objection(point) for point in points] == [None] * 30
    assert run(4) == points
    # It tries more where it was good.
    assert [point.get("opt") for point in points[-12:]].count("sgd") > 7
    least = min(abs(point.get("momentum", 1.0) - 0.25) for point in points)
    assert least < 0.1


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_points_that_a_constraint_leaves_out_are_not_suggested(sampler: str) -> None:
    given = search(sampler, parallel=2, where=("x * n <= 0.5", "x < 0.25 or n == 1"))

    def run(again: int) -> list[dict[str, Any]]:
        asked = Asked(given)
        asked.trials.give([{"n": 8}])
        return asked.run(ENOUGH.get(sampler, 40), 2, again=again)

    points = run(0)
    assert points[0]["n"] == 8
    assert [given.objection(point) for point in points] == [None] * len(points)
    assert all(point["x"] * point["n"] <= 0.5 for point in points)
    assert run(3) == points


def test_a_grid_has_each_point_that_conditions_and_constraints_leave_once() -> None:
    variables = (
        Variable("opt", choices=("sgd", "adam")),
        Variable("momentum", 0.0, 1.0, step=0.25, when="opt == 'sgd'"),
        Variable("n", 1, 3, integer=True),
    )
    for sampler in ("grid", "random"):
        where = ("n <= 2 or momentum > 0.5",)
        given = Search("hpo", "a", variables, ONE, sampler=sampler, trials=99, where=where)
        asked = Asked(given)
        points = [tuple(point.items()) for point in asked.ask(50)]
        # Of adam there are three, since no constraint on what a point does not have applies.
        assert len(points) == len(set(points)) == given.size == 5 * 2 + 2 + 3
        assert not asked.ask()


def test_a_model_whose_points_are_all_left_out_gives_way_to_draws_from_the_space() -> None:
    given = Search("hpo", "a", VARIABLES, ONE, sampler="tpe", trials=99, where=("x > 0.99",))
    points = Asked(given).run(20, 1)
    assert all(point["x"] > 0.99 for point in points)


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe"])
def test_a_sampler_that_finds_no_point_that_is_allowed_says_so(sampler: str) -> None:
    given = search(sampler, where=("x > 0.9999999999999",))
    with pytest.raises(NoPointError, match=r"no point that 'where' allows in 10,000 draws"):
        Asked(given).ask()


def test_of_very_many_trials_tpe_sees_the_best_the_latest_and_those_under_way() -> None:
    asked = Asked(search("tpe"))
    total = MANY + LATEST
    for number in range(total):
        asked.trials.add({"x": (number + 1) / (2 * total), "n": 3, "kind": "p"}, None)
        asked.trials.next(0.0)
    for number in range(total - 2):
        asked.trials.end(number, COMPLETE, float(number % 500), 1.0)
    asked.ask()
    sampler = asked.sampling._sampler
    trials = sampler._some.get_trials(deepcopy=False)
    ended = [trial for trial in trials if trial.state.is_finished()]
    assert LATEST < len(ended) <= BEST + LATEST
    assert len(trials) - len(ended) == 3
    point = asked.ask()
    asked.trials.all.pop()
    asked.trials.active.popitem()
    asked.anew()
    assert asked.ask() == point


# -- in a process of its own --------------------------------------------------------


class Bench:
    """An asker with its loop."""

    def __init__(self, given: Search, directory: Path) -> None:
        self.trials = Trials(given)
        self.loop = LocalLoop()
        self.lines: list[str] = []
        self.advice: list[Advice] = []
        self.asker = Asker(
            self.loop,
            given,
            seed=7,
            environment=dict(os.environ),
            cwd=str(directory),
            info={"name": "test", "directory": str(directory)},
            log=lambda _, line: self.lines.append(line),
        )

    def ask(self, count: int = 1) -> Advice:
        """Ask, and wait for the answer; the points are under way then."""
        self.begin(count)
        self.loop.run(lambda: bool(self.advice))
        advice = self.advice.pop()
        for point in advice.points:
            self.trials.add(point["params"], None)
            self.trials.next(0.0)
        return advice

    def begin(self, count: int = 1) -> None:
        command = Ask(1, "hpo", len(self.trials.all), count, len(self.trials.ended))
        self.asker.ask(command, self.trials, self.advice.append)


@contextmanager
def bench(given: Search, directory: Path) -> Iterator[Bench]:
    made = Bench(given, directory)
    try:
        yield made
    finally:
        made.asker.close()
        made.loop.run(lambda: not made.loop.timers)
        made.loop.close()


def test_a_process_that_is_killed_is_followed_by_one_with_the_same_next_points(
    tmp_path: Path,
) -> None:
    expected = Asked(search("tpe")).run(20, 1)
    with bench(search("tpe"), tmp_path) as made:
        points = []
        for number in range(20):
            if number == 12:
                before = set(children(os.getpid()))
                (pid,) = [pid for pid in before if b"test" in command_of(pid)]
                os.kill(pid, signal.SIGKILL)
                # It is noticed between two asks, or by the next one, which is repeated.
                advice = made.ask()
                while not advice.ok:
                    assert "was killed by signal 9" in advice.reason
                    advice = made.ask()
            else:
                advice = made.ask()
            points.append(advice.points[0]["params"])
            Asked.end(made, number)  # type: ignore[arg-type]
    assert points == expected


def test_an_ask_that_was_given_up_does_not_change_the_points_after_it(tmp_path: Path) -> None:
    with bench(search("tpe"), tmp_path) as made:
        first = made.ask(3)
        made.begin(2)
        made.loop.run(lambda: bool(made.advice))
        # The engine has not taken them: it asks for the same ones again.
        given_up = made.advice.pop()
        again = made.ask(2)
        assert again.points == given_up.points
        assert len(first.points) == 3


HOSTILE = """
import time
class SearchSampler:
    def __init__(self, search): {begin}
    def answer(self, request): {answer}
"""


@pytest.mark.parametrize(
    ("begin", "answer", "reason"),
    [
        ("pass", "raise ValueError('no data')", "raised ValueError: no data"),
        ("raise ImportError('no')", "pass", "could not be loaded: the sampler raised ImportError"),
        ("pass", "import os; os._exit(3)", "exited with status 3"),
        ("pass", "time.sleep(1000)", "was ended after 0.5 s"),
        ("pass", "return {'points': [{'params': {}}] * 1000, 'seconds': 0}", "at most 1 points"),
        ("pass", "return {'points': [{'params': {'x': 2.0, 'n': 1, 'kind': 'p'}}], 'seconds': 0}",
         "used: point 0: x: expected a number >= 0.0001 and <= 1.0, not 2.0"),
        ("pass", "return {'points': [{'params': {'x': 0.5, 'n': 1.0, 'kind': 'p'}}], 'seconds': 0}",
         "n: expected an integer"),
        ("pass", "return {'points': [{'params': {'x': 0.5, 'n': 1, 'kind': False}}], 'seconds': 0}",
         "kind: expected one of"),
        ("pass", "return {'points': [{'params': {'x': 0.5}}], 'seconds': 0}",
         "expected values of x, n, kind, not of x"),
        ("pass", "return {'points': [{'params': {'x': float('nan'), 'n': 1, 'kind': 'p'}}]}",
         "sampler"),
        ("pass", "return {'points': 5, 'seconds': 0}", "expected a list of points"),
        ("pass", "return {'points': [5], 'seconds': 0}",
         "gave what cannot be used: point 0: expected a mapping with 'params', not 5"),
        ("pass", "return {'points': [{'params': {'x': 0.5, 'n': 1, 'kind': 'p'},"
         " 'attributes': 5}], 'seconds': 0}", "point 0: expected a mapping of attributes"),
        ("pass", "return {'points': []}", "its sampler gave what cannot be used: no time"),
    ],
)  # fmt: skip
def test_what_a_sampler_does_wrong_is_said(
    begin: str, answer: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler of a process is another one, which its search path has first."""
    shadow(tmp_path / "shadow", HOSTILE.format(begin=begin, answer=answer))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shadow"), *sys.path])
    # Only what sleeps is to meet it, on a slow machine, too.
    timeout = 0.5 if "sleep" in answer else 60.0
    with bench(search("random", timeout=timeout), tmp_path) as made:
        advice = made.ask()
        assert not advice.ok
        assert advice.reason.startswith("search 'hpo': its sampler ")
        assert reason in advice.reason


def shadow(root: Path, sampling: str) -> None:
    """A package in which all is ours but for `features.search.samplers`."""
    real, place = Path(flux_ensemble.__file__).parent, root / "flux_ensemble"
    for other in ("features", "search", "samplers.py"):
        place.mkdir(parents=True)
        for path in real.iterdir():
            # Nor what is compiled of it: the one of a test would be taken in the next.
            if path.name not in (other, "__pycache__"):
                (place / path.name).symlink_to(path)
        real, place = real / other, place / other
    place.write_text(sampling)
