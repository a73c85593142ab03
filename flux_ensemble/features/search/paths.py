"""The fields of a search in expressions: `search.ID.best.VARIABLE`, and its counts."""

from __future__ import annotations

from dataclasses import dataclass

from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.texts import shown

#: The first key of the metrics.
SEARCH = "search"

#: Fields that are numbers of trials: of those that have ended, and of those with each outcome.
COUNTS = ("trials", "complete", "failed", "canceled")

#: The number of trials that were stopped early, if the search has `stop`.
PRUNED = "pruned"

#: The number of trials that violate a constraint, if the search has some on their outcomes.
INFEASIBLE = "infeasible"

#: The number of trials in the Pareto front, if there are several objectives.
FRONT = "front"

#: Fields of the best trial besides its parameters.
OF_BEST = ("value", "trial")


@dataclass(frozen=True, slots=True)
class Searched:
    """A search: its name, the group of its trials, and the variables that it varies.

    A search with several objectives has no best trial; it has the size of its Pareto front. One
    that is `bound` has constraints on the outcomes of trials.
    """

    id: str
    group: str
    variables: tuple[str, ...]
    several: bool = False
    stops: bool = False
    bound: bool = False

    def path(self, keys: list[str]) -> MetricPath:
        """Return the metric with these keys, the first two of which are "search" and its name.

        Raises:
            ValueError: there is no such field.

        >>> str(Searched("hpo", "trial", ("lr",)).path(["search", "hpo", "best", "lr"]))
        'search.hpo.best.lr'
        """
        _, _, *rest = keys
        fields = [*COUNTS]
        if self.bound:
            fields.append(INFEASIBLE)
        if self.stops:
            fields.append(PRUNED)
        if self.several:
            fields.append(FRONT)
        else:
            fields += [f"best.{name}" for name in (*OF_BEST, *self.variables)]
        if ".".join(rest) not in fields:
            raise ValueError(
                f"no field {shown('.'.join(keys))} (fields of 'search.{self.id}': "
                f"{', '.join(fields)})"
            )
        return MetricPath(SEARCH, self.group, ".".join((self.id, *rest)))
