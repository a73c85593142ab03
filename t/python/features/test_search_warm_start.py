"""A warm start: which trials of others a search takes, and what its samplers make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from play import Play
from test_search_asking import ONE, TWO, VARIABLES, Asked, loss, search
from test_search_generating import search as generating
from test_search_generating import told as told_to

from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Ask
from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.model import (
    MAX_TOLD,
    PriorTrial,
    Search,
    Variable,
    WarmStart,
    searches_of,
)
from flux_ensemble.features.search.samplers import seed_of
from flux_ensemble.features.search.studies import write
from flux_ensemble.features.search.trials import COMPLETE, INFEASIBLE
from flux_ensemble.scalars import identity

optuna = pytest.importorskip("optuna")
pytest.importorskip("sklearn")

TEXT = """\
search:
  - id: hpo
    group: trial
    variables:
      lr: {low: 1e-5, high: 0.1, log: true}
      layers: {low: 1, high: 8, integer: true}
      opt: [sgd, adam, null]
      momentum: {low: 0, high: 1, step: 0.25, when: opt == "sgd"}
    minimize: loss
    warm-start: {from: old.csv}
    trials: 10
jobs:
  - {name: trial, command: "train {lr} {layers} {opt}", params: {momentum: 0}}
rules:
  - {trigger: start, action: {name: search, label: hpo}}
