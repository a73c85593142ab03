"""Values of parameters in the engine: their texts for people and jobs, their numbers for rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import CallCustom, Play, Started, SubmitJobs, document, on_start, submit
from test_engine_snapshot import Cuts

from flux_ensemble.document.loading import load_text
from flux_ensemble.engine.combinations import name_of, parse_name
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.scalars import Spelled, as_text, number, spelled

WRITTEN = ["1.10", "1.1", "NO", "1e3"]
JOBS: list[dict[str, Any]] = [
    {"name": "a", "command": "run {c}", "params": {"c": {"written": WRITTEN}}},
    {"name": "b", "command": "run {c}", "params": {"c": 0}},
]


def cut(*rules: dict[str, Any], jobs: Any = JOBS, **given: Any) -> tuple[Play, Cuts]:
    """A play whose engine can be restored, through JSON, before any of its events."""
    play = Play(document(jobs=jobs, rules=[on_start(), *rules], **given), start=False)
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    play.post(Started(play.t))
    return play, cuts


def texts(play: Play, group: str) -> list[str]:
    """The parameter of each job of a group that was sent, as its command has it."""
    found = []
    for command in play.of(SubmitJobs):
        if command.group == group:
            jobs = play.engine.spec.groups[group].submission(command.each, command.params)
            found += [as_text(jobs[command.first + one][1]["c"]) for one in range(command.count)]
    return found


@pytest.mark.parametrize("params", ["trigger", {"c": "{job.params.c}"}, {"c": ["{job.params.c}"]}])
def test_what_a_job_hands_on_is_written_as_it_was_and_still_has_its_number(params: Any) -> None:
    action = submit("b", params=params, repetitions="unlimited")
    again = {"trigger": "job-success", "name": "b", "when": "job.params.c == 1.1"}
    play, cuts = cut(
        {"trigger": "job-success", "name": "a", "action": action},
        {**again, "action": submit("b", params={"c": "of {job.params.c}"}, repetitions=2)},
    )
    for job in range(1, 9):
        play.run(job)
    assert texts(play, "b") == [*WRITTEN, "of 1.10", "of 1.1"]
    cuts.check()


def test_combinations_are_those_of_the_texts() -> None:
    by = {"trigger": "idle", "group": "a", "by": ["c"]}
    play, cuts = cut(
        {**by, "action": submit("b", params={"c": "{job.params.c}"}, repetitions="unlimited")}
    )
    for job in range(1, 5):
        play.run(job)
    assert texts(play, "b") == WRITTEN
    cuts.check()


@pytest.mark.parametrize(
    "values",
    [[1, 1.0, True], [0, False], ["1.10", spelled("1.10")], ["true", True], [spelled("NO"), False]],
)
def test_no_two_values_are_one_combination(values: list[Any]) -> None:
    names = [name_of("a", {"c": value}) for value in values]
    assert len(set(names)) == len(values)
    back = [parse_name(name)[1]["c"] for name in names]
    assert [(type(one), one) for one in back] == [(type(one), one) for one in values]


def test_a_custom_function_has_numbers() -> None:
    play, cuts = cut(
        {"trigger": "job-success", "action": {"name": "custom", "label": "f"}},
        {"trigger": "idle", "group": "a", "by": ["c"],
         "action": {"name": "custom", "label": "f", "repetitions": "unlimited"}},
        custom="def f(**kwargs): ...",
        metrics=[{"best": {"name": "top", "of": "a-fom"}}],
    )  # fmt: skip
    play.begin(1)
    play.event(1, "memo", fom=3.0)
    play.end(1)
    play.done(play.of(CallCustom)[0])
    calls = play.of(CallCustom)
    assert [call.kwargs["event"]["params"] for call in calls] == [{"c": 1.1}, {"c": 1.1}]
    cuts.check()


def test_the_best_has_the_text_of_its_parameter_after_a_restore_too() -> None:
    rule = {"trigger": "job-success", "name": "b", "when": "best.top.params.c == 1.1"}
    play, cuts = cut(
        {"trigger": "idle", "group": "a",
         "action": submit("b", params={"c": "{best.top.params.c}"})},
        {**rule, "action": submit("b", params={"c": "{best.top.params.c}"})},
        metrics=[{"best": {"name": "top", "of": "a-fom"}}],
    )  # fmt: skip
    for job, fom in enumerate((9.0, 2.0, 3.0, 4.0), 1):
        play.begin(job)
        play.event(job, "memo", fom=fom)
        play.end(job)
    play.run(5)
    assert texts(play, "b") == ["1.10", "1.10"]
    held = play.engine.metrics(play.t)["best"]["top"]["params"]
    assert json.loads(json.dumps(held)) == {"c": "1.10"}
    cuts.check()


def test_a_trial_with_a_choice_that_is_spelled_is_told_as_it_is_written() -> None:
    text = """
    name: test
    jobs: [{name: a, command: 'run {c}'}]
    search: [{id: s, group: a, variables: {c: [1.10, "1.1", NO]}, minimize: loss, trials: 3}]
    rules: [{trigger: start, action: {name: search, label: s}}]
    """
    (search,) = searches_of(load_text(text))
    (variable,) = search.variables
    assert [type(one) for one in variable.choices] == [Spelled, str, Spelled]
    assert list(map(number, variable.choices)) == [1.1, "1.1", False]
    assert search.objection({"c": "1.10"}) is None
    assert search.objection({"c": 1.1}) is not None


def test_a_job_is_described_with_its_texts() -> None:
    play = Play(document(jobs=JOBS, rules=[on_start()]))
    for job in range(1, 5):
        play.begin(job)
    describer = Describer(play.engine.spec, "/", str)
    described = [
        json.loads(json.dumps(describer.describe(job, 0.0)))["params"]["c"]
        for job in play.engine.workload.jobs.values()
    ]
    assert described == ["1.10", 1.1, "NO", "1e3"]


def test_the_status_has_the_units_of_a_document_that_gives_some() -> None:
    metrics = [{"of": "x", "unit": "eV"}, {"of": "a-fom", "unit": "ns/day"}]
    assert Play(document(metrics=metrics)).status()["units"] == {"x": "eV", "a-fom": "ns/day"}
    assert "units" not in Play(document()).status()
