"""The triggering job, as conditions and actions see it: views of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.jobspec import NO_FILE
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.job_keys import MAX_ID, named
from flux_ensemble.engine.jobs import ActiveJob, runtime
from flux_ensemble.engine.trigger_queue import Cause
from flux_ensemble.metrics.job_fields import PREDICTED, JobField
from flux_ensemble.metrics.job_row import MEMO, PARAMS
from flux_ensemble.scalars import numbers


def caused_by(core: Core, job: ActiveJob, name: str, t: float, context: Mapping[str, Any]) -> Cause:
    """Return the cause for rules on `job-NAME`: the event for the log, and a view of the job."""
    seen: dict[str, Any] = {"trigger": f"job-{name}", "job": job.id}
    if core.member_names:
        seen.update(core.where(job.id))
    seen["group"], seen["timestamp"], seen["context"] = job.group, t, context
    cause = Cause(seen, job=JobView(core, job, t, name))
    if job.firing is not None:
        cause.rule, cause.group = job.firing.rule, job.group
        cause.combinations = core.workload.combinations(job)
    return cause


class JobView:
    """A view of a job's fields at one event.

    Args:
        core: the engine's core.
        job: the job; a foreign job has no parameters and no shape.
        t: the time of the event.
        event: the name of the event.
    """

    __slots__ = ("_core", "_event", "_job", "_t")

    def __init__(self, core: Core, job: ActiveJob, t: float, event: str) -> None:
        self._event = event
        self._core = core
        self._job = job
        self._t = t

    def __call__(self, field: JobField) -> Any:
        """Return the value of a field; None if it has none, or none yet."""
        if field.name == PARAMS:
            return self.params.get(field.key or "")
        if field.name == MEMO:
            return self._job.memo.get(field.key or "")
        if field.name == PREDICTED:
            return self._predicted()
        if field.name == "copied":
            return self._core.copies.of(self._job) is not None
        if field.name == "id" and self._job.id > MAX_ID:
            # The id is given as text, because no number in an expression is that large.
            return named(self._core.member_names, self._job.id)
        attribute = _OF_JOB.get(field.name)
        if attribute is not None:
            return getattr(self._job, attribute)
        if field.name == "runtime":
            return runtime(self._job.t_start, self._job.t_end, self._t)
        if field.name == "pending":
            return pending(self._job.t_submit, self._job.t_start)
        if self._job.firing is None:
            return None
        if field.name == "index":
            return self._job.index
        if field.name == "attempt":
            return self._job.firing.attempt
        return of_set(self._core.job_of(self._job)[0], field.name)

    def _predicted(self) -> float | None:
        job = self._job
        if job.firing is None:
            return None
        return self._core.workload.predictions.predicted(job.firing, job.index)

    @property
    def params(self) -> Mapping[str, Any]:
        """The job's parameters; empty for a foreign job."""
        return {} if self._job.firing is None else self._core.job_of(self._job)[1]

    def told(self) -> dict[str, Any]:
        """Return the fields that a custom function receives besides those of the event."""
        job = self._job
        told: dict[str, Any] = {
            "name": self._event,
            "params": numbers(self.params),
            "memo": dict(job.memo),
            "returncode": job.returncode,
            "index": None,
            "attempt": None,
            "output": None,
            "workdir": None,
        }
        if job.firing is not None:
            job_set, params = self._core.job_of(job)
            fill = job_set.filler(params)
            told["index"], told["attempt"] = job.index, job.firing.attempt
            output = None if job_set.output in NO_FILE else job_set.output
            for name, path in (("output", output), ("workdir", job_set.workdir)):
                told[name] = None if path is None else fill(path)
        return told


class CombinationView:
    """A view of the parameters that the jobs of a combination have in common.

    Args:
        params: the parameters, by name.
    """

    __slots__ = ("params",)

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def __call__(self, field: JobField) -> Any:
        """Return the value of a parameter."""
        return self.params.get(field.key or "")

    def told(self) -> dict[str, Any]:
        """Return the fields that a custom function receives besides those of the event."""
        return {"params": numbers(self.params)}


def pending(t_submit: float, t_start: float | None) -> float | None:
    """Return the seconds that a job waited until it started; None if it has not started."""
    return None if t_start is None else max(0.0, t_start - t_submit)


#: Field -> the attribute of a job, and of a job set, that holds it.
_OF_JOB: Final[dict[str, str]] = {
    "id": "id",
    "returncode": "returncode",
    "signal": "signal",
    "outcome": "outcome",
    "interrupted": "interrupted",
    "exception.type": "exception_type",
    "exception.note": "exception_note",
}
_OF_SET: Final[dict[str, str]] = {
    "nnodes": "nodes",
    "ntasks": "tasks",
    "duration": "duration",
    "urgency": "urgency",
}


def of_set(job_set: JobSet, field: str) -> Any:
    """Return a field of the shape of a job set's jobs, such as `ncores`."""
    if field == "ncores":
        return job_set.tasks * job_set.cores
    if field == "ngpus":
        return job_set.tasks * job_set.gpus
    return getattr(job_set, _OF_SET[field])