"""

SHEET = """\
lr,layers,opt,momentum,loss,who
1e-3,2,sgd,0.5,0.25,ann
0.01,3.0,adam,,1e-1,bob
0.02,4,,,0.75,
"""

#: What a search has of it.
ROWS = (
    ((0.001, 2, "sgd", 0.5), 0.25),
    ((0.01, 3, "adam", None), 0.1),
    ((0.02, 4, None, None), 0.75),
)


def load(directory: Path, text: str = TEXT, **files: str) -> Spec:
    """A document beside files, whose names have an underline for the dot."""
    for name, content in files.items():
        (directory / name.replace("_", ".")).write_text(content)
    return load_text(text, name="test", file="d.yaml", directory=str(directory))


def told(spec: Spec) -> tuple[Any, ...]:
    (given,) = searches_of(spec)
    return tuple((one.params, one.value) for one in given.warm_start.trials)


def reasons(directory: Path, text: str = TEXT, **files: str) -> str:
    with pytest.raises(DocumentError) as caught:
        load(directory, text, **files)
    return str(caught.value)


def notes(directory: Path, text: str = TEXT, **files: str) -> Warnings:
    load(directory, text, **files) if files else None
    found = Warnings()
    load_text(text, name="test", file="d.yaml", directory=str(directory), warnings=found)
    return found


def job(trial: int, state: str, group: str = "trial", **memo: Any) -> dict[str, Any]:
    """A job of an export."""
    params = {"lr": 0.01, "layers": 2, "opt": "adam", "momentum": 0, "data": "mnist"}
    return {"id": 1, "group": group, "trial": trial, "trial_state": state, "params": params,
            "memo": memo}  # fmt: skip


# -- files ------------------------------------------------------------------------------------


def test_a_sheet_has_the_variables_and_the_objective(tmp_path: Path) -> None:
    assert told(load(tmp_path, old_csv=SHEET)) == ROWS
    assert not notes(tmp_path).warnings


def test_a_document_whose_file_was_read_has_the_trials_and_needs_no_file(tmp_path: Path) -> None:
    spec = load(tmp_path, old_csv=SHEET)
    assert spec.expansion is not None
    (tmp_path / "old.csv").unlink()
    again = load_mapping(spec.expansion, name="test")
    assert told(again) == told(spec)
    assert again.expansion is None
    assert [
        [identity(one) for one in row] for row, _ in told(again)
    ] == [[identity(one) for one in row] for row, _ in ROWS]  # fmt: skip


def test_a_document_can_have_the_trials_itself() -> None:
    text = TEXT.replace(
        "{from: old.csv}",
        "{trials: [{lr: 1e-3, layers: 2, opt: sgd, momentum: 0.5, loss: 2.5e-1}]}",
    )
    spec = load_text(text, name="test")
    assert told(spec) == ROWS[:1]
    assert spec.expansion is None


def test_json_has_mappings_also_one_a_line(tmp_path: Path) -> None:
    rows = [
        {"lr": 0.001, "layers": 2, "opt": "sgd", "momentum": 0.5, "loss": 0.25},
        {"lr": 0.01, "layers": 3, "opt": "adam", "loss": 0.1},
        {"lr": 0.02, "layers": 4, "opt": None, "loss": 0.75},
    ]
    text = TEXT.replace("old.csv", "[a.json, b.jsonl]")
    lines = "\n".join(map(json.dumps, rows))
    assert told(load(tmp_path, text, a_json=json.dumps(rows), b_jsonl=lines)) == ROWS * 2


def test_an_export_has_jobs_of_which_complete_trials_count(tmp_path: Path) -> None:
    jobs = [
        job(0, "complete", loss=0.5),
        job(1, "failed"),
        job(2, "pruned", loss=0.1),
        # A trial with repeats has several jobs.
        job(3, "complete", loss=1.0),
        job(3, "complete", loss=3.0),
        job(3, "failed"),
        job(0, "complete", "other", loss=9.0),
        {"id": 9, "group": "final", "params": {"lr": 1}, "memo": {"loss": 0.0}},
    ]
    text = TEXT.replace("old.csv", "old.json")
    spec = load(tmp_path, text, old_json=json.dumps(jobs))
    point = (0.01, 2, "adam", None)
    assert told(spec) == ((point, 0.5), (point, 2.0))
    found = notes(tmp_path, text)
    assert not found.warnings
    assert found.notes == [
        "d.yaml:10: search[0].warm-start.from: old.json: 3 trials are left out without a value of "
        "each objective, which failed, were stopped or had not ended"
    ]


def test_of_an_export_the_group_of_the_search_counts_or_the_only_one(tmp_path: Path) -> None:
    text = TEXT.replace("old.csv", "old.json")
    one = json.dumps([job(0, "complete", "fit", loss=0.5)])
    assert len(told(load(tmp_path, text, old_json=one))) == 1
    two = json.dumps([job(0, "complete", name, loss=0.5) for name in ("fit", "tune")])
    assert reasons(tmp_path, text, old_json=two).endswith(
        "old.json: expected trials of the group 'trial' (those of searches: fit, tune)"
    )


def test_what_search_shows_as_json_has_all_trials_or_of_too_many_the_best(tmp_path: Path) -> None:
    params = {"lr": 0.001, "layers": 2, "opt": "sgd", "momentum": 0.5}
    trial = {"trial": 7, "trial_state": "complete", "params": params, "memo": {"loss": 0.25}}
    failed = {**trial, "trial": 8, "trial_state": "failed", "memo": {"loss": None}}
    shown = {
        "id": "before", "objective": "loss", "direction": "minimize",
        "best": [{"trial": 7, "value": 0.25, "params": params}],
    }  # fmt: skip
    text = TEXT.replace("old.csv", "old.json")
    for all_trials in ([trial, failed, {**trial, "trial": 9}], [trial] * (MAX_TOLD + 1), []):
        many = json.dumps({"searches": [{**shown, "all_trials": all_trials}]})
        known = 2 if len(all_trials) == 3 else 1
        assert told(load(tmp_path, text, old_json=many)) == ROWS[:1] * known
    none = json.dumps({"searches": [{**shown, "all_trials": [failed]}]})
    assert "there are only trials without a value" in reasons(tmp_path, text, old_json=none)


def test_what_search_shows_as_json_had_the_best_trials(tmp_path: Path) -> None:
    params = {"lr": 0.001, "layers": 2, "opt": "sgd", "momentum": 0.5}
    shown = {
        "id": "before", "objective": "loss", "direction": "minimize",
        "best": [{"trial": 7, "value": 0.25, "params": params}],
    }  # fmt: skip
    text = TEXT.replace("old.csv", "old.json")
    assert told(load(tmp_path, text, old_json=json.dumps({"searches": [shown]}))) == ROWS[:1]
    other = {**shown, "direction": "maximize"}
    assert reasons(tmp_path, text, old_json=json.dumps({"searches": [other]})).endswith(
        "old.json: 'loss' is maximized there, and the search is to minimize it"
    )
    two = json.dumps({"searches": [shown, {**shown, "id": "third"}]})
    assert reasons(tmp_path, text, old_json=two).endswith(
        "old.json: no search 'hpo' (searches: before, third)"
    )


def objective(trial: Any) -> float:
    lr = trial.suggest_float("lr", 1e-5, 0.1, log=True)
    layers = trial.suggest_int("layers", 1, 8)
    opt = trial.suggest_categorical("opt", ["sgd", "adam", None])
    if opt == "sgd":
        trial.suggest_float("momentum", 0, 1, step=0.25)
    if trial.number == 3:
        raise optuna.TrialPruned
    return float(lr * layers) if trial.number != 5 else float("nan")


def studied(path: Path, name: str = "mine", direction: str = "minimize") -> Any:
    """A study that Optuna writes into a journal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(study_name=name, storage=storage, direction=direction)
    study.optimize(objective, n_trials=8)
    frozen = study.trials[0]
    study.add_trial(
        optuna.trial.create_trial(
            value=7.0, params=frozen.params, distributions=frozen.distributions
        )
    )
    return study


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_journal_of_optuna_has_what_optuna_reads_of_it(tmp_path: Path) -> None:
    study = studied(tmp_path / "old.journal")
    text = TEXT.replace("old.csv", "old.journal")
    names = ("lr", "layers", "opt", "momentum")
    complete = [
        (tuple(trial.params.get(name) for name in names), trial.value)
        for trial in study.trials
        if trial.state == optuna.trial.TrialState.COMPLETE
    ]
    assert len(complete) == 7
    assert list(told(load(tmp_path, text))) == complete
    # A program that was killed may have left a part of a line.
    with (tmp_path / "old.journal").open("a") as file:
        file.write('{"op_code": 4, "stu')
    assert len(told(load(tmp_path, text))) == 7


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_of_several_studies_one_is_named(tmp_path: Path) -> None:
    for name in ("a", "b", "gone"):
        studied(tmp_path / "old.journal", name)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "old.journal"))
    storage = optuna.storages.JournalStorage(backend)
    optuna.delete_study(study_name="gone", storage=storage)
    text = TEXT.replace("old.csv", "old.journal")
    assert reasons(tmp_path, text).endswith(
        "old.journal: there are 2 studies: give 'study', one of a, b"
    )
    named = text.replace("old.journal", "old.journal, study: b")
    assert len(told(load(tmp_path, named))) == 7
    assert reasons(tmp_path, named.replace("study: b", "study: c")).endswith(
        "old.journal: no study 'c' (studies: a, b)"
    )


