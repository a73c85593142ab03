"""Makes a `Spec` of a document whose form is right, and checks what its parts say of each other.

    metrics ──► lists of features, job groups, members ──► rules ──► Spec

For `document.loading`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple

from flux_ensemble.document.actions import Context
from flux_ensemble.document.behaviour import read_simulate
from flux_ensemble.document.by_value import check_by_value, read_by_value
from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.feature import (
    JobsOf,
    Sources,
    document_features,
    sections,
    unknown_jobs,
)
from flux_ensemble.document.functions import FunctionLabels, SourceError, defined_names
from flux_ensemble.document.groups import GroupReader
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.jobspec import read_file
from flux_ensemble.document.keys.document import DOCUMENT_KEYS, LIMIT_KEYS
from flux_ensemble.document.keys.forms import ENSEMBLE_NAME, ENSEMBLE_NAME_RULE, IDENTIFIER, matches
from flux_ensemble.document.keys.metrics import BEST_KEYS, UNIT_KEYS
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.keys.rules import RESIZES
from flux_ensemble.document.members import Pool
from flux_ensemble.document.members_reader import (
    QueuesOf,
    check_placement,
    pool_names,
    read_pools,
    unknown_queues,
)
from flux_ensemble.document.model import Limits, Spec
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.rules import read_rules, rule_id
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.metrics.best import Best
from flux_ensemble.metrics.by_value import ByValue, unsplit
from flux_ensemble.metrics.names import GAUGES, MEMBER_METRICS, RATE, STREAMS, Statistic
from flux_ensemble.metrics.paths import BEST, split_stream
from flux_ensemble.metrics.statistics import ALWAYS, NUMBER, SHARES, SIZES
from flux_ensemble.texts import shown

#: Seconds between heartbeats where a rule grows or shrinks and the document says nothing.
SCALE_HEARTBEAT = 60.0

#: Most statistics under `metrics:`. Each takes milliseconds to check, and memory in every stream.
MAX_STATISTICS = 100

#: Largest integer argument of a statistic, and largest window size.
MAX_ARGUMENT = 1_000_000
MAX_SIZE = 100_000

#: First parts of metric paths that are not statistics.
_NO_STATISTICS = ("count", RATE, *MEMBER_METRICS)

#: Keys of the entries under `metrics:` that are no statistics.
_OTHERS = ("best", "by", "unit")

#: Most statistics of all groups together, because each takes memory from the start. `WINDOW`
#: values of a window take as much as one statistic.
MAX_KEPT = 250_000
WINDOW = 50


class _Metrics(NamedTuple):
    """The metrics of jobs: statistics, best jobs, and metrics by value, with their places."""

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
    features: Mapping[str, tuple[Any, ...]]
    pools: tuple[Pool, ...]


class SpecReader:
    """Reads a document; see `loading.LoadOptions` for the arguments that are not here.

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
        queues: QueuesOf = unknown_queues,
        jobs: JobsOf = unknown_jobs,
    ) -> None:
        self._queues = queues
        self._document = document
        self._problems = problems
        self._directory = directory
        self._elastic = elastic
        self._files = files
        self._here = here
        self._sources = Sources(self._text, jobs)
        # Of what has problems too: who refers to it has none of his own.
        self._names = _names(document.value, problems)
        self._named = {
            section.key: section.declared(document.value.get(section.key)) for section in sections()
        }
        self._pooled: list[str] = []

    def read(self, value: dict[str, Any], name: str | None, file: str | None) -> Spec:
        """Make a Spec; where there are problems it is of no use.

        Args:
            value: the valid part of the document's form.
            name, file: as for `loading.LoadOptions`.
        """
        problems = self._problems
        # With --tasks the document itself names none.
        self._pooled = pool_names(self._document.value.get("members") or value.get("members"))
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
            settings={
                feature.name: feature.settings(value.get(feature.name, {}), problems)
                for feature in document_features()
                if feature.settings is not None
            },
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
            units=read_units(value.get("metrics", []), self._names, problems),
            features=jobs.features,
            members=jobs.pools,
            simulate=read_simulate(value.get("simulate", {}), jobs.groups, self._names, problems),
            **read_keys(DOCUMENT_KEYS, value, problems, ()),
        )

    def _text(self, file: str, at: Path, what: str = "trials") -> str | None:
        """Return the text of a file that is no jobspec; None with a problem."""
        directory = self._directory if self._here else None
        files = {} if self._files is None else self._files
        return read_file(file, directory, self._problems, at, files, what)

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
        filled, found = entries, {}
        for section in sections():
            key = section.key
            given = value.get(key, [])
            found[key] = section.read(given, self._names, most, problems, self._sources)
            filled = section.filled(filled, found[key], self._named[key].values())
        groups = reader.read(filled)
        template = partial(self._text, what="a JobSet")
        pools = read_pools(value.get("members", []), problems, template)
        rules = value.get("rules", [])
        check_placement(groups, pools, self._pooled, entries, rules, problems, self._queues)
        for section in sections():
            key = section.key
            section.check(found[key], groups, problems)
            if found[key] and key in metrics.names:
                problems.add((key,), f"a statistic is called {key!r}; give that another 'name'")
        check_by_value(metrics.by, groups, problems)
        at: Path = ("metrics",) if "metrics" in value else ("jobs",)
        _check_kept(metrics.statistics, len(groups), problems, at)
        return _Jobs(
            groups,
            reader.every,
            {key: tuple(read) for key, read in found.items() if read},
            pools,
        )

    def _context(
        self,
        metrics: _Metrics,
        jobs: _Jobs,
        rules: Sequence[Any],
        heartbeat: bool,
        functions: FunctionLabels,
    ) -> Context:
        """Return the names that rules can refer to."""
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
            named=self._named,
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


