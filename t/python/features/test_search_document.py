"""Searches in a document: what is read, and what is refused, with its line and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.distributions import Computed
from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.extras import install_command
from flux_ensemble.features.search import installed
from flux_ensemble.features.search.model import (
    MAX_OBJECTIVES,
    MAX_VARIABLES,
    Generator,
    Objective,
    Variable,
    searches_of,
)
from flux_ensemble.scalars import packed

TEXT = """\
search:
  - id: hpo
    group: trial
    variables:
      lr: {low: 1e-5, high: 0.1, log: true}
      layers: {low: 1, high: 8, integer: true}
      opt: [sgd, adam]
    minimize: loss
    trials: 10
jobs:
  - {name: trial, command: "train {lr} {layers} {opt}"}
rules:
  - trigger: start
    action: {name: search, label: hpo}
"""


POINT = "{lr: 1e-3, layers: 2, opt: sgd}"


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_text(text, name="test", file="d.yaml")
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> list[str]:
    assert old in TEXT
    return problems(TEXT.replace(old, new, 1))


def test_the_variables_are_parameters_of_the_group_and_numbers_may_be_text() -> None:
    spec = load_text(TEXT, name="test")
    (search,) = searches_of(spec)
    assert search.variables == (
        Variable("lr", 1e-5, 0.1, log=True),
        Variable("layers", 1, 8, integer=True),
        Variable("opt", choices=("sgd", "adam")),
    )
    assert (search.sampler, search.parallel, search.failures) == ("tpe", 1, 20)
    assert list(spec.groups["trial"].params) == ["lr", "layers", "opt"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("low: 1e-5, high: 0.1", "low: 0.1, high: 1e-5",
         "5: search[0].variables.lr: expected 'low' below 'high', not 0.1 and 1e-05"),
        ("low: 1e-5", "low: 0", "5: search[0].variables.lr.low: expected a number > 0, because of "
         "'log: true', not 0"),
        ("low: 1e-5", "low: tiny", "5: search[0].variables.lr.low: expected a number, not 'tiny'"),
        ("high: 0.1", "high: .inf",
         "5: search[0].variables.lr.high: expected a finite number, not inf"),
        ("low: 1e-5, high: 0.1, log: true", "low: -1e308, high: 1e308",
         "5: search[0].variables.lr: expected 'low' and 'high' nearer to each other, not -1e+308 "
         "and 1e+308"),
        ("low: 1,", "low: 1.5,", "6: search[0].variables.layers.low: expected an integer, because "
         "of 'integer: true', not 1.5"),
        ("[sgd, adam]", "[sgd, sgd]",
         "7: search[0].variables.opt[1]: the choice 'sgd' is there twice"),
        ("opt: [sgd", "value: [sgd", "7: search[0].variables.value: a variable cannot be called "
         "'value', since 'search.ID.best.value' is more"),
        ("minimize: loss", "sampler: tpe", "2: search[0]: give 'minimize' or 'maximize', the key "
         "of a memo of its jobs"),
        ("minimize: loss", "minimize: [loss, loss]",
         "8: search[0].minimize[1]: the objective 'loss' is there twice"),
        ("minimize: loss", "minimize: [loss, seconds]\n    sampler: gp",
         "9: search[0].sampler: expected a sampler of several objectives ('tpe', 'random', 'qmc', "
         "'nsga2', 'grid'), because there are 2, not 'gp'"),
        ("trials: 10", "trials: 10\n    stop: {policy: asha}",
         "10: search[0].stop: give 'step', the key of the memo that says how far the job is"),
        ("trials: 10", "trials: 10\n    stop: {policy: median, step: n, eta: 3}",
         "10: search[0].stop.eta: the policy 'median' has no 'eta'; 'asha' and 'hyperband' have"),
        ("trials: 10", "trials: 10\n    stop: {policy: asha, step: n, upper: 3}",
         "10: search[0].stop.upper: the policy 'asha' has no 'upper'; 'threshold' has"),
        ("trials: 10", "trials: 10\n    stop: {policy: hyperband, step: n}",
         "10: search[0].stop: give 'to', the last step of a trial: the brackets follow from it"),
        ("trials: 10", "trials: 10\n    stop: {policy: hyperband, step: n, from: 9, to: 9}",
         "10: search[0].stop.to: expected a step after 'from', which is 9, not 9"),
        ("trials: 10", "trials: 10\n    stop: {policy: threshold, step: n}",
         "10: search[0].stop: give 'lower', 'upper' or both, the bounds of the objective"),
        ("trials: 10", "trials: 10\n    stop: {policy: threshold, step: n, lower: 2, upper: 1e0}",
         "10: search[0].stop: expected 'lower' below 'upper', not 2 and 1"),
        ("trials: 10", "trials: 10\n    stop: {policy: threshold, step: n, upper: many}",
         "10: search[0].stop.upper: expected a finite number, not 'many'"),
        ("trials: 10", "trials: 10\n    stop: {policy: percentile, step: n, percentile: 101}",
         "10: search[0].stop.percentile: expected a number >= 0 and <= 100, not 101"),
        ("trials: 10", "trials: 10\n    stop: {policy: patience, step: n, min-delta: -1e-3}",
         "10: search[0].stop.min-delta: expected a number >= 0, not -0.001"),
        ("trials: 10", "trials: 10\n    stop: {policy: halving, step: n}",
         "10: search[0].stop.policy: expected a policy, not 'halving' (one of: asha, hyperband, "
         "median"),
        ("trials: 10", "trials: 10\n    stop: {policy: asha, step: n, eta: 1}",
         "10: search[0].stop.eta: expected an integer >= 2"),
        ("trials: 10", "trials: 10\n    repeats: 3\n    stop: {policy: asha, step: n}",
         "11: search[0].stop: a trial of 3 jobs ('repeats') cannot be stopped early, since each of "
         "them has its own steps; leave out one of the two"),
        ("trials: 10", "trials: 10\n    repeats: 1000\nlimits: {jobs: 5000}",
         "10: search[0].repeats: expected at most 500: 1000 jobs of each of 10 trials are 10000, "
         "and limits.jobs is 5000"),
        ("trials: 10", "trials: 10\n    aggregate: median",
         "10: search[0].aggregate: 'aggregate' is for 'repeats', and a trial is one job"),
        ("trials: 10", "trials: 10\n    repeats: 3\n    aggregate: mode",
         "11: search[0].aggregate: expected an aggregate, not 'mode' (one of: mean, median, min"),
        ("trials: 10", "maximize: gain\n    trials: 10\n    stop: {policy: asha, step: n}",
         "11: search[0].stop: trials are stopped by one objective, and there are 2"),
        ("trials: 10", "maximize: gain\n    trials: 10\n    on-failure: {penalty: 100}",
         "11: search[0].on-failure.penalty: expected a list of 2 numbers, of loss, gain, not 100"),
        ("trials: 10", "trials: 10\n    on-failure: {}",
         "10: search[0].on-failure: the key 'penalty' is missing"),
        ("trials: 10", "trials: 10\n    on-failure: {penalty: true}", "10: search[0].on-failure."
         "penalty: expected a number, or a list of one for each objective, not true"),
        ("trials: 10", "trials: 10\n    on-failure: {penalty: [1, null]}",
         "10: search[0].on-failure.penalty[1]: expected a number, not null"),
        ("trials: 10", "trials: 10\n    on-failure: {penalty: [1, 2]}", "10: search[0].on-failure."
         "penalty: expected a number, because there is one objective, not [1, 2]"),
        ("group: trial", "group: trail", "3: search[0].group: no job group named 'trail' (did you "
         "mean 'trial'? groups: trial)"),
        ("minimize: loss", "{minimize: loss, sampler: tpee}"[1:-1].replace(", ", "\n    "),
         "9: search[0].sampler: expected a sampler, not 'tpee' (did you mean 'tpe'?"),
        ("minimize: loss", "{minimize: loss, sampler: cma}"[1:-1].replace(", ", "\n    "),
         "7: search[0].variables.opt: expected a range, because the sampler 'cma' has no choices; "
         "'tpe' has both"),
        ("trials: 10", "trials: 100001",
         "9: search[0].trials: expected at most 100000, which is limits.jobs, not 100001"),
        ("trials: 10", "trials: 10\n    generator: learner.Learner", "10: search[0].generator: "
         "expected a class such as 'package.module:Class', not 'learner.Learner'"),
        ("trials: 10", "sampler: qmc\n    trials: 10\n    generator: learner:Learner",
         "9: search[0].sampler: give 'sampler' or 'generator', not both"),
        ("trials: 10", "trials: 10\n    arguments: {model: model.json}",
         "10: search[0].arguments: 'arguments' is for a 'generator', and there is none"),
        ("trials: 10", "trials: 10\n    initial: 3",
         "10: search[0].initial: 'initial' is for a 'generator', and there is none"),
        ("trials: 10", "trials: 10\n    generator: a:B\n    arguments: {vocs: 1}", "11: search[0]."
         "arguments.vocs: the search gives the generator its 'vocs'; leave it out here"),
        ("trials: 10", "trials: 10\n    generator: a:B\n    arguments: {x: .inf}",
         "11: search[0].arguments.x: expected a finite number, not inf"),
        ("minimize: loss", "minimize: lr\n    generator: a:B", "8: search[0].minimize: 'lr' is a "
         "variable too, and the results of a generator have both side by side; give one of them "
         "another name"),
        ("[sgd, adam]", "[1, true]\n    generator: a:B", "7: search[0].variables.opt: expected "
         "choices that are different for a generator: 1, 1.0 and true are the same"),
        ("trials: 10", "trials: 10\n    batch: 1001",
         "10: search[0].batch: expected an integer >= 1 and <= 1000, not 1001"),
        ("trials: 10", "trials: 10\n    on-failure: {penalty: much}",
         "10: search[0].on-failure.penalty: expected a number, not 'much'"),
        ("trials: 10", "trials: 1\n    points: [{lr: 1e-3, layers: 2, opt: sgd}, {lr: 1e-4, "
         "layers: 2, opt: sgd}]", "10: search[0].points: expected at most 1 point, which is the "
         "search's 'trials', not 2: they are among these"),
        ("trials: 10", "trials: 10\n    points: [{}]", "10: search[0].points[0]: give a value of "
         "one variable or more (lr, layers, opt)"),
        ("trials: 10", "trials: 10\n    points: [{lr: null}]", "10: search[0].points[0]: lr: "
         "expected a number >= 1e-05 and <= 0.1, not null"),
        ("[sgd, adam]", "[null]", "7: search[0].variables.opt: expected a choice besides null"),
        ("[sgd, adam]", "[null, sgd, null]",
         "7: search[0].variables.opt[2]: the choice null is there twice"),
        ("trials: 10", "trials: 10\n    points: [{lr: 1e-3, layer: 2, opt: sgd}]",
         "10: search[0].points[0]: no variable 'layer' (did you mean 'layers'? variables: lr, "
         "layers, opt)"),
        ("trials: 10", "trials: 10\n    points: [{lr: 0.5, layers: 2, opt: sgd}]",
         "10: search[0].points[0]: lr: expected a number >= 1e-05 and <= 0.1, not 0.5"),
        ("trials: 10", "trials: 10\n    points: [{lr: 1e-3, layers: 2.5, opt: sgd}]",
         "10: search[0].points[0]: layers: expected an integer >= 1 and <= 8, not 2.5"),
        ("trials: 10", "trials: 10\n    points: [{lr: 1e-3, layers: 2, opt: lion}]",
         "10: search[0].points[0]: opt: expected one of 'sgd', 'adam', not 'lion'"),
        ("trials: 10", "trials: 10\n    points: {lr: 1e-3}", "10: search[0].points: expected a "
         "list of points such as [{lr: 0.001, layers: 2}], not a mapping with 1 key"),
        ("label: hpo", "label: hop",
         "14: rules[0].action.label: no search named 'hop' (did you mean 'hpo'? searches: hpo)"),
        ('{opt}"}', '{opt}", count: 2}', "3: search[0].group: expected a group of which a "
         "submission is one job, and one of 'trial' is 2: give it 'count: 1', and one value of "
         "each other parameter"),
        ("trigger: start", "{trigger: search-done, name: hop}"[1:-1].replace(", ", "\n    "),
         "14: rules[0].name: no search named 'hop' (did you mean 'hpo'? searches: hpo)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_search(old: str, new: str, sentence: str) -> None:
    (found,) = changed(old, new)
    assert found.startswith(f"d.yaml:{sentence}") or found == f"d.yaml:{sentence}", found


CONDITION = "{low: 0, high: 1, when: opt == 'sgd'}"


def test_a_variable_can_be_there_under_a_condition_and_points_can_be_left_out() -> None:
    text = TEXT.replace("[sgd, adam]", f"[sgd, adam]\n      momentum: {CONDITION}\n      nesterov: "
                        "{choices: [true, false], when: momentum > 0.5}")  # fmt: skip
    text = text.replace("trials: 10", "where: lr * layers <= 0.1\n    trials: 10")
    spec = load_text(text, name="test")
    (search,) = searches_of(spec)
    assert [variable.when for variable in search.variables] == [
        None, None, None, "opt == 'sgd'", "momentum > 0.5",
    ]  # fmt: skip
    assert search.where == ("lr * layers <= 0.1",)
    # Jobs of trials that do not have it have null, or what the group has.
    (job,) = spec.groups["trial"].submission(None, {"lr": 0.1, "layers": 1, "opt": "adam"})
    assert job[1] == {"lr": 0.1, "layers": 1, "opt": "adam", "momentum": None, "nesterov": None}
    own = text.replace('{opt}"', '{opt} {momentum}", params: {momentum: 0}')
    spec = load_text(own, name="test")
    (job,) = spec.groups["trial"].submission(None, {"lr": 0.1, "layers": 1, "opt": "adam"})
    assert job[1]["momentum"] == 0


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[sgd, adam]", "{choices: [sgd], when: layer > 2}", "7: search[0].variables.opt.when: no "
         "variable 'layer' (did you mean 'layers'? variables: lr, layers, opt; text is written in "
         "quotes)"),
        ("[sgd, adam]", f"[sgd, adam]\n      m: {CONDITION.replace('sgd', 'sdg')}",
         "8: search[0].variables.m.when: opt is never 'sdg' (one of: 'sgd', 'adam')"),
        ("[sgd, adam]", "{choices: [sgd], when: layers =< 2}", "7: search[0].variables.opt.when: "
         "expected an expression such as \"opt == 'sgd'\", not 'layers =< 2' (write '<=' for "
         "'=<')"),
        ("[sgd, adam]", "{choices: [a, b], when: m > 0.5}\n      m: {low: 0, high: 1, when: "
         "opt == 'a'}", "7: search[0].variables.opt.when: conditions go round in a circle: opt "
         "needs m needs opt"),
        ("[sgd, adam]", "{choices: [a], when: opt == 'a'}", "7: search[0].variables.opt.when: "
         "conditions go round in a circle: opt needs opt"),
        ("[sgd, adam]", "{choices: [a, b], log: true}",
         "7: search[0].variables.opt.log: 'log' is for a range, and there are 'choices'"),
        ("high: 0.1, log: true", "log: true",
         "5: search[0].variables.lr: the key 'high' is missing"),
        ("opt: [sgd, adam]\n    minimize: loss", f"opt: [sgd, adam]\n      m: {CONDITION}\n    "
         "minimize: loss\n    generator: a:A", "8: search[0].variables.m.when: expected "
         "no condition, because a generator has none (samplers that have: tpe, random, qmc, nsga2, "
         "gp, grid)"),
        ("trials: 10", "trials: 10\n    where: lr + layer <= 1", "10: search[0].where: no variable "
         "'layer' (did you mean 'layers'? variables: lr, layers, opt; text is written in quotes)"),
        ("trials: 10", "trials: 10\n    where: [lr < 1, opt == 'lion']",
         "10: search[0].where[1]: opt is never 'lion' (one of: 'sgd', 'adam')"),
        ("trials: 10", "trials: 10\n    where: lr > layers",
         "10: search[0].where: no point was found that it allows: lr > layers"),
        ("trials: 10", "trials: 10\n    where: lr < 0.01\n    points: [{lr: 0.05}]",
         "11: search[0].points[0]: 'where' leaves it out: lr < 0.01"),
        ("trials: 10", "trials: 10\n    where: lr * layers < 0.05\n    points: [{lr: 0.09}]",
         "11: search[0].points[0]: 'where' leaves out each point with these values: "
         "lr * layers < 0.05"),
        ("opt: [sgd, adam]", f"opt: [sgd, adam]\n      m: {CONDITION}\n    points: [{{opt: adam, "
         "lr: 1e-3, layers: 2, m: 0.5}]", "9: search[0].points[0]: m: it has a value only when "
         "opt == 'sgd'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_conditions_and_constraints(old: str, new: str, sentence: str) -> None:
    assert changed(old, new) == [f"d.yaml:{sentence}"]


def test_a_range_can_have_steps() -> None:
    text = TEXT.replace("high: 0.1, log: true", "high: 0.1, step: 1e-5").replace(
        "integer: true", "integer: true, step: 2"
    )
    (search,) = searches_of(load_text(text, name="test"))
    assert search.variables[:2] == (
        Variable("lr", 1e-5, 0.1, step=1e-5), Variable("layers", 1, 8, integer=True, step=2),
    )  # fmt: skip
    assert search.size == 10_000 * 4 * 2


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("high: 8, integer: true", "high: 8, integer: true, step: 8",
         "6: search[0].variables.layers.step: expected a number > 0 and at most 7, which is 'high' "
         "less 'low', not 8"),
        ("log: true", "step: 0", "5: search[0].variables.lr.step: expected a number > 0 and at "
         "most 0.09999, which is 'high' less 'low', not 0"),
        ("log: true", "step: 1e-20", "5: search[0].variables.lr.step: expected at most 1000000000 "
         "steps; leave 'step' out"),
        ("log: true", "log: true, step: 0.01", "5: search[0].variables.lr.step: expected no "
         "'step' with 'log: true', since steps are equal; list the values"),
        ("integer: true", "integer: true, step: 0.5", "6: search[0].variables.layers.step: "
         "expected an integer, because of 'integer: true', not 0.5"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_steps(old: str, new: str, sentence: str) -> None:
    assert changed(old, new) == [f"d.yaml:{sentence}"]


def test_a_grid_has_no_range_of_floats() -> None:
    assert changed("trials: 10", "trials: 10\n    sampler: grid") == [
        "d.yaml:5: search[0].variables.lr: expected a list of choices, 'integer: true' or a "
        "'step', because the sampler 'grid' tries every value; 'qmc' covers a range"
    ]


@pytest.mark.parametrize(
    ("sampler", "trials"), [("grid", 17), ("random", 17), ("tpe", 1000), ("qmc", 1000)]
)
def test_a_finite_space_has_no_more_trials_than_points(sampler: str, trials: int) -> None:
    text = TEXT.replace("lr: {low: 1e-5, high: 0.1, log: true}", "lr: [1e-3]").replace(
        "trials: 10", f"trials: 1000\n    sampler: {sampler}\n    points: [{POINT}, {POINT}]"
    )
    (search,) = searches_of(load_text(text, name="test"))
    assert (search.size, search.trials) == (16, trials)


def test_a_search_has_a_bounded_number_of_variables_and_of_objectives() -> None:
    def many(number: int, key: str, each: str) -> str:
        return f"{key}: [{', '.join(each.format(one) for one in range(number))}]"

    wide = "opt: [sgd, adam]"
    more = "".join(f"\n      v{number}: [1, 2]" for number in range(MAX_VARIABLES - 3))
    assert len(searches_of(load_text(TEXT.replace(wide, wide + more), name="test"))) == 1
    found, _ = changed(wide, f"{wide}{more}\n      last: [1, 2]")
    assert found == (
        f"d.yaml:4: search[0].variables: expected at most {MAX_VARIABLES} variables, "
        f"not {MAX_VARIABLES + 1}"
    )
    (search,) = searches_of(
        load_text(TEXT.replace("minimize: loss", many(MAX_OBJECTIVES, "minimize", "k{}")), name="x")
    )
    assert len(search.objectives) == MAX_OBJECTIVES
    (found,) = changed("minimize: loss", many(MAX_OBJECTIVES + 1, "minimize", "k{}"))
    told = f": expected at most {MAX_OBJECTIVES} objectives, not {MAX_OBJECTIVES + 1}"
    assert found.endswith(told)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_one_bound_of_an_objective_is_enough(bound: str) -> None:
    stop = f"stop: {{policy: threshold, step: n, {bound}: 0.5}}"
    (search,) = searches_of(load_text(TEXT.replace("trials:", f"{stop}\n    trials:"), name="test"))
    assert search.stop is not None
    assert getattr(search.stop, bound) == 0.5


def test_points_are_read_as_their_variables_have_values() -> None:
    points = "points: [{lr: 1.0e-3, layers: 3.0, opt: adam}, {lr: 0.05, opt: sgd, layers: 0x2}]"
    (search,) = searches_of(
        load_text(TEXT.replace("trials:", f"{points}\n    trials:", 1), name="test")
    )
    assert search.points == (
        {"lr": 0.001, "layers": 3, "opt": "adam"}, {"lr": 0.05, "layers": 2, "opt": "sgd"},
    )  # fmt: skip
    assert [type(value) for value in search.points[0].values()] == [float, int, str]


def test_null_is_a_choice_and_a_value_of_a_point_and_what_is_missing_is_left_to_the_sampler() -> (
    None
):
    text = TEXT.replace("[sgd, adam]", "[null, sgd, 1.10]").replace(
        "trials: 10", "trials: 10\n    points: [{opt: null}, {opt: 1.10, layers: 2}]"
    )
    spec = load_text(text, name="test")
    (search,) = searches_of(spec)
    assert search.points == ({"opt": None}, {"layers": 2, "opt": "1.10"})
    # Its group has a parameter, as the others.
    (job,) = spec.groups["trial"].submission(None, {"opt": packed(None), "lr": 0.1, "layers": 2})
    assert job[1]["opt"] is None


def test_a_variable_that_is_wrong_is_a_parameter_all_the_same() -> None:
    more = "simulate: {trial: {memo: {loss: {expression: lr + layers}}}}\n"
    (found,) = problems(f"{TEXT.replace('high: 0.1', 'high: 1e-7')}{more}")
    assert found.startswith("d.yaml:5: search[0].variables.lr: expected 'low' below 'high'")
    # One whose name is wrong is not told of twice.
    (found,) = problems(TEXT.replace("opt: [", "o t: [").replace(" {opt}", ""))
    assert found.startswith("d.yaml:7: search[0].variables['o t']: expected a variable's ")


def test_an_unknown_field_of_a_search_is_refused_with_those_there_are() -> None:
    rule = """\
  - trigger: search-done
    action: {name: submit, label: trial, params: {lr: "{search.hpo.best.rl}"}}