def test_what_export_writes_for_optuna_is_read_again(tmp_path: Path) -> None:
    (given,) = searches_of(load(tmp_path, old_csv=SHEET))
    jobs = [
        {
            **job(number, "complete", loss=value),
            "params": {"lr": 0, "layers": 0, "opt": "", "momentum": 0.25, **given.named(row)},
            "outcome": "success", "t_run": 1.0, "t_submit": 1.0, "t_end": 2.0,
        }
        for number, (row, value) in enumerate(ROWS)
    ]  # fmt: skip
    write(tmp_path / "new.journal", "first", [given, replace(given, id="b", group="b")], jobs)
    # Of two studies the one of a search that is called so.
    assert told(load(tmp_path, TEXT.replace("old.csv", "new.journal"))) == ROWS
    other = TEXT.replace("old.csv", "new.journal").replace("minimize", "maximize")
    assert reasons(tmp_path, other).endswith(
        "new.journal: 'loss' is minimized there, and the search is to maximize it"
    )


def test_several_objectives_are_all_told(tmp_path: Path) -> None:
    text = TEXT.replace("minimize: loss", "minimize: loss\n    maximize: [acc]")
    sheet = SHEET.replace("who", "acc").replace("ann", "0.5").replace("bob", "0.75")
    spec = load(tmp_path, text, old_csv=sheet)
    assert [value for _, value in told(spec)] == [(0.25, 0.5), (0.1, 0.75)]
    (given,) = searches_of(spec)
    assert given.best_told is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # What the search does not have, or the file.
        ("lr,layers", "rate,layers", "old.csv: no column 'lr', and the search has this variable "
         "(columns: rate, layers, opt, momentum, loss, who)"),
        ("loss", "losss", "old.csv: no column 'loss', and the search has this objective (did you "
         "mean 'losss'? columns: lr, layers, opt, momentum, losss, who)"),
        ("who", "lr", "old.csv:1: there are several columns 'lr'"),
        (",ann", "", "old.csv:2: expected 6 values, as the header has, not 5"),
        ("ann", '"ann', "old.csv:2: a '\"' is not closed, or not where a cell ends"),
        (SHEET[SHEET.index("1e-3") :], "", "old.csv: expected a line for each trial below "
         "that of the columns"),
        (SHEET, "", "old.csv: the file is empty"),
        ("0.25,ann\n0.01,3.0,adam,,1e-1,bob\n0.02,4,,,0.75,", "0.01 J,",
         "old.csv:2: loss: expected a number, not '0.01 J'"),
        # None of whose trials can be used.
        (SHEET[SHEET.index("0.01") :], "", None),
        ("1e-3,2,sgd,0.5,0.25,ann\n0.01,3.0,adam,,1e-1,bob\n0.02,4,,,0.75,\n",
         "1e-3,2,sgd,0.5,nan,ann\n1e-3,2,sgd,0.5,,ann\n", "old.csv: there are only trials without "
         "a value of each objective, which failed, were stopped or had not ended"),
        (SHEET, "lr,layers,opt,loss\n1,2,adam,3\n", "old.csv:2: lr: expected a number >= 1e-05 and "
         "<= 0.1, not 1.0"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file(tmp_path: Path, old: str, new: str, reason: str | None) -> None:
    assert old in SHEET
    sheet = SHEET.replace(old, new, 1)
    if reason is None:
        assert told(load(tmp_path, old_csv=sheet)) == ROWS[:1]
    else:
        expected = f"d.yaml:10: search[0].warm-start.from: {reason}"
        assert reasons(tmp_path, old_csv=sheet) == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,2,adam,,0.5,", "lr: expected a number >= 1e-05 and <= 0.1, not 1.0"),
        ("fast,2,adam,,0.5,", "lr: expected a number >= 1e-05 and <= 0.1, not 'fast'"),
        ("0.01,2.5,adam,,0.5,", "layers: expected an integer >= 1 and <= 8, not 2.5"),
        ("0.01,2,lion,,0.5,", "opt: expected one of 'sgd', 'adam', None, not 'lion'"),
        ("0.01,2,sgd,,0.5,", "it has no value of 'momentum'"),
        ("0.01,2,sgd,0.3,0.5,",
         "momentum: expected 0 and steps of 0.25 up to 1, not 0.3"),
        (",2,adam,,0.5,", "it has no value of 'lr'"),
    ],
)  # fmt: skip
def test_a_trial_that_is_not_in_the_space_is_left_out_and_said(
    tmp_path: Path, row: str, reason: str
) -> None:
    found = notes(tmp_path, old_csv=f"{SHEET}{row}\n")
    assert found.warnings == [
        "d.yaml:10: search[0].warm-start.from: old.csv: 1 trial is left out that the space does "
        f"not have, the first at old.csv:5: {reason}"
    ]
    assert told(load(tmp_path)) == ROWS


