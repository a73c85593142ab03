"""Copies: a job runs a second time beside itself, and the first of the two to succeed counts.

A piece of work is the job of one index of one firing. As long as it has a copy it is in this
table, with how many of its jobs are not over and whether one of them has succeeded. Then

- the first success counts, and the others are cancelled;
- what becomes of the others after that is no outcome of the work: they are `canceled`, even one
  that succeeds before it is cancelled;
- a job that fails while another one goes on does not run again, and is not finished: the other is
  its further attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import ActiveJob

#: A piece of work: the firing that first asked for it, as text, and the index of the job.
Key = tuple[str, int]


class Work:
    """A piece of work that has a copy.

    Args:
        left: how many of its jobs are not over.
        won: one of them has succeeded.
        jobs: the ids of those that have appeared in the queue.
        firing: the key of the firing that asked for the copy.
    """

    def __init__(self, left: int, won: bool, jobs: list[int], firing: tuple[str, int]) -> None:
        self.left = left
        self.won = won
        self.jobs = jobs
        self.firing = firing


class Copies:
    """The pieces of work of one engine that have copies.

    Attributes:
        works: by key; empty where nothing has a copy, which is soon looked up.
    """

    def __init__(self) -> None:
        self.works: dict[Key, Work] = {}

    def of(self, job: ActiveJob) -> Work | None:
        """The work that a job of the ensemble does, if that has a copy."""
        return None if job.firing is None else self.works.get(key_of(job.firing, job.index))

    def begin(self, job: ActiveJob, firing: tuple[str, int]) -> str:
        """A job gets a copy.

        Args:
            job: which has none.
            firing: the key of the firing that asks for it.

        Returns:
            What the firing of the copy has as its `work`.
        """
        assert job.firing is not None
        key = key_of(job.firing, job.index)
        self.works[key] = Work(2, False, [job.id], firing)
        return key[0]

    def appeared(self, job: ActiveJob) -> None:
        """A job has appeared in the queue."""
        work = self.of(job)
        if work is not None:
            work.jobs.append(job.id)

    def judge(self, job: ActiveJob) -> None:
        """The outcome of a job is known: after the first success there is no other."""
        work = self.of(job)
        if work is not None and work.won:
            job.outcome, job.interrupted = "canceled", False

    def over(self, firing: Firing, index: int, *, won: bool = False) -> Work | None:
        """A job is over, or is never sent; its work as it is then, if that has a copy.

        Args:
            firing, index: of the job.
            won: it has succeeded, and is the first.
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
        """The jobs of a firing that wait are never sent: the works that had copies."""
        for index in range(firing.next, firing.stop) if self.works else ():
            work = self.over(firing, index)
            if work is not None:
                yield work

    def dump(self) -> list[list[Any]]:
        """The table as JSON."""
        return [
            [*key, work.left, work.won, work.jobs, *work.firing] for key, work in self.works.items()
        ]

    def load(self, value: Iterable[list[Any]]) -> None:
        """Set what `dump` returned."""
        for firing, index, left, won, jobs, rule, number in value:
            self.works[firing, index] = Work(left, won, list(jobs), (rule, number))


def key_of(firing: Firing, index: int) -> Key:
    """The piece of work that a job does."""
    return (firing.work or f"{firing.rule}:{firing.number}", index)
