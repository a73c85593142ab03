"""Pruning: the values that jobs of trials publish decide whether the trials are stopped early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Origin
from flux_ensemble.engine.search_state import SearchState, parse_trial, stopped_early
from flux_ensemble.engine.submitter import search_rule
from flux_ensemble.metrics.numbers import finite


class Pruner:
    """Stops the trials of one engine.

    Args:
        core: the engine's core.
        states: the searches, by id.
    """

    def __init__(self, core: Core, states: Mapping[str, SearchState]) -> None:
        self._core = core
        self._states = states

    def published(self, job: ActiveJob, memo: Mapping[str, Any]) -> None:
        """Stop a trial if the values in a memo of its job are too bad."""
        firing = job.firing
        assert firing is not None
        assert firing.trial is not None
        id, number = parse_trial(firing.trial)
        state = self._states[id]
        stop, objective = state.search.stop, state.search.objectives[0]
        if stop is None or state.stopping is None or objective.key not in memo:
            return
        value, step = _number(memo[objective.key]), _number(job.memo.get(stop.step))
        if value is None or step is None:
            return
        if number not in state.trials.active or number in state.stopped:
            return
        (cost,) = state.search.costs(value)
        late = job.evicted or not job.may_be_canceled or not self._core.acting
        if not state.stopping.publish(number, step, cost) or late:
            return
        state.stopped[number] = value, step
        job.canceling = True
        core, search = self._core, state.search
        core.record(eventlog.Pruned(search=id, trial=number, id=job.id, step=step, value=value))
        core.cancel(
            (job.id,),
            stopped_early(id, number),
            Origin(search_rule(id), number, (), None, (search.group,)),
        )


def _number(value: Any) -> float | None:
    return finite(value) if type(value) in (int, float) else None
