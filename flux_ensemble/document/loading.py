"""Loads an ensemble document: returns a `Spec`, or raises an error with all problems.

    text ──yaml_reader──► values with lines ──schema──► form ──groups, rules, checks──► Spec
                                                         └──use──► plain form ──┘

All stages add to the same list of problems and continue with the valid part, so users see all
problems at once. Loading stops early only if the YAML does not parse, after `MAX_PROBLEMS`, or
where a document has `use`: nothing is made from one whose form is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

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
from flux_ensemble.document.functions import Functions
from flux_ensemble.document.groups import GroupReader
from flux_ensemble.document.lint import Warnings, lint
from flux_ensemble.document.members_reader import pool_names, read_pools
from flux_ensemble.document.merge import USE, Expanded
from flux_ensemble.document.model import Limits, Spec
from flux_ensemble.document.placement import check_placement
from flux_ensemble.document.plain import check_plain
from flux_ensemble.document.problems import DocumentError, Path, Problem, Problems, TooMany
from flux_ensemble.document.rules import read_rules, rule_id
from flux_ensemble.document.schema_check import check_form
from flux_ensemble.document.schema_terms import ENSEMBLE_NAME, ENSEMBLE_NAME_RULE, matches
from flux_ensemble.document.search_reader import (
    check_groups,
    declared,
    read_searches,
    with_variables,
)
from flux_ensemble.document.use import check_uses, expand, plain_form
from flux_ensemble.document.yaml_reader import Document, read_yaml
from flux_ensemble.metrics.names import NUMBER, Statistic
from flux_ensemble.metrics.paths import SEARCH
from flux_ensemble.texts import shown

__all__ = ["DocumentError", "Problem", "load_document", "load_mapping", "load_text"]

#: Most statistics of all groups together, because each takes memory from the start. `WINDOW`
#: values of a window take as much as one statistic.
MAX_KEPT = 250_000
WINDOW = 50


def load_text(
    text: str,
    *,
    name: str | None = None,
    file: str | None = None,
    directory: str = ".",
    elastic: bool = True,
    files: dict[str, str] | None = None,
    warnings: Warnings | None = None,
    packages: bool = True,
) -> Spec:
    """Read and check a document.

    Args:
        text: the document, YAML or JSON.
        name: the ensemble's name; default: the document's, else the file's stem.
        file: the document's file name, for messages and the default name.
        directory: the base of relative paths in the document.
        elastic: whether rules may grow and shrink the member.
        files: cache of the files that the document names: name -> text. Missing ones are
            read and added.
        warnings: gets what there is to say of a document without errors.
        packages: algorithms of other packages may be run here.

    Raises:
        DocumentError: the document has problems; it lists at most `MAX_PROBLEMS`.

    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> spec.groups["hello"].sets[0].command
    ('echo', 'hello')
    >>> load_text("jobs: [{name: hello}]", name="demo")
    Traceback (most recent call last):
    flux_ensemble.document.problems.DocumentError: document:1: jobs[0]: expected a command ...
    """
    document, problems = read_yaml(text, file)
    own = _Loader(document, problems, name, file, directory, elastic, files, packages)
    return own.load(warnings)


def load_mapping(
    mapping: Mapping[str, Any],
    *,
    name: str | None = None,
    file: str | None = None,
    directory: str = ".",
    elastic: bool = True,
    files: dict[str, str] | None = None,
    warnings: Warnings | None = None,
    packages: bool = True,
) -> Spec:
    """Check a document that is already parsed, for example from JSON.

    Args:
        mapping: the document, plain data.
        name: the ensemble's name; default: the document's, else the file's stem.
        file: the document's file name, for messages and the default name.
        directory: the base of relative paths in the document.
        elastic: whether rules may grow and shrink the member.
        files: cache of the files that the document names: name -> text. Missing ones are
            read and added.
        warnings: gets what there is to say of a document without errors.
        packages: algorithms of other packages may be run here.

    Raises:
        DocumentError: the document has problems; it lists at most `MAX_PROBLEMS`.

    >>> spec = load_mapping({"name": "demo", "jobs": [{"name": "hello", "command": "true"}]})
    >>> spec.name, list(spec.groups), spec.limits
    ('demo', ['hello'], Limits(active_jobs=10000, jobs=100000, records=1000000))
    """
    return load_document(
        Document(mapping),
        name=name,
        file=file,
        directory=directory,
        elastic=elastic,
        files=files,
        warnings=warnings,
        packages=packages,
    )


def load_document(
    document: Document,
    *,
    name: str | None = None,
    file: str | None = None,
    directory: str = ".",
    elastic: bool = True,
    files: dict[str, str] | None = None,
    warnings: Warnings | None = None,
    packages: bool = True,
) -> Spec:
    """Check a document that knows where its values are; for the arguments see `load_text`.

    Raises:
        DocumentError: the document has problems; it lists at most `MAX_PROBLEMS`.

    >>> load_document(Document({"name": "demo", "jobs": [{"name": "a", "command": "x"}]})).name
    'demo'
    """
    problems = Problems(document.line, document.file)
    own = _Loader(document, problems, name, file, directory, elastic, files, packages)
    return own.load(warnings)


class _Loader:
    """Loads one document; for the arguments see `load_text`."""

    def __init__(
        self,
        document: Document,
        problems: Problems,
        name: str | None,
        file: str | None,
        directory: str,
        elastic: bool,
        files: dict[str, str] | None,
        packages: bool,
    ) -> None:
        self._document = document
        self._problems = problems
        self._name = name
        self._file = file
        self._directory = directory
        self._elastic = elastic
        self._files = files
        self._packages = packages

    def load(self, warnings: Warnings | None) -> Spec:
        """Check the document.

        Raises:
            DocumentError: it has problems.
        """
        spec = None
        with suppress(TooMany):
            value = self._form()
            if value is not None and USE in value:
                value = self._expand(value)
            if value is not None:
                spec = self._read(value)
        if self._problems or spec is None:
            raise self._problems.error(self._file)
        if warnings is not None:
            lint(spec, self._document, self._file, warnings)
        return spec

    def _form(self) -> dict[str, Any] | None:
        """The valid part of the document's form."""
        wrong = check_plain(self._document.value, self._problems)
        value: dict[str, Any] | None = check_form(
            "document", self._document.value, self._problems, wrong=wrong
        )
        return value

    def _expand(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """Put what `use` makes in its place; None if there are problems."""
        if self._problems:
            return None
        algorithms = check_uses(value, self._problems, packages=self._packages)
        if self._problems:
            return None
        expanded = expand(self._document, algorithms, self._problems)
        if self._problems:
            return None
        self._document = expanded
        self._problems = Problems(expanded.line, expanded.file, expanded.told)
        return self._form()

    def _expansion(self) -> dict[str, Any]:
        """What a spec has of a document with `use`."""
        if not isinstance(self._document, Expanded):
            return {}
        return {
            "expansion": plain_form(self._document),
            "packaged": self._document.packaged or None,
        }

    def _read(self, value: dict[str, Any]) -> Spec:
        document, problems = self._document, self._problems
        name, file, directory = self._name, self._file, self._directory
        entries, rules = value.get("jobs", []), value.get("rules", [])
        blamed = problems.blames(("jobs",)) or problems.blames(("rules",))
        if not entries and not rules and not blamed:
            problems.add((), "expected job groups in 'jobs', or rules in 'rules'")
        custom, plugins = value.get("custom"), tuple(value.get("plugins", ()))
        if custom is not None:
            check_source(custom, document, problems)
        statistics = read_statistics(value.get("metrics", []), problems)
        heartbeat = read_heartbeat(value.get("logging", {}), rules, problems)
        seed = value.get("seed", 0)
        names = _names(document.value)
        kept = frozenset(statistic.name for statistic in statistics)
        bests = read_bests(value.get("metrics", []), names, kept, problems)
        by = read_by_value(value.get("metrics", []), names, problems)
        reader = GroupReader(
            document,
            problems,
            directory=directory,
            seed=seed,
            files=self._files,
            names=names,
            statistics=kept,
            by=by,
        )
        limits = Limits(
            **{key.replace("-", "_"): most for key, most in value.get("limits", {}).items()}
        )
        searches = read_searches(value.get("search", []), names, limits.jobs, problems)
        searched = declared(document.value.get("search"))
        groups = reader.read(with_variables(entries, searches, searched.values()))
        pools = read_pools(value.get("members", []), problems)
        pooled = pool_names(document.value.get("members"))
        check_placement(groups, pools, pooled, entries, rules, problems)
        check_groups(searches, groups, problems)
        if searches and SEARCH in kept:
            problems.add(("search",), f"a statistic is called {SEARCH!r}; give that another 'name'")
        check_by_value(by, groups, problems)
        _check_kept(
            statistics, len(groups), problems, ("metrics",) if "metrics" in value else ("jobs",)
        )
        context = Context(
            groups=groups,
            every=reader.every,
            names=names,
            statistics=kept,
            rule_ids={rule_id(rule, index) for index, rule in enumerate(rules) if rule is not None},
            # One that is wrong has its own problem.
            heartbeat=heartbeat > 0 or problems.blames(("logging",)),
            functions=Functions(custom, plugins),
            elastic=self._elastic,
            bests={
                best.name: (best, groups[best.group].params)
                for best in bests
                if best.group in groups
            },
            by=by,
            searched=searched,
            pools=pooled,
        )
        own_name = _name(value, problems, name, file)
        return Spec(
            name=own_name,
            groups=groups,
            rules=read_rules(rules, context, problems),
            statistics=statistics,
            limits=limits,
            scaling=read_scaling(value.get("scaling", {}), problems),
            finish=value.get("finish", "idle"),
            durability=value.get("durability", "fast"),
            records=value.get("records", True),
            job_prefix=f"{own_name}." if value.get("job-names") == "full" else "",
            heartbeat=heartbeat,
            rate_window=read_rate_window(value.get("rate-window", 60.0), problems),
            debug=value.get("logging", {}).get("debug", False),
            custom=custom,
            plugins=plugins,
            seed=seed,
            directory=directory,
            bests=bests,
            by=tuple(by),
            searches=tuple(searches),
            members=pools,
            simulate=read_simulate(value.get("simulate", {}), groups, context.names, problems),
            **self._expansion(),
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
