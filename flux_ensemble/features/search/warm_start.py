"""Trials of others from which a search learns before its own: `warm-start`.

    CSV, JSON, a journal of Optuna ──► records ──► trials of the search's space

A record is a mapping of columns, as an export of an ensemble has them (`params.lr`, `memo.loss`,
`trial_state`), or as people write them (`lr`, `loss`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from flux_ensemble.document.bounds import MAX_BYTES
from flux_ensemble.document.feature import Sources
from flux_ensemble.document.points import cells_of
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.features.search.journals import JournalStudy, studies
from flux_ensemble.features.search.model import (
    MAX_TOLD,
    MAX_TOLD_VALUES,
    PriorTrial,
    Search,
    Value,
    WarmStart,
)
from flux_ensemble.features.search.paths import INFEASIBLE
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.own_command import own_command
from flux_ensemble.scalars import number, packed, unpacked
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown
from flux_ensemble.words import COMPLETE, counted

#: What the columns of exports begin with, of parameters and of memos.
_PARAMS, _MEMO = "params.", "memo."

_SHEETS, _JSON, _LINES, _JOURNALS = (".csv", ".tsv"), (".json",), (".jsonl",), (".journal", ".log")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_FILES = (*_SHEETS, *_JSON, *_LINES, *_JOURNALS, *_DATABASES)
_KINDS = ".csv, .tsv, .json, .jsonl or .journal"

#: The objectives of a search of a status, and their directions.
_WAYS = ("objective", "direction")

#: What is left out as a matter of course.
_UNENDED = "without a value of each objective, which failed, were stopped or had not ended"


class _Unfit(ValueError):
    """A record is no trial of the search's space; the text says why."""


@dataclass
class _Records:
    """The trials of a file: the place of each, and its columns."""

    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(dict.fromkeys(name for _, row in self.rows for name in row if name))


def read_warm_start(
    entry: Mapping[str, Any], search: Search, sources: Sources, at: Path, problems: Problems
) -> WarmStart:
    """Read the trials of others; those of files that do not fit are left out.

    Args:
        entry: the valid part of `warm-start`.
        search: the search.
        sources: the files and jobs that the document names.
        at: where the document has it.
        problems: collects the problems.
    """
    told: list[PriorTrial] = []
    for index, given in enumerate(entry.get("trials", ())):
        here = (*at, "trials", index)
        if given is not None and not problems.blames(here):
            try:
                told.append(_written(search, {key: unpacked(one) for key, one in given.items()}))
            except ValueError as error:
                problems.add(here, str(error))
    given = entry.get("from", ())
    files = [given] if isinstance(given, str) else [one for one in given if one is not None]
    if "study" in entry and files and not any(map(_is_journal, files)):
        problems.add((*at, "study"), "expected none, because 'from' has no journal of Optuna")
    left_out: list[tuple[str, bool]] = []
    for file in files:
        here = (*at, "from") if isinstance(given, str) else (*at, "from", given.index(file))
        # What is no file by its name may be the name of an ensemble.
        text = None
        if PurePath(file).suffix.lower() not in _FILES:
            try:
                text = sources.jobs(file)
            except ValueError as error:
                problems.add(here, str(error))
                continue
        if text is None and _has_kind(file, here, problems):
            text = sources.text(file, here)
        if text is None:
            continue
        if len(text) > MAX_BYTES:
            problems.add(here, f"expected at most {MAX_BYTES} bytes in {file!r}")
            continue
        try:
            reading = _Reading(search, file)
            told += reading.told(text, entry.get("study"))
        except ValueError as error:
            problems.add(here, str(error))
        left_out += reading.left_out
    values = len(told) * (len(search.variables) + len(_published(search)))
    if len(told) > MAX_TOLD:
        problems.add(at, f"expected at most {MAX_TOLD} trials, not {len(told)}")
    elif values > MAX_TOLD_VALUES:
        problems.add(at, f"expected at most {MAX_TOLD_VALUES} values in all trials, not {values}")
    return WarmStart(tuple(told), tuple(files), tuple(left_out))


