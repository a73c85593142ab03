"""Checks of single sections: `custom`, `logging`, `scaling` and `metrics`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.functions import SourceError, defined_names
from flux_ensemble.document.keys.document import SCALING_KEYS
from flux_ensemble.document.keys.forms import IDENTIFIER, matches
from flux_ensemble.document.keys.metrics import BEST_KEYS
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.keys.rules import SCALE_ACTIONS
from flux_ensemble.document.model import Scaling
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.metrics.best import Best
from flux_ensemble.metrics.names import MEMBER_METRICS, RATE, Statistic
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
        action is not None and action.get("name") in SCALE_ACTIONS and "label" not in action
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


def read_scaling(section: dict[str, Any], problems: Problems) -> Scaling:
    """Return the bounds of the instance's nodes, and the limits of scaling requests.

    >>> read_scaling({"max-nodes": 8, "deadline": "5m"}, Problems())
    Scaling(min_nodes=1, max_nodes=8, deadline=300.0, refusals=3)
    """
    at: Path = ("scaling",)
    fields = read_keys(SCALING_KEYS, section, problems, at)
    low, high = fields.get("min_nodes", 1), fields.get("max_nodes")
    if high is not None and low > high:
        problems.add((*at, "min-nodes"), f"expected at most max-nodes, which is {high}, not {low}")
    if fields.get("deadline") == 0:
        problems.add((*at, "deadline"), "expected a duration > 0, not 0")
    return Scaling(**fields)


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
        if mapping is None or "best" in mapping or "by" in mapping:
            continue
        if "statistic" not in mapping:
            if not problems.blames((*at, "statistic")):
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
        for key in entry.keys() - {"best"}:
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
    """What is wrong with an argument of a statistic, as far as River is not needed to tell.

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
