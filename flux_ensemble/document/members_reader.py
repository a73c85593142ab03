"""Reads `members:`, and checks what jobs say of members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flux_ensemble.document.behaviour import read_seconds
from flux_ensemble.document.distributions import Drawable
from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.members import (
    BREAKER_JOBS,
    DRAIN_SECONDS,
    MANY_MEMBERS,
    MAX_MEMBERS,
    ON_LOST,
    SERVICES,
    TIME_MARGIN,
    Pool,
)
from flux_ensemble.document.problems import Path, Problems, hint
from flux_ensemble.metrics.names import MEMBER
from flux_ensemble.texts import listed

#: Keys of a member that is started, which one that is there already does not have.
_OF_STARTED = ("count", "nodes", "duration", "drain", "service")


def pool_names(entries: Any) -> list[str]:
    """The names of all pools of a document, with problems or not.

    >>> pool_names([{"name": "pool"}, {"name": 5}, 7])
    ['pool']
    """
    names = [
        entry.get("name")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    return [name for name in names if isinstance(name, str)]


def read_pools(entries: Sequence[Any], problems: Problems) -> tuple[Pool, ...]:
    """The pools without problems.

    Args:
        entries: the valid part of the list, as `check_form` returns it.
        problems: collects the problems.

    >>> entry = {"name": "pool", "count": {"min": 2, "max": 8}, "nodes": 4}
    >>> read_pools([entry], Problems())[0].high
    8
    """
    pools: list[Pool] = []
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry is None or "name" not in entry:
            continue
        at: Path = ("members", index)
        name = entry["name"]
        if name == MEMBER:
            problems.add(
                (*at, "name"),
                f"{MEMBER!r} is the enclosing instance, which is no member that is started; give "
                "another name",
            )
        if name in first:
            problems.add((*at, "name"), f"the name {name!r} is that of members[{first[name]}] too")
        first.setdefault(name, index)
        pool = _pool(entry, at, problems)
        if not problems.blames(at):
            pools.append(pool)
    if sum(pool.high for pool in pools) > MAX_MEMBERS:
        problems.add(("members",), f"expected at most {MAX_MEMBERS} members in all")
    return tuple(pools)


def _pool(entry: Mapping[str, Any], at: Path, problems: Problems) -> Pool:
    if "uri" in entry:
        for key in _OF_STARTED:
            if key in entry:
                problems.add(
                    (*at, key),
                    f"{key!r} is of members that are started, and one with 'uri' is there already",
                )
    low, high = _count(entry.get("count", 1), (*at, "count"), problems)
    duration = _seconds(entry, "duration", 0.0, at, problems)
    least = min(DRAIN_SECONDS, duration / 2) if duration else DRAIN_SECONDS
    drain = _seconds(entry, "drain", least, at, problems)
    if "drain" in entry and not duration:
        problems.add((*at, "drain"), "'drain' is before the end of 'duration'; give that too")
    elif duration and drain >= duration:
        problems.add(
            (*at, "drain"),
            f"expected less than 'duration', which is {duration:g} seconds, not {drain:g}",
        )
    simulate = entry.get("simulate", {})
    return Pool(
        name=entry["name"],
        low=low,
        high=high,
        nodes=entry.get("nodes", 1),
        duration=duration,
        drain=drain,
        on_lost=entry.get("on-lost", ON_LOST[0]),
        labels=tuple(dict.fromkeys(entry.get("labels", ()))),
        calls=_calls(entry.get("service", SERVICES[0]), high),
        uri=entry.get("uri"),
        startup=_drawable(simulate, "startup", at, problems),
        loss=_drawable(simulate, "loss", at, problems),
        broken=float(simulate.get("broken", 0.0)),
        breaker=entry.get("breaker", BREAKER_JOBS),
    )


def _calls(service: str, high: int) -> bool:
    """Whether the members have services of their own, where there may be so many of them.

    >>> _calls("auto", 8), _calls("auto", 9), _calls("child", 1)
    (False, True, True)
    """
    return service == "child" or (service == "auto" and high > MANY_MEMBERS)


def _count(count: Any, at: Path, problems: Problems) -> tuple[int, int]:
    """How many members there are at first, and at most."""
    if isinstance(count, int):
        return count, count
    low = count.get("min", 1)
    high = count.get("max", low)
    if low > high:
        problems.add((*at, "min"), f"expected at most 'max', which is {high}, not {low}")
    return low, high


def _seconds(
    entry: Mapping[str, Any], key: str, default: float, at: Path, problems: Problems
) -> float:
    if key in entry:
        try:
            return parse_duration(entry[key])
        except ValueError as error:
            problems.add((*at, key), str(error))
    return default


def _drawable(
    section: Mapping[str, Any], key: str, at: Path, problems: Problems
) -> Drawable | None:
    if section.get(key) is None:
        return None
    return read_seconds(section[key], problems, (*at, "simulate", key))


# -- what jobs say of members -------------------------------------------------------------


def check_placement(
    groups: Mapping[str, Group],
    pools: Collection[Pool],
    declared: Collection[str],
    entries: Sequence[Any],
    problems: Problems,
) -> None:
    """Check that the jobs of each group can run on some member.

    Args:
        groups: the groups without problems.
        pools: the pools without problems.
        declared: the names of all pools, with problems or not.
        entries: the valid part of `jobs:`.
        problems: collects the problems.

    >>> problems = Problems()
    >>> check_placement({}, [], [], [], problems)
    >>> problems.sentences()
    ''
    """
    places: dict[str, Path] = {}
    for index, entry in enumerate(entries):
        if entry is not None and "name" in entry:
            places.setdefault(entry["name"], ("jobs", index))
    for name, group in groups.items():
        at = places[name]
        if not declared and any(job_set.retries.spread for job_set in group.sets):
            problems.add(
                (*at, "retries", "spread"),
                "'spread' chooses between members, and the document has no 'members'",
            )
        wanted = {job_set.member for job_set in group.sets}
        if len(wanted) > 1:
            problems.add(
                at, f"the entries of group {name!r} differ in 'member'; give each the same"
            )
            continue
        (member,) = wanted
        if member is not None and not declared:
            problems.add((*at, "member"), "the document has no 'members'")
        elif member is not None and not any(pool.has(member) for pool in pools):
            if member not in declared and len(pools) == len(declared):
                known = sorted({*declared, *(label for pool in pools for label in pool.labels)})
                problems.add(
                    (*at, "member"),
                    f"no member or label named {member!r} "
                    f"({hint(member, known)}members and labels: {listed(known)})",
                )
        elif declared and len(pools) == len(declared):
            fitting = [pool for pool in pools if member is None or pool.has(member)]
            _check_size(group, fitting, at, problems)


def _check_size(group: Group, pools: Collection[Pool], at: Path, problems: Problems) -> None:
    """Check that the members of some pool have the nodes and the time for a group's jobs."""
    if any(pool.uri is not None for pool in pools):
        return
    most = max(pool.nodes for pool in pools)
    longest = max((pool.duration or float("inf")) for pool in pools)
    for job_set in group.sets:
        if "nodes" not in job_set.variable and job_set.nodes > most:
            problems.add(
                (*at, "nodes"),
                f"expected at most {most}, the nodes of the largest member that they may run on, "
                f"not {job_set.nodes}",
            )
        if "duration" not in job_set.variable and job_set.duration * TIME_MARGIN > longest:
            problems.add(
                (*at, "duration"),
                f"expected at most {longest / TIME_MARGIN:.0f} seconds, because a job is placed "
                f"only where {TIME_MARGIN:g} times its time limit is left, and a member lasts "
                f"{longest:g}, not {job_set.duration:g}",
            )