def written(search: Search) -> dict[str, Any]:
    """Return a `warm-start` that has the trials themselves, and needs no file."""
    keys = [objective.key for objective in search.objectives]
    return {
        "trials": [
            {
                **{
                    name: None if value is None else packed(value)
                    for name, value in search.named(one.params).items()
                },
                **one.memo,
                **dict(zip(keys, _each(one.value), strict=True)),
            }
            for one in search.warm_start.trials
        ]
    }


def _each(value: Value) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


def _published(search: Search) -> list[str]:
    """Return what trials publish that is needed: objectives, and what constraints name."""
    objectives = (objective.key for objective in search.objectives)
    return list(dict.fromkeys((*objectives, *(one for of in search.outcomes for one in of.keys))))


def _is_journal(file: str) -> bool:
    return PurePath(file).suffix.lower() in _JOURNALS


def _has_kind(file: str, at: Path, problems: Problems) -> bool:
    """Return whether a file can be read by its name; else there is a problem."""
    suffix = PurePath(file).suffix.lower()
    if suffix in (*_SHEETS, *_JSON, *_LINES, *_JOURNALS):
        return True
    name = PurePath(file).name
    if suffix in _DATABASES:
        way = (
            "a database of Optuna becomes a journal with optuna.copy_study, and the jobs of an "
            f"ensemble a CSV file with '{own_command('export', 'NAME', 'FILE.csv')}'"
        )
    else:
        command = own_command("export", name, f"{name}.csv")
        way = f"'{command}' writes the trials of an ensemble {name!r} that is elsewhere"
    what = f"a file that ends in {_KINDS}, or the name of an ensemble"
    problems.add(at, f"expected {what}, not {shown(file)}: {way}")
    return False


def _written(search: Search, row: Mapping[str, Any]) -> PriorTrial:
    """Return a trial that the document has itself.

    Raises:
        ValueError: it is none of the search.
    """
    keys = _published(search)
    names = [variable.name for variable in search.variables]
    for name in row:
        if name not in names and name not in keys:
            known = [*names, *keys]
            raise ValueError(
                f"no variable and no objective {shown(name)} ({hint(name, known)}variables: "
                f"{listed(names)}; objectives: {listed(keys)})"
            )
    for key in keys:
        if _number(row.get(key)) is None:
            given = f", not {shown(row[key])}" if key in row else ""
            raise ValueError(f"{key}: expected a finite number, which a trial publishes{given}")
    return _told(search, row, {key: row[key] for key in keys})


def _told(search: Search, params: Mapping[str, Any], memo: Mapping[str, Any]) -> PriorTrial:
    """Return a trial with these values of variables, and what it published.

    Raises:
        _Unfit: it is none of the search's space.
    """
    row = _row(search, params)
    numbers = {key: _number(value) or 0.0 for key, value in memo.items()}
    values = tuple(numbers[objective.key] for objective in search.objectives)
    needed = {key: numbers[key] for of in search.outcomes for key in of.keys}
    told = PriorTrial(row, values if search.several else values[0], needed)
    try:
        search.violated_by(told)
    except ValueError as error:
        raise _Unfit(str(error)) from None
    return told


