"""Attempts that were sent to a member, and the state of each when the member is gone.

An *intent* is a job that an ensemble wants once: its tag. An *attempt* is one sending of it to one
member. The outcome of an attempt counts if the member reported it before it was lost; all other
attempts are lost, once nothing of the member can run any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.engine.events import Tag

#: The key for the number of the attempt, in a job's tag.
ATTEMPT = "attempt"

#: The events of which the first one makes the outcome of a job known.
OUTCOMES = frozenset(("finish", "clean", "invalidate"))


class Attempt(NamedTuple):
    """An attempt.

    Args:
        tag: the intent.
        number: of the attempt, from 0.
    """

    tag: Tag
    number: int


@dataclass(slots=True)
class _Sent:
    """The state of an attempt.

    Attributes:
        job: its id in the member; None before the member's journal has shown it.
        started: the job has had resources.
    """

    job: int | None = None
    started: bool = False


class Lost(NamedTuple):
    """An attempt without an outcome, of a member that is gone.

    Args:
        attempt: the attempt.
        job: its id in the member; None if the member's journal never showed it.
        started: it may have run, in part or as a whole.
    """

    attempt: Attempt
    job: int | None
    started: bool


class Attempts:
    """The attempts of one member whose outcome is unknown."""

    def __init__(self) -> None:
        self._open: dict[Attempt, _Sent] = {}
        self._jobs: dict[int, Attempt] = {}

    def __len__(self) -> int:
        return len(self._open)

    def sent(self, attempt: Attempt) -> None:
        """Note that an attempt is about to be sent."""
        self._open.setdefault(attempt, _Sent())

    def withdrawn(self, attempt: Attempt) -> None:
        """Note that an attempt was not sent after all, or was refused."""
        sent = self._open.get(attempt)
        if sent is not None and sent.job is None:
            del self._open[attempt]

    def event(
        self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None
    ) -> Attempt | None:
        """Take in an event of the member's journal.

        Args:
            job: its id in the member.
            entry: of its eventlog (RFC 18).
            jobspec: with `submit`, else None.

        Returns:
            The attempt to which the job belongs; None if it is not open, or has another job.
        """
        if jobspec is not None:
            attempt = attempt_of(jobspec)
            if attempt is not None:
                sent = self._open.setdefault(attempt, _Sent())
                if sent.job in (None, job):
                    self._jobs[job], sent.job = attempt, job
        attempt = self._jobs.get(job)
        if attempt is None:
            return None
        name = entry["name"]
        if name == "start":
            self._open[attempt].started = True
        elif name in OUTCOMES:
            # The events after `finish` add nothing.
            del self._open[attempt], self._jobs[job]
        return attempt

    def lost(self) -> list[Lost]:
        """Return the attempts without an outcome, in the order in which they were sent."""
        return [Lost(attempt, sent.job, sent.started) for attempt, sent in self._open.items()]


def attempt_of(jobspec: Any) -> Attempt | None:
    """Return the attempt of a jobspec; None if it is no job of an ensemble."""
    try:
        given = jobspec["attributes"]["user"][TAG_KEY]
        return Attempt(Tag(*(given[field] for field in Tag._fields)), given.get(ATTEMPT, 0))
    except (LookupError, TypeError, AttributeError):
        return None
