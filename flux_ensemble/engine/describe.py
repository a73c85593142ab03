"""The description of a job as JSON (docs/rpc.md, `ensemble.jobs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from flux_ensemble.document import jobspec
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.intervals import ids
from flux_ensemble.engine.job_keys import split
from flux_ensemble.engine.job_view import of_set, pending
from flux_ensemble.engine.jobs import ActiveJob, Phase, runtime
from flux_ensemble.engine.pruning import note
from flux_ensemble.engine.search_state import judge, parse_trial
from flux_ensemble.engine.submissions import Submissions
from flux_ensemble.engine.trials import ACTIVE, CANCELED
from flux_ensemble.metrics.search_paths import PRUNED

#: The state of flux-jobs(1) for each phase.
_STATES = {
    Phase.NEW: "pending",
    Phase.PENDING: "pending",
    Phase.RUNNING: "running",
    Phase.FINISHED: "running",
    Phase.GONE: "inactive",
}

#: The number of firings whose submissions are cached.
_REMEMBERED = 100

_STREAMS = ("stdout", "stderr")


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
    """Describes the jobs of an ensemble.

    Args:
        spec: the ensemble's document.
        cwd: the directory from which the ensemble was loaded.
        label: returns the text of a job id in the names of files, `{{id}}`.
        member: returns the name of a member by its number, for documents that have members.
    """

    def __init__(
        self,
        spec: Spec,
        cwd: str,
        label: Callable[[int], str],
        member: Callable[[int], str] = str,
    ) -> None:
        self._cwd = cwd
        self._label = label
        self._member = member
        self._searches = {search.id: search for search in spec.searches}
        self._submissions = Submissions(spec.groups, _REMEMBERED)
        #: Name and index of a job set -> True if its jobs write to files.
        self._writes: dict[tuple[str, int], bool] = {}

    def describe(self, job: ActiveJob, now: float) -> dict[str, Any]:
        """Return the description of a job of the ensemble at the time `now`."""
        firing = job.firing
        assert firing is not None
        job_set, params = self._submissions.of(firing)[job.index]
        output, error = self._paths(job, job_set, params)
        # Spans are computed from the rounded times, so that they agree with the times shown.
        t_submit, t_start, t_end = _rounded(job.t_submit), _time(job.t_start), _time(job.t_end)
        seconds = runtime(t_start, t_end, now)
        ordinal, id = split(job.id)
        return {
            "id": id,
            **({"member": self._member(ordinal)} if ordinal else {}),
            "name": job_set.name,
            "state": _STATES[job.phase],
            "group": firing.group,
            "rule": firing.rule,
            "firing": firing.number,
            "index": job.index,
            "attempt": firing.attempt,
            **({} if firing.work is None else {"copy_of": firing.work}),
            **({} if firing.trial is None else self._trial(firing.trial, job)),
            "params": params,
            "nnodes": None if job.ranks is None else _nodes(job.ranks),
            "ntasks": of_set(job_set, "ntasks"),
            "ncores": of_set(job_set, "ncores"),
            "ngpus": of_set(job_set, "ngpus"),
            "duration": job_set.duration,
            "urgency": job_set.urgency,
            "ranks": job.ranks,
            "t_submit": t_submit,
            "t_alloc": _time(job.t_alloc),
            "t_run": t_start,
            "t_end": t_end,
            "pending": _time(pending(t_submit, t_start)),
            "runtime": None if seconds is None else round(seconds, 6),
            "outcome": job.outcome,
            "interrupted": job.interrupted,
            "returncode": job.returncode,
            "signal": job.signal,
            "exception": {"type": job.exception_type, "note": job.exception_note},
            "memo": job.memo,
            "memo_left_out": job.memo_left_out,
            "output": output,
            "error": error,
        }

    def _trial(self, name: str, job: ActiveJob) -> dict[str, Any]:
        """Return the number of a trial and its state by the outcome of its job."""
        id, number = parse_trial(name)
        state = ACTIVE if job.outcome is None else judge(self._searches[id], job)[0]
        if state == CANCELED and job.exception_note == note(id, number):
            state = PRUNED
        return {"trial": number, "trial_state": state}

    def _paths(
        self, job: ActiveJob, job_set: JobSet, params: Mapping[str, Any]
    ) -> tuple[str | None, str | None]:
        """Return the files of a job's output and errors; None for those that go to the KVS."""
        key = job_set.name, job_set.index
        if key not in self._writes:
            self._writes[key] = any(self._files(job_set, {}))
        if not self._writes[key]:
            return None, None
        output, error = self._files(job_set, params)
        label = self._label(split(job.id)[1])
        paths = [
            path and path.replace("{{id}}", label).replace("{{jobid}}", label)
            for path in (output, error or output)
        ]
        return paths[0], paths[1]

    def _files(self, job_set: JobSet, params: Mapping[str, Any]) -> list[str | None]:
        whole = jobspec.build(job_set, params, environment={}, cwd=self._cwd, tag={})
        system = jobspec.anchored(whole)["attributes"]["system"]
        files = system.get("shell", {}).get("options", {}).get("output", {})
        return [
            options.get("path") if isinstance(options := files.get(stream), dict) else None
            for stream in _STREAMS
        ]
