"""Providers, such as Flux or Slurm, which start the members of a pool and end them.

    start, find, end ──► Provider ──► submitted, reached, began, broke, expires, over ──► Started

A provider knows nothing of ensembles: it asks for a job, says what becomes of it, and ends it. What
runs in the job is the member's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.nested.shape import MemberTag, Shape

#: The id of a member's job: Flux's are integers.
JobName = int | str

#: Writes the id of a member's job down, and calls back when that lasts.
Written = Callable[[str, Callable[[], None]], None]


#: The kind of a wait for a site, in reports: see `queues.flux.refusals`.
SITE = "site"


class SiteWaitError(Exception):
    """The job of a member is not asked for now, or not taken; the text says why."""


class UnavailableError(Exception):
    """A provider cannot be made here; the text is a sentence with the remedy."""


class Started(Protocol):
    """A member that a provider starts: `member_job.MemberJob`.

    It is told of its job: `waits` while nobody takes it, `submitted` or `refused`, then `began`,
    `reached`, `broke` and `expires`, and at last `over`.
    """

    tag: MemberTag

    @property
    def job(self) -> JobName | None:
        """The id of its job, once that is known."""
        ...

    @property
    def asked_to_end(self) -> bool:
        """True if it is asked to end."""
        ...

    @property
    def unwanted(self) -> bool:
        """True if it is asked to end before it has a job."""
        ...

    def waits(self, error: Exception) -> None:
        """Note why its job is not taken for now."""
        ...

    def submitted(self, job: JobName) -> None:
        """Note the id of its job."""
        ...

    def refused(self, reason: str) -> None:
        """Note that there will be no job."""
        ...

    def began(self) -> None:
        """Note that its job has begun."""
        ...

    def reached(self, uri: str) -> None:
        """Note the URI that its instance has told."""
        ...

    def broke(self, reason: str, outage: bool = False) -> None:
        """Note why its job ends; `outage`: what it ran in was restarted."""
        ...

    def expires(self, t_expires: float | None) -> None:
        """Note when the time of its job is up."""
        ...

    def over(self) -> None:
        """Note that nothing of its job can run any more."""
        ...

    def give_up(self, reason: str) -> None:
        """End it."""
        ...


class Provider(Protocol):
    """Starts members and ends them.

    Attributes:
        tells: what ends a job tells the instance in it first, and does not kill all of it at once.
        prints: what shows the output of a job, for people.
    """

    tells: bool
    prints: str

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        """Return the job of a member, as this provider asks for it.

        Raises:
            ValueError: there cannot be such a job.
        """
        ...

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        """Ask for the job of a member.

        It starts at most once for the member's tag, whatever dies meanwhile.

        Args:
            member: is told.
            job: what `describe` returned.
            written: for a provider that has no record of its own which lasts.
        """
        ...

    def find(self, member: Started, home: str, job: str | None) -> None:
        """Follow the job of a member that an earlier service started.

        Args:
            member: is told.
            home: as in its `Shape`.
            job: the id that was written down, if one was.
        """
        ...

    def end(self, job: JobName, reason: str, done: Report) -> None:
        """Ask for the end of a job; that of one that is over succeeds."""
        ...

    def why(self, job: JobName) -> str | None:
        """Return why a job waits; None if it does not, or nobody knows."""
        ...

    def forget(self, job: JobName) -> None:
        """Follow a job no more."""
        ...

    def close(self) -> None:
        """Follow nothing any more; the jobs go on."""
        ...
