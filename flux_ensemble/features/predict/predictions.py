"""Predictions of the durations of jobs, for the groups that have `predict`.

A job enters the model when it is gone, so the rules on its end see the prediction made without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.engine.backlog import Order
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.engine.submissions import Submissions
from flux_ensemble.features.predict.document import Predicted
from flux_ensemble.features.predict.durations import Durations
from flux_ensemble.features.predict.longest_first import LongestFirst
from flux_ensemble.scalars import number

#: The variable of the model for the entry of `jobs` that a job belongs to, if several entries of
#: its group have `predict`. No parameter has this name.
_ENTRY = "#"


class Predictions:
    """The models of one engine.

    Args:
        core: the engine's core.

    Attributes:
        models: group -> model, for the groups that have `predict`.
        cores: the number of cores of the ensemble's running jobs.
        most_cores: the largest number of such cores so far.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        groups = self._groups = core.spec.groups
        self.models = {
            name: Durations() for name, group in groups.items() if "predict" in group.features
        }
        self.cores = 0
        self.most_cores = 0
        self._submissions = Submissions(groups)
        self._several = {
            name
            for name in self.models
            if sum("predict" in job_set.features for job_set in groups[name].sets) > 1
        }

    def orders(self) -> Iterator[tuple[str, Callable[[], Order]]]:
        """Yield the groups with an `order`, with what makes it for a queue."""
        for name, model in self.models.items():
            said = [_of(job_set) for job_set in self._groups[name].sets]
            if any(one is not None and one.order is not None for one in said):
                yield name, partial(LongestFirst, self.rank, partial(getattr, model, "version"))

    def of(self, job: ActiveJob) -> float | None:
        """Return the predicted seconds of a job; None if not known."""
        return None if job.firing is None else self.predicted(job.firing, job.index)

    def predicted(self, firing: Firing, index: int) -> float | None:
        """Return the predicted seconds of a job; None if not known."""
        model = self.models.get(firing.group)
        values = None if model is None else self._values(firing, index)
        return None if model is None or values is None else model.predict(values)

    def rank(self, firing: Firing, index: int) -> float | None:
        """Return the predicted seconds by the model's state at its latest `version`."""
        values = self._values(firing, index)
        return None if values is None else self.models[firing.group].rank(values)

    def job(self, firing: Firing, index: int) -> tuple[float | None, int]:
        """Return the predicted seconds of a job, or None, and the number of its cores."""
        job_set, _ = self._job(firing, index)
        return self.predicted(firing, index), job_set.tasks * job_set.cores

    def started(self, job: ActiveJob) -> None:
        """Count the cores of a job that starts."""
        self.cores += self._cores(job)
        self.most_cores = max(self.most_cores, self.cores)

    def ended(self, job: ActiveJob) -> None:
        """Count off the cores of a job that ran."""
        self.cores -= self._cores(job)

    def shrunk(self) -> None:
        """Reset `most_cores`, since there may be fewer cores than there were."""
        self.most_cores = self.cores

    def learn(self, job: ActiveJob) -> None:
        """Learn from a job that is gone, if it ran and succeeded."""
        firing, model = job.firing, self.models.get(job.group or "")
        if model is None or firing is None or job.outcome != "success":
            return
        values = self._values(firing, job.index)
        if values is not None and job.t_start is not None and job.t_end is not None:
            model.learn(values, job.t_end - job.t_start)

    def check(self) -> None:
        """Check the invariants that hold after every event.

        Raises:
            AssertionError: an invariant is broken.
        """
        if self.models:
            assert self.cores == self._running_cores() <= self.most_cores

    def _running_cores(self) -> int:
        jobs = self._core.workload.jobs.values()
        return sum(self._cores(job) for job in jobs if job.phase is Phase.RUNNING)

    def _job(self, firing: Firing, index: int) -> tuple[JobSet, dict[str, Any]]:
        of_job: tuple[JobSet, dict[str, Any]] = self._submissions.of(firing)[index]
        return of_job

    def _cores(self, job: ActiveJob) -> int:
        assert job.firing is not None
        job_set, _ = self._job(job.firing, job.index)
        return job_set.tasks * job_set.cores

    def _values(self, firing: Firing, index: int) -> dict[str, Any] | None:
        """Return a job's variables for its group's model; None if its entry has no `predict`."""
        job_set, params = self._job(firing, index)
        said = _of(job_set)
        if said is None:
            return None
        values = {name: number(params[name]) for name in said.params if name in params}
        if firing.group in self._several:
            values[_ENTRY] = str(job_set.index)
        return values

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any] | None:
        """Return the models as JSON; None before the first job has run."""
        models = {name: model.dump() for name, model in self.models.items() if model.count}
        if not models and not self.most_cores:
            return None
        return {"models": models, "most_cores": self.most_cores}

    def load(self, value: Mapping[str, Any] | None) -> None:
        """Set the state from the result of `dump`; None for an empty one."""
        if self.models:
            known = value or {}
            for name, dumped in known.get("models", {}).items():
                self.models[name].load(dumped)
            self.cores = self._running_cores()
            self.most_cores = known.get("most_cores", 0)


def _of(job_set: JobSet) -> Predicted | None:
    """Return what an entry of `jobs` says of predictions."""
    said: Predicted | None = job_set.features.get("predict")
    return said
