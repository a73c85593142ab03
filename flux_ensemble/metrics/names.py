"""The vocabulary of metrics: counters, streams, gauges and the statistics that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.by_value import unsplit

#: The longest name of a group, rule, ensemble, parameter or statistic, in characters.
MAX_NAME = 128

#: The name of the member on which an ensemble runs.
MEMBER = "default"

#: Outcomes of a job (docs/metrics.md); a job ends in exactly one.
OUTCOMES = ("success", "failed", "canceled", "timeout")

#: The outcome of an attempt whose end was no doing of the job, and after which the job runs again.
INTERRUPTED = "interrupted"

#: Outcomes of an attempt; each attempt has exactly one.
ATTEMPT_OUTCOMES = (*OUTCOMES, INTERRUPTED)

#: Why an attempt did not succeed, in a word, and what each means.
REASONS: Mapping[str, str] = {
    "exit": "it ended with an exit code other than 0",
    "signal": "a signal ended it",
    "oom": "SIGKILL ended it (exit code 137), and nobody had cancelled it: so the kernel ends what "
    "takes too much memory",
    "timeout": "it reached its time limit",
    "canceled": "it was cancelled",
    "node": "its end was no doing of its own: its node, its member or its instance was lost, or "
    "ended",
    "start": "it never ran, or could not be started: its program or an input is missing",
}

#: Counters of a group, as in `count.GROUP.COUNTER`. A job that runs again is submitted again, and
#: each of its attempts has an outcome; it finishes once.
COUNTERS = ("submitted", "finished", *ATTEMPT_OUTCOMES, "attempts", "gave-up")

#: Counters that the first versions did not have; there `finished` counted attempts.
NEWER_COUNTERS = ("attempts", "gave-up", INTERRUPTED)

#: Metrics of the member, of the jobs that wait for it, of its shares, and of its time, as in
#: `nodes.free`. Those of features follow.
MEMBER_METRICS: dict[str, tuple[str, ...]] = {
    "nodes": ("size", "up", "free"),
    "queue": ("pending-nodes",),
    "share": ("queue",),
    "time": ("elapsed", "left"),
}
for _part in parts("metrics"):
    for _kind, _names in getattr(_part, "METRICS", {}).items():
        MEMBER_METRICS[_kind] = (*MEMBER_METRICS[_kind], *_names)

#: The first keys of metrics that features add, with names of their own: see `families`.
FAMILY_KEYS: tuple[str, ...] = tuple(
    key for part in parts("metrics") for key in getattr(part, "FAMILIES", {})
)

#: The first key of the metric `rate.GROUP`: the jobs of a group that finish per second.
RATE = "rate"

#: The key of the numbers of memo values without statistics, among the metrics; no statistic has
#: this name.
IGNORED = "memo-ignored"

#: Variables with a stream in every group; memo keys add more.
STREAMS = ("duration", "pending")

#: The stream of `duration` for the statistics of all finished jobs; paths do not name it.
DURATION_OF_FINISHED = "duration of finished"

#: The suffix of the stream of a memo key for the statistics of successful jobs.
OF_SUCCESS = " of success"

#: The jobs to which a statistic can be restricted. By default it uses durations of successful jobs,
#: and memos of all jobs.
OF = ("success", "finished")

#: Variables that exist only while a heartbeat is evaluated.
GAUGES = ("waiting", "running")


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic kept for every stream: `name` in paths, `kind` and arguments.

    The kind is the name of a class of River, or of one of our own (`metrics.statistics`).

    `of`, one of `OF`, restricts it to some jobs. By default it uses the durations of successful
    jobs, and the memo values of all jobs when they are published.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    of: str | None = None

    def stream(self, variable: str) -> str:
        """Return the variable of the statistic's stream for `variable` in a path.

        >>> Statistic("mean", "Mean").stream("duration")
        'duration'
        >>> Statistic("longest", "Max", of="finished").stream("duration")
        'duration of finished'
        >>> Statistic("mean", "Mean", of="success").stream("fom")
        'fom of success'
        """
        if self.of == "finished":
            return of_finished(variable)
        return of_success(variable) if self.of == "success" else variable


def of_finished(variable: str) -> str:
    """Return the variable for all finished jobs, if `variable` is of successful ones only.

    >>> of_finished("duration"), of_finished("duration[t=300]"), of_finished("fom")
    ('duration of finished', 'duration of finished[t=300]', 'fom')
    """
    own = variable == "duration" or (variable.startswith("duration[") and "=" in variable)
    return f"{DURATION_OF_FINISHED}{variable[len('duration') :]}" if own else variable


def of_success(variable: str) -> str:
    """Return the variable for successful jobs, if `variable` is a memo key, which is of all jobs.

    >>> of_success("duration"), of_success("fom"), of_success("fom[t=300]")
    ('duration', 'fom of success', 'fom of success[t=300]')
    """
    base = unsplit(variable)
    if base in STREAMS or base in GAUGES or base == DURATION_OF_FINISHED:
        return variable
    return f"{base}{OF_SUCCESS}{variable[len(base) :]}"


def as_named(variable: str) -> str:
    """Return the variable of a stream as paths name it.

    >>> as_named("duration of finished[t=300]"), as_named("fom of success"), as_named("fom")
    ('duration[t=300]', 'fom', 'fom')
    """
    base = unsplit(variable)
    if base == DURATION_OF_FINISHED:
        return f"duration{variable[len(base) :]}"
    return f"{base.removesuffix(OF_SUCCESS)}{variable[len(base) :]}"
