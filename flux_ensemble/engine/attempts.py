"""Attempts in the record whose jobs run again: how many there are, and which have no later one.

A list of jobs leaves an attempt out if there is a row of the retry that was to run its job again;
one whose retry has not come stands last (`client.tables`). Who reads the record to its end sees
that. A page of the last jobs is read without those before it, so the record is counted here:

    an attempt is recorded, or chosen by `rerun` ──► `number`; open: its retry has not come
    an attempt of its retry is recorded ───────────► it is open no more

Attempts that are active are not among them: see `ReplacedAttempts.now`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flux_ensemble.document.model import RETRY_RULE
from flux_ensemble.engine.jobs import ActiveJob

#: `Core.rerun`.
Rerun = Mapping[tuple[str, int, int], int]


def replaced_by(job: ActiveJob, rerun: Rerun) -> int | None:
    """Return the number of the retry that was to run a job again; None without one.

    It is that of the last rerun, if there was one: a retry before, if any, was dropped.

    Args:
        job: one of the ensemble's own.
        rerun: `Core.rerun`.
    """
    firing = job.firing
    if not rerun or firing is None:
        return job.replaced
    return rerun.get((firing.rule, firing.number, job.index), job.replaced)


class ReplacedAttempts:
    """The attempts in one record whose jobs run again.

    Attributes:
        known: they are known; they are not if an earlier version kept the record, and jobs ran
            again.
        number: how many there are.
    """

    def __init__(self) -> None:
        self.known = True
        self.number = 0
        #: The positions in the record, in order, of the attempts that have no later one, by the
        #: number of the retry that was to run their job again.
        self._open: dict[int, list[int]] = {}

    def recorded(self, job: ActiveJob, position: int) -> None:
        """Note that a job was recorded, at a position."""
        firing = job.firing
        if firing is not None and firing.rule == RETRY_RULE and self._open:
            self._open.pop(firing.number, None)
        if job.replaced is not None:
            self.number += 1
            self._open.setdefault(job.replaced, []).append(position)

    def rerun(self, position: int, before: int | None, retry: int) -> None:
        """Note that a user has the job of an attempt run again.

        Args:
            position: of the attempt in the record.
            before: the number of the retry that was to run it again before; None without one.
            retry: the number of the retry that does.
        """
        if before is None:
            self.number += 1
        elif position in (others := self._open.get(before, [])):
            others.remove(position)
            if not others:
                del self._open[before]
        positions = self._open.setdefault(retry, [])
        positions.append(position)
        positions.sort()

    def now(
        self, active: Iterable[ActiveJob], rerun: Rerun
    ) -> tuple[list[ActiveJob], list[int | ActiveJob], int]:
        """Return what a list of the last jobs has besides the record.

        Args:
            active: the active jobs, which come after the record.
            rerun: `Core.rerun`.

        Returns:
            The active jobs of which none runs again; in the order in which they stand last, the
            attempts that have no later one, as positions in the record or as jobs; and the number
            of all attempts whose jobs run again.
        """
        open: dict[int, list[int | ActiveJob]] = {
            retry: [*positions]
            for retry, positions in sorted(self._open.items(), key=lambda item: item[1][0])
        }
        number, shown = self.number, list[ActiveJob]()
        for job in active:
            firing = job.firing
            if firing is not None and firing.rule == RETRY_RULE:
                open.pop(firing.number, None)
            retry = replaced_by(job, rerun)
            if retry is None:
                shown.append(job)
            else:
                number += 1
                open.setdefault(retry, []).append(job)
        return shown, [of_one[-1] for of_one in open.values()], number

    def dump(self) -> list[Any]:
        """Return the state as JSON; an empty list if it is not known."""
        if not self.known:
            return []
        return [self.number, [[retry, *positions] for retry, positions in self._open.items()]]

    def load(self, value: Sequence[Any] | None) -> None:
        """Set the state from the result of `dump`; None if no job of the record ran again."""
        if value is not None:
            self.known = bool(value)
        if value:
            self.number, open = value
            self._open = {retry: positions for retry, *positions in open}
