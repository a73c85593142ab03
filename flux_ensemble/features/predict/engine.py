"""Predictions in an engine, and the forecast `time.remaining` of an ensemble's end.

The forecast is the seconds until all known jobs are predicted to be over: the larger of two times,
the time that the last running job still takes, and the time that the cores take for all remaining
work if they are never idle. The number of cores is the most that the jobs of the ensemble have had
at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.feature import Feature, JobHooks
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import Phase
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.engine.workload import Workload
from flux_ensemble.features.predict.document import REMAINING
from flux_ensemble.features.predict.predictions import Predictions

#: The size of the sample: among more jobs of a group that run, or that have not appeared in the
#: queue, so many are chosen evenly and stand for the others.
MOST = 1000


def feature(core: Core, sending: Submitter) -> Feature:
    """Return the feature for an engine.

    Args:
        core: the engine's core.
        sending: submits jobs.
    """
    predictions = Predictions(core)
    if predictions.models:
        core.hooks.follow(
            JobHooks(began=predictions.started, ended=predictions.ended, gone=predictions.learn)
        )
        core.stats.computed[REMAINING] = partial(remaining, core, predictions)
        core.workload.backlog.ordered.update(predictions.orders())
    return Feature(
        "predictions",
        fields={"predicted": predictions.of},
        dump=predictions.dump,
        load=predictions.load,
        status=partial(_status, core),
        shrunk=predictions.shrunk,
        check=predictions.check,
    )


def _status(core: Core) -> dict[str, Any]:
    """Return when the ensemble's jobs are predicted to be over, if that is known."""
    left = core.stats.lookup(REMAINING) if core.acting else None
    return {} if left is None else {"t_predicted": core.t + left}


def remaining(core: Core, predictions: Predictions) -> float | None:
    """Predict the seconds until the jobs of groups with `predict` are over.

    Returns:
        The seconds; None if nothing is predicted yet, or no job has run.
    """
    workload, t = core.workload, core.t
    known, longest, work = False, 0.0, 0.0
    for group in predictions.models:
        sums = _Sum(), _Sum()
        active = [job for job in workload.active(group) if job.phase <= Phase.RUNNING]
        for job in active[:: _stride(len(active))]:
            assert job.firing is not None
            seconds, cores = predictions.job(job.firing, job.index)
            if seconds is not None:
                if job.t_start is not None:
                    seconds = max(0.0, seconds - max(0.0, t - job.t_start))
                    longest = max(longest, seconds)
                sums[0].add(seconds * cores)
        unseen = workload.waiting(group)
        for firing, index in _unseen(workload, group, unseen):
            seconds, cores = predictions.job(firing, index)
            if seconds is not None:
                sums[1].add(seconds * cores)
        work += sums[0].of(len(active)) + sums[1].of(unseen)
        known |= predictions.models[group].known
    if not known or not predictions.most_cores:
        return None
    return max(longest, work / predictions.most_cores)


class _Sum:
    """The sum of a sample."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._number = 0

    def add(self, value: float) -> None:
        self._sum += value
        self._number += 1

    def of(self, number: int) -> float:
        """Return the sum scaled to `number` values."""
        return self._sum / self._number * number if self._number else 0.0


def _stride(number: int) -> int:
    return -(-number // MOST) or 1


def _unseen(workload: Workload, group: str, number: int) -> Iterator[tuple[Firing, int]]:
    """Yield an even choice of the jobs that wait, or were sent and have not appeared."""
    stride, passed = _stride(number), 0
    for firing in workload.firings if number else ():
        if firing.group == group and (firing.unseen or firing.waiting):
            for gap in firing.seen.gaps(firing.first, firing.stop):
                for index in gap[-passed % stride :: stride]:
                    yield firing, index
                passed += len(gap)
