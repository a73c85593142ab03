"""Meanings of the names in expressions, for the guide; links lead from docs/.

Each table has the keys of the table that it explains, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flux_ensemble.feature_list import parts

#: The counters of a group (`names.COUNTERS`).
COUNTERS: Final[Mapping[str, str]] = {
    "submitted": "attempts that were submitted",
    "finished": "jobs that have ended and do not run again, however often they were tried",
    "success": "attempts that succeeded",
    "failed": "attempts that failed",
    "canceled": "attempts that were cancelled",
    "timeout": "attempts that reached their time limit",
    "interrupted": "attempts that were [interrupted](retries.md#interrupted-jobs)",
    "attempts": "attempts that have ended: the sum of the five outcomes",
    "gave-up": "jobs that do not run again because they have been tried as often as their "
    "[retries](retries.md) allow, or were lost too often",
}

#: Variables that are not keys of memos (`names.STREAMS` and `names.GAUGES`).
VARIABLES: Final[Mapping[str, str]] = {
    "duration": "seconds from start to finish, of the jobs that succeeded",
    "pending": "seconds from submission to start, of the jobs that started; at heartbeats waiting "
    "jobs are counted as if they started now",
    "waiting": "ages in seconds of the jobs that wait, at heartbeats",
    "running": "ages in seconds of the jobs that run, at heartbeats",
}

#: Metrics of the instance, of the queue and of time (`names.MEMBER_METRICS`).
INSTANCE: Final[Mapping[str, dict[str, str]]] = {
    "nodes": {
        "size": "nodes of the instance; empty on the local queue and in a simulation, as are the "
        "next two",
        "up": "nodes that are up",
        "free": "nodes that are up and that no job has",
    },
    "queue": {
        "pending-nodes": "nodes that all jobs of the ensemble need that are in the queue and have "
        "not started",
    },
    "share": {
        "queue": "the part of the cores that is the ensemble's by its `share` while its jobs "
        "compete with those of other ensembles, such as 0.25; 1 while they do not, as on the local "
        "queue and in a simulation",
    },
    "time": {
        "elapsed": "seconds since the ensemble started",
        "left": "seconds until the allocation of the instance expires, 0 after that; empty if it "
        "has no limit, as on the local queue and in a simulation",
    },
}

for _part in parts("metrics"):
    for _kind, _texts in getattr(_part, "METRICS", {}).items():
        INSTANCE[_kind].update(_texts)

#: Functions of expressions (`operations.FUNCTIONS`).
FUNCTIONS: Final[Mapping[str, str]] = {
    "abs": "the absolute value",
    "max": "the largest of several numbers",
    "min": "the smallest of several numbers",
    "round": "the nearest integer, or with a second argument, from -308 to 308, so many digits",
    "floor": "the largest integer that is not larger",
    "ceil": "the smallest integer that is not smaller",
    "sqrt": "the square root",
    "exp": "e to the power of a number",
    "log": "the natural logarithm, or with a second argument that to this base",
    "log2": "the logarithm to base 2",
    "log10": "the logarithm to base 10",
    "sin": "the sine of an angle in radians",
    "cos": "the cosine of an angle in radians",
    "tan": "the tangent of an angle in radians",
    "tanh": "the hyperbolic tangent",
    "pow": "the first argument to the power of the second",
}

#: Fields of an entry `best` under `metrics`.
BEST: Final[Mapping[str, str]] = {
    "value": "the best value so far",
    "job": "the id of the best job, as `job.id` has it",
    "params.X": "the value of a parameter of the best job",
}