def test_a_constraint_leaves_trials_out(tmp_path: Path) -> None:
    text = TEXT.replace("minimize", "where: lr * layers < 0.05\n    minimize")
    found = notes(tmp_path, text, old_csv=SHEET)
    assert found.warnings == [
        "d.yaml:11: search[0].warm-start.from: old.csv: 1 trial is left out that the space does "
        "not have, the first at old.csv:4: 'where' leaves it out: lr * layers < 0.05"
    ]


TRIALS = "{trials: [{lr: 0.01, layers: 2, opt: adam, loss: 1}]}"


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("{}", ": give 'from', a file with trials, or 'trials'"),
        ("{study: a}", ": give 'from', a file with trials, or 'trials'"),
        ("old.csv", ": expected a mapping such as {from: old.csv}, not 'old.csv'"),
        ("{from: none.csv}", ".from: cannot read 'none.csv': No such file or directory"),
        ("{from: [old.csv, none.csv]}",
         ".from[1]: cannot read 'none.csv': No such file or directory"),
        ("{from: study.db}", ".from: expected a file that ends in .csv, .tsv, .json, .jsonl or "
         ".journal, or the name of an ensemble, not 'study.db': a database of Optuna becomes a "
         "journal with optuna.copy_study, and the jobs of an ensemble a CSV file with "
         "'flux-ensemble export NAME FILE.csv'"),
        ("{from: bad.json}",
         ".from: bad.json: expected JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{from: odd.json}", ".from: odd.json: expected a list of mappings such as {\"lr\": 0.01, "
         "\"loss\": 0.5}, not 3"),
        ("{from: bad.journal}", ".from: bad.journal:1: expected a line of a journal of Optuna"),
        ("{form: old.csv}", ".form: unknown key 'form' (did you mean 'from'? keys: from, study, "
         "trials)"),
        ("{trials: []}", ".trials: expected a list of trials such as [{lr: 0.001, layers: 2, "
         "loss: 0.31}], not a list with 0 items"),
        (TRIALS.replace("0.01", "1"),
         ".trials[0]: lr: expected a number >= 1e-05 and <= 0.1, not 1"),
        (TRIALS.replace("loss: 1", "loss: .nan"),
         ".trials[0]: loss: expected a finite number, which a trial publishes, not '.nan'"),
        (TRIALS.replace("loss: 1", "loss: low"),
         ".trials[0]: loss: expected a finite number, which a trial publishes, not 'low'"),
        (TRIALS.replace(", loss: 1", ""),
         ".trials[0]: loss: expected a finite number, which a trial publishes"),
        (TRIALS.replace("layers: 2, ", ""), ".trials[0]: it has no value of 'layers'"),
        (TRIALS.replace("layers", "layer"), ".trials[0]: no variable and no objective 'layer' (did "
         "you mean 'layers'? variables: lr, layers, opt, momentum; objectives: loss)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_warm_start(tmp_path: Path, new: str, reason: str) -> None:
    files = {"old_csv": SHEET, "bad_json": "x", "odd_json": "3", "bad_journal": "x"}
    found = reasons(tmp_path, TEXT.replace("{from: old.csv}", new), **files)
    assert found.splitlines()[0].startswith(f"d.yaml:10: search[0].warm-start{reason}"), found


def test_what_is_too_large_is_refused_and_not_cut_short(tmp_path: Path) -> None:
    sheet = SHEET + "0.01,2,adam,,0.5,\n" * MAX_TOLD
    expected = "d.yaml:10: search[0].warm-start: expected at most 10000 trials, not 10003"
    assert reasons(tmp_path, old_csv=sheet) == expected
    wide = SHEET + f"0.01,2,adam,,0.5,{'x' * 4000}\n" * 1100
    assert reasons(tmp_path, old_csv=wide).endswith("expected at most 4194304 bytes in 'old.csv'")
    many = "\n      ".join(f"v{number}: [0, 1]" for number in range(20))
    text = TEXT.replace("opt: [sgd", f"{many}\n      opt: [sgd")
    names = ",".join(f"v{number}" for number in range(20))
    zeros = ",".join("0" * 20)
    rows = f"lr,layers,opt,loss,{names}\n" + f"0.01,2,adam,0.5,{zeros}\n" * 5000
    assert reasons(tmp_path, text, old_csv=rows).endswith(
        "expected at most 100000 values in all trials, not 125000"
    )


def test_a_recording_has_no_trials_and_how_to_write_them_is_said(tmp_path: Path) -> None:
    text = TEXT.replace("old.csv", "old.jsonl")
    recording = json.dumps({"recording": 1, "name": "tune", "document": "name: tune"})
    assert reasons(tmp_path, text, old_jsonl=f"{recording}\n{{}}\n").endswith(
        "old.jsonl: expected trials, not a recording: 'flux-ensemble export tune tune.csv' writes "
        "those of the ensemble 'tune'"
    )


def test_the_name_of_an_ensemble_is_no_file_and_how_to_write_one_is_said(tmp_path: Path) -> None:
    found = reasons(tmp_path, TEXT.replace("old.csv", "study-1"))
    assert found.endswith(
        "or the name of an ensemble, not 'study-1': 'flux-ensemble export study-1 study-1.csv' "
        "writes the trials of an ensemble 'study-1' that is elsewhere"
    )


def test_the_name_of_an_ensemble_stands_for_its_trials(tmp_path: Path) -> None:
    rows = [job(0, "complete", loss=0.5), job(1, "failed"), job(2, "complete", loss=0.25)]
    known = {"study.1": "\n".join(map(json.dumps, ({"searches": []}, *rows)))}
    text = TEXT.replace("old.csv", "study.1")
    spec = load_text(text, name="test", file="d.yaml", jobs=known.get)
    point = (0.01, 2, "adam", None)
    assert told(spec) == ((point, 0.5), (point, 0.25))
    assert spec.expansion is not None
    assert told(load_mapping(spec.expansion, name="test")) == told(spec)


def test_trials_of_an_ensemble_that_did_the_opposite_are_refused() -> None:
    other = {"group": "b", "objective": "loss", "direction": "maximize"}
    own = {"group": "trial", "objective": "size, loss", "direction": "maximize, minimize"}
    rows = [{"searches": [other, own]}, job(0, "complete", loss=0.5)]
    known = {"bk": "\n".join(map(json.dumps, rows))}
    text = TEXT.replace("old.csv", "bk")
    load_text(text, name="test", file="d.yaml", jobs=known.get)
    opposite = text.replace("minimize: loss", "maximize: loss")
    with pytest.raises(DocumentError) as caught:
        load_text(opposite, name="test", file="d.yaml", jobs=known.get)
    assert str(caught.value).endswith(
        "bk: 'loss' is minimized there, and the search is to maximize it"
    )


def test_a_study_is_for_journals(tmp_path: Path) -> None:
    assert reasons(tmp_path, TEXT.replace("old.csv", "old.csv, study: a"), old_csv=SHEET) == (
        "d.yaml:10: search[0].warm-start.study: expected none, because 'from' has no journal of "
        "Optuna"
    )


def test_what_is_no_number_is_left_out_with_a_warning_that_has_its_line(tmp_path: Path) -> None:
    found = notes(tmp_path, old_csv=SHEET.replace("0.25", "0.01 J"))
    assert found.warnings == [
        "d.yaml:10: search[0].warm-start.from: old.csv: 1 trial is left out whose value is no "
        "number, the first at old.csv:2: loss: expected a number, not '0.01 J'"
    ]
    assert not found.notes


def test_the_best_trials_lack_what_a_constraint_names(tmp_path: Path) -> None:
    text = TEXT.replace("trials: 10", "subject-to: mass <= 3\n    trials: 10")
    best = [{"trial": 1, "value": 0.5, "params": {"lr": 0.01, "layers": 2, "opt": "adam"}}]
    search = {"id": "hpo", "objective": "loss", "direction": "minimize", "best": best}
    shown = json.dumps({"searches": [search]})
    assert reasons(tmp_path, text.replace("old.csv", "old.json"), old_json=shown).endswith(
        "old.json: what 'search --json' prints has no mass, which 'subject-to' names: "
        "'flux-ensemble export NAME NAME.csv' writes all"
    )


@pytest.mark.parametrize(
    ("sampler", "variables", "reason"),
    [
        ("qmc", "x: {low: 0, high: 1}", "the sampler 'qmc' learns from no trial: leave it out, or "
         "take 'tpe'"),
        ("random", "x: {low: 0, high: 1}", "the sampler 'random' learns from no trial: leave it "
         "out, or take 'tpe'"),
        ("cma", "x: {low: 0, high: 1}", "the sampler 'cma' begins from at least 10 trials, and "
         "there is 1; 'tpe' takes any"),
        ("grid", "x: [0]", "it has each point of the space, so none is left to try"),
        ("tpe", "x: [0], loss: [0]",
         "'loss' is a variable and an objective: give one of them another name"),
    ],
)  # fmt: skip
def test_samplers_that_do_not_learn_from_it_refuse_it(
    sampler: str, variables: str, reason: str
) -> None:
    text = f"""\
search:
  - id: hpo
    group: a
    variables: {{{variables}}}
    minimize: loss
    sampler: {sampler}
    warm-start: {{trials: [{{x: 0, loss: 1}}]}}
    trials: 5
jobs: [{{name: a, command: "run {{x}}"}}]
"""
    with pytest.raises(DocumentError) as caught:
        load_text(text, name="test", file="d.yaml")
    assert str(caught.value) == f"d.yaml:7: search[0].warm-start: {reason}"


# -- samplers ---------------------------------------------------------------------------------


def warm(given: Search, many: int = 20) -> Search:
    """A search that begins with trials of another one."""
    asked = Asked(replace(given, sampler="random", id="other", generator=None))
    points = asked.run(many, 1)
    trials = tuple(
        PriorTrial(
            asked.search.row_of(point),
            (loss(point), point["x"]) if given.several else loss(point),
        )
        for point in points
    )
    return replace(given, warm_start=WarmStart(trials))


@pytest.mark.parametrize("sampler", ["tpe", "cma", "nsga2", "gp"])
def test_a_sampler_learns_from_them_and_a_new_process_goes_on_as_the_one_before(
    sampler: str,
) -> None:
    cold = search(sampler)
    given = warm(cold, 60 if sampler == "nsga2" else 20)
    count = 12
    straight = Asked(given).run(count, 1)
    assert straight != Asked(cold).run(count, 1)
    assert Asked(given).run(count, 1, again=3) == straight
    four = replace(given, parallel=4)
    assert Asked(four).run(count, 4, again=2) == Asked(four).run(count, 4)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "gp"])
