"""Searches are written as studies of Optuna, and Optuna reads them: every trial as it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from local_queue import mounted
from reports import simulated

pytest.importorskip("optuna")

import optuna

from flux_ensemble.features.search.history import StudyError, logged_searches
from flux_ensemble.features.search.studies import write
from flux_ensemble.report.source import Source

VARIABLES = {
    "lr": {"low": "1e-5", "high": 0.1, "log": True},
    "layers": {"low": 1, "high": 8, "integer": True, "step": 2},
    "opt": ["sgd", "adam"],
}

DOCUMENT: dict[str, Any] = {
    "name": "tune",
    "search": [
        {
            "id": "one", "group": "trial", "variables": VARIABLES, "minimize": "loss",
            "sampler": "random", "trials": 30, "parallel": 4,
            "stop": {"policy": "asha", "step": "epoch", "eta": 2},
        },
        {
            "id": "two", "group": "both", "variables": {"y": {"low": 0, "high": 1}},
            "minimize": "loss", "maximize": "gain", "sampler": "random", "trials": 12,
            "on-failure": "retry",
        },
    ],
    "jobs": [
        {"name": "trial", "command": "x {lr} {layers} {opt}"},
        {"name": "both", "command": "y {y}"},
    ],
    "rules": [
        {"trigger": "start", "action": {"name": "search", "label": id}} for id in ("one", "two")
    ],
    "simulate": {
        "trial": {
            "duration": 60,
            "memo": {
                "loss": {
                    "expression": "(log10(lr) + 3) ** 2 + layers", "step": "epoch", "steps": 4
                }
            },
        },
        "both": {
            "duration": 60,
            "failure-rate": 0.3,
            "memo": {"loss": {"expression": "y"}, "gain": {"expression": "y ** 2"}},
        },
    },
}  # fmt: skip


def written(directory: Path, suffix: str) -> tuple[Source, list[Any]]:
    """A simulation, and the studies that Optuna finds in its file."""
    source, path = simulated(DOCUMENT), directory / f"study{suffix}"
    counts = write(path, "tune", logged_searches(source.entries), source.jobs)
    assert counts == {"one": 30, "two": 12}
    storage: Any = f"sqlite:///{path}"
    if suffix == ".journal":
        backend = optuna.storages.journal.JournalFileBackend(str(path))
        storage = optuna.storages.JournalStorage(backend)
    names = optuna.get_all_study_names(storage)
    assert names == ["tune/one", "tune/two"]
    return source, [optuna.load_study(study_name=name, storage=storage) for name in names]


def states(study: Any) -> Counter[str]:
    return Counter(trial.state.name for trial in study.trials)


@pytest.mark.parametrize("suffix", [".journal", ".db"])
def test_every_trial_has_its_number_its_state_its_values_and_its_point(
    suffix: str, tmp_path: Path
) -> None:
    source, (one, two) = written(tmp_path, suffix)
    told: list[Mapping[str, Any]] = source.status["searches"]
    assert states(one) == {"COMPLETE": told[0]["complete"], "PRUNED": told[0]["pruned"]}
    best = told[0]["best"][0]
    assert (one.best_trial.number, one.best_trial.params) == (best["trial"], best["params"])
    assert one.best_value == best["value"]
    assert all(
        trial.intermediate_values == {trial.last_step: trial.value}
        for trial in one.trials
        if trial.state.name == "PRUNED"
    )
    assert one.trials[0].distributions["layers"] == optuna.distributions.IntDistribution(
        1, 7, step=2
    )
    assert [direction.name for direction in two.directions] == ["MINIMIZE", "MAXIMIZE"]
    # What came of a trial that ran again is what counts.
    assert states(two)["COMPLETE"] == told[1]["complete"]
    assert len(two.trials) == 12
    front = {trial.number: trial.values for trial in two.best_trials}
    assert front == {trial["trial"]: trial["values"] for trial in told[1]["front"]}


def test_a_trial_has_the_values_that_its_point_has(tmp_path: Path) -> None:
    variables = {"y": {"low": 0, "high": 1}, "z": {"choices": [1, None], "when": "y > 0.5"}}
    document = {
        "name": "tune",
        "search": [{**DOCUMENT["search"][1], "variables": variables}],
        "jobs": DOCUMENT["jobs"][1:],
        "rules": DOCUMENT["rules"][1:],
        "simulate": {"both": DOCUMENT["simulate"]["both"]},
    }
    source, path = simulated(document), tmp_path / "study.journal"
    write(path, "tune", logged_searches(source.entries), source.jobs)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.load_study(study_name="tune/two", storage=storage)
    assert {(trial.params["y"] > 0.5, *trial.params) for trial in study.trials} == {
        (True, "y", "z"), (False, "y"),
    }  # fmt: skip
    assert {trial.params.get("z", 0) for trial in study.trials} == {0, 1, None}
    (search,) = source.status["searches"]
    assert all(("z" in one["params"]) == (one["params"]["y"] > 0.5) for one in search["front"])


def test_a_sampler_of_optuna_goes_on_from_there(tmp_path: Path) -> None:
    _, (one, _) = written(tmp_path, ".journal")
    trial = one.ask(one.trials[0].distributions)
    assert (trial.number, sorted(trial.params)) == (30, ["layers", "lr", "opt"])


def test_a_trial_whose_job_is_not_known_keeps_its_place(tmp_path: Path) -> None:
    source = simulated(DOCUMENT)
    jobs = [job for job in source.jobs if job.get("trial") != 3]
    counts = write(tmp_path / "a.journal", "tune", logged_searches(source.entries), jobs)
    assert counts == {"one": 29, "two": 11}
    lines = (tmp_path / "a.journal").read_text().splitlines()
    assert all(json.loads(line) for line in lines)


@pytest.mark.parametrize("room", ["64k", "160k"], ids=["its tables", "its trials"])
def test_a_disk_that_has_no_room_for_a_database_or_for_all_of_it_is_said(
    tmp_path: Path, room: str
) -> None:
    source = simulated(DOCUMENT)
    searches = logged_searches(source.entries)
    with (
        mounted(tmp_path / "small", f"size={room}"),
        pytest.raises(StudyError, match=r"^Optuna cannot write a\.db: [a-z ]*full$"),
    ):
        write(tmp_path / "small/a.db", "tune", searches, source.jobs)


def test_what_has_no_search_is_said() -> None:
    plain = {"jobs": [{"name": "a", "command": "a"}], "rules": []}
    loaded = {"timestamp": 1.0, "name": "load", "context": {"document": plain}}
    with pytest.raises(StudyError, match="the ensemble has no search"):
        logged_searches([loaded])
    with pytest.raises(StudyError, match="the log does not have the document any more"):
        logged_searches([{**loaded, "name": "start"}])
    text = "jobs: [{name: a, command: a}]\nrules: []\n"
    with pytest.raises(StudyError, match="the ensemble has no search"):
        logged_searches([{**loaded, "context": {"document": text}}])


@pytest.mark.parametrize(
    ("choices", "labels"),
    [
        ("[0, 1, 2, false]", ("0", 1, 2, "false")),
        ("[1, 1.0, 2]", ("1", "1.0", 2)),
        ("[true, 1, '1', 5]", ("true", "int 1", "1", 5)),
        ("[1.10, NO, 0x1F, 1e-3]", ("1.10", "NO", "0x1F", "1e-3")),
    ],
)
def test_choices_are_labelled_by_what_they_are(
    choices: str, labels: tuple[Any, ...], tmp_path: Path
) -> None:
    text = f"""
    jobs: [{{name: a, command: 'run {{c}}'}}]
    search: [{{id: s, group: a, variables: {{c: {choices}}}, minimize: loss, trials: 9}}]
    rules: []
    """
    loaded = {"timestamp": 1.0, "name": "load", "context": {"document": text}}
    (search,) = logged_searches([loaded])
    (variable,) = search.variables
    jobs = [
        {
            "id": number, "group": "a", "trial": number, "trial_state": "complete",
            "params": {"c": choice}, "memo": {"loss": float(number)}, "outcome": "success",
            "t_submit": 1.0, "t_run": 1.0, "t_end": 2.0,
        }
        for number, choice in enumerate(variable.choices)
    ]  # fmt: skip
    write(tmp_path / "a.journal", "e", (search,), json.loads(json.dumps(jobs)))
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "a.journal"))
    study = optuna.load_study(study_name="e/s", storage=optuna.storages.JournalStorage(backend))
    found = [trial.params["c"] for trial in study.trials]
    assert [(type(one), one) for one in found] == [(type(one), one) for one in labels]
