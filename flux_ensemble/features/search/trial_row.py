"""The keys of a trial in the row of its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.document.model import Spec
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.features.search.state import judge, parse_trial, stopped_early
from flux_ensemble.features.search.trials import CANCELED
from flux_ensemble.words import ACTIVE, PRUNED


def describer(spec: Spec) -> Callable[[str, ActiveJob, Mapping[str, Any]], dict[str, Any]]:
    """Return what makes the keys of a row of the name of a trial, its job and the job's parameters.

    Args:
        spec: the document of the ensemble.
    """
    searches = {search.id: search for search in searches_of(spec)}

    def describe(name: str, job: ActiveJob, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of a trial and its state by the outcome of its job."""
        id, number = parse_trial(name)
        search = searches[id]
        # The job has some value of a variable, too, whose condition does not hold for the trial.
        own = search.space.settled(params) if search.subject_to else {}
        state = ACTIVE if job.outcome is None else judge(search, job, own).how
        if state == CANCELED and job.exception_note == stopped_early(id, number):
            state = PRUNED
        return {"trial": number, "trial_state": state}

    return describe