def test_a_few_that_it_begins_with_are_not_tried_again(sampler: str) -> None:
    cold = search(sampler)
    first = Asked(cold).run(4, 1)
    told = tuple(PriorTrial(cold.row_of(point), loss(point)) for point in first)
    second = Asked(replace(cold, warm_start=WarmStart(told))).run(4, 1)
    told = tuple(PriorTrial(cold.row_of(point), loss(point)) for point in second)
    third = Asked(replace(cold, warm_start=WarmStart(told))).run(4, 1)
    tried = [point["x"] for point in (*first, *second, *third)]
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_with_several_objectives_too(sampler: str) -> None:
    given = warm(search(sampler, objectives=TWO), 60)
    straight = Asked(given).run(12, 1)
    assert Asked(given).run(12, 1, again=3) == straight


@pytest.mark.parametrize("sampler", ["tpe", "cma"])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_points_are_those_of_optuna_with_the_same_trials(sampler: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    given = warm(search(sampler))
    points = Asked(given).run(20, 1)
    distributions: dict[str, Any] = {
        "x": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
        "n": optuna.distributions.IntDistribution(1, 8),
    }
    if sampler == "tpe":
        distributions["kind"] = optuna.distributions.CategoricalDistribution(range(4))
    kinds = list(map(identity, VARIABLES[2].choices))

    def placed(row: tuple[Any, ...]) -> dict[str, Any]:
        values = (*row[:2], *map(kinds.index, map(identity, row[2:])))
        return dict(zip(distributions, values, strict=True))

    others = [
        optuna.trial.create_trial(value=value, params=placed(row), distributions=distributions)
        for row, value, _ in given.warm_start.trials
    ]
    study = optuna.create_study()
    if sampler == "tpe":
        study.add_trials(others)
    for number, point in enumerate(points):
        seed = seed_of(described(given, 7), number)
        if sampler == "tpe":
            study.sampler = optuna.samplers.TPESampler(seed=seed)
        else:
            study.sampler = optuna.samplers.CmaEsSampler(seed=seed, source_trials=others)
        trial = study.ask(distributions)
        assert trial.params == placed(given.row_of(point))
        if number % 7 == 6:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, loss(point))


