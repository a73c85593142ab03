"""The searches of an ensemble as studies of Optuna: `export --to optuna`.

Each search becomes a study of its name, and each of its trials a trial of the study, with its
number, state and value. Programs that read files of Optuna can read them, such as optuna-dashboard.

    log, jobs ──► trials ──optuna──► a journal, or a database of SQLite
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from flux_ensemble.features.search.history import Job, StudyError, of_trial
from flux_ensemble.features.search.model import Search, Variable
from flux_ensemble.scalars import as_text, identity
from flux_ensemble.words import ACTIVE, COMPLETE, INFEASIBLE, PRUNED

#: Suffixes of the files that Optuna can keep studies in.
JOURNALS, DATABASES = (".journal", ".log"), (".db", ".sqlite", ".sqlite3")
SUFFIXES = (*JOURNALS, *DATABASES)

_DIRECTIONS = {False: StudyDirection.MINIMIZE, True: StudyDirection.MAXIMIZE}

#: States of Optuna by ours; every other state counts as failed.
_STATES = {
    ACTIVE: TrialState.RUNNING,
    COMPLETE: TrialState.COMPLETE,
    INFEASIBLE: TrialState.COMPLETE,
    PRUNED: TrialState.PRUNED,
}


def write(path: Path, name: str, searches: Iterable[Search], jobs: Iterable[Job]) -> dict[str, int]:
    """Write searches to a new file, in the format of its suffix.

    Args:
        path: the file; its suffix is one of `SUFFIXES`.
        name: of the ensemble.
        searches: of its document.
        jobs: as `Client.jobs` returns them.

    Returns:
        The number of trials of each search, by its id.

    Raises:
        StudyError, OSError: the file cannot be written.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return _write(path, name, searches, jobs)
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError) as error:
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        raise StudyError(f"Optuna cannot write {path.name}: {reason}") from None


def _write(
    path: Path, name: str, searches: Iterable[Search], jobs: Iterable[Job]
) -> dict[str, int]:
    by_group = {search.group: search for search in searches}
    trials: dict[str, dict[int, list[Job]]] = {search.id: {} for search in by_group.values()}
    for job in jobs:
        if job.get("trial") is not None and job["group"] in by_group:
            trials[by_group[job["group"]].id].setdefault(job["trial"], []).append(job)
    database = path.suffix.lower() in DATABASES
    storage: BaseStorage = (
        RDBStorage(f"sqlite:///{path}")
        if database
        else JournalStorage(JournalFileBackend(str(path)))
    )
    for search in by_group.values():
        study = optuna.create_study(
            study_name=f"{name}/{search.id}",
            storage=storage,
            directions=[_DIRECTIONS[objective.maximize] for objective in search.objectives],
        )
        study.set_user_attr("objectives", [objective.key for objective in search.objectives])
        study.set_user_attr("sampler", search.suggests)
        found = trials[search.id]
        distributions = {one.name: _distribution(one) for one in search.variables}
        # A trial whose job is not in the record still has its number.
        numbers = range(max(found, default=-1) + 1)
        study.add_trials(
            [_trial(search, distributions, found.get(number, ())) for number in numbers]
        )
    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()
    return {id: len(found) for id, found in trials.items()}


def _distribution(variable: Variable) -> Any:
    if variable.choices:
        return optuna.distributions.CategoricalDistribution(list(_labels(variable).values()))
    if variable.steps is not None:
        distributions: Any = optuna.distributions
        kind = (
            distributions.IntDistribution if variable.integer else distributions.FloatDistribution
        )
        return kind(variable.low, variable.steps[-1], step=variable.step)
    if variable.integer:
        return optuna.distributions.IntDistribution(
            int(variable.low), int(variable.high), log=variable.log
        )
    return optuna.distributions.FloatDistribution(variable.low, variable.high, log=variable.log)


def _labels(variable: Variable) -> dict[tuple[type, Any], Any]:
    """Return Optuna's label of each choice: itself, or its text if others are equal in Python.

    >>> list(_labels(Variable("c", choices=(0, 1, 2, False))).values())
    ['0', 1, 2, 'false']
    """
    labels: dict[tuple[type, Any], Any] = {}
    for choice in variable.choices:
        label = str(choice) if isinstance(choice, str) else choice
        if sum(choice == other for other in variable.choices) > 1:
            label = as_text(choice)
            if any(label == other for other in variable.choices):
                label = f"{type(choice).__name__} {label}"
        labels[identity(choice)] = label
    return labels


def _trial(search: Search, distributions: Mapping[str, Any], jobs: Sequence[Job]) -> FrozenTrial:
    """Return the trial of some jobs, as far as it is known."""
    if not jobs:
        return create_trial(state=TrialState.FAIL)
    found, counting = of_trial(search, jobs)
    job, state = counting[-1], _STATES.get(found, TrialState.FAIL)
    memos = [one["memo"] for one in counting]
    values, steps = _values(search, state, memos)
    # The job has some value of a variable, too, whose condition does not hold for the trial.
    params = search.space.settled(job["params"])
    trial = create_trial(
        state=state,
        values=values,
        params={
            one.name: _labels(one)[identity(params[one.name])] if one.choices else params[one.name]
            for one in search.variables
            if one.name in params
        },
        distributions={name: one for name, one in distributions.items() if name in params},
        intermediate_values=steps,
        constraints=_constraints(search, state, params, memos),
        user_attrs={"job": str(job["id"]), "outcome": job["outcome"]},
    )
    trial.datetime_start = _time(job["t_run"] or job["t_submit"])
    trial.datetime_complete = _time(job["t_end"]) if state.is_finished() else None
    return trial


def _values(
    search: Search, state: TrialState, memos: Sequence[Mapping[str, Any]]
) -> tuple[list[float] | None, dict[int, float] | None]:
    """Return the values of a trial, and that of the step at which it was stopped early."""
    memo = memos[-1]
    try:
        value = search.aggregated([search.values(one) for one in memos])
    except ValueError:
        return None, None
    values = list(value) if isinstance(value, tuple) else [value]
    if state == TrialState.PRUNED and search.stop is not None:
        step = memo.get(search.stop.step)
        return values, {int(step): values[0]} if isinstance(step, (int, float)) else None
    return (values, None) if state == TrialState.COMPLETE else (None, None)


def _constraints(
    search: Search,
    state: TrialState,
    params: Mapping[str, Any],
    memos: Sequence[Mapping[str, Any]],
) -> dict[str, float]:
    """Return by how much a trial violates each constraint on outcomes, by the text of that."""
    if state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return {}
    try:
        violations = search.aggregated_each([search.violations(params, memo) for memo in memos])
    except ValueError:
        # One that was stopped early may have published too little.
        return {}
    return dict(zip(search.subject_to, violations, strict=True))


def _time(t: float | None) -> datetime.datetime | None:
    # As in Optuna: local time, without a time zone.
    return None if t is None else datetime.datetime.fromtimestamp(t)
