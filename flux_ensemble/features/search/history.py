"""The searches of an ensemble, and all of their trials, from its log and the rows of its jobs.

log ──► searches ─┬─► `export --to optuna`
jobs ─────────────┴─► `search NAME --json`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.document.spellings import with_spellings
from flux_ensemble.document.yaml_reader import read_yaml
from flux_ensemble.eventlog import Load, read
from flux_ensemble.features.search.model import Search, Variable, searches_of
from flux_ensemble.features.search.outcomes import published, violated
from flux_ensemble.texts import one_line
from flux_ensemble.words import ACTIVE, COMPLETE, INFEASIBLE

Job = Mapping[str, Any]


class StudyError(Exception):
    """An error: no search can be shown or written; the text is one sentence."""


def logged_searches(entries: Iterable[Mapping[str, Any]]) -> tuple[Search, ...]:
    """Return the searches of the document at the beginning of an eventlog.

    Args:
        entries: the oldest first.

    Raises:
        StudyError: there are none.
    """
    for entry in map(read, entries):
        if isinstance(entry, Load):
            document = entry.document
            return _searches(
                with_spellings(read_yaml(document)[0]) if isinstance(document, str) else document
            )
    raise StudyError(
        "the log does not have the document any more, which says what the searches are"
    )


def _searches(document: Any) -> tuple[Search, ...]:
    """Return the searches of a document, whatever files the rest of it needs."""
    searches = list(document.get("search") or ())
    if not searches:
        raise StudyError("the ensemble has no search")
    groups = [{"name": one["group"], "command": "true"} for one in searches]
    limits = {key: document[key] for key in ("limits",) if key in document}
    start = {"trigger": "start", "action": {"name": "search", "label": searches[0]["id"]}}
    made = {"name": "searches", "search": searches, "jobs": groups, "rules": [start], **limits}
    try:
        return searches_of(load_mapping(made))
    except DocumentError as error:
        raise StudyError(f"its document cannot be read again: {one_line(str(error))}") from None


def in_full(search: Search, jobs: Iterable[Job]) -> dict[str, Any]:
    """Return what a search tries, and all of its trials, as JSON.

    Args:
        search: of the document.
        jobs: of its group, as `Client.jobs` returns them, all attempts.

    >>> from flux_ensemble.features.search.model import Objective
    >>> search = Search("hpo", "trial", (Variable("lr", 0.0, 1.0),), (Objective("loss"),))
    >>> job = {"id": 7, "params": {"lr": 0.5}, "memo": {"loss": 2}, "trial": 0}
    >>> told = in_full(search, [{**job, "trial_state": "complete"}])
    >>> told["variables"]
    {'lr': {'low': 0.0, 'high': 1.0, 'log': False, 'integer': False}}
    >>> told["all_trials"][0]["trial_state"], told["all_trials"][0]["memo"]
    ('complete', {'loss': 2.0})
    """
    by_trial: dict[int, list[Job]] = {}
    for job in jobs:
        if job.get("trial") is not None:
            by_trial.setdefault(job["trial"], []).append(job)
    return {
        "variables": {one.name: _range(one) for one in search.variables},
        **({"where": list(search.where)} if search.where else {}),
        "all_trials": [_trial(search, number, by_trial[number]) for number in sorted(by_trial)],
    }


def of_trial(search: Search, jobs: Sequence[Job]) -> tuple[str, Sequence[Job]]:
    """Return the state of a trial, and those of its jobs that have its value.

    The last job decides; with `repeats` those that have a value.
    """
    complete = [
        one for one in jobs if search.repeats > 1 and one["trial_state"] in (COMPLETE, INFEASIBLE)
    ]
    counting = complete or jobs[-1:]
    if any(one["trial_state"] == ACTIVE for one in jobs[-search.repeats :]):
        return ACTIVE, counting
    return counting[-1]["trial_state"], counting


def _range(variable: Variable) -> dict[str, Any]:
    """Return a variable as a document can have it."""
    told = {key: value for key, value in variable.to_json().items() if key != "name"}
    # A document has its choices as they are written.
    return {**told, "choices": list(variable.choices)} if variable.choices else told


def _trial(search: Search, number: int, jobs: Sequence[Job]) -> dict[str, Any]:
    state, counting = of_trial(search, jobs)
    given = counting[-1]["params"]
    # The job has some value of a variable, too, whose condition does not hold for the trial.
    params = search.space.settled(
        {one.name: given[one.name] for one in search.variables if one.name in given}
    )
    if search.repeats > 1 and search.subject_to and state in (COMPLETE, INFEASIBLE):
        each = [search.violations(params, job["memo"]) for job in counting]
        state = INFEASIBLE if violated(search.aggregated_each(each)) else COMPLETE
    objectives = [objective.key for objective in search.objectives]
    others = {key for outcome in search.outcomes for key in outcome.keys} - {*objectives}
    memos = [job["memo"] for job in counting]
    return {
        "trial": number,
        "trial_state": state,
        "params": params,
        "memo": {
            key: _aggregated(search, key, memos, or_boolean=key in others)
            for key in (*objectives, *sorted(others))
        },
        "jobs": [job["id"] for job in jobs],
    }


def _aggregated(
    search: Search, key: str, memos: Sequence[Mapping[str, Any]], *, or_boolean: bool
) -> float | None:
    """Return what a trial has published under a key; None if that is no number."""
    try:
        values = [float(published(memo, key, or_boolean=or_boolean)) for memo in memos]
    except ValueError:
        return None
    aggregated = search.aggregated(values)
    return None if isinstance(aggregated, tuple) else aggregated
