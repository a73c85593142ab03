"""Checks what jobs say of members: which they name, and whether these are large enough."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.overrides import OVERRIDES
from flux_ensemble.document.members import TIME_MARGIN, Pool
from flux_ensemble.document.problems import Path, Problems, hint
from flux_ensemble.texts import listed


def check_placement(
    groups: Mapping[str, Group],
    pools: Collection[Pool],
    declared: Collection[str],
    entries: Sequence[Any],
    rules: Sequence[Any],
    problems: Problems,
) -> None:
    """Check that the jobs of each group can run on some member, however they are submitted.

    Args:
        groups: the groups without problems.
        pools: the pools without problems.
        declared: the names of all pools, with problems or not.
        entries: the valid part of `jobs:`.
        rules: the valid part of `rules:`.
        problems: collects the problems.

    >>> problems = Problems()
    >>> check_placement({}, [], [], [], [], problems)
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
            sizes = _Sizes([pool for pool in pools if member is None or pool.has(member)], problems)
            sizes.check_group(group, at)
            for index, entry in enumerate(entries):
                if entry is not None and entry.get("name") == name:
                    sizes.check_retries(entry.get("retries"), ("jobs", index, "retries"))
            for entry, at in _submits(rules, name):
                sizes.check_values(entry, at)


def _submits(rules: Sequence[Any], group: str) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The actions that submit a group, as written, each with its place."""
    for index, rule in enumerate(rules):
        if rule is None:
            continue
        at: Path = ("rules", index)
        actions = [(rule.get("action"), (*at, "action"))]
        actions += [
            (action, (*at, "actions", number))
            for number, action in enumerate(rule.get("actions") or ())
        ]
        for action, place in actions:
            if action and action.get("name") == "submit" and action.get("label") == group:
                yield action, place


class _Sizes:
    """Checks nodes and time limits of jobs against the members that they may run on.

    Args:
        pools: these members.
        problems: collects the problems.
    """

    def __init__(self, pools: Collection[Pool], problems: Problems) -> None:
        self._problems = problems
        #: Nobody knows how large an instance is that is there already.
        self._known = all(pool.uri is None for pool in pools)
        self._most = max(pool.nodes for pool in pools)
        self._longest = max((pool.duration or float("inf")) for pool in pools)

    def check_group(self, group: Group, at: Path) -> None:
        """Check what the entries of a group say."""
        for job_set in group.sets:
            if "nodes" not in job_set.variable:
                self._check("nodes", job_set.nodes, (*at, "nodes"))
            if "duration" not in job_set.variable:
                self._check("duration", job_set.duration, (*at, "duration"))

    def check_retries(self, retries: Any, at: Path) -> None:
        """Check what jobs have when they run again."""
        other = retries.get("with") if isinstance(retries, Mapping) else None
        self.check_values(other or {}, (*at, "with"))

    def check_values(self, values: Mapping[str, Any], at: Path) -> None:
        """Check what is said in place of what the group says, as written."""
        for key in ("nodes", "duration"):
            if key in values:
                try:
                    self._check(key, OVERRIDES[key](values[key]), (*at, key))
                except ValueError:
                    # An expression, or a problem of its own.
                    continue

    def _check(self, key: str, value: float, place: Path) -> None:
        if key == "nodes" and self._known and value > self._most:
            self._problems.add(
                place,
                f"expected at most {self._most}, the nodes of the largest member that they may run "
                f"on, not {value}",
            )
        if key == "duration" and self._known and value * TIME_MARGIN > self._longest:
            self._problems.add(
                place,
                f"expected at most {self._longest / TIME_MARGIN:.0f} seconds, because a job is "
                f"placed only where {TIME_MARGIN:g} times its time limit is left, and a member "
                f"lasts {self._longest:g}, not {value:g}",
            )
