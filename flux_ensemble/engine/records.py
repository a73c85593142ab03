"""The record of jobs: each job that is gone, once.

    Job is gone ──add──► Records ──take──► encode ──► JSON beside a snapshot ──decode──► Job

A record does not change any more. Records since the last snapshot are in memory, and a replay
restores them. The caller of `take` keeps those before it, as it keeps the values of streams
(`metrics.streams`). Data that follows from the document is not stored: the parameters of a job
follow from its firing and its index.

In JSON, jobs are in columns, and rare attributes are in `more`: see `engine.compact`. The `lives`
of jobs are four columns, in microseconds, the resolution of Flux: the time of submission as the
difference from the job before; and the times of allocation, start and end as the differences from
the submission. Ids and indices are differences from the job before. If all jobs have the same
firing or ranks, that value stands instead of the column. What jobs used is in the two columns of
`used`, which exists if it is known of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from flux_ensemble.engine.attempts import ReplacedAttempts
from flux_ensemble.engine.compact import columns, unusual
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import RECORDED, ActiveJob, Phase

#: Columns of the firings.
_FIRING_COLUMNS = ("rule", "number", "group")
_FIRING_UNUSUAL: Mapping[str, Any] = {
    "each": None,
    "params": None,
    "overrides": None,
    "attempt": 0,
    "trial": None,
    "work": None,
}

#: Units of a time in a second.
_MICRO = 1_000_000


class Records:
    """The jobs that are gone and have not been taken yet.

    Args:
        limit: the most jobs that are recorded in all; 0 if there is no record.

    Attributes:
        attempts: those of the recorded jobs that run again.
        total: the number of jobs that were recorded.
        dropped: the number of jobs that were not recorded, because of the limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: list[ActiveJob] | None = None
        self.attempts = ReplacedAttempts()
        self.total = 0
        self.dropped = 0

    @property
    def kept(self) -> bool:
        """True if jobs are recorded."""
        return self._limit > 0

    def keep(self) -> None:
        """Keep jobs from now on, for `take`."""
        if self._jobs is None:
            self._jobs = []

    def add(self, job: ActiveJob) -> bool:
        """Add a job that is gone; return False if it is the first one beyond the limit."""
        if self.total >= self._limit:
            self.dropped += bool(self._limit)
            return self.dropped != 1
        self.attempts.recorded(job, self.total)
        self.total += 1
        if self._jobs is not None:
            self._jobs.append(job)
        return True

    @property
    def waiting(self) -> Sequence[ActiveJob]:
        """The jobs since the last `take`, in the order in which they were gone."""
        return self._jobs or ()

    def take(self) -> list[ActiveJob]:
        """Return the jobs since the last call, and forget them."""
        jobs, self._jobs = self._jobs or [], None if self._jobs is None else []
        return jobs

    def dump(self) -> list[int]:
        """Return the counts as JSON."""
        return [self.total, self.dropped]

    def load(self, value: Sequence[int]) -> None:
        """Set the counts from the result of `dump`."""
        self.total, self.dropped = value


# -- as JSON ----------------------------------------------------------------------------


def encode(jobs: Sequence[ActiveJob]) -> dict[str, Any]:
    """Return one or more jobs that are gone as JSON."""
    positions: dict[Firing, int] = {}
    firings: list[int] = []
    steps: list[int] = []
    indices: list[int] = []
    submits: list[int] = []
    allocs: list[int | None] = []
    starts: list[int | None] = []
    ends: list[int | None] = []
    ranks: list[str | None] = []
    cpu: list[int | None] = []
    rss: list[int | None] = []
    odd: list[int] = []
    last = last_index = base = 0
    for number, job in enumerate(jobs):
        firing = job.firing
        assert firing is not None
        firings.append(positions.setdefault(firing, len(positions)))
        steps.append(job.id - last)
        last = job.id
        indices.append(job.index - last_index)
        last_index = job.index
        submitted = _micros(job.t_submit)
        submits.append(submitted - base)
        base = submitted
        t_alloc, t_start, t_end = job.t_alloc, job.t_start, job.t_end
        allocs.append(None if t_alloc is None else _micros(t_alloc) - submitted)
        starts.append(None if t_start is None else _micros(t_start) - submitted)
        ends.append(None if t_end is None else _micros(t_end) - submitted)
        ranks.append(job.ranks)
        used = job.used
        cpu.append(None if used is None else used[0])
        rss.append(None if used is None else used[1])
        if not job.is_usual:
            odd.append(number)
    more = list(positions)
    rare = unusual([jobs[number] for number in odd], RECORDED)
    of_use = {"used": [cpu, rss]} if any(value is not None for value in cpu) else {}
    return {
        "firings": {**columns(more, _FIRING_COLUMNS), "more": unusual(more, _FIRING_UNUSUAL)},
        "firing": firings if len(positions) > 1 else 0,
        "id": steps,
        "indices": indices,
        "lives": [submits, allocs, starts, ends],
        "ranks": ranks if len(set(ranks)) > 1 else ranks[0],
        **of_use,
        "more": [[odd[position], attributes] for position, attributes in rare],
    }


def _micros(t: float) -> int:
    """Return a time in microseconds; a half is rounded to even, as in `describe`."""
    return round(t * _MICRO)


def decode(value: Mapping[str, Any]) -> list[ActiveJob]:
    """Return the jobs from which `encode` made the value.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: the value is no result of `encode`.
    """
    firings = []
    table = value["firings"]
    for rule, number, group in zip(*(table[name] for name in _FIRING_COLUMNS), strict=True):
        firings.append(Firing(rule, number, group, 0, 0))
    _set(firings, table["more"])
    jobs: list[ActiveJob] = []
    id = submitted = 0
    count = len(value["id"])
    if "times" in value:
        # Earlier versions wrote a list of times for each job.
        lives, indices = list(zip(*value["times"], strict=True)), value["index"]
    else:
        lives, indices = value["lives"], accumulate(value["indices"])
    for position, step, later, t_alloc, t_start, t_end, index, ranks in zip(
        _each(value["firing"], count),
        value["id"],
        *lives,
        indices,
        _each(value["ranks"], count),
        strict=True,
    ):
        id += step
        submitted += later
        firing = firings[position]
        job = ActiveJob(id, firing.group, firing, index, submitted / _MICRO)
        if t_alloc is not None:
            job.t_alloc = (submitted + t_alloc) / _MICRO
        if t_start is not None:
            job.t_start = (submitted + t_start) / _MICRO
        if t_end is not None:
            job.t_end = (submitted + t_end) / _MICRO
        job.phase, job.outcome, job.status, job.ranks = Phase.GONE, "success", 0, ranks
        jobs.append(job)
    if "used" in value:
        for job, cpu, rss in zip(jobs, *value["used"], strict=True):
            if cpu is not None:
                job.used = cpu, rss
    _set(jobs, value["more"])
    return jobs


def _each(column: Any, count: int) -> Sequence[Any]:
    """Return a column; a single value stands for a column of equal values."""
    return column if type(column) is list else [column] * count


def _set(items: Sequence[Any], more: Sequence[Any]) -> None:
    for position, attributes in more:
        for name, attribute in attributes.items():
            setattr(items[position], name, attribute)
