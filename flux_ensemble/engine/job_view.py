"""The triggering job, as conditions and actions see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.jobspec import NO_FILE
from flux_ensemble.document.texts import filler
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.job_keys import MAX_ID, named
from flux_ensemble.engine.jobs import Job, runtime
from flux_ensemble.engine.triggered import Cause
from flux_ensemble.metrics.job_fields import MEMO, PARAMS, PREDICTED, JobField


def caused_by(core: Core, job: Job, name: str, t: float, context: Mapping[str, Any]) -> Cause:
    """Why rules on `job-NAME` are evaluated: what is told of the job, and what it is seen as."""
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
    """Gives the fields of a job as they are at one event.

    Args:
        core: of the engine.
        job: the job; one that the ensemble did not submit has no parameters and no shape.
        t: the time of the event.
        event: its name.
    """

    __slots__ = ("_core", "_event", "_job", "_t")

    def __init__(self, core: Core, job: Job, t: float, event: str) -> None:
        self._event = event
        self._core = core
        self._job = job
        self._t = t

    def __call__(self, field: JobField) -> Any:
        """The value of a field; None if it has none, or none yet."""
        if field.name == PARAMS:
            return self.params.get(field.key or "")
        if field.name == MEMO:
            return self._job.memo.get(field.key or "")
        if field.name == PREDICTED:
            return self._predicted()
        if field.name == "copied":
            return self._core.copies.of(self._job) is not None
        if field.name == "id" and self._job.id > MAX_ID:
            # Text, because no number in an expression is that large.
            return named(self._core.member_names, self._job.id)
        of_job = _OF_JOB.get(field.name)
        if of_job is not None:
            return of_job(self._job, self._t)
        if self._job.firing is None:
            return None
        job_set, _ = self._core.job_of(self._job)
        return _OF_SET[field.name](job_set)

    def _predicted(self) -> float | None:
        job = self._job
        if job.firing is None:
            return None
        return self._core.workload.predictions.predicted(job.firing, job.index)

    @property
    def params(self) -> Mapping[str, Any]:
        """Its parameters."""
        return {} if self._job.firing is None else self._core.job_of(self._job)[1]

    def told(self) -> dict[str, Any]:
        """What a custom function is told of it, besides the event."""
        job = self._job
        told: dict[str, Any] = {
            "name": self._event,
            "params": dict(self.params),
            "memo": dict(job.memo),
            "returncode": job.returncode,
            "index": None,
            "attempt": None,
            "output": None,
            "workdir": None,
        }
        if job.firing is not None:
            job_set, params = self._core.job_of(job)
            fill = filler(params)
            told["index"], told["attempt"] = job.index, job.firing.attempt
            output = None if job_set.output in NO_FILE else job_set.output
            for name, path in (("output", output), ("workdir", job_set.workdir)):
                told[name] = None if path is None else fill(path)
        return told


class CombinationView:
    """Gives the parameters that the jobs of a combination have in common.

    Args:
        params: these, by name.
    """

    __slots__ = ("params",)

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def __call__(self, field: JobField) -> Any:
        """The value of a parameter."""
        return self.params.get(field.key or "")

    def told(self) -> dict[str, Any]:
        """What a custom function is told of it, besides the event."""
        return {}


def _pending(job: Job, t: float) -> float | None:
    return None if job.t_start is None else max(0.0, job.t_start - job.t_submit)


_OF_JOB: Mapping[str, Callable[[Job, float], Any]] = {
    "id": lambda job, t: job.id,
    "index": lambda job, t: None if job.firing is None else job.index,
    "attempt": lambda job, t: None if job.firing is None else job.firing.attempt,
    "runtime": lambda job, t: runtime(job.t_start, job.t_end, t),
    "pending": _pending,
    "returncode": lambda job, t: job.returncode,
    "outcome": lambda job, t: job.outcome,
    "exception.type": lambda job, t: job.exception_type,
    "exception.note": lambda job, t: job.exception_note,
}

_OF_SET: Mapping[str, Callable[[JobSet], Any]] = {
    "nnodes": lambda job_set: job_set.nodes,
    "ntasks": lambda job_set: job_set.tasks,
    "ncores": lambda job_set: job_set.tasks * job_set.cores,
    "ngpus": lambda job_set: job_set.tasks * job_set.gpus,
    "duration": lambda job_set: job_set.duration,
    "urgency": lambda job_set: job_set.urgency,
}