"""
    (found,) = problems(TEXT + rule)
    assert ": no field 'search.hpo.best.rl' (fields of 'search.hpo': trials, complete" in found


def test_one_with_several_objectives_has_no_best_trial() -> None:
    text = TEXT.replace("minimize: loss", "minimize: [loss]\n    maximize: gain")
    (search,) = searches_of(load_text(text, name="test"))
    assert search.objectives == (Objective("loss"), Objective("gain", maximize=True))
    rule = """\
  - trigger: search-done
    action: {name: submit, label: trial, params: {lr: "{search.hpo.best.lr}"}}
"""
    (found,) = problems(text + rule)
    assert "(fields of 'search.hpo': trials, complete, failed, canceled, front)" in found


def test_a_search_can_have_a_generator_in_place_of_a_sampler() -> None:
    more = "generator: own.learner:Learner\n    arguments: {model: m.json}\n    batch: 4"
    spec = load_text(TEXT.replace("trials: 10", f"trials: 10\n    {more}"), name="test")
    (search,) = searches_of(spec)
    assert search.generator == Generator("own.learner:Learner", {"model": "m.json"}, 1)
    assert (search.suggests, search.batch, search.sequential) == ("own.learner:Learner", 4, False)
    assert hash(search) is not None


def test_two_searches_cannot_have_one_id_or_one_group() -> None:
    search = TEXT[TEXT.index("  - id") : TEXT.index("jobs:")]
    found = problems(TEXT.replace("jobs:", f"{search}jobs:", 1))
    assert any("the search 'hpo' is that of search[0] too" in one for one in found)
    assert any("group 'trial' is that of search 'hpo'; give another" in one for one in found)


def test_a_sampler_that_is_not_installed_is_refused_where_the_search_would_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    found = Warnings()
    # One that goes on after a crash needs none.
    spec = load_text(TEXT, name="test", file="d.yaml", warnings=found)
    sentence = (
        "search[0].sampler: the sampler 'tpe' needs 'optuna', which is not installed here: "
        f"{install_command('search')}"
    )
    assert installed.objection(spec, "d.yaml") == f"d.yaml: {sentence}"
    given = TEXT.replace("trials: 10", "trials: 10\n    generator: learner:Learner")
    assert installed.objection(load_text(given, name="test"), "d.yaml") == (
        "d.yaml: search[0].generator: the generator 'learner:Learner' needs 'gest_api', which is "
        f"not installed here: {install_command('search')}"
    )
    assert found.warnings == [f"d.yaml:2: {sentence}"]


@pytest.mark.parametrize("options", [(), ("--resume",)])
def test_a_run_without_its_sampler_says_so_once_in_the_words_of_validate(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    (tmp_path / "d.yaml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert run_command(["validate", "d.yaml"]) == 0
    (warned,) = [
        line.removeprefix("warning: ")
        for line in capsys.readouterr().err.splitlines()
        if "not installed" in line
    ]
    place = ["--queue", "local", "--state-dir", str(tmp_path / "runs")]
    assert run_command(["run", *place, *options, "d.yaml"]) == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "not installed" in line]
    # A run that may go on is refused where it begins, which knows no line.
    sentence = warned.removeprefix("d.yaml:2: ") if options else warned
    assert said == f"flux-ensemble: ERROR: {sentence}"


def test_a_simulation_without_its_sampler_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    (tmp_path / "d.yaml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert run_command(["simulate", "d.yaml"]) == 2
    said = capsys.readouterr().err
    assert "d.yaml: search[0].sampler: the sampler 'tpe' needs 'optuna'" in said
    assert "pip install" in said


def test_a_search_that_no_rule_starts_is_warned_of() -> None:
    found = Warnings()
    text = TEXT.replace("{name: search, label: hpo}", "{name: submit, label: trial}")
    load_text(text, name="test", file="d.yaml", warnings=found)
    (warning,) = found.warnings
    assert warning.startswith("d.yaml:2: search[0]: no rule starts the search: 'action: {name:")


def test_an_objective_that_is_named_as_the_field_of_a_job_is_warned_of() -> None:
    found = Warnings()
    text = TEXT.replace("minimize: ", "minimize: memo.")
    assert text != TEXT
    load_text(text, name="test", file="d.yaml", warnings=found)
    (warning,) = found.warnings
    assert "search[0].minimize: the key of a memo is named without 'memo.' here" in warning


@pytest.mark.parametrize(
    ("choices", "note"),
    [
        ("[-5, 5]", "a choice of two values, -5 and 5: a range is {low: -5, high: 5}"),
        ("[1e-5, 0.1]", "a choice of two values, 1e-5 and 0.1: a range is {low: 1e-5, high: 0.1}"),
        ("[5, -5]", None),
        ("[no, yes]", None),
        ("[1, 2, 3]", None),
        ("['1', '2']", None),
    ],
)
def test_two_numbers_as_choices_have_a_note(choices: str, note: str | None) -> None:
    found = Warnings()
    text = TEXT.replace("[sgd, adam]", choices)
    load_text(text, name="test", file="d.yaml", warnings=found)
    assert not found.warnings
    told = [] if note is None else [f"d.yaml:7: search[0].variables.opt: this is {note}"]
    assert found.notes == told


def test_a_rule_on_the_jobs_of_a_search_is_not_warned_of() -> None:
    found = Warnings()
    rule = """\
  - {trigger: metric, name: count.trial.success, when: ">= 9", action: {name: close, label: hpo}}
