"""The importances of a search's variables for its objectives, of the trials that are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_ensemble.features.search.model import Search, Variable
from flux_ensemble.features.search.trials import COMPLETE, INFEASIBLE, Trial, Trials
from flux_ensemble.metrics.importance import ABSENT, importances

#: The most trials that are used: of more, evenly spaced ones.
MOST = 1000


class Matter:
    """The importances of a search's variables, which are computed again when there are more trials.

    Args:
        trials: of the search.
    """

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._complete = -1
        self._found: dict[str, list[dict[str, Any]]] = {}

    def report(self) -> dict[str, list[dict[str, Any]]]:
        """Return the importances for each objective as JSON (docs/status.md)."""
        counts = self._trials.counts
        complete = counts[COMPLETE] + counts.get(INFEASIBLE, 0)
        if self._complete != complete:
            self._complete, self._found = complete, self._computed(complete)
        return self._found

    def _computed(self, complete: int) -> dict[str, list[dict[str, Any]]]:
        search = self._trials.search
        ended = map(self._trials.all.__getitem__, self._trials.ended)
        trials = [trial for trial in ended if trial.state in (COMPLETE, INFEASIBLE)]
        if complete > MOST:
            trials = [trials[place * complete // MOST] for place in range(MOST)]
        params = _params(search, trials)
        costs = [self._trials.costs(trial) for trial in trials]
        return {
            objective.key: [
                {"name": one.name, "share": round(one.share, 4), "trials": one.points}
                for one in importances(params, [of_trial[place] for of_trial in costs])
            ]
            for place, objective in enumerate(search.objectives)
        }


def _params(search: Search, trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return the values of each variable in some trials.

    >>> variables = Variable("x", 0.0, 1.0), Variable("y", 0.0, 1.0, when="x > 0.5")
    >>> trials = [Trial(0, (0.7, 0.2), None), Trial(1, (0.3, None), None)]
    >>> found = _params(Search("hpo", "trial", variables, ()), trials)
    >>> found["x"], found["y"][0], found["y"][1] is ABSENT
    ([0.7, 0.3], 0.2, True)
    """
    return {
        variable.name: [
            ABSENT
            if variable.when is not None and _lacks(search, trial, variable, place)
            else trial.params[place]
            for trial in trials
        ]
        for place, variable in enumerate(search.variables)
    }


def _lacks(search: Search, trial: Trial, variable: Variable, place: int) -> bool:
    """Return whether a trial has no value of a variable under a condition."""
    if trial.params[place] is not None:
        return False
    # Null may be one of the choices.
    return None not in variable.choices or variable.name not in search.named(trial.params)
