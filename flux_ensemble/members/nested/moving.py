"""Taking jobs that wait out of a member, so that they run in another.

    hold ──► cancel ──► the journal: `clean` without a `start`      moved
      │         └─────────────────── `start`, and `clean` after it  interrupted
      └──► `start` before it is cancelled                           stays

A job may start while it is asked to wait, and the responses do not say. Only its eventlog does,
when it is over: a job that had no `start` has not run, and can be submitted elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto


class Move(Enum):
    """What became of a job that was to be moved."""

    #: It has not run, and is no more.
    MOVED = auto()
    #: It runs where it is.
    STAYS = auto()
    #: It began to run as it was cancelled, and is no more.
    INTERRUPTED = auto()


class _Step(Enum):
    HOLDING = auto()
    CANCELED = auto()
    STARTED = auto()


class Moves:
    """The jobs that are to leave a member.

    Args:
        hold: has Flux start a job no more; calls back when it has done so, or cannot.
        cancel: cancels a job.
        moved: gets each job once, and what became of it.
    """

    def __init__(
        self,
        hold: Callable[[int, Callable[[Exception | None], None]], None],
        cancel: Callable[[int], None],
        moved: Callable[[int, Move], None],
    ) -> None:
        self._hold = hold
        self._cancel = cancel
        self._moved = moved
        self._jobs: dict[int, _Step] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def move(self, job: int) -> None:
        """Begin to move a job that has not started, as far as is known."""
        if job not in self._jobs:
            self._jobs[job] = _Step.HOLDING
            self._hold(job, lambda error: self._held(job))

    def _held(self, job: int) -> None:
        # It may have started, or ended, meanwhile.
        if self._jobs.get(job) is _Step.HOLDING:
            self._jobs[job] = _Step.CANCELED
            self._cancel(job)

    def event(self, job: int, name: str) -> bool:
        """Take in an event of the member's journal.

        Returns:
            The event is the move's doing, and tells nothing of the job.
        """
        step = self._jobs.get(job)
        if step is None:
            return False
        if name == "start" and step is _Step.HOLDING:
            self._end(job, Move.STAYS)
            return False
        if name == "start":
            self._jobs[job] = _Step.STARTED
        elif name in ("clean", "invalidate"):
            self._end(job, Move.INTERRUPTED if step is _Step.STARTED else Move.MOVED)
        return True

    def _end(self, job: int, move: Move) -> None:
        del self._jobs[job]
        self._moved(job, move)
