"""The record of jobs: each job that is gone, once.

    Job is gone ──add──► Records ──take──► encode ──► JSON beside a snapshot ──decode──► Job

A job stays as it was when it was gone. Those since the last snapshot are in memory, and come back
by replay; those before it are kept by whoever took them, as the values of streams are
(`metrics.streams`). What follows from the document is not stored: the parameters of a job follow
from its firing and its index.

In JSON, jobs are in columns, and what few have is in `more`: see `engine.compact`. The `lives` of
jobs are four columns: when each was submitted, after the job before, and how much later it was
given its resources, started and ended, in microseconds, as Flux has them. Ids and indices are
differences to the one before. Where all have the same firing or ranks there is that instead of a
column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from flux_ensemble.engine.compact import columns, unusual
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import ActiveJob, Phase

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
_UNUSUAL: Mapping[str, Any] = {
    "outcome": "success",
    "interrupted": False,
    "status": 0,
    "exception_type": None,
    "exception_note": None,
    "memo": {},
    "memo_left_out": 0,
}

#: Times are in these units of a second.
_MICRO = 1_000_000


class Records:
    """The jobs that are gone and that nobody has taken yet.

    Args:
        limit: how many jobs are recorded in all; 0 where there is no record.

    Attributes:
        total: how many were.
        dropped: how many were not, because of the limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: list[ActiveJob] | None = None
        self.total = 0
        self.dropped = 0

    @property
    def kept(self) -> bool:
        """There is a record."""
        return self._limit > 0

    def keep(self) -> None:
        """Keep jobs from now on, for `take`."""
        if self._jobs is None:
            self._jobs = []

    def add(self, job: ActiveJob) -> bool:
        """Add a job that is gone; False if it is the first for which there is no room."""
        if self.total >= self._limit:
            self.dropped += bool(self._limit)
            return self.dropped != 1
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
        """The counts as JSON."""
        return [self.total, self.dropped]

    def load(self, value: Sequence[int]) -> None:
        """Set what `dump` returned."""
        self.total, self.dropped = value


# -- as JSON ----------------------------------------------------------------------------


def encode(jobs: Sequence[ActiveJob]) -> dict[str, Any]:
    """Jobs that are gone, of which there is at least one, as JSON."""
    positions: dict[Firing, int] = {}
    firings: list[int] = []
    steps: list[int] = []
    indices: list[int] = []
    submits: list[int] = []
    allocs: list[int | None] = []
    starts: list[int | None] = []
    ends: list[int | None] = []
    ranks: list[str | None] = []
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
        if (
            job.outcome != "success"
            or job.status != 0
            or job.exception_type is not None
            or job.exception_note is not None
            or job.memo
            or job.memo_left_out
        ):
            odd.append(number)
    more = list(positions)
    rare = unusual([jobs[number] for number in odd], _UNUSUAL)
    return {
        "firings": {**columns(more, _FIRING_COLUMNS), "more": unusual(more, _FIRING_UNUSUAL)},
        "firing": firings if len(positions) > 1 else 0,
        "id": steps,
        "indices": indices,
        "lives": [submits, allocs, starts, ends],
        "ranks": ranks if len(set(ranks)) > 1 else ranks[0],
        "more": [[odd[position], attributes] for position, attributes in rare],
    }


def _micros(t: float) -> int:
    """Microseconds, of two that are as near the even one, as where a time is shown."""
    return round(t * _MICRO)


def decode(value: Mapping[str, Any]) -> list[ActiveJob]:
    """The jobs that `encode` was given.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: it is not what `encode` returned.
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
        # As versions before this one wrote it: a list for each job.
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
    _set(jobs, value["more"])
    return jobs


def _each(column: Any, count: int) -> Sequence[Any]:
    """A column, of which there is one value where all have the same."""
    return column if type(column) is list else [column] * count


def _set(items: Sequence[Any], more: Sequence[Any]) -> None:
    for position, attributes in more:
        for name, attribute in attributes.items():
            setattr(items[position], name, attribute)
