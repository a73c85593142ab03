"""Copies: a second job does the same work beside the first, and the first success counts.

A piece of work is the job of one index of one firing. While it has a copy it is in this table, with
the number of its jobs that are not over, and whether one of them has succeeded. Then

- the first success counts, and the other jobs are cancelled;
- later outcomes are not outcomes of the work: the other jobs are `canceled`, even one that succeeds
  before it is cancelled;
- a job that fails while another one continues does not run again, and is not finished: the other
  one is its further attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import ActiveJob

#: A piece of work: the firing that first submitted it, as text, and the index of the job.
Key = tuple[str, int]


class Work:
    """A piece of work that has a copy.

    Args:
        left: the number of its jobs that are not over.
        won: True if one of them has succeeded.
        jobs: the ids of those that have appeared in the queue.
        firing: the key of the firing that submitted the copy.
    """

    def __init__(self, left: int, won: bool, jobs: list[int], firing: tuple[str, int]) -> None:
        self.left = left
        self.won = won
        self.jobs = jobs
        self.firing = firing


class Copies:
    """The pieces of work of one engine that have copies.

    Attributes:
        works: the pieces of work by key; empty, and so quick to test, if nothing has a copy.
    """

    def __init__(self) -> None:
        self.works: dict[Key, Work] = {}

    def of(self, job: ActiveJob) -> Work | None:
        """Return the work that a job of the ensemble does, if the work has a copy; else None."""
        return None if job.firing is None else self.works.get(key_of(job.firing, job.index))

    def begin(self, job: ActiveJob, firing: tuple[str, int]) -> str:
        """Add the work of a job that gets a copy.

        Args:
            job: a job without a copy.
            firing: the key of the firing that submits the copy.

        Returns:
            The value for `Firing.work` of the firing of the copy.
        """
        assert job.firing is not None
        key = key_of(job.firing, job.index)
        self.works[key] = Work(2, False, [job.id], firing)
        return key[0]

    def appeared(self, job: ActiveJob) -> None:
        """Note that a job has appeared in the queue."""
        work = self.of(job)
        if work is not None:
            work.jobs.append(job.id)

    def judge(self, job: ActiveJob) -> None:
        """Set the outcome of a job to canceled if another job of its work has succeeded before."""
        work = self.of(job)
        if work is not None and work.won:
            job.outcome, job.interrupted = "canceled", False

    def over(self, firing: Firing, index: int, *, won: bool = False) -> Work | None:
        """Count a job that is over, or will never be sent.

        Args:
            firing, index: firing and index of the job.
            won: the job is the first of its work that has succeeded.

        Returns:
            The job's work, updated; None if it has no copy.
        """
        key = key_of(firing, index)
        work = self.works.get(key)
        if work is not None:
            work.left -= 1
            work.won |= won
            if not work.left:
                del self.works[key]
        return work

    def waiting(self, firing: Firing) -> Iterator[Work]:
        """Count the waiting jobs of a firing as over, and yield the works of those with copies."""
        for index in range(firing.next, firing.stop) if self.works else ():
            work = self.over(firing, index)
            if work is not None:
                yield work

    def dump(self) -> list[list[Any]]:
        """Return the table as JSON."""
        return [
            [*key, work.left, work.won, work.jobs, *work.firing] for key, work in self.works.items()
        ]

    def load(self, value: Iterable[list[Any]]) -> None:
        """Set the table from the result of `dump`."""
        for firing, index, left, won, jobs, rule, number in value:
            self.works[firing, index] = Work(left, won, list(jobs), (rule, number))


def key_of(firing: Firing, index: int) -> Key:
    """Return the key of the piece of work that a job does."""
    return (firing.work or f"{firing.rule}:{firing.number}", index)
