"""Reads the metrics that are kept by value: the entries with `by` under `metrics:`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.metrics.by_value import ByValue, unsplit
from flux_ensemble.metrics.names import GAUGES
from flux_ensemble.metrics.paths import split_stream
from flux_ensemble.texts import listed, shown


def read_by_value(
    entries: list[Any], groups: Collection[str], problems: Problems
) -> dict[ByValue, Path]:
    """The metrics that are kept by value, and where the document says so.

    Args:
        entries: the valid part of `metrics`.
        groups: the names of the job groups.
        problems: collects the problems.

    >>> read_by_value([{"of": "md-fom", "by": ["t"]}], ["md"], Problems())
    {ByValue(group='md', variable='fom', params=('t',)): ('metrics', 0)}
    """
    by_values: dict[ByValue, Path] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or "by" not in entry or "of" not in entry:
            continue
        at: Path = ("metrics", index)
        try:
            group, variable = split_stream(entry["of"], groups)
        except ValueError as error:
            problems.add((*at, "of"), str(error))
            continue
        if variable in GAUGES or unsplit(variable) != variable:
            problems.add((*at, "of"), f"{shown(entry['of'])} cannot be kept by value")
            continue
        params = tuple(dict.fromkeys(name for name in entry["by"] if name is not None))
        by_value = ByValue(group, variable, params)
        if by_value in by_values:
            problems.add(at, f"{by_value.form} is kept already")
        by_values.setdefault(by_value, at)
    return by_values


def check_by_value(
    by_values: Mapping[ByValue, Path], groups: Mapping[str, Group], problems: Problems
) -> None:
    """Check that the jobs of each group have the parameters by which its metrics are kept.

    >>> problems = Problems()
    >>> check_by_value({ByValue("md", "fom", ("t",)): ()}, {"md": Group("md", ())}, problems)
    >>> problems.sentences()
    ''
    """
    for by_value, at in by_values.items():
        group = groups.get(by_value.group)
        for position, name in enumerate(by_value.params):
            # A group with problems has its own.
            for message in () if group is None else missing(group, name):
                problems.add((*at, "by", position), message)


def missing(group: Group, param: str) -> Iterator[str]:
    """Yield a sentence for each job set of a group that lacks a parameter.

    >>> list(missing(Group("md", ()), "t"))
    []
    """
    for job_set in group.sets:
        if param not in job_set.sweep.names:
            yield (
                f"group {group.name!r} has no parameter {shown(param)} in jobs[{job_set.index}] "
                f"(parameters: {listed(sorted(job_set.sweep.names))})"
            )
