"""The metrics of searches: `search.ID.FIELD`."""

from __future__ import annotations

#: Noun, plural, and the fields of a search and of its best trial.
FAMILIES = {
    "search": (
        "search",
        "searches",
        {
            "best.VARIABLE": "the value of a variable in the best trial so far",
            "best.value": "the objective of the best trial",
            "best.trial": "the number of the best trial",
            "trials": "trials that have ended",
            "complete": "trials that are complete",
            "infeasible": "trials that violate a constraint, with `subject-to`",
            "failed": "trials that failed",
            "canceled": "trials that were cancelled",
            "pruned": "trials that were stopped early, with `stop`",
            "front": "trials in the Pareto front, with several objectives, in place of `best`",
        },
    ),
}