def _names(document: Any, problems: Problems) -> Collection[str]:
    """The names of all job groups, with problems or not; any, if `jobs` is no list of groups."""
    entries = document.get("jobs")
    listed = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    if not listed and problems.blames(()):
        return _Unknown()
    names = [entry.get("name") for entry in entries or ()]
    return {name for name in names if isinstance(name, str)}


class _Unknown(frozenset[str]):
    """Names that are not known, so that each may be one."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


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


def check_source(source: str, document: Document, problems: Problems) -> None:
    """Check that the Python source in `custom:` parses.

    >>> problems = Problems()
    >>> check_source("print(", Document({}), problems)
    >>> problems.sentences()
    "custom: Python syntax error: '(' was never closed (line 1 of the source)"
    """
    at: Path = ("custom",)
    try:
        defined_names(source)
    except SourceError as error:
        first = document.block_line(at)
        if error.line is None or first is not None:
            line = None if first is None or error.line is None else first + error.line - 1
            problems.add(at, str(error), line)
        else:
            problems.add(at, f"{error} (line {error.line} of the source)")


def read_heartbeat(logging: dict[str, Any], rules: list[Any], problems: Problems) -> float:
    """Seconds between heartbeats, 0 for none.

    >>> read_heartbeat({"heartbeat": "10s"}, [], Problems())
    10.0
    >>> read_heartbeat({}, [{"action": {"name": "grow"}}], Problems())
    60.0
    """
    heartbeat = 0.0
    try:
        heartbeat = parse_duration(logging.get("heartbeat", 0))
    except ValueError as error:
        problems.add(("logging", "heartbeat"), str(error))
    scales = any(
        action is not None and action.get("name") in RESIZES and "label" not in action
        for rule in rules
        if rule is not None
        for action in (rule.get("action"), *rule.get("actions", ()))
    )
    return heartbeat or (SCALE_HEARTBEAT if scales else 0.0)


def read_rate_window(value: float | str, problems: Problems) -> float:
    """Seconds that rates are taken over.

    >>> read_rate_window("5m", Problems())
    300.0
    """
    try:
        window = parse_duration(value, limit=False)
    except ValueError as error:
        problems.add(("rate-window",), str(error))
        return 60.0
    if window < 1:
        problems.add(("rate-window",), f"expected a duration >= 1 second, not {shown(value)}")
        return 60.0
    return window


def read_statistics(entries: list[Any], problems: Problems) -> tuple[Statistic, ...]:
    """Return the statistics of every stream: those of all documents, and those under `metrics:`.

    >>> entries = [{"statistic": "quantile", "q": 0.9, "name": "p90"}]
    >>> read_statistics(entries, Problems())[-1]
    Statistic(name='p90', kind='Quantile', arguments={'q': 0.9}, of=None)
    """
    always = {name: Statistic(name, kind) for name, kind in ALWAYS.items()}
    # A document of an earlier version may have a statistic of its own with this name.
    number = always.pop(NUMBER)
    statistics = dict(always)
    if len(entries) > MAX_STATISTICS:
        problems.add(
            ("metrics",), f"expected at most {MAX_STATISTICS} statistics, not {len(entries)}"
        )
    for index, entry in enumerate(entries):
        at: Path = ("metrics", index)
        mapping = {"statistic": entry} if isinstance(entry, str) else entry
        if mapping is None or not mapping.keys().isdisjoint(_OTHERS):
            continue
        if "statistic" not in mapping:
            if not any(problems.blames((*at, key)) for key in ("statistic", *_OTHERS)):
                problems.add(at, "the key 'statistic' is missing")
            continue
        arguments = dict(mapping)
        kind = arguments.pop("statistic")
        name = arguments.pop("name", kind)
        of = arguments.pop("of", None)
        if not matches(IDENTIFIER, name):
            problems.add(
                at,
                f"expected a statistic's name (letters, digits and '_', not a digit first), "
                f"not {shown(name)}",
            )
        elif name in statistics or name in _NO_STATISTICS:
            problems.add(at, f"there is a statistic {name!r} already; give another 'name'")
        if index < MAX_STATISTICS:
            kind = _kind(kind, arguments, problems, at)
        statistics.setdefault(name, Statistic(name, kind, arguments, of))
    kept = list(statistics.values())
    if NUMBER not in statistics:
        kept.insert(len(always), number)
    return tuple(kept)


def read_bests(
    entries: list[Any], groups: Collection[str], statistics: Collection[str], problems: Problems
) -> tuple[Best, ...]:
    """The best jobs to keep: the entries `best` under `metrics:`.

    Args:
        entries: the valid part of the list.
        groups: the names of the job groups.
        statistics: the names of the statistics that are kept.
        problems: collects the problems.

    >>> entries = [{"best": {"name": "top", "of": "md-fom", "mode": "max"}}]
    >>> read_bests(entries, ["md"], ["mean"], Problems())
    (Best(name='top', group='md', variable='fom', mode='max', live=False),)
    """
    bests: dict[str, Best] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or "best" not in entry:
            continue
        at: Path = ("metrics", index, "best")
        best = entry["best"]
        for key in (key for key in entry if key != "best"):
            problems.add((*at[:-1], key), f"{key!r} cannot be combined with 'best'")
        if "name" not in best or "of" not in best:
            continue
        if best["name"] in bests:
            problems.add((*at, "name"), f"there is a best job {best['name']!r} already")
        if BEST in statistics:
            problems.add(at, f"a statistic is called {BEST!r}; give that another 'name'")
        try:
            group, variable = split_stream(best["of"], groups)
        except ValueError as error:
            problems.add((*at, "of"), str(error))
            continue
        fields = read_keys(BEST_KEYS, best, problems, at)
        bests[best["name"]] = Best(group=group, variable=variable, **fields)
    return tuple(bests.values())


def read_units(entries: list[Any], groups: Collection[str], problems: Problems) -> dict[str, str]:
    """Return the units of memo keys, or of GROUP-KEY: the entries `unit` under `metrics:`.

    Args:
        entries: the valid part of the list.
        groups: the names of the job groups.
        problems: collects the problems.

    >>> read_units([{"of": "loss", "unit": "eV"}], ["md"], Problems())
    {'loss': 'eV'}
    """
    units: dict[str, str] = {}
    for index, entry in enumerate(entries):
        # One with `by` is of a metric, and has its own problem.
        if not isinstance(entry, dict) or "unit" not in entry or "of" not in entry:
            continue
        at: Path = ("metrics", index)
        of = entry["of"]
        try:
            _, key = split_stream(of, groups)
        except ValueError:
            key = of
        if key in (*STREAMS, *GAUGES):
            problems.add((*at, "of"), f"{shown(of)} is in seconds; expected the key of a memo")
        if unsplit(key) != key:
            problems.add((*at, "of"), f"{shown(of)} has the unit of {unsplit(of)!r}; write that")
        if of in units:
            problems.add((*at, "of"), f"{shown(of)} has the unit {units[of]!r} already")
        units.setdefault(of, read_keys(UNIT_KEYS, entry, problems, at).get("unit", ""))
    return units


def _kind(kind: str, arguments: dict[str, Any], problems: Problems, at: Path) -> str:
    """Return the kind as `Statistic` has it, or as given if there is a problem with it."""
    for key, value in arguments.items():
        message = _unfit(key, value)
        if message is not None:
            problems.add((*at, key), message)
    if problems.blames(at):
        return kind
    # Late, because River takes 0.4 s to import and most documents do not need it.
    from flux_ensemble.metrics.statistic_trial import check_statistic

    try:
        return check_statistic(kind, arguments)
    except ValueError as error:
        problems.add(at, str(error))
        return kind


def _unfit(key: str, value: Any) -> str | None:
    """Return the fault of a statistic's argument, if it can be found without River; else None.

    River checks little itself, and its Rust code may panic or end the process.
    """
    if type(value) not in (int, float, bool, type(None)):
        return f"expected a number or a boolean, not {shown(value)}"
    if key in SHARES and (type(value) not in (int, float) or not 0 <= value <= 1):
        return f"expected a number >= 0 and <= 1, not {shown(value)}"
    if key in SIZES:
        least, most = SIZES[key], MAX_SIZE
    elif type(value) is int:
        least, most = -MAX_ARGUMENT, MAX_ARGUMENT
    else:
        return None
    if type(value) is not int or not least <= value <= most:
        return f"expected an integer >= {least} and <= {most}, not {shown(value)}"
    return None