def test_a_model_begins_at_once() -> None:
    # Without them the first ten points are those of a Sobol sequence.
    (first,) = Asked(warm(search("gp"))).ask()
    assert abs(first["n"] - 3) <= 1
    attributes = Asked(warm(search("nsga2"), 60))
    attributes.ask()
    (trial,) = attributes.trials.all
    assert trial.attributes is not None
    assert trial.attributes["NSGAIISampler:generation"] == 1


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_a_point_of_a_finite_space_that_is_told_is_not_tried_again(sampler: str) -> None:
    text = f"""\
search:
  - id: hpo
    group: a
    variables: {{x: [1, 2, 3], y: [p, q]}}
    minimize: loss
    sampler: {sampler}
    points: [{{x: 1, y: p}}]
    warm-start:
      trials:
        - {{x: 1, y: p, loss: 1}}
        - {{x: 3, y: q, loss: 1}}
        - {{x: 3, y: q, loss: 2}}
    trials: 50
jobs: [{{name: a, command: "run {{x}} {{y}}"}}]
"""
    (given,) = searches_of(load_text(text, name="test"))
    # Four that nobody has told of, and the one that the user wants.
    assert given.trials == 5
    points = Asked(replace(given, points=())).ask(50)
    assert {(point["x"], point["y"]) for point in points} == {
        (1, "q"), (2, "p"), (2, "q"), (3, "p"),
    }  # fmt: skip


