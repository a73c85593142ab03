"""Reads `jobs:`: entries become groups of job sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from flux_ensemble.document import jobspec, nextgen
from flux_ensemble.document.bounds import MAX_SHEET, MAX_VALUES
from flux_ensemble.document.feature import document_features
from flux_ensemble.document.inputs import check_inputs
from flux_ensemble.document.job_sets import (
    TAG_KEY,
    TAG_TAKEN,
    Group,
    JobSet,
    check_declared,
    replaced,
)
from flux_ensemble.document.jobspec import Task
from flux_ensemble.document.keys.forms import PARAMETER, matches
from flux_ensemble.document.keys.jobs import JOB_KEYS
from flux_ensemble.document.keys.overrides import GIVEN, SHAPE
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.plain_data import MAX_CHARACTERS, check_plain
from flux_ensemble.document.points import ALL, Points, RowSelection
from flux_ensemble.document.problems import Path, Problems, TooMany, dotted
from flux_ensemble.document.retries import Policy, Retries, read_retries
from flux_ensemble.document.sheet_rows import check_where
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.document.templates import most_expressions
from flux_ensemble.document.texts import check_sizes, measure, split_command
from flux_ensemble.document.values import ItemsError, parse_values
from flux_ensemble.document.variable import VARIABLE, VariableCheck, variable_text
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.conditions import Names
from flux_ensemble.metrics.job_fields import scope_of
from flux_ensemble.scalars import WRITTEN, as_text
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

_FILES = "files with jobspecs"

#: The keys of a parameter whose values are a column of a file.
FILE = "file"
OF_FILE = (FILE, "where", "limit")

#: Most expressions of all `retries` together.
MAX_EXPRESSIONS = 25_000


class GroupReader:
    """Reads the entries of `jobs:`.

    Args:
        document: the document, for the original text of numbers.
        problems: collects the problems.
        directory: the base of relative paths of files; None: they are on another machine.
        seed: the document's seed.
        files: the texts of files with jobspecs, as for `loading.LoadOptions`.
        names, statistics: names of all groups, and of the statistics that are kept.
        by: the metrics that are kept by value.

    >>> reader = GroupReader(Document({}), Problems(), directory=".", seed=0)
    >>> groups = reader.read([{"name": "md", "command": "run {t}", "params": {"t": [300, 310]}}])
    >>> len(groups["md"].submission())
    2
    """

    def __init__(
        self,
        document: Document,
        problems: Problems,
        *,
        directory: str | None,
        seed: int,
        files: dict[str, str] | None = None,
        names: Collection[str] = (),
        statistics: Collection[str] = (),
        by: Collection[ByValue] = (),
    ) -> None:
        self._names = names
        self._statistics = statistics
        self._by = by
        self._files = {} if files is None else files
        #: Caches of what many entries may share: split commands, and jobspecs in files with
        #: their problems.
        self._words: dict[str, tuple[str, ...]] = {}
        self._points = Points(self._points_text)
        self._variable_check = VariableCheck()
        self._read: dict[str, tuple[list[Task], Problems]] = {}
        #: Values and characters of files, and words and variables that jobspecs give job sets;
        #: expressions in `retries`.
        self._values = self._characters = self._expressions = 0
        self._document = document
        self._problems = problems
        self._directory = directory
        self._seed = seed
        #: All groups that were read, with problems or not: what rules say of their parameters.
        self.every: dict[str, Group] = {}

    def read(self, entries: Sequence[Any]) -> dict[str, Group]:
        """The groups without problems, by name, in the order of their first entries.

        Args:
            entries: the valid part of the list, as `check_form` returns it.
        """
        sets: dict[str, list[JobSet]] = {}
        places: dict[str, list[Path]] = {}
        for index, entry in enumerate(entries):
            if entry is not None and "name" in entry:
                at = ("jobs", index)
                own = sets.setdefault(entry["name"], [])
                made = self._entry(entry, at, len(own))
                for jobset in made:
                    self._check_sizes(jobset, at)
                own += made
                places.setdefault(entry["name"], []).append(at)
        self._points.shorten(self._files)
        self.every = {name: Group(name, tuple(own)) for name, own in sets.items()}
        for name, group in self.every.items():
            try:
                group.submission()
            except ValueError as error:
                self._problems.add(places[name][0], str(error))
        return {
            name: group
            for name, group in self.every.items()
            if not any(map(self._problems.blames, places[name]))
        }

    def _entry(self, entry: dict[str, Any], at: Path, index: int) -> list[JobSet]:
        """The job sets of an entry: one, or one for each task of a NextGen jobspec."""
        sweep = self._sweep(entry, at, index)
        variable = self._variable(entry, sweep, at)
        entry = {key: value for key, value in entry.items() if key not in variable}
        common = read_keys(JOB_KEYS, entry, self._problems, at)
        if "retries" in entry:
            common["retries"] = self._retries(entry, sweep, at)
        common["features"] = {
            feature.name: read
            for feature in document_features()
            if feature.read is not None
            and (read := feature.read(entry, sweep, self._problems, at)) is not None
        }
        common["environment"] = jobspec.read_environment(
            entry.get("environment", {}),
            self._problems,
            (*at, "environment"),
            self._document.text,
        )
        check_inputs(entry, self._problems, at)
        if TAG_KEY in entry.get("attributes", {}).get("user", {}):
            self._problems.add((*at, "attributes", "user", TAG_KEY), TAG_TAKEN)
        common["sweep"], common["variable"] = sweep, variable
        count = entry.get("count", 1)
        if "jobspec" in entry:
            return self._from_jobspec(entry, at, index, common, count)
        nodes = entry.get("nodes", 1)
        common["tasks"] = max(entry.get("tasks", nodes), nodes)
        return [JobSet(**common, index=index, command=self._command(entry, at), count=count)]

    def _retries(self, entry: dict[str, Any], sweep: Sweep, at: Path) -> Retries:
        at = (*at, "retries")
        retries = read_retries(entry["retries"], self._problems, at)
        names = Names(
            self._names,
            self._statistics,
            None,
            scope_of("job-fail", Known.END, entry.get("params", {}), entry),
            by=self._by,
        )
        self._expressions += len(retries.conditions) + most_expressions(retries.overrides)
        if self._expressions > MAX_EXPRESSIONS:
            self._problems.give_up(at, f"expected at most {MAX_EXPRESSIONS} expressions in retries")
        try:
            fixed = Policy(retries, names).fixed
            JobSet(entry["name"], 0, jobspec=entry.get("jobspec") and {}).overridden(fixed)
        except ValueError as error:
            self._problems.add(at, str(error))
            return retries
        given = (retries.overrides or {}).get(GIVEN, {})
        # Where the sweep has problems, there is no telling what its parameters are.
        if given and not (entry.get("params") and not sweep.names):
            try:
                check_declared(given, sweep.names, entry["name"])
                replaced(fixed.get(GIVEN, {}), sweep)
            except ValueError as error:
                self._problems.add((*at, "with"), str(error))
        return retries

    def _check_sizes(self, jobset: JobSet, at: Path) -> None:
        try:
            check_sizes(measure(jobset.texts()), jobset.sweep.sizes)
        except ValueError as error:
            self._problems.add(at, str(error))

    def _command(self, entry: dict[str, Any], at: Path) -> tuple[str, ...]:
        at = (*at, "command")
        if "command" not in entry:
            if not self._problems.blames(at):
                self._problems.add(at[:-1], "expected a command or a jobspec")
            return ()
        command = entry["command"]
        if isinstance(command, str):
            try:
                if command not in self._words:
                    self._words[command] = tuple(split_command(command))
                return self._words[command]
            except ValueError as error:
                self._problems.add(at, str(error))
                return ()
        if not command:
            self._problems.add(at, "expected a command of at least one word")
        return tuple(
            self._document.text((*at, index)) or as_text(word) for index, word in enumerate(command)
        )

    def _sweep(self, entry: dict[str, Any], at: Path, index: int) -> Sweep:
        kind, samples = entry.get("sweep", "product"), entry.get("samples", 0)
        values = {}
        rows = self._rows(entry.get("params", {}), (*at, "params"))
        for name, value in entry.get("params", {}).items():
            here = (*at, "params", name)
            if not matches(PARAMETER, name):
                self._problems.add(
                    here,
                    f"expected a parameter's name (letters, digits, '_' and '-', not a digit "
                    f"or '-' first), not {shown(name)}"
                    + (" (put a value with a comma in quotes)" if name.endswith(")") else ""),
                )
            given = self._values_of(name, value, here, rows)
            if given is not None:
                values[name] = given
        if not values:
            for key in ("sweep", "samples"):
                if key in entry and "params" not in entry:
                    self._problems.add((*at, key), f"{key!r} needs 'params'")
            return Sweep()
        sweep = Sweep(values, kind, samples, f"{self._seed}:{entry['name']}:{index}")
        return sweep if self._fits(sweep, entry, at) else Sweep()

    def _variable(self, entry: dict[str, Any], sweep: Sweep, at: Path) -> dict[str, str]:
        """The keys whose values are text with a parameter."""
        variable: dict[str, str] = {}
        params = sweep.params or {}
        for key in VARIABLE:
            text = entry.get(key)
            if not isinstance(text, str) or (key == "duration" and "{" not in text):
                continue
            if "jobspec" in entry and key in SHAPE:
                continue
            variable[key] = text
            # Where the sweep has problems, there is no telling what its parameters are.
            if self._problems.blames((*at, "params")) or (entry.get("params") and not params):
                continue
            try:
                name = variable_text(key, text, params)
                self._variable_check.check(key, text, name, params[name])
            except ValueError as error:
                self._problems.add((*at, key), str(error))
        if "nodes" in variable and "tasks" not in entry:
            variable["tasks"] = variable["nodes"]
        return variable

    def _rows(self, params: Mapping[str, Any], at: Path) -> dict[str, RowSelection]:
        """The rows that are chosen of files, by the file's name."""
        rows: dict[str, RowSelection] = {}
        for name, value in params.items():
            if not isinstance(value, dict) or not isinstance(file := value.get(FILE), str):
                continue
            here = (*at, name)
            for key in ("where", "limit"):
                given = value.get(key)
                if given is None or not self._is_choice(key, given, (*here, key)):
                    continue
                known = rows.get(file, ALL._replace(at=here))
                there = getattr(known, key)
                if there not in (None, given):
                    self._problems.add(
                        (*here, key),
                        f"{dotted(known.at)} has another {key!r} for {shown(file)}, "
                        f"{shown(there)}: columns of one file go side by side, so give it at one "
                        "of them",
                    )
                elif there is None:
                    rows[file] = known._replace(**{key: given})
        return rows

    def _is_choice(self, key: str, given: Any, at: Path) -> bool:
        """Return whether a value can be the `where` or the `limit` of a file."""
        try:
            if key == "where":
                check_where(given)
            elif type(given) is not int or given < 1:
                raise ValueError(f"expected an integer >= 1, not {shown(given)}")
        except ValueError as error:
            self._problems.add(at, str(error))
            return False
        return True

    def _values_of(
        self, name: str, value: Any, at: Path, rows: Mapping[str, RowSelection]
    ) -> Sequence[Any] | None:
        """The values of a parameter; None if there are problems."""
        try:
            if isinstance(value, dict) and FILE in value:
                for key in value:
                    if key not in OF_FILE:
                        keys = f"{hint(key, OF_FILE)}keys beside {FILE!r}: where, limit"
                        self._problems.add((*at, key), f"a file has no key {shown(key)} ({keys})")
                if self._problems.blames(at):
                    return None
                file = value[FILE]
                chosen = rows.get(file, ALL) if isinstance(file, str) else ALL
                return self._points.column(file, name, self._problems, at, chosen)
            if (
                isinstance(value, dict)
                and value
                and value.keys() != {WRITTEN}
                and not any(item is not None for item in value.values())
            ):
                raise ValueError(
                    f"expected a list in brackets, [{listed(value)}], and not in braces"
                )
            if not value and self._problems.blames(at):
                # What was wrong in it was left out.
                return None
            return parse_values(value)
        except ItemsError as error:
            for path, message in error.messages.items():
                # What is known to be wrong is null here.
                if not self._problems.blames((*at, *path)):
                    self._problems.add((*at, *path), message)
            return None
        except ValueError as error:
            self._problems.add(at, str(error))
            return None

    def _points_text(self, name: str, problems: Problems) -> str | None:
        what = "parameter values"
        files, most = self._files, MAX_SHEET
        return jobspec.read_file(name, self._directory, problems, (), files, what, most)

    def _fits(self, sweep: Sweep, entry: dict[str, Any], at: Path) -> bool:
        add = self._problems.add
        if sweep.kind != "sample" and "samples" in entry:
            add((*at, "samples"), "'samples' is only for 'sweep: sample'")
        if sweep.kind == "sample" and not sweep.samples:
            if not self._problems.blames((*at, "samples")):
                add((*at, "sweep"), "'sweep: sample' needs 'samples', the number to draw")
            return False
        try:
            sweep.check()
        except ValueError as error:
            add((*at, "params"), str(error))
            return False
        if sweep.kind == "sample" and sweep.samples > sweep.combinations:
            add(
                (*at, "samples"),
                f"expected at most {sweep.combinations} samples, as there are no more "
                f"combinations, not {sweep.samples}",
            )
        return True

    def _from_jobspec(
        self,
        entry: dict[str, Any],
        at: Path,
        index: int,
        common: dict[str, Any],
        count: int,
    ) -> list[JobSet]:
        for key in JOB_KEYS:
            if key.in_jobspec and key.name in entry:
                self._problems.add(
                    (*at, key.name),
                    f"{key.name!r} cannot be combined with 'jobspec', which says it itself",
                )
            if key.in_jobspec:
                common.pop(key.name, None)
        at = (*at, "jobspec")
        value = entry["jobspec"]
        tasks = self._from_file(value, at) if isinstance(value, str) else self._tasks(value, at)
        made = []
        for task in tasks:
            environment = self._environment(task, common["environment"], at)
            made.append(_jobset(task, {**common, "environment": environment}, index, count))
            index += 1
        return made

    def _environment(self, task: Task, own: dict[str, str], at: Path) -> dict[str, str]:
        """The environment of a job set: the jobspec's, then the entry's."""
        layers = (*task.environments, own)
        self._count(len(task.command) + sum(map(len, layers)), self._problems, at)
        merged: dict[str, str] = {}
        for layer in layers:
            merged |= layer
        return merged

    def _from_file(self, name: str, at: Path) -> list[Task]:
        """The tasks of the jobspec in a file. The file is read once."""
        if name not in self._read:
            self._read[name] = self._read_file(name)
        tasks, problems = self._read[name]
        self._problems.take(problems, at)
        return tasks

    def _read_file(self, name: str) -> tuple[list[Task], Problems]:
        problems = Problems()
        with suppress(TooMany):
            text = jobspec.read_file(name, self._directory, problems, (), self._files)
            if text is None:
                return [], problems
            self._characters += len(text)
            if self._characters > MAX_CHARACTERS:
                problems.give_up((), f"expected at most {MAX_CHARACTERS} characters in {_FILES}")
            read = jobspec.parse_file(name, text, problems, ())
            # One that cannot be parsed took its time too; most values have two characters.
            self._count(len(text) // 2 if read is None else read.size, problems)
            if read is not None and not check_plain(read.value, problems):
                return self._tasks(read.value, (), problems), problems
        return [], problems

    def _tasks(
        self, value: dict[str, Any], at: Path, problems: Problems | None = None
    ) -> list[Task]:
        """The tasks of a jobspec; none if it has problems."""
        problems = self._problems if problems is None else problems
        if not isinstance(value.get("resources"), list):
            return nextgen.convert(value, problems, at)
        task = jobspec.check_v1(value, problems, at)
        return [] if task is None else [task]

    def _count(self, values: int, problems: Problems, at: Path = ()) -> None:
        """Count values that come from files or that many job sets share.

        Raises:
            TooMany: there are more than `MAX_VALUES`.
        """
        self._values += values
        if self._values > MAX_VALUES:
            problems.give_up(
                at,
                f"expected at most {MAX_VALUES} values in {_FILES}, and words and variables of the "
                f"jobs in all jobspecs",
            )


def _jobset(task: Task, common: Mapping[str, Any], index: int, count: int) -> JobSet:
    own: dict[str, Any] = {"duration": task.duration}
    if task.cwd is not None:
        own["workdir"] = task.cwd
    return JobSet(
        **{**own, **common},
        **task.size,
        index=index,
        command=tuple(task.command),
        count=count * task.replicas,
        jobspec=task.jobspec,
    )
