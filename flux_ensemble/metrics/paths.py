"""Metric paths: the names of metrics in rules.

A path has one of three forms: `STATISTIC.GROUP-VARIABLE`, such as `mean.lammps-duration`;
`count.GROUP.COUNTER`, such as `count.lammps.success`; and metrics of the member, such as
`nodes.free`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from flux_ensemble.metrics.by_value import ByValue, parse_variable
from flux_ensemble.metrics.names import (
    COUNTERS,
    FAMILY_KEYS,
    GAUGES,
    MAX_NAME,
    MEMBER,
    MEMBER_METRICS,
    RATE,
    STREAMS,
)
from flux_ensemble.suggestions import elsewhere, hint
from flux_ensemble.texts import listed

COUNT = "count"

#: The first key of metrics of the best jobs; `variable` is then NAME.FIELD.
BEST = "best"

#: The first keys of metrics that have names of their own; `variable` is then NAME.FIELD.
OF_NAMES = frozenset({BEST, *FAMILY_KEYS})

#: Metrics of time that each member has for itself.
_OF_TIME = ("elapsed", "left")

#: The variables that are not keys of memos. (A key of a memo may have any name.)
_TIMES = (*STREAMS, *GAUGES)


class MetricPath(NamedTuple):
    """A metric. For `statistic` "count", `variable` is a counter of the group.

    For metrics of `MEMBER_METRICS`, `group` is the name of the member. A rate has no variable.

    >>> str(MetricPath("mean", "lammps", "duration"))
    'mean.lammps-duration'
    """

    statistic: str
    group: str
    variable: str

    def __str__(self) -> str:
        if self.statistic in MEMBER_METRICS or self.statistic in OF_NAMES:
            return f"{self.statistic}.{self.variable}"
        if self.statistic == RATE:
            return f"{RATE}.{self.group}"
        separator = "." if self.statistic == COUNT else "-"
        return f"{self.statistic}.{self.group}{separator}{self.variable}"


#: Metrics of time.
ELAPSED = MetricPath("time", MEMBER, "elapsed")
LEFT = MetricPath("time", MEMBER, "left")

#: The part of the cores that is the ensemble's.
SHARE = MetricPath("share", MEMBER, "queue")

#: The nodes that waiting jobs need.
PENDING_NODES = MetricPath("queue", MEMBER, "pending-nodes")


def parse_path(
    text: str,
    groups: Collection[str],
    statistics: Collection[str],
    by: Collection[ByValue] = (),
) -> MetricPath:
    """Parse a metric path, and check that the metric can exist.

    The longest group name that fits wins: with groups `a` and `a-b`, `mean.a-b-duration` is the
    duration of `a-b`.

    Args:
        text: the path.
        groups: names of the job groups.
        statistics: names of the statistics that are kept.
        by: the metrics that are kept by value.

    Raises:
        ValueError: the path has another form, or its group, statistic or counter is unknown.

    >>> parse_path("mean.a-b-duration", groups=["a", "a-b"], statistics=["mean"])
    MetricPath(statistic='mean', group='a-b', variable='duration')
    >>> parse_path("count.a.done", groups=["a"], statistics=["mean"])
    Traceback (most recent call last):
    ValueError: no counter named 'done' (did you mean 'success'? counters: submitted, ...)
    """
    statistic, dot, rest = text.partition(".")
    if not dot or not rest:
        raise ValueError(
            f"expected a metric such as 'count.GROUP.success' or 'mean.GROUP-duration', "
            f"not {text!r}"
        )
    if statistic == COUNT:
        return _parse_count(text, rest, groups)
    if statistic == RATE:
        if rest not in groups:
            raise ValueError(no_group(rest, groups))
        return MetricPath(RATE, rest, "")
    if statistic in MEMBER_METRICS:
        known = MEMBER_METRICS[statistic]
        if rest not in known:
            raise ValueError(
                f"no metric named {text!r} "
                f"(metrics: {_listed(f'{statistic}.{variable}' for variable in known)})"
            )
        return MetricPath(statistic, MEMBER, rest)
    if statistic not in statistics:
        raise ValueError(
            f"no statistic named {statistic!r} ({_meant(statistic, statistics)}"
            f"statistics: {_listed({*statistics, COUNT, RATE, *MEMBER_METRICS})})"
        )
    group, variable = split_stream(rest, groups)
    return MetricPath(statistic, group, parse_variable(group, variable, by))


def split_stream(name: str, groups: Collection[str]) -> tuple[str, str]:
    """Split `GROUP-VARIABLE` at the longest group name that fits.

    Raises:
        ValueError: no group fits, or nothing is left for the variable.

    >>> split_stream("a-b-duration", ["a", "a-b"])
    ('a-b', 'duration')
    """
    # No group has a longer name. The search begins there, since each step copies a prefix.
    at = MAX_NAME + 1
    while (at := name.rfind("-", 0, at)) > 0:
        if name[:at] in groups and at + 1 < len(name):
            return name[:at], name[at + 1 :]
    if name in groups:
        raise ValueError(
            f"{name!r} is a job group; say which of its variables, such as '{name}-duration'"
        )
    raise ValueError(
        f"no job group for {name!r}: expected GROUP-VARIABLE (groups: {_listed(groups)})"
    )


def parse_label(
    text: str, groups: Collection[str], by: Collection[ByValue] = ()
) -> tuple[str, str | None]:
    """Parse the label of a `reset`: a group, or `GROUP-VARIABLE`.

    The arguments are as for `parse_path`.

    Returns:
        The group, and the variable; None stands for all variables of the group.

    Raises:
        ValueError: no group fits, or the variable has no statistics that are kept.

    >>> parse_label("a-b", ["a", "a-b"]), parse_label("a-duration", ["a", "a-b"])
    (('a-b', None), ('a', 'duration'))
    """
    if text in groups:
        return text, None
    group, variable = split_stream(text, groups)
    if variable in GAUGES:
        raise ValueError(f"{text!r} is computed at each heartbeat, so there is nothing to reset")
    return group, parse_variable(group, variable, by)


def not_of_member(path: MetricPath) -> str | None:
    """Return why a rule with `scope: member` cannot name a metric; None if it can.

    >>> not_of_member(MetricPath("mean", "md", "duration")) is None
    True
    >>> not_of_member(MetricPath("nodes", "default", "free"))
    "'nodes.free' is not known of one member (of one there are counts, statistics, ...)"
    """
    statistic, _, variable = path
    by_value = variable.endswith("]") and statistic not in OF_NAMES
    of_all = statistic in MEMBER_METRICS and not (statistic == "time" and variable in _OF_TIME)
    if not (of_all or by_value or statistic == RATE):
        return None
    return (
        f"{str(path)!r} is not known of one member (of one there are counts, statistics, "
        "'time.left' and 'time.elapsed'; leave out 'scope: member', or name it in another rule)"
    )


def not_of_pool(path: MetricPath, pools: Collection[str]) -> str | None:
    """Return why a metric `...@POOL` does not exist; None if it does, or names no pool.

    Args:
        path: the metric.
        pools: the names of the pools of members.

    >>> not_of_pool(MetricPath("count", "md", "success@pool"), ["pool"]) is None
    True
    >>> not_of_pool(MetricPath("count", "md", "success@big"), ["pool"])
    "'count.md.success@big': no member named 'big' (members: pool)"
    """
    what, at, pool = path.variable.partition("@")
    if not at or (path.statistic != COUNT and (what not in _TIMES or pool not in pools)):
        return None
    name = f"'{path}'"
    if path.statistic != COUNT:
        return (
            f"{name} is not known of one pool, of which there are counts alone; in a rule with "
            "'scope: member' statistics are those of its member"
        )
    if not pools:
        return f"{name} is of the members of a pool, and the document has no 'members'"
    if pool in pools:
        return None
    return f"{name}: no member named {pool!r} (members: {_listed(pools)})"


def no_group(name: str, groups: Iterable[str]) -> str:
    """Return the sentence that no job group has a name.

    >>> no_group("c", ["b", "a"])
    "no job group named 'c' (groups: a, b)"
    """
    return f"no job group named {name!r} (groups: {_listed(groups)})"


def _meant(statistic: str, statistics: Collection[str]) -> str:
    # Names that are close are other statistics, such as the median.
    name = elsewhere(statistic, statistics)
    return "" if name is None else f"did you mean {name!r}? "


def _parse_count(text: str, rest: str, groups: Collection[str]) -> MetricPath:
    group, dot, counter = rest.rpartition(".")
    if not dot:
        said = ""
        hyphened = next((one for one in sorted(groups) if one.startswith(f"{rest}-")), None)
        if hyphened is not None:
            said = " (in an expression a name with a hyphen is written in brackets: "
            said += f"count[{hyphened!r}].success)"
        elif rest in COUNTERS and groups:
            said = f" (write count.{min(groups)}.{rest})"
        raise ValueError(f"expected 'count.GROUP.COUNTER', not {text!r}{said}")
    if group not in groups:
        near = hint(group, sorted(groups)).strip()
        raise ValueError(f"{no_group(group, groups)}{near and f' ({near})'}")
    # `COUNTER@POOL` counts the jobs on one pool; `not_of_pool` checks that the pool exists.
    of_all, _, _ = counter.partition("@")
    if of_all not in COUNTERS:
        hyphened = next((one for one in COUNTERS if one.startswith(f"{of_all}-")), None)
        near = hint(of_all, COUNTERS)
        if hyphened is not None:
            near = f"in an expression a name with a hyphen is written in brackets: count.{group}"
            near += f"[{hyphened!r}]; "
        raise ValueError(f"no counter named {counter!r} ({near}counters: {', '.join(COUNTERS)})")
    return MetricPath(COUNT, group, counter)


def _listed(names: Iterable[str]) -> str:
    return listed(sorted(names))