def _row(search: Search, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the parameters of a trial, in the order of the variables.

    Raises:
        _Unfit: they are no point of the space.
    """
    space = search.space
    variables = {variable.name: variable for variable in search.variables}
    known: dict[str, Any] = {}
    for name in space.order:
        variable = variables[name]
        # The jobs of a trial have some value of a variable, too, whose condition does not hold.
        if not space.has(name, known):
            continue
        value = given.get(name)
        if value is None and not (name in given and None in variable.choices):
            raise _Unfit(f"it has no value of {name!r}")
        try:
            known[name] = variable.read(value)
        except ValueError as error:
            raise _Unfit(f"{name}: {error}") from None
    broken = space.broken(known)
    if broken is not None:
        raise _Unfit(f"'where' leaves it out: {search.where[broken]}")
    return search.row_of(known)


def _number(given: Any) -> float | None:
    """Return the finite number that somebody wrote, perhaps as text; None if it is none."""
    value = number(given)
    if type(value) is bool:
        return float(value)
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return None
    return finite(value) if type(value) in (int, float) else None


def _no_number(memo: Mapping[str, Any]) -> str | None:
    """Return which value of a trial is none that can be read; None if each is a number, or absent.

    >>> _no_number({"loss": "nan", "cost": "0.01 J"})
    "cost: expected a number, not '0.01 J'"
    """
    for key, value in memo.items():
        if value is None or type(number(value)) in (int, float, bool):
            continue
        try:
            float(value)
        except (TypeError, ValueError):
            return f"{key}: expected a number, not {shown(value)}"
    return None


class _Reading:
    """The reading of one file.

    Args:
        search: the search.
        file: its name.

    Attributes:
        left_out: sentences about records that are left out, each with whether that is usual.
    """

    def __init__(self, search: Search, file: str) -> None:
        self._search = search
        self._file = file
        self.left_out: list[tuple[str, bool]] = []

    def told(self, text: str, study: str | None) -> list[PriorTrial]:
        """Return the trials of a file.

        Args:
            text: its content.
            study: the name of the study, where a journal has several.

        Raises:
            ValueError: it has none that can be used; the message names the file.
        """
        records = self._records(text, study)
        if not records.rows:
            raise ValueError(f"{self._file}: expected at least one trial")
        columns = records.columns
        of = {
            one.name: self._column(one.name, _PARAMS, columns, "variable", one.when is None)
            for one in self._search.variables
        }
        objectives = {one.key for one in self._search.objectives}
        published = {
            key: self._column(
                key, _MEMO, columns, "objective" if key in objectives else "constraint", True
            )
            for key in _published(self._search)
        }
        trials: dict[Any, list[PriorTrial]] = {}
        unended, unread, unfit = 0, [], []
        for place, (where, row) in enumerate(self._of_search(records)):
            memo = {key: row.get(one) for key, one in published.items()}
            has_ended = row.get("trial_state", COMPLETE) in (COMPLETE, INFEASIBLE)
            if has_ended and (words := _no_number(memo)):
                unread.append(f"{where}: {words}")
                continue
            if not has_ended or None in map(_number, memo.values()):
                unended += 1
                continue
            try:
                given = {name: row[one] for name, one in of.items() if one in row}
                told = _told(self._search, given, memo)
            except _Unfit as error:
                unfit.append(f"{where}: {error}")
                continue
            # The jobs of a trial with `repeats` are one trial.
            key = ("trial", row["trial"]) if row.get("trial") is not None else place
            trials.setdefault(key, []).append(told)
        self._note(unended, unread, unfit)
        if not trials:
            first = next(iter((*unread, *unfit)), None)
            raise ValueError(first or f"{self._file}: there are only trials {_UNENDED}")
        return [self._aggregated(jobs) for jobs in trials.values()]

    def _aggregated(self, jobs: Sequence[PriorTrial]) -> PriorTrial:
        """Return the trial that some jobs are."""
        first, *others = jobs
        if not others:
            return first
        each = [[one.memo[key] for key in first.memo] for one in jobs]
        memo = dict(zip(first.memo, self._search.aggregated_each(each), strict=False))
        return PriorTrial(first.params, self._search.aggregated([one.value for one in jobs]), memo)

    def _note(self, unended: int, unread: Sequence[str], unfit: Sequence[str]) -> None:
        if unended:
            sentence = f"{_left_out(unended)} {_UNENDED}"
            self.left_out.append((f"{self._file}: {sentence}", True))
        of = "whose value is no number", "that the space does not have"
        for which, sentences in zip(of, (unread, unfit), strict=True):
            if sentences:
                sentence = f"{_left_out(len(sentences))} {which}, the first at {sentences[0]}"
                self.left_out.append((f"{self._file}: {sentence}", False))

    def _column(
        self, name: str, prefix: str, columns: Sequence[str], what: str, needed: bool
    ) -> str:
        """Return the column of a variable, or of an objective."""
        if f"{prefix}{name}" in columns:
            return f"{prefix}{name}"
        if name not in columns and needed:
            own = {one.name for one in self._search.variables}
            own |= set(_published(self._search))
            others = [one for one in columns if one.removeprefix(prefix) not in own]
            raise ValueError(
                f"{self._file}: no column {name!r}, and the search has this {what} "
                f"({hint(name, others)}columns: {listed(columns)})"
            )
        return name

    def _of_search(self, records: _Records) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the records of one search; an export has those of all jobs.

        Raises:
            ValueError: it is not clear which.
        """
        if "trial" not in records.columns or "group" not in records.columns:
            yield from records.rows
            return
        rows = [one for one in records.rows if one[1].get("trial") is not None]
        groups = Counter(str(row.get("group")) for _, row in rows)
        group = self._search.group if self._search.group in groups else next(iter(groups), None)
        if group != self._search.group and len(groups) != 1:
            raise ValueError(
                f"{self._file}: expected trials of the group {self._search.group!r} "
                f"(those of searches: {listed(groups)})"
            )
        yield from (one for one in rows if str(one[1].get("group")) == group)

    # -- the forms of files -----------------------------------------------------------

    def _records(self, text: str, study: str | None) -> _Records:
        suffix = PurePath(self._file).suffix.lower()
        if suffix in _JOURNALS:
            return self._of_journal(studies(self._file, text), study)
        if suffix in _SHEETS:
            rows = [(f"{self._file}:{line}", row) for line, row in cells_of(self._file, text)]
            if not text.strip():
                raise ValueError(f"{self._file}: the file is empty")
            if not rows:
                raise ValueError(
                    f"{self._file}: expected a line for each trial below that of the columns"
                )
            return _Records(rows)
        return self._of_json(text, lines=suffix not in _JSON)

    def _of_json(self, text: str, *, lines: bool) -> _Records:
        try:
            if lines:
                given: Any = [json.loads(line) for line in text.splitlines() if line.strip()]
            else:
                given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self._file}: expected JSON: {error}") from None
        if isinstance(given, dict) and isinstance(given.get("searches"), list):
            given = self._of_searches(given["searches"])
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise ValueError(
                f'{self._file}: expected a list of mappings such as {{"lr": 0.01, "loss": '
                f"0.5}}, not {shown(given)}"
            )
        if lines and given and "recording" in given[0] and "document" in given[0]:
            name = str(given[0].get("name"))
            command = own_command("export", name, f"{name}.csv")
            raise ValueError(
                f"{self._file}: expected trials, not a recording: '{command}' writes those of "
                f"the ensemble {shown(name)}"
            )
        if given and PurePath(self._file).suffix.lower() not in _FILES:
            # Those of an ensemble, after its searches.
            self._check_searches(given.pop(0)["searches"])
        records = _Records()
        for place, row in enumerate(given, 1):
            records.rows.append((f"{self._file}: item {place}", _flat(row)))
        return records

    def _of_searches(self, searches: Sequence[Any]) -> list[Any]:
        """Return the trials that `search NAME --json` shows: all, or of too many the best ones."""
        by_id = {one.get("id"): one for one in searches if isinstance(one, dict)}
        found = by_id.get(self._search.id)
        if found is None and len(by_id) == 1:
            (found,) = by_id.values()
        if found is None:
            raise ValueError(
                f"{self._file}: no search {self._search.id!r} (searches: {listed(map(str, by_id))})"
            )
        keys = str(found.get("objective")).split(", ")
        ways = str(found.get("direction")).split(", ")
        self._check_ways(dict(zip(keys, (way == "maximize" for way in ways), strict=False)))
        trials = found.get("all_trials")
        if isinstance(trials, list) and 0 < len(trials) <= MAX_TOLD:
            # With their states, as an export has them.
            return trials
        if missing := [key for key in _published(self._search) if key not in keys]:
            command = own_command("export", "NAME", "NAME.csv")
            raise ValueError(
                f"{self._file}: what 'search --json' prints has no {listed(missing)}, which "
                f"'subject-to' names: '{command}' writes all"
            )
        shown = found.get("front") or found.get("best") or []
        return [
            {
                **one.get("params", {}),
                **dict(zip(keys, one.get("values") or [one.get("value")], strict=False)),
            }
            for one in shown
        ]

    def _check_searches(self, searches: Sequence[Mapping[str, Any]]) -> None:
        """Check the directions of the search of an ensemble whose trials are read."""
        own = [one for one in searches if one["group"] == self._search.group]
        for one in own or (searches if len(searches) == 1 else ()):
            ways = dict(zip(*(one[key].split(", ") for key in _WAYS), strict=True))
            known = {objective.key: objective.direction for objective in self._search.objectives}
            # What was a metric there may be an objective here.
            self._check_ways({key: ways.get(key, way) == "maximize" for key, way in known.items()})

    def _check_ways(self, maximize: Mapping[str, bool]) -> None:
        """Check that trials were made for the same objectives, in the same directions."""
        for objective in self._search.objectives:
            if objective.key not in maximize:
                raise ValueError(
                    f"{self._file}: no objective {objective.key!r} (objectives: {listed(maximize)})"
                )
            if maximize[objective.key] != objective.maximize:
                other = "minimized" if objective.maximize else "maximized"
                raise ValueError(
                    f"{self._file}: {objective.key!r} is {other} there, and the search is to "
                    f"{objective.direction} it"
                )

    def _of_journal(self, found: Sequence[JournalStudy], name: str | None) -> _Records:
        study = self._study(found, name)
        keys = [objective.key for objective in self._search.objectives]
        if len(study.maximize) != len(keys):
            raise ValueError(
                f"{self._file}: study {study.name!r} has {len(study.maximize)} objectives, and the "
                f"search {len(keys)}"
            )
        # Studies of others have no names of objectives: theirs are in the order of the document.
        named = study.objectives if len(study.objectives) == len(keys) else keys
        self._check_ways(dict(zip(named, study.maximize, strict=True)))
        variables = [variable.name for variable in self._search.variables]
        records = _Records()
        for place, trial in enumerate(study.trials):
            for other in trial.params:
                if other not in variables:
                    raise ValueError(
                        f"{self._file}: study {study.name!r} has a variable {other!r}, which the "
                        f"search has not ({hint(other, variables)}variables: {listed(variables)})"
                    )
            ended = zip(named, trial.values, strict=False) if trial.complete else ()
            row = {**trial.params, **dict.fromkeys(named), **dict(ended)}
            records.rows.append((f"{self._file}: trial {place}", row))
        return records

    def _study(self, found: Sequence[JournalStudy], name: str | None) -> JournalStudy:
        names = [study.name for study in found]
        if name is None and len(found) > 1:
            # An export names each study after its ensemble and its search.
            own = [one for one in names if one.rpartition("/")[2] == self._search.id]
            name = own[0] if len(own) == 1 else None
            if name is None:
                raise ValueError(
                    f"{self._file}: there are {len(found)} studies: give 'study', one of "
                    f"{listed(names)}"
                )
        if not found or name not in (None, *names):
            raise ValueError(
                f"{self._file}: no study {shown(name)} ({hint(name or '', names)}studies: "
                f"{listed(names)})"
            )
        return next(study for study in found if name in (None, study.name))


def _left_out(many: int) -> str:
    return f"{counted(many, 'trial')} {'is' if many == 1 else 'are'} left out"


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job of an export, or a mapping that people wrote, as a row of a sheet."""
    made: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and key in ("params", "memo"):
            made |= {f"{key}.{name}": _scalar(one) for name, one in value.items()}
        else:
            made[key] = _scalar(value)
    return made


def _scalar(value: Any) -> Any:
    # `written` is how JSON keeps the spelling of a number.
    return unpacked(value) if isinstance(value, Mapping) and value.keys() == {"written"} else value
