"""The importances of a search's variables: of which trials they are, and when they are known."""

from __future__ import annotations

import random
from typing import Any

from flux_ensemble.features.search.matter import MOST
from flux_ensemble.features.search.model import Objective, Search, Variable
from flux_ensemble.features.search.state import SearchState
from flux_ensemble.features.search.trials import CANCELED, COMPLETE, FAILED

X = Variable("x", 0.0, 1.0)
Y = Variable("y", 0.0, 1.0, when="kind == 'p'")
KIND = Variable("kind", choices=("p", "q", None))


def state_of(*objectives: Objective) -> SearchState:
    return SearchState(Search("hpo", "trial", (X, KIND, Y), objectives, trials=9000))


def try_out(state: SearchState, how: str, value: Any, **params: Any) -> None:
    state.trials.add(params, None)
    trial = state.trials.next(0.0)
    state.trials.end(trial.number, how, value, 1.0)


def tried(state: SearchState, trials: int, how: str = COMPLETE) -> None:
    """Complete trials whose loss is x, and whose size is y where there is one."""
    chance = random.Random(trials)
    for number in range(trials):
        x, kind = chance.random(), ("p", "q", None)[number % 3]
        y = {"y": chance.random()} if kind == "p" else {}
        values: Any = (x, y.get("y", chance.random()))
        value = values if state.search.several else x
        try_out(state, how, value if how == COMPLETE else None, x=x, kind=kind, **y)


def found(state: SearchState) -> dict[str, dict[str, tuple[float, int]]]:
    return {
        key: {one["name"]: (one["share"], one["trials"]) for one in shares}
        for key, shares in state.report()["importances"].items()
    }


def test_each_objective_has_the_importances_of_its_variables_the_greatest_first() -> None:
    state = state_of(Objective("loss"), Objective("size", maximize=True))
    assert found(state) == {"loss": {}, "size": {}}
    tried(state, 120)
    loss, size = found(state).values()
    assert (next(iter(loss)), next(iter(size))) == ("x", "y")
    assert min(loss["x"][0], size["y"][0]) > 0.9
    # A variable under a condition has those of the trials that have it.
    assert (loss["x"][1], loss["y"][1], size["y"][1]) == (120, 40, 40)


def test_trials_that_are_not_complete_do_not_count_and_ten_that_are_are_enough() -> None:
    state = state_of(Objective("loss"))
    tried(state, 30, FAILED)
    tried(state, 30, CANCELED)
    tried(state, 9)
    assert found(state) == {"loss": {}}
    tried(state, 1)
    assert found(state)["loss"]["x"][1] == 10


def test_they_are_computed_once_for_each_trial_that_is_complete() -> None:
    state = state_of(Objective("loss"))
    tried(state, 20)
    before = state.report()["importances"]
    assert state.report()["importances"] is before
    tried(state, 5, FAILED)
    assert state.report()["importances"] is before
    tried(state, 1)
    assert state.report()["importances"] is not before


def test_of_very_many_trials_evenly_spaced_ones_are_used_and_a_restore_has_the_same() -> None:
    state = state_of(Objective("loss"))
    tried(state, MOST * 2 + 7)
    assert found(state)["loss"]["x"][1] == MOST
    again = state_of(Objective("loss"))
    again.load(state.dump())
    assert again.report()["importances"] == state.report()["importances"]


def test_null_is_a_value_where_it_is_a_choice() -> None:
    state = SearchState(
        Search(
            "hpo", "trial",
            (X, Variable("k", choices=(None, 1), when="x > 0.5")),
            (Objective("loss"),), trials=99,
        )
    )  # fmt: skip
    for number in range(40):
        x = number / 40
        has = {"k": (None, 1)[number % 2]} if x > 0.5 else {}
        try_out(state, COMPLETE, float(number % 2), x=x, **has)
    assert found(state)["loss"]["k"] == (1.0, 19)
