"""Constraints on the outcomes of trials: what is feasible, what is the best, what samplers get."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from play import SubmitJobs, search_state, submit
from reports import simulated
from test_search import Search, searching
from test_search_asking import Asked, search
from test_search_document import problems

from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.model import Objective, searches_of
from flux_ensemble.features.search.outcomes import OutcomeConstraint, violated
from flux_ensemble.features.search.samplers import BEST, LATEST, MANY, seed_of
from flux_ensemble.features.search.trials import COMPLETE, FAILED, INFEASIBLE, PRUNED
from flux_ensemble.features.search.vocs import vocs_of

TEXT = """\
search:
  - id: hpo
    group: trial
    variables: {x: {low: 0, high: 1}, kind: [p, q], on: [true, false]}
    minimize: loss
    subject-to: mass <= 3
    trials: 10
jobs:
  - {name: trial, command: "train {x} {kind}"}
rules:
  - {trigger: start, action: {name: search, label: hpo}}
"""


# -- expressions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("mass <= 3", 1.0),
        ("mass >= 3", -1.0),
        ("3 >= mass", 1.0),
        ("1 <= mass <= 4.5", -0.5),
        ("mass <= 3 * layers", -2.0),
        ("memo['val-loss'] < 0.5", -0.25),
        ("max(mass, memo.yield) <= 5", 2.0),
        ("ok >= 1", 0.0),
        # It does not apply to a trial that has no value of the variable.
        ("mass <= rate", 0.0),
    ],
)
def test_a_violation_is_how_far_a_trial_is_beyond_the_bound(text: str, violation: float) -> None:
    memo = {"mass": 4, "val-loss": 0.25, "yield": 7.0, "ok": True}
    outcome = OutcomeConstraint(text, ["layers", "rate", "unused"])
    assert outcome.violation({"layers": 2, "rate": None}, memo) == violation


def test_a_bound_that_is_no_part_of_what_is_allowed_is_violated_by_equal_values() -> None:
    strict = OutcomeConstraint("errors < 1", [])
    assert strict.violation({}, {"errors": 1}) > 0
    assert strict.violation({}, {"errors": 0}) == -1


@pytest.mark.parametrize(
    ("text", "memo", "reason"),
    [
        ("mass <= 3", {"mas": 1}, "it published no number 'mass', but mas"),
        ("mass <= 3", {"mass": "heavy"}, "it published no number 'mass'"),
        ("mass <= 3", {"mass": float("nan")}, "it published no number 'mass'"),
        ("1 / mass <= 3", {"mass": 0}, "'1 / mass <= 3' has no value, as after a division by zero"),
    ],
)
def test_a_violation_that_is_unknown_has_a_reason(
    text: str, memo: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        OutcomeConstraint(text, []).violation({}, memo)


# -- documents -----------------------------------------------------------------------


def changed(new: str) -> list[str]:
    return problems(TEXT.replace("subject-to: mass <= 3", new))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "x <= 0.5",
            "it names nothing that a trial publishes, and variables alone are for 'where'",
        ),
        (
            "mass == 3",
            "expected a comparison such as 'mass <= 3', which has a distance, not 'mass == 3' "
            "(an equation has a tolerance: 'abs(mass - 3) <= 0.01')",
        ),
        (
            "converged",
            "expected a comparison such as 'mass <= 3', which has a distance, not 'converged' "
            "(of true and false: 'converged >= 1')",
        ),
        (
            "mass <= 3 and cost <= 2",
            "expected a comparison such as 'mass <= 3', which has a distance, not "
            "'mass <= 3 and cost <= 2' (several constraints are a list)",
        ),
        ("mass <=", "expected a comparison such as 'mass <= 3', not 'mass <='"),
        (
            "search.hpo.best.value <= 3",
            "no name 'search.hpo.best.value' (names are keys of memos, such as mass or "
            "memo['val-loss'], and variables: x, kind, on)",
        ),
        ("mass <= kind", "it computes with text, a list or a mapping"),
    ],
)
def test_what_is_wrong_with_a_constraint(given: str, sentence: str) -> None:
    assert changed(f"subject-to: {given}") == [f"d.yaml:6: search[0].subject-to: {sentence}"]


def test_each_of_a_list_has_its_place_and_none_is_there_twice() -> None:
    assert changed("subject-to: [mass <= 3, mass <= 3, x < 1]") == [
        "d.yaml:6: search[0].subject-to[1]: the constraint 'mass <= 3' is there twice",
        "d.yaml:6: search[0].subject-to[2]: it names nothing that a trial publishes, and variables "
        "alone are for 'where'",
    ]


def test_a_penalty_would_be_feasible_and_a_sampler_has_to_know_constraints() -> None:
    assert changed("subject-to: mass <= 3\n    on-failure: {penalty: 9}") == [
        "d.yaml:7: search[0].on-failure: expected no penalty with 'subject-to': the sampler would "
        "take a trial that failed for one that is feasible"
    ]
    (sentence,) = problems(
        TEXT.replace("kind: [p, q], on: [true, false]", "y: {low: 0, high: 1}")
        .replace("{kind}", '{y}"}\n  - {name: other, command: "true')
        .replace("trials:", "sampler: cma\n    trials:")
    )
    assert sentence == (
        "d.yaml:6: search[0].subject-to: expected none, because the sampler 'cma' has no "
        "constraints on outcomes (samplers that have: tpe, random, qmc, nsga2, gp, grid)"
    )


def test_rules_can_name_how_many_are_infeasible_only_where_there_are_constraints() -> None:
    rule = (
        "rules:\n  - {trigger: metric, when: search.hpo.infeasible > 3, action: {name: terminate}}"
    )
    (search,) = searches_of(load_text(TEXT.replace("rules:", rule), name="test"))
    assert search.subject_to == ("mass <= 3",)
    with_rule = TEXT.replace("rules:", rule).replace("    subject-to: mass <= 3\n", "")
    (sentence,) = problems(with_rule)
    assert "no field 'search.hpo.infeasible'" in sentence


# -- in the engine -------------------------------------------------------------------


class Bound(Search):
    """An engine with a search that is subject to `mass <= 3`."""

    def try_with(self, job: int, status: int = 0, **memo: Any) -> None:
        self.begin(job)
        self.t += 10.0
        if memo:
            self.event(job, "memo", **memo)
        self.end(job, status)

    def __init__(self, document: Any) -> None:
        super().__init__(document)
        self.engine.stats.keep_values()
        self.values: list[Any] = []

    def restored(self) -> None:
        snapshot = json.loads(json.dumps(dump(self.engine)))
        self.values.append(self.engine.stats.take_values())
        self.engine = restore(self.engine.spec, snapshot, self.values)
        self.engine.stats.keep_values()
        self.handle = self.engine.handle
        assert json.loads(json.dumps(dump(self.engine))) == snapshot


def test_the_best_is_feasible_and_until_one_is_the_nearest_is_known() -> None:
    rule = {
        "trigger": "search-done",
        "name": "hpo",
        "action": submit("b", params={"x": "{search.hpo.best.x}"}),
    }
    play = Bound(searching([rule], subject_to=["mass <= 3", "cost <= 1"], parallel=1))
    play.try_with(1, loss=0.1, mass=4.5, cost=2)
    play.try_with(2, loss=0.2, mass=3.25, cost=0)
    assert (play.search["best"], play.search["complete"], play.search["infeasible"]) == ([], 0, 2)
    assert play.search["nearest"] == {
        "trial": 1,
        "job": 2,
        "value": 0.2,
        "violations": {"mass <= 3": 0.25, "cost <= 1": -1.0},
        "params": {"x": 0.02, "kind": "p"},
    }
    play.restored()
    assert play.search["nearest"]["trial"] == 1
    play.try_with(3, loss=0.9, mass=3, cost=1)
    assert "nearest" not in play.search
    assert [trial["trial"] for trial in play.search["best"]] == [2]
    play.try_with(4, loss=0.3, mass=9, cost=0)
    (done,) = play.recorded("search-done")
    assert (done["complete"], done["infeasible"], done["best"]["trial"]) == (1, 3, 2)
    assert play.of(SubmitJobs)[-1].params == {"x": 0.03}
    assert play.search["trouble"] is None


def test_a_search_without_a_feasible_trial_says_which_is_the_nearest() -> None:
    play = Bound(searching(subject_to="mass <= 3", parallel=1, trials=2))
    play.try_with(1, loss=0.1, mass=4.5)
    play.try_with(2, loss=0.1, mass=4)
    assert play.search["trouble"] == (
        "search 'hpo' found nothing in 2 trials: no trial is feasible; the least violation is "
        "that of trial 1 (mass <= 3, by 1)"
    )


def test_a_trial_that_has_not_published_what_is_constrained_has_failed() -> None:
    play = Bound(searching(subject_to="mass <= 3", parallel=1, on_failure="retry"))
    play.try_with(1, loss=0.1)
    play.try_with(2, loss=0.1, mass=2)
    assert (play.search["complete"], play.search["failed"]) == (1, 0)
    play = Bound(searching(subject_to="mass <= 3", parallel=1))
    play.try_with(1, loss=0.1)
    (failed,) = play.recorded("trial-failed")
    assert failed["reason"] == "it published no number 'mass', but loss"


def test_infeasible_trials_are_not_failures_in_a_row() -> None:
    play = Bound(searching(subject_to="mass <= 3", parallel=1, failures=2))
    play.try_with(1, 1)
    play.try_with(2, loss=0.1, mass=9)
    play.try_with(3, 1)
    assert play.search["state"] == "running"


def test_the_jobs_of_a_trial_are_feasible_or_not_all_together() -> None:
    play = Bound(searching(subject_to="mass <= 3", repeats=2, aggregate="max", parallel=1))
    play.try_with(1, loss=0.5, mass=1)
    play.restored()
    play.try_with(2, loss=0.1, mass=4)
    assert (play.search["infeasible"], play.search["nearest"]["value"]) == (1, 0.5)
    play.try_with(3, loss=0.5, mass=1)
    play.try_with(4, 1)
    assert play.search["complete"] == 1
    trials = search_state(play.engine, "hpo").trials
    assert trials.seen(0, 0, 2, 2)["ends"] == [[0, 0.5, None, [1.0]], [1, 0.5, None, [-2.0]]]


def test_a_trial_that_is_stopped_early_violates_what_it_has_published_so_far() -> None:
    stop = {"policy": "threshold", "step": "epoch", "upper": 0.6}
    play = Bound(searching(subject_to="mass <= 3", stop=stop, parallel=1))
    play.begin(1)
    play.event(1, "memo", loss=0.9, epoch=1, mass=5)
    play.end(1, 1)
    play.begin(2)
    play.event(2, "memo", loss=0.9, epoch=1)
    play.end(2, 1)
    trials = search_state(play.engine, "hpo").trials
    assert [trials.all[number].state for number in (0, 1)] == [PRUNED, PRUNED]
    assert trials.seen(0, 0, 2, 2)["ends"] == [[0, 0.9, 1, [2.0]], [1, 0.9, 1]]


def test_only_feasible_trials_are_in_the_pareto_front() -> None:
    play = Bound(searching(subject_to="mass <= 3", minimize=["loss", "cost"], parallel=1))
    play.try_with(1, loss=0.1, cost=1, mass=4)
    assert play.search["nearest"]["values"] == [0.1, 1]
    play.try_with(2, loss=0.2, cost=2, mass=2)
    assert [trial["trial"] for trial in play.search["front"]] == [1]


def test_rows_of_jobs_say_which_trials_are_infeasible() -> None:
    play = Bound(searching(subject_to="mass <= 3 + x", parallel=1))
    describer = Describer(play.engine.spec, "/", str)
    jobs = []
    for number, mass in enumerate((4, 3.015), start=1):
        play.begin(number)
        jobs.append(play.engine.workload.jobs[number])
        play.event(number, "memo", loss=0.1, mass=mass)
        play.end(number)
    assert [describer.describe(job, play.t)["trial_state"] for job in jobs] == [
        "infeasible",
        "complete",
    ]


# -- samplers ------------------------------------------------------------------------


def mass(params: Mapping[str, Any]) -> float:
    return float(params["n"] - 4 + 3 * params["x"])


class Constrained(Asked):
    """A search of which some trials are infeasible; each seventh fails."""

    def end(self, number: int) -> None:
        params = self.trials.params(self.trials.all[number])
        if number % 7 == 6:
            self.trials.end(number, FAILED, None, 1.0)
            return
        violation = mass(params)
        value: Any = (params["x"], -float(params["n"])) if self.search.several else params["x"]
        how = INFEASIBLE if violation > 0 else COMPLETE
        self.trials.end(number, how, value, 1.0, violations=[violation, -1.0])


BOUNDS: dict[str, Any] = {"subject_to": ("mass <= 3", "cost <= 1")}
TWO = (Objective("x"), Objective("n", maximize=True))


@pytest.mark.parametrize("objectives", [(Objective("x", maximize=True),), TWO])
@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_points_are_those_of_optuna_that_has_the_same_constraints(
    sampler: str, objectives: tuple[Objective, ...]
) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kinds: dict[str, Callable[..., Any]] = {
        "tpe": optuna.samplers.TPESampler,
        "nsga2": optuna.samplers.NSGAIISampler,
    }
    given = search(sampler, objectives=objectives, **BOUNDS)
    count = 120 if sampler == "nsga2" else 40
    asked = Constrained(given)
    points = asked.run(count, 1)
    # A new process does not change them.
    assert Constrained(given).run(count, 1, again=9) == points
    directions: Any = [one.direction for one in objectives]
    study = optuna.create_study(directions=directions)
    space = {
        "x": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "n": optuna.distributions.IntDistribution(1, 8),
        "kind": optuna.distributions.CategoricalDistribution(range(4)),
    }
    words = described(given, 7)
    for number, point in enumerate(points):
        study.sampler = kinds[sampler](seed=seed_of(words, number))
        trial = study.ask(space)
        assert (trial.params["x"], trial.params["n"]) == (point["x"], point["n"])
        if number % 7 == 6:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        trial.set_constraint("mass", mass(point))
        trial.set_constraint("cost", -1.0)
        study.tell(trial, [point["x"], -float(point["n"])][: len(objectives)])
    for number in range(count):
        if number not in asked.trials.ended:
            asked.end(number)
    best = {trial.number for trial in study.best_trials}
    ours = asked.trials.front or asked.trials.best[:1]
    assert {trial.number for trial in ours if trial.number < count - 1} >= best - {count - 1}
    # Without the constraints they are others.
    unbound = Asked(search(sampler, objectives=objectives))
    assert unbound.run(count, 1) != points


def test_of_very_many_trials_tpe_sees_the_best_that_are_feasible() -> None:
    asked = Asked(search("tpe", **BOUNDS))
    total = MANY + LATEST
    for number in range(total):
        asked.trials.add({"x": (number + 1) / (2 * total), "n": 3, "kind": "p"}, None)
        asked.trials.next(0.0)
    for number in range(total - 2):
        violation = -1.0 if 200 <= number < 200 + BEST else 1.0
        how = INFEASIBLE if violation > 0 else COMPLETE
        asked.trials.end(number, how, float(number), 1.0, violations=[violation, 0.0])
    (point,) = asked.ask()
    trials = asked.sampling._sampler._some.get_trials(deepcopy=False)
    feasible = [
        one for one in trials if one.constraints and not violated([*one.constraints.values()])
    ]
    assert len(feasible) == BEST
    asked.trials.all.pop()
    asked.trials.active.popitem()
    asked.anew()
    assert asked.ask() == [point]


def test_a_gaussian_process_learns_where_trials_are_feasible() -> None:
    given = search("gp", subject_to=("mass <= 3", "cost <= 1"))

    def run(again: int, known: bool = True, count: int = 35) -> list[dict[str, Any]]:
        asked, points = Asked(given), []
        for number in range(count):
            points += asked.ask()
            x, n = points[-1]["x"], points[-1]["n"]
            # The best are those that are forbidden; a few are beyond by orders of magnitude.
            violations = [x * n - 1.0, 1e6 if n == 8 else -1.0]
            how = INFEASIBLE if violated(violations) else COMPLETE
            given_away = violations if known else []
            asked.trials.end(number, how, -x * n, 1.0, violations=given_away)
            if again and number % again == 0:
                asked.anew()
        return points

    points = run(0)
    # It fits a process from the tenth on.
    assert run(4, count=18) == points[:18]

    def near(tried: list[dict[str, Any]]) -> list[float]:
        return [one["x"] * one["n"] for one in tried if one["x"] * one["n"] < 1.3 and one["n"] < 8]

    # The best that is allowed is at the bound, so it also tries what is just beyond.
    assert max(value for value in near(points) if value <= 1) > 0.95
    assert len(near(points[10:])) > 12
    assert len(near(run(0, known=False)[10:])) < 10


def test_a_generator_has_the_constraints_and_their_violations() -> None:
    given = search("tpe", **BOUNDS)
    vocs = vocs_of({**described(given, 7), "objectives": [["loss", False]]})
    assert vocs.constraint_names == ["mass <= 3", "cost <= 1"]
    assert [one.value for one in vocs.constraints.values()] == [0, 0]


# -- what is left of it ---------------------------------------------------------------

DOCUMENT: dict[str, Any] = {
    "name": "tune",
    "seed": 7,
    "search": [
        {
            "id": "hpo",
            "group": "trial",
            "variables": {"x": {"low": 0, "high": 1}},
            "minimize": "loss",
            "subject-to": ["mass <= 0.5", "loss >= 0"],
            "trials": 30,
            "parallel": 2,
        }
    ],
    "jobs": [{"name": "trial", "command": "train.py {x}"}],
    "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
    "simulate": {
        "trial": {
            "duration": 60,
            "memo": {"loss": {"expression": "1 - x"}, "mass": {"expression": "x"}},
        }
    },
}


@pytest.mark.parametrize("repeats", [1, 2])
def test_optuna_reads_the_constraints_of_an_export_and_has_the_same_best(
    repeats: int, tmp_path: Path
) -> None:
    import optuna

    from flux_ensemble.features.search.history import logged_searches
    from flux_ensemble.features.search.studies import write

    (given,) = DOCUMENT["search"]
    source = simulated({**DOCUMENT, "search": [{**given, "repeats": repeats}]})
    path = tmp_path / "study.journal"
    write(path, "tune", logged_searches(source.entries), source.jobs)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="tune/hpo", storage=storage)
    (told,) = source.status["searches"]
    assert told["complete"] > 0 < told["infeasible"]
    assert told["complete"] + told["infeasible"] == 30
    assert study.best_trial.number == told["best"][0]["trial"]
    assert all(
        trial.constraints
        == pytest.approx(
            {"mass <= 0.5": trial.params["x"] - 0.5, "loss >= 0": trial.params["x"] - 1}
        )
        for trial in study.trials
    )
