"""The entries of `jobs:` → groups of job sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flux_ensemble.spec import jobspec, nextgen
from flux_ensemble.spec.documents import Document
from flux_ensemble.spec.duration import parse_duration
from flux_ensemble.spec.model import TAG_KEY, Group, JobSet
from flux_ensemble.spec.plain import check_plain
from flux_ensemble.spec.problems import Path, Problems, shown
from flux_ensemble.spec.schema import PARAMETER, matches
from flux_ensemble.spec.sweep import Sweep, parse_values

#: What a jobspec says itself.
_IN_JOBSPEC = ("command", "nodes", "tasks", "cores", "gpus", "exclusive")

#: Keys of an entry that are fields of a job set as they are.
_AS_GIVEN = ("workdir", "output", "error", "queue", "bank", "urgency", "attributes", "retries")


class GroupReader:
    """Reads the entries of `jobs:`.

    Args:
        document: the document, for numbers as they are written.
        problems: what is wrong is added to these.
        directory: what the path of a jobspec is relative to.
        seed: the document's seed.
        files: the texts of files with jobspecs, as for `loading.load_text`.
    """

    def __init__(
        self,
        document: Document,
        problems: Problems,
        *,
        directory: str,
        seed: int,
        files: dict[str, str] | None = None,
    ) -> None:
        self._files = {} if files is None else files
        self._document = document
        self._problems = problems
        self._directory = directory
        self._seed = seed

    def read(self, entries: Sequence[Any]) -> dict[str, Group]:
        """The groups without problems, by name, in the order of their first entries.

        Args:
            entries: what `check_form` left of the list.
        """
        sets: dict[str, list[JobSet]] = {}
        places: dict[str, list[Path]] = {}
        for index, entry in enumerate(entries):
            if entry is not None and "name" in entry:
                at = ("jobs", index)
                own = sets.setdefault(entry["name"], [])
                own += self._entry(entry, at, len(own))
                places.setdefault(entry["name"], []).append(at)
        groups = {name: Group(name, tuple(own)) for name, own in sets.items()}
        for name, group in groups.items():
            try:
                group.submission()
            except ValueError as error:
                self._problems.add(places[name][0], str(error))
        return {
            name: group
            for name, group in groups.items()
            if not any(map(self._problems.blames, places[name]))
        }

    def _entry(self, entry: dict[str, Any], at: Path, index: int) -> list[JobSet]:
        """The job sets of an entry: one, or one for each task of a NextGen jobspec."""
        common: dict[str, Any] = {key: entry[key] for key in _AS_GIVEN if key in entry}
        common["name"] = entry["name"]
        common["environment"] = jobspec.read_environment(
            entry.get("environment", {}),
            self._problems,
            (*at, "environment"),
            self._document.text,
        )
        if TAG_KEY in entry.get("attributes", {}).get("user", {}):
            self._problems.add(
                (*at, "attributes", "user", TAG_KEY),
                f"the user attribute {TAG_KEY!r} is where flux-ensemble marks its jobs",
            )
        common["sweep"] = self._sweep(entry, at, index)
        count = entry.get("count", 1)
        duration = None
        if "duration" in entry:
            try:
                duration = parse_duration(entry["duration"])
            except ValueError as error:
                self._problems.add((*at, "duration"), str(error))
        if "jobspec" in entry:
            return self._from_jobspec(entry, at, index, common, count, duration)
        nodes = entry.get("nodes", 1)
        one = JobSet(
            **common,
            index=index,
            command=self._command(entry, at),
            count=count,
            nodes=nodes,
            tasks=max(entry.get("tasks", nodes), nodes),
            cores=entry.get("cores", 1),
            gpus=entry.get("gpus", 0),
            exclusive=entry.get("exclusive", False),
            duration=duration or 0.0,
        )
        return [one]

    def _command(self, entry: dict[str, Any], at: Path) -> tuple[str, ...]:
        at = (*at, "command")
        if "command" not in entry:
            if not self._problems.blames(at):
                self._problems.add(at[:-1], "expected a command or a jobspec")
            return ()
        command = entry["command"]
        if isinstance(command, str):
            try:
                return tuple(jobspec.split_command(command))
            except ValueError as error:
                self._problems.add(at, str(error))
                return ()
        if not command:
            self._problems.add(at, "expected a command of at least one word")
        return tuple(
            self._document.text((*at, index)) or jobspec.as_text(word)
            for index, word in enumerate(command)
        )

    def _sweep(self, entry: dict[str, Any], at: Path, index: int) -> Sweep:
        kind, samples = entry.get("sweep", "product"), entry.get("samples", 0)
        values = {}
        for name, given in entry.get("params", {}).items():
            here = (*at, "params", name)
            if not matches(PARAMETER, name):
                self._problems.add(
                    here,
                    f"expected a parameter's name (letters, digits, '_' and '-', not a digit "
                    f"or '-' first), not {shown(name)}",
                )
            try:
                values[name] = parse_values(given)
            except ValueError as error:
                self._problems.add(here, str(error))
        if not values:
            for key in ("sweep", "samples"):
                if key in entry and "params" not in entry:
                    self._problems.add((*at, key), f"{key!r} needs 'params'")
            return Sweep()
        sweep = Sweep(values, kind, samples, f"{self._seed}:{entry['name']}:{index}")
        return sweep if self._fits(sweep, entry, at) else Sweep()

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
        duration: float | None,
    ) -> list[JobSet]:
        for key in _IN_JOBSPEC:
            if key in entry:
                self._problems.add(
                    (*at, key), f"{key!r} cannot be combined with 'jobspec', which says it itself"
                )
        at = (*at, "jobspec")
        given = entry["jobspec"]
        if isinstance(given, str):
            given = jobspec.read_file(given, self._directory, self._problems, at, self._files)
            if given is None or check_plain(given, self._problems, at):
                return []
        if isinstance(given.get("resources"), list):
            checked = jobspec.check_v1(given, self._problems, at)
            return [] if checked is None else [_v1_set(checked, common, index, count, duration)]
        return [
            _task_set(task, common, index + i, count, duration)
            for i, task in enumerate(nextgen.convert(given, self._problems, at))
        ]


def _v1_set(
    checked: dict[str, Any],
    common: Mapping[str, Any],
    index: int,
    count: int,
    duration: float | None,
) -> JobSet:
    system = checked.get("attributes", {}).get("system", {})
    return JobSet(
        **common,
        **jobspec.size(checked),
        index=index,
        command=tuple(checked["tasks"][0]["command"]),
        count=count,
        duration=float(system.get("duration", 0)) if duration is None else duration,
        jobspec=checked,
    )


def _task_set(
    task: nextgen.Task,
    common: Mapping[str, Any],
    index: int,
    count: int,
    duration: float | None,
) -> JobSet:
    own = {**common, "environment": {**task.environment, **common["environment"]}}
    if task.cwd is not None:
        own.setdefault("workdir", task.cwd)
    return JobSet(
        **own,
        **jobspec.size(task.jobspec),
        index=index,
        command=tuple(task.jobspec["tasks"][0]["command"]),
        count=count * task.replicas,
        duration=task.duration if duration is None else duration,
        jobspec=task.jobspec,
    )
