"""The path of values from jobs to streams: values in memos, and durations."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.job_changes import Change
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, runtime
from flux_ensemble.metrics.best import Best, Point
from flux_ensemble.metrics.by_value import ByValue
from flux_ensemble.metrics.names import (
    DURATION_OF_FINISHED,
    GAUGES,
    INTERRUPTED,
    OF_SUCCESS,
    STREAMS,
    of_success,
)
from flux_ensemble.metrics.numbers import Number, finite
from flux_ensemble.metrics.paths import BEST
from flux_ensemble.metrics.streams import MAX_NAME, MAX_VALUES, MAX_VARIABLES
from flux_ensemble.texts import shortened

#: Memo keys with these names are ignored: they are variables that every group has.
_RESERVED_VARIABLES = frozenset((*STREAMS, *GAUGES, DURATION_OF_FINISHED))


class Values:
    """Passes the values of one engine's jobs to streams.

    Args:
        core: the engine's core.

    Attributes:
        further: True if there are streams by values of parameters, besides those of groups and
            members.
        ended: True if the last values of ended jobs are used, by `best` or by statistics of
            successful jobs.
        crowded: groups for which an ignored memo key was logged, and metrics for which ignored
            values of parameters were logged.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.further = bool(core.stats.by)
        self.ended = core.stats.bests.kept or core.stats.takes_successes
        self.crowded: set[str] = set()

    def published(self, job: ActiveJob, group: str, memo: Mapping[str, Any]) -> tuple[Change, ...]:
        """Pass the values of a job's memo to streams; return the metrics that changed.

        Each value counts once: those that an interrupted attempt has published before are left out,
        and what comes of an attempt after its interruption is left to the next one.
        """
        changed: list[Change] = []
        stats = self._core.stats
        for key, value in memo.items() if job.outcome != INTERRUPTED else ():
            if job.publishes(key):
                continue
            number = finite(value) if type(value) in (int, float) else None
            if number is None or self._is_reserved(group, key):
                stats.ignore(group, key)
            elif stats.has_room(group, key):
                stats.observe(group, key, number)
                self.of_member(job, group, key, number)
                changed.append(("", key))
                if self.further:
                    changed += self.by_value(job, group, key, number)
            else:
                stats.ignore(group, key)
                if group not in self.crowded:
                    self._leave_out(group, key)
        if self.ended:
            changed += self.running(job, group, memo)
        return tuple(changed)

    def of_member(self, job: ActiveJob, group: str, variable: str, value: Number) -> None:
        """Pass a value to the stream of the job's member, if rules read metrics of members."""
        if not self._core.stats.of_members.active:
            return
        name = self._core.member_names[ordinal_of(job.id)]
        self._core.stats.of_members.observe(name, group, variable, value)

    def running(self, job: ActiveJob, group: str, variables: Container[str]) -> tuple[Change, ...]:
        """Update the live bests from new values of a running job; return the changes."""
        bests = self._core.stats.bests
        changed: list[Change] = []
        for best in bests.of(group):
            wanted = best.live and job.outcome is None and best.variable in variables
            if wanted and bests.run(best.name, job.id, self._point(best, job)):
                changed.append((BEST, best.name))
        return tuple(changed)

    def over(self, job: ActiveJob, group: str) -> tuple[Change, ...]:
        """Handle the last values of a job whose outcome is known; return the changes."""
        bests = self._core.stats.bests
        changed: list[Change] = []
        for best in bests.of(group):
            point = self._point(best, job) if job.outcome == "success" else None
            if bests.end(best.name, job.id, point):
                changed.append((BEST, best.name))
        if self._core.stats.takes_successes and job.outcome == "success":
            for key, value in job.memo.items():
                if type(value) in (int, float) and not self._is_reserved(group, key):
                    changed += self._succeeded(job, group, key, value)
        return tuple(changed)

    def _succeeded(self, job: ActiveJob, group: str, key: str, value: Number) -> list[Change]:
        """Pass the last value of a successful job to the separate stream for such values."""
        stats, variable = self._core.stats, of_success(key)
        number = finite(value)
        if number is None or not stats.has_room(group, key):
            return []
        stats.observe(group, variable, number)
        self.of_member(job, group, variable, number)
        return [("", variable), *self.by_value(job, group, key, number, (variable,))]

    def _is_reserved(self, group: str, key: str) -> bool:
        """Return whether a memo key has the name of another variable."""
        stats = self._core.stats
        return (
            key in _RESERVED_VARIABLES
            or (stats.takes_successes and key.endswith(OF_SUCCESS))
            or stats.kept_by_value(group, key) is not None
        )

    def _point(self, best: Best, job: ActiveJob) -> Point | None:
        """Return a job with its value of a best's variable; None if it has no finite value."""
        value: Any = None
        core = self._core
        if best.variable == "pending" and job.t_start is not None:
            value = core.workload.absences.waited(job.id, job.t_submit, job.t_start)
        elif best.variable == "duration":
            value = None if job.t_end is None else runtime(job.t_start, job.t_end, job.t_end)
        else:
            value = job.memo.get(best.variable)
        value = finite(value) if type(value) in (int, float) else None
        if value is None:
            return None
        return Point(value, core.job_name(job.id), dict(self._core.job_of(job)[1]))

    def by_value(
        self, job: ActiveJob, group: str, variable: str, value: Number, streams: Sequence[str] = ()
    ) -> tuple[Change, ...]:
        """Pass a value to the streams by values of the job's parameters; return the changes.

        Args:
            job, group: the job, and its group.
            variable: the variable of the value.
            value: the value.
            streams: the variables of the streams, if they differ from `variable`.
        """
        stats = self._core.stats
        changed: list[Change] = []
        for by_value in stats.by.get((group, variable), ()):
            suffix = by_value.suffix(self._core.job_of(job)[1])
            for stream in streams or (variable,):
                if stats.has_room(group, stream + suffix):
                    stats.observe(group, stream + suffix, value)
                    changed.append(("", stream + suffix))
                else:
                    self._leave_out_value(by_value, suffix)
        return tuple(changed)

    def _leave_out_value(self, by_value: ByValue, suffix: str) -> None:
        """Count a value without a stream of its own, and log that once for each metric."""
        stats, form = self._core.stats, by_value.form
        stats.ignore(by_value.group, form.removeprefix(f"{by_value.group}-"))
        if form not in self.crowded:
            self.crowded.add(form)
            reason = (
                f"no statistics of {form} for {shortened(suffix)}, and of others like it: there "
                f"are at most {MAX_VALUES} of them, with names of at most {MAX_NAME} characters"
            )
            self._core.record(eventlog.ValuesLeftOut(group=by_value.group, reason=reason))

    def _leave_out(self, group: str, key: str) -> None:
        """Log, once for each group, that a memo key gets no stream."""
        self.crowded.add(group)
        reason = (
            f"no statistics of the memo key {shortened(repr(key))}, and of others like it: a group "
            f"has at most {MAX_VARIABLES} memo keys, of at most {MAX_NAME} characters each"
        )
        self._core.record(eventlog.MemoLeftOut(group=group, reason=reason))