class Outcomes(Asked):
    """Of which each trial has a loss, and violates a constraint or not."""

    def end(self, number: int) -> None:
        value = float(self.trials.params(self.trials.all[number])["lr"])
        how, violations = (COMPLETE, (-1.0,)) if number % 2 else (INFEASIBLE, (2.0,))
        self.trials.end(number, how, value, 1.0, violations=violations)


def test_constraints_on_outcomes_know_what_others_have_published(tmp_path: Path) -> None:
    text = TEXT.replace("trials: 10", "subject-to: mass <= layers\n    trials: 10")
    assert reasons(tmp_path, text, old_csv=SHEET).endswith(
        "old.csv: no column 'mass', and the search has this constraint (columns: lr, layers, opt, "
        "momentum, loss, who)"
    )
    sheet = SHEET.replace("who", "mass").replace("ann", "1").replace("bob", "4.5")
    spec = load(tmp_path, text, old_csv=sheet)
    # The last one has no mass.
    assert told(spec) == ROWS[:2]
    assert spec.expansion is not None
    (given,) = searches_of(load_mapping(spec.expansion, name="test"))
    assert [given.violated_by(one) for one in given.warm_start.trials] == [(-1.0,), (1.5,)]
    # The better one is infeasible.
    assert given.best_told == ROWS[0]
    assert [one[2:] for one in described(given, 7)["told"]] == [[None, [-1.0]], [None, [1.5]]]
    straight = Outcomes(given).run(8, 1)
    assert Outcomes(given).run(8, 1, again=3) == straight


