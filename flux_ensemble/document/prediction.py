"""Reads `predict` and `order` of an entry of `jobs:`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.problems import Path, Problems, hint
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.texts import listed, shown

#: Most parameters that the durations of a group's jobs are predicted from.
MAX_PARAMETERS = 16


def read_prediction(
    entry: Mapping[str, Any], sweep: Sweep, problems: Problems, at: Path
) -> dict[str, Any]:
    """What a job set has of the two.

    Args:
        entry: the valid part of the entry.
        sweep: its sweep.
        problems: gets what is wrong.
        at: the path of the entry.

    >>> sweep = Sweep({"n": (1, 2)})
    >>> read_prediction({"predict": ["n"]}, sweep, Problems(), ("jobs", 0))
    {'predict': ('n',), 'order': None}
    """
    predict, order = entry.get("predict"), entry.get("order")
    if predict is None:
        if order is not None and not problems.blames((*at, "predict")):
            problems.add(
                (*at, "order"),
                f"'order: {order}' needs 'predict' in the same entry: the parameters that the "
                "duration of a job follows from, such as 'predict: [n]'",
            )
        return {}
    if len(predict) > MAX_PARAMETERS:
        problems.add(
            (*at, "predict"),
            f"expected at most {MAX_PARAMETERS} parameters, not {len(predict)}",
        )
    elif not problems.blames((*at, "params")):
        for index, name in enumerate(predict):
            if name is not None and name not in sweep.names:
                problems.add(
                    (*at, "predict", index),
                    f"the entry has no parameter {shown(name)} "
                    f"({hint(name, sweep.names)}parameters: {listed(sorted(sweep.names))})",
                )
    return {"predict": tuple(dict.fromkeys(predict)), "order": order}
