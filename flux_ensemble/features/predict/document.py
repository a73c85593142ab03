"""Reads `predict` and `order`, and finds what they cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.feature import DocumentFeature
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.metrics.names import MEMBER
from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: The predicted seconds until the jobs are over.
REMAINING = MetricPath("time", MEMBER, "remaining")

#: Most parameters that the durations of a group's jobs are predicted from.
MAX_PREDICTORS = 16


@dataclass(frozen=True, slots=True)
class Predicted:
    """Keys of predictions in an entry of `jobs`, as they were read.

    Args:
        params: the parameters that the duration of a job follows from.
        order: the order in which waiting jobs are sent; None for that of their submission.
    """

    params: tuple[str, ...]
    order: str | None = None


def read(entry: Mapping[str, Any], sweep: Sweep, problems: Problems, at: Path) -> Predicted | None:
    """Read `predict` and `order` of a job set.

    >>> read({"predict": ["n"]}, Sweep({"n": (1, 2)}), Problems(), ("jobs", 0))
    Predicted(params=('n',), order=None)
    """
    predict, order = entry.get("predict"), entry.get("order")
    if predict is None:
        if order is not None and not problems.blames((*at, "predict")):
            problems.add(
                (*at, "order"),
                f"'order: {order}' needs 'predict' in the same entry: the parameters that the "
                "duration of a job follows from, such as 'predict: [n]'",
            )
        return None
    if len(predict) > MAX_PREDICTORS:
        problems.add(
            (*at, "predict"),
            f"expected at most {MAX_PREDICTORS} parameters, not {len(predict)}",
        )
    elif not problems.blames((*at, "params")):
        for index, name in enumerate(predict):
            if name is not None and name not in sweep.names:
                problems.add(
                    (*at, "predict", index),
                    f"the entry has no parameter {shown(name)} "
                    f"({hint(name, sweep.names)}parameters: {listed(sorted(sweep.names))})",
                )
    return Predicted(tuple(dict.fromkeys(predict)), order)


def objection(path: MetricPath, groups: Mapping[str, Group]) -> str | None:
    """Return why a metric is empty, whatever the jobs do; None if it is not."""
    if path == REMAINING and not any("predict" in each.features for each in groups.values()):
        return (
            f"{str(path)!r} is empty: no job group says with 'predict' which parameters the "
            "duration of its jobs follows from"
        )
    return None


def findings(
    spec: Spec, jobs: Sequence[Mapping[str, Any]], at_once: bool
) -> Iterator[tuple[Path, str]]:
    """Yield the entries whose order makes no difference, since no job of theirs waits."""
    for index, entry in enumerate(jobs) if at_once else ():
        sets = spec.groups[entry["name"]].sets
        if "order" in entry and all(each.max_active is None for each in sets):
            yield (
                ("jobs", index, "order"),
                "makes no difference, since all jobs are in the queue at once; with 'max-active' "
                "others wait",
            )


FEATURE = DocumentFeature("predict", read, objection, findings)