def test_a_generator_gets_them_before_its_first_point() -> None:
    pytest.importorskip("gest_api")
    cold = generating("Learner", initial=3)
    row = (0.5, 1, "p")
    given = replace(
        cold, warm_start=WarmStart(tuple(PriorTrial(row, value) for value in (1.0, 2.0, 3.0)))
    )
    asked = Asked(given)
    asked.ask()
    assert [one["loss"] for one in told_to(asked)] == [1.0, 2.0, 3.0]
    assert told_to(asked)[0] == {"x": 0.5, "n": 1, "kind": "p", "loss": 1.0}
    straight = Asked(given).run(7, 1)
    assert Asked(given).run(7, 1, again=2) == straight


# -- the engine -------------------------------------------------------------------------------


class Warm(Play):
    """An engine whose asks are answered with x = 0.5."""

    def post(self, event: Any) -> list[Any]:
        commands = super().post(event)
        for command in commands:
            if isinstance(command, Ask):
                self.done(command, points=[{"params": {"x": 0.5}}] * command.count, seconds=0.01)
        return commands

    @property
    def search(self) -> Mapping[str, Any]:
        (given,) = self.status()["searches"]
        return given


DOCUMENT = {
    "name": "test",
    "search": [
        {
            "id": "hpo", "group": "a", "variables": {"x": {"low": 0, "high": 1}},
            "minimize": "loss", "trials": 2,
            "warm-start": {"trials": [{"x": 0.25, "loss": 0.75}, {"x": 0.75, "loss": 0.25}]},
        }
    ],
    "jobs": [{"name": "a", "command": "run {x}"}],
    "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
}  # fmt: skip


def test_the_best_is_of_the_trials_of_the_search_and_others_are_beside_it() -> None:
    play = Warm(DOCUMENT)
    beside = {"trials": 2, "best": {"value": 0.25, "params": {"x": 0.75}}}
    assert play.search["warm_start"] == beside
    assert [(one["trials"], one["best"]) for one in play.recorded("told")] == [(2, 0.25)]
    play.begin(1)
    play.event(1, "memo", loss=0.5)
    play.end(1, 0)
    assert play.search["best"] == [{"trial": 0, "job": 1, "value": 0.5, "params": {"x": 0.5}}]
    assert (play.search["complete"], play.search["trials"]) == (1, 2)
    assert play.search["warm_start"] == beside


def test_a_variable_of_it_has_the_choice_that_the_document_has(tmp_path: Path) -> None:
    text = """\
search:
  - id: hpo
    group: a
    variables: {c: [1.10, "1.20", yes, 2]}
    minimize: loss
    warm-start: {from: old.csv}
    trials: 5
jobs: [{name: a, command: "run {c}"}]
"""
    spec = load(tmp_path, text, old_csv='c,loss\n1.10,1\n"1.20",2\nyes,3\n')
    assert spec.expansion is not None
    for one in (spec, load_mapping(spec.expansion, name="test")):
        assert [type(row[0]).__name__ for row, _ in told(one)] == ["Spelled", "str", "Spelled"]
    (point,) = Asked(searches_of(spec)[0]).ask()
    assert "c" in point


def test_a_search_is_described_without_them_as_before() -> None:
    given = Search("hpo", "a", (Variable("x", 0.0, 1.0),), ONE)
    assert "told" not in described(given, 7)
