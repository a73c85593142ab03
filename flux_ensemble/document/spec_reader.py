"""Makes a `Spec` of a document whose form is right, and checks what its parts say of each other.

    metrics ──► job groups, searches, members ──► rules ──► Spec

For `document.loading`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from flux_ensemble.document.actions import Context
from flux_ensemble.document.behaviour import read_simulate
from flux_ensemble.document.by_value import check_by_value, read_by_value
from flux_ensemble.document.checks import (
    check_source,
    read_bests,
    read_heartbeat,
    read_rate_window,
    read_scaling,
    read_statistics,
)
from flux_ensemble.document.functions import FunctionLabels
from flux_ensemble.document.groups import GroupReader
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.document import DOCUMENT_KEYS, LIMIT_KEYS
from flux_ensemble.document.keys.forms import ENSEMBLE_NAME, ENSEMBLE_NAME_RULE, matches
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.members import Pool
from flux_ensemble.document.members_reader import pool_names, read_pools
from flux_ensemble.document.model import Limits, Spec
from flux_ensemble.document.placement import check_placement
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.rules import read_rules, rule_id
from flux_ensemble.document.search import Search
from flux_ensemble.document.search_reader import (
    check_groups,
    declared,
    read_searches,
    with_variables,
)
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.metrics.best import Best
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.paths import SEARCH
from flux_ensemble.metrics.statistics import NUMBER
from flux_ensemble.texts import shown

#: Most statistics of all groups together, because each takes memory from the start. `WINDOW`
#: values of a window take as much as one statistic.
MAX_KEPT = 250_000
WINDOW = 50


class _Metrics(NamedTuple):
    """What is kept of jobs: statistics, the best jobs, and metrics by value, with their places."""

    statistics: tuple[Statistic, ...]
    bests: tuple[Best, ...]
    by: Mapping[ByValue, Path]

    @property
    def names(self) -> frozenset[str]:
        """The names of the statistics."""
        return frozenset(statistic.name for statistic in self.statistics)


class _Jobs(NamedTuple):
    """The jobs that there can be, and where: `every` has groups with problems, too."""

    groups: dict[str, Group]
    every: Mapping[str, Group]
    searches: Mapping[Search, Path]
    pools: tuple[Pool, ...]


class SpecReader:
    """Reads a document; see `loading.load_text` for the arguments that are not here.

    Args:
        document: the document, with what its `use` makes.
        problems: collects the problems.

    >>> value = {"name": "demo", "jobs": [{"name": "hello", "command": "echo hello"}]}
    >>> reader = SpecReader(Document(value), Problems(), ".", elastic=True, files=None)
    >>> reader.read(value, None, None).groups["hello"].sets[0].command
    ('echo', 'hello')
    """

    def __init__(
        self,
        document: Document,
        problems: Problems,
        directory: str,
        elastic: bool,
        files: dict[str, str] | None,
        *,
        here: bool = True,
    ) -> None:
        self._document = document
        self._problems = problems
        self._directory = directory
        self._elastic = elastic
        self._files = files
        self._here = here
        # Of what has problems too: who refers to it has none of his own.
        self._names = _names(document.value)
        self._searched = declared(document.value.get("search"))
        self._pooled = pool_names(document.value.get("members"))

    def read(self, value: dict[str, Any], name: str | None, file: str | None) -> Spec:
        """Make a Spec; where there are problems it is of no use.

        Args:
            value: the valid part of the document's form.
            name, file: as for `loading.load_text`.
        """
        problems = self._problems
        rules = value.get("rules", [])
        blamed = problems.blames(("jobs",)) or problems.blames(("rules",))
        if not value.get("jobs") and not rules and not blamed:
            problems.add((), "expected job groups in 'jobs', or rules in 'rules'")
        custom, plugins = value.get("custom"), tuple(value.get("plugins", ()))
        if custom is not None:
            check_source(custom, self._document, problems)
        line = None if custom is None else self._document.block_line(("custom",))
        statistics = read_statistics(value.get("metrics", []), problems)
        heartbeat = read_heartbeat(value.get("logging", {}), rules, problems)
        metrics = self._metrics(value, statistics)
        limits = Limits(**read_keys(LIMIT_KEYS, value.get("limits", {}), problems, ("limits",)))
        jobs = self._jobs(value, metrics, limits.jobs)
        # One that is wrong has its own problem.
        beats = heartbeat > 0 or problems.blames(("logging",))
        context = self._context(metrics, jobs, rules, beats, FunctionLabels(custom, plugins))
        own_name = _name(value, problems, name, file)
        return Spec(
            name=own_name,
            groups=jobs.groups,
            rules=read_rules(rules, context, problems),
            statistics=statistics,
            limits=limits,
            scaling=read_scaling(value.get("scaling", {}), problems),
            job_prefix=f"{own_name}." if value.get("job-names") == "full" else "",
            heartbeat=heartbeat,
            rate_window=read_rate_window(value.get("rate-window", 60.0), problems),
            debug=value.get("logging", {}).get("debug", False),
            custom=custom,
            custom_at=None if line is None else (file or "document", line),
            plugins=plugins,
            directory=self._directory,
            bests=metrics.bests,
            by=tuple(metrics.by),
            searches=tuple(jobs.searches),
            members=jobs.pools,
            simulate=read_simulate(value.get("simulate", {}), jobs.groups, self._names, problems),
            **read_keys(DOCUMENT_KEYS, value, problems, ()),
        )

    def _metrics(self, value: dict[str, Any], statistics: tuple[Statistic, ...]) -> _Metrics:
        entries, names, problems = value.get("metrics", []), self._names, self._problems
        kept = frozenset(statistic.name for statistic in statistics)
        bests = read_bests(entries, names, kept, problems)
        return _Metrics(statistics, bests, read_by_value(entries, names, problems))

    def _jobs(self, value: dict[str, Any], metrics: _Metrics, most: int) -> _Jobs:
        problems, entries = self._problems, value.get("jobs", [])
        reader = GroupReader(
            self._document,
            problems,
            directory=self._directory if self._here else None,
            seed=value.get("seed", 0),
            files=self._files,
            names=self._names,
            statistics=metrics.names,
            by=metrics.by,
        )
        searches = read_searches(value.get("search", []), self._names, most, problems)
        groups = reader.read(with_variables(entries, searches, self._searched.values()))
        pools = read_pools(value.get("members", []), problems)
        check_placement(groups, pools, self._pooled, entries, value.get("rules", []), problems)
        check_groups(searches, groups, problems)
        if searches and SEARCH in metrics.names:
            problems.add(("search",), f"a statistic is called {SEARCH!r}; give that another 'name'")
        check_by_value(metrics.by, groups, problems)
        at: Path = ("metrics",) if "metrics" in value else ("jobs",)
        _check_kept(metrics.statistics, len(groups), problems, at)
        return _Jobs(groups, reader.every, searches, pools)

    def _context(
        self,
        metrics: _Metrics,
        jobs: _Jobs,
        rules: Sequence[Any],
        heartbeat: bool,
        functions: FunctionLabels,
    ) -> Context:
        """What rules can refer to."""
        groups = jobs.groups
        return Context(
            groups=groups,
            every=jobs.every,
            names=self._names,
            statistics=metrics.names,
            rule_ids={rule_id(rule, index) for index, rule in enumerate(rules) if rule is not None},
            heartbeat=heartbeat,
            functions=functions,
            elastic=self._elastic,
            bests={
                best.name: (best, groups[best.group].params)
                for best in metrics.bests
                if best.group in groups
            },
            by=metrics.by,
            searched=self._searched,
            pools=self._pooled,
        )


def _check_kept(
    statistics: Collection[Statistic], groups: int, problems: Problems, at: Path
) -> None:
    """Check that the groups do not keep too many statistics together."""
    # Integers among the arguments are sizes of windows, or small.
    windows = [
        value
        for statistic in statistics
        for value in statistic.arguments.values()
        if type(value) is int
    ]
    made = sum(statistic.kind != NUMBER for statistic in statistics)
    each = made + sum(map(abs, windows)) // WINDOW
    if groups * each > MAX_KEPT:
        problems.add(
            at,
            f"expected at most {MAX_KEPT} statistics in all, each counted for each group, and once "
            f"more for each {WINDOW} values of its window, not {groups * each}",
        )


def _names(document: Any) -> set[str]:
    """The names of all job groups, with problems or not."""
    entries = document.get("jobs")
    names = [
        entry.get("name")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    return {name for name in names if isinstance(name, str)}


def _name(value: dict[str, Any], problems: Problems, wanted: str | None, file: str | None) -> str:
    """The ensemble's name: `wanted`, else the document's, else the file's stem."""
    name = wanted if wanted is not None else value.get("name")
    if name is None and file:
        name = PurePath(file).stem
    if name is None and problems.blames(("name",)):
        return ""
    if name is None:
        problems.add(
            (),
            "the ensemble has no name: write 'name:' in the document, or give it one with --name",
        )
    elif not matches(ENSEMBLE_NAME, name):
        hint = "" if wanted is not None else ", which is the file's; write 'name:' in the document"
        problems.add(("name",), f"expected {ENSEMBLE_NAME_RULE}, not {shown(name)}{hint}")
    return name or ""
