"""The fields of jobs: each as conditions and actions see it, and all of them as a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from flux_ensemble.document import jobspec
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.jobspec import NO_FILE
from flux_ensemble.document.model import RETRY_RULE, Spec
from flux_ensemble.engine.absences import Absences
from flux_ensemble.engine.attempts import replaced_by
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.intervals import ids
from flux_ensemble.engine.job_keys import split
from flux_ensemble.engine.jobs import FIELDS, ActiveJob, Phase, runtime
from flux_ensemble.engine.submissions import Submissions
from flux_ensemble.engine.trigger_queue import Cause
from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.job_fields import IDLE, IdleField, JobField
from flux_ensemble.metrics.job_row import COLUMNS, MEMO, PARAMS, JobRow
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

    def __call__(self, field: JobField | IdleField) -> Any:
        """Return the value of a field; None if it has none, or none yet."""
        assert isinstance(field, JobField)
        if field.name == PARAMS:
            return self.params.get(field.key or "")
        if field.name == MEMO:
            return self._job.memo.get(field.key or "")
        if field.name == "id":
            id = self._job.id
            # The id is given as text, because no number in an expression is that large.
            return self._core.job_name(id)
        attribute = FIELDS.get(field.name)
        if attribute is not None:
            return getattr(self._job, attribute)
        of_feature = self._core.hooks.fields.get(field.name)
        if of_feature is not None:
            return of_feature(self._job)
        if field.name == "runtime":
            return runtime(self._job.t_start, self._job.t_end, self._t)
        if field.name == "pending":
            job = self._job
            return pending(self._core.workload.absences, job.id, job.t_submit, job.t_start)
        if self._job.firing is None:
            return None
        if field.name == "efficiency":
            seconds = runtime(self._job.t_start, self._job.t_end, self._t)
            return efficiency(self._job, self._core.job_of(self._job)[0], seconds)
        if field.name == "index":
            return self._job.index
        if field.name == "attempt":
            return self._job.firing.attempt
        return of_set(self._core.job_of(self._job)[0], field.name)

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
    """A view of the jobs of a combination, of which none is left.

    Args:
        params: the parameters that they have in common, by name.
        went: how the jobs went, by `IDLE_FIELDS`; empty if nothing reads it.
    """

    __slots__ = ("_went", "params")

    def __init__(self, params: Mapping[str, Any], went: Mapping[str, int]) -> None:
        self.params = params
        self._went = went

    def __call__(self, field: JobField | IdleField) -> Any:
        """Return the value of a parameter, or how many jobs went as the field says."""
        if isinstance(field, IdleField):
            return self._went.get(field.name)
        return self.params.get(field.key or "")

    def told(self) -> dict[str, Any]:
        """Return the fields that a custom function receives besides those of the event."""
        told: dict[str, Any] = {"params": numbers(self.params)} if self.params else {}
        return {**told, IDLE: dict(self._went)} if self._went else told


def pending(absences: Absences, key: int, t_submit: float, t_start: float | None) -> float | None:
    """Return the seconds that a job waited until it started; None if it has not started."""
    return None if t_start is None else absences.waited(key, t_submit, t_start)


def efficiency(job: ActiveJob, job_set: JobSet, seconds: float | None) -> float | None:
    """Return the share of a job's cores that it kept busy in the seconds that it ran.

    None if that is unknown, or if the job ran for no time.
    """
    if job.cpu_seconds is None or not seconds:
        return None
    return round(job.cpu_seconds / (seconds * of_set(job_set, "ncores")), 4)


#: Fields that are attributes of a job set.
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


#: The state of flux-jobs(1) for each phase.
_STATES = {
    Phase.NEW: "pending",
    Phase.PENDING: "pending",
    Phase.RUNNING: "running",
    Phase.FINISHED: "running",
    Phase.GONE: "inactive",
}

#: The keys of a row, in their order, but for `waits`, which only the queue knows.
_KEYS = tuple(dict.fromkeys(name.partition(".")[0] for name in COLUMNS if name != "waits"))

#: Fields of the exception of a job, by their keys.
_EXCEPTION = tuple(
    (name.removeprefix("exception."), attribute)
    for name, attribute in FIELDS.items()
    if name.startswith("exception.")
)
_PLAIN = tuple((name, attribute) for name, attribute in FIELDS.items() if "." not in name)

#: The number of firings whose submissions are cached.
_REMEMBERED = 100

_STREAMS = ("stdout", "stderr")


_NO_RERUN: Final[Mapping[tuple[str, int, int], int]] = {}

_NO_ABSENCES: Final = Absences()


@lru_cache
def _nodes(ranks: str) -> int:
    return sum(1 for _ in ids(ranks))


def _time(t: float | None) -> float | None:
    """Return a time as records have it; None for None."""
    return None if t is None else _rounded(t)


def _rounded(t: float) -> float:
    """Return a time rounded to the microsecond, the resolution of Flux."""
    return round(t * 1e6) / 1e6


class Describer:
    """Makes the rows of the jobs of an ensemble.

    Args:
        spec: the ensemble's document.
        cwd: the directory from which the ensemble was loaded.
        label: returns the text of a job id in the names of files, `{{id}}`.
        member: returns the name of a member by its number, for documents that have members.
        kept: gives the file that the queue keeps for what a job writes, by its id, where the
            document names none; None where it goes to the KVS.
        rerun: `Core.rerun` of the engine.
        absences: `Workload.absences` of the engine.
    """

    def __init__(
        self,
        spec: Spec,
        cwd: str,
        label: Callable[[int], str],
        member: Callable[[int], str] = str,
        kept: Callable[[int], str] | None = None,
        rerun: Mapping[tuple[str, int, int], int] = _NO_RERUN,
        absences: Absences = _NO_ABSENCES,
    ) -> None:
        self._cwd = cwd
        self._label = label
        self._member = member
        self._kept = kept
        self._rerun = rerun
        self._absences = absences
        self._of_trials = [part.describer(spec) for part in parts("trial_row")]
        self._submissions = Submissions(spec.groups, _REMEMBERED)
        #: Name and index of a job set -> True if its jobs write to files.
        self._writes: dict[tuple[str, int], bool] = {}

    def describe(self, job: ActiveJob, now: float) -> JobRow:
        """Return the row of a job of the ensemble, as it is at the time `now`."""
        firing = job.firing
        assert firing is not None
        job_set, params = self._submissions.of(firing)[job.index]
        ordinal, id = split(job.id)
        # Spans are computed from the rounded times, so that they agree with the times shown.
        t_submit, t_start, t_end = _rounded(job.t_submit), _time(job.t_start), _time(job.t_end)
        seconds = runtime(t_start, t_end, now)
        values: dict[str, Any] = {name: getattr(job, attribute) for name, attribute in _PLAIN}
        values["exception"] = {key: getattr(job, attribute) for key, attribute in _EXCEPTION}
        values["id"] = id
        if ordinal:
            values["member"] = self._member(ordinal)
        values["name"] = job_set.name
        values["state"] = _STATES[job.phase]
        values["group"] = firing.group
        values["rule"] = firing.rule
        values["firing"] = firing.number
        values["index"] = job.index
        values["attempt"] = firing.attempt
        if firing.work is not None:
            values["copy_of"] = firing.work
        replaced = replaced_by(job, self._rerun)
        if replaced is not None:
            values["replaced"] = f"{RETRY_RULE}:{replaced}"
        if firing.trial is not None:
            for describe in self._of_trials:
                values.update(describe(firing.trial, job, params))
        values["params"] = params
        values["nnodes"] = None if job.ranks is None else _nodes(job.ranks)
        for name in ("ntasks", "ncores", "ngpus", "duration", "urgency"):
            values[name] = of_set(job_set, name)
        values["efficiency"] = efficiency(job, job_set, seconds)
        values["t_submit"] = t_submit
        values["t_alloc"] = _time(job.t_alloc)
        values["t_run"] = t_start
        values["t_end"] = t_end
        values["pending"] = _time(pending(self._absences, job.id, t_submit, t_start))
        values["runtime"] = None if seconds is None else round(seconds, 6)
        values["output"], values["error"] = self._paths(job, job_set, params)
        return cast(JobRow, {key: values[key] for key in _KEYS if key in values})

    def _paths(
        self, job: ActiveJob, job_set: JobSet, params: Mapping[str, Any]
    ) -> tuple[str | None, str | None]:
        """Return the files of a job's output and errors; None for those that go to the KVS."""
        kept = None if self._kept is None else self._kept(job.id)
        key = job_set.name, job_set.index
        if key not in self._writes:
            self._writes[key] = any(self._files(job_set, {}))
        if not self._writes[key]:
            return kept, kept
        output, error = self._files(job_set, params)
        label = self._label(split(job.id)[1])
        paths = [
            path and path.replace("{{id}}", label).replace("{{jobid}}", label)
            for path in (output, error or output)
        ]
        return paths[0] or kept, paths[1] or kept

    def _files(self, job_set: JobSet, params: Mapping[str, Any]) -> list[str | None]:
        whole = jobspec.build(job_set, params, environment={}, cwd=self._cwd, tag={})
        system = jobspec.anchored(whole)["attributes"]["system"]
        files = system.get("shell", {}).get("options", {}).get("output", {})
        return [
            options.get("path") if isinstance(options := files.get(stream), dict) else None
            for stream in _STREAMS
        ]