"""
    load_text(TEXT + rule, name="test", warnings=found)
    assert not found.warnings


def loaded(**memo: Any) -> Spec:
    job = {"name": "a", "command": "run {x}", "params": {"x": [1, 2]}}
    return load_mapping({"name": "t", "jobs": [job], "simulate": {"a": {"memo": memo}}})


def test_a_memo_of_a_simulated_job_is_computed_from_its_parameters() -> None:
    memo = loaded(loss={"expression": "log10(x) ** 2 + exp(-n / 2)", "step": "n", "steps": 3})
    (computed,) = memo.simulate["a"].memo.values()
    assert isinstance(computed, Computed)
    assert computed.value({"x": 10}, 2) == pytest.approx(1.3678794)


@pytest.mark.parametrize(
    ("memo", "sentence"),
    [
        ({"expression": "y + 1"}, "group 'a' has no parameter 'y' (parameters: x)"),
        ({"expression": "x +"}, "expected an expression such as"),
        ({"expression": "open(x)"}, "'open' is not a function of conditions"),
        ({"expression": "x", "step": "n"}, "give both of 'step' and 'steps', or none"),
        ({"expression": "x", "steps": 0, "step": "n"}, "expected an integer >= 1"),
        ({"expresion": "x"}, "unknown key 'expresion' (did you mean 'expression'? keys: "),
    ],
)
def test_what_is_wrong_with_an_expression(memo: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DocumentError, match=r"simulate\.a\.memo\.loss") as caught:
        loaded(loss=memo)
    assert sentence in str(caught.value)
