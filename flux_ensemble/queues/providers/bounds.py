"""Bounds on what a site is asked for: members wait in line here until its provider is asked.

    start ──► line of the pool ──admit──► Provider of the site ──► asked ──began──► young ──► proven
                  ▲                                                  └──── failed ◄──┘
                  └── cooldown ◄───────────────────────────────────────────┘

The first member of a pool is asked for alone, and so is the next after a failure: a job that is
refused, or a member that ends at once. Between a failure and the next trial there is a pause, which
doubles from failure to failure, so a partition that takes nothing is asked once in a while only.

Nothing is kept: a service that goes on finds its members in the site's queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.document.members import SiteLimits
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.nested.provider import (
    JobName,
    Provider,
    SiteWaitError,
    Started,
    Written,
)
from flux_ensemble.queues.nested.shape import MemberTag, Shape
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded
from flux_ensemble.words import counted, in_words

#: Seconds after the first failure until a site is asked again, and the most.
PAUSE_SECONDS = 2.0
PAUSE_LIMIT = 600.0

#: A member that ends within so many seconds of its beginning, unasked, has failed.
YOUNG_SECONDS = 10.0

#: Seconds between two looks at the lines.
LOOK_SECONDS = 1.0

#: Seconds after which a pool that asks for nothing is forgotten, with its failures.
IDLE_SECONDS = 2.0 * PAUSE_LIMIT


@dataclass(slots=True, eq=False)
class _Request:
    """A member that is to be started, and what its provider is told."""

    member: Started
    job: Mapping[str, Any]
    written: Written


@dataclass(slots=True)
class _Line:
    """The members of a pool that wait to be asked for, and those that were.

    Attributes:
        ensemble, pool: their names.
        limits: of the pool.
        waiting: first in, first out.
        asked: members that the provider was asked for and that have not begun.
        young: those that began less than YOUNG_SECONDS ago.
        accepted: the site has taken a job.
        t_asked: when the provider was asked last, by the loop's clock.
        failures: in a row.
        failure: the latest.
        t_failed: when that was noted.
        t_next: when the site may be asked again.
    """

    ensemble: str
    pool: str
    limits: SiteLimits = field(default_factory=SiteLimits)
    waiting: deque[_Request] = field(default_factory=deque)
    asked: set[_Watched] = field(default_factory=set)
    young: set[_Watched] = field(default_factory=set)
    accepted: bool = False
    t_asked: float = float("-inf")
    failures: int = 0
    failure: str = ""
    t_failed: float = float("-inf")
    t_next: float = float("-inf")

    def idle(self, now: float) -> bool:
        """Return True if what is known of the pool makes no difference any more."""
        seconds = max(IDLE_SECONDS, self.limits.spacing)
        quiet = not 0.0 <= now - max(self.t_asked, self.t_failed) < seconds
        return quiet and not (self.waiting or self.asked or self.young)


class _Watched:
    """A member as its provider sees it: what it is told, its line learns too."""

    def __init__(self, bounds: BoundedProvider, line: _Line, member: Started) -> None:
        self._bounds, self._line, self._member = bounds, line, member
        self.tag = member.tag
        self.t_asked = self.t_began = bounds.now()

    @property
    def job(self) -> JobName | None:
        """See `Started`."""
        return self._member.job

    @property
    def asked_to_end(self) -> bool:
        """See `Started`."""
        return self._member.asked_to_end

    @property
    def unwanted(self) -> bool:
        """See `Started`."""
        return self._member.unwanted

    def waits(self, error: Exception) -> None:
        """See `Started`."""
        self._member.waits(error)

    def submitted(self, job: JobName) -> None:
        """See `Started`."""
        self._line.accepted = True
        self._member.submitted(job)
        self._bounds.look()

    def refused(self, reason: str) -> None:
        """See `Started`."""
        self._bounds.failed(self._line, self, reason)
        self._member.refused(reason)

    def began(self) -> None:
        """See `Started`."""
        if self in self._line.asked:
            self._line.asked.remove(self)
            self._line.young.add(self)
            self.t_began = self._bounds.now()
        self._member.began()
        self._bounds.look()

    def reached(self, uri: str) -> None:
        """See `Started`."""
        self._member.reached(uri)

    def broke(self, reason: str, outage: bool = False) -> None:
        """See `Started`."""
        if self in self._line.young and not (self.asked_to_end or outage):
            seconds = self._bounds.now() - self.t_began
            if seconds < YOUNG_SECONDS:
                after = f"{bounded(self.tag.member)} ended {in_words(seconds)} after it had begun"
                self._bounds.failed(self._line, self, f"{after}: {reason}")
        self._member.broke(reason, outage)

    def expires(self, t_expires: float | None) -> None:
        """See `Started`."""
        self._member.expires(t_expires)

    def over(self) -> None:
        """See `Started`."""
        self._gone()
        self._member.over()

    def give_up(self, reason: str) -> None:
        """See `Started`."""
        self._gone()
        self._member.give_up(reason)

    def _gone(self) -> None:
        self._line.asked.discard(self)
        self._line.young.discard(self)
        self._bounds.look()


class BoundedProvider:
    """A `queues.nested.provider.Provider` that asks another one for no more than a site may be.

    Args:
        provider: of the site.
        site: its name, for people.
        loop: of the service.
        log_error: writes a line to the service's log.
    """

    def __init__(
        self, provider: Provider, site: str, loop: Loop, log_error: Callable[[str], None]
    ) -> None:
        self.tells, self.prints = provider.tells, provider.prints
        self._provider = provider
        self._site = site
        self._loop = loop
        self._log_error = log_error
        self._lines: dict[tuple[str, int, str], _Line] = {}
        self._look: Handle | None = None
        self._closed = False

    def now(self) -> float:
        """Return the time of the loop."""
        return self._loop.now()

    # -- requests ---------------------------------------------------------------------

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        """Return the job of a member with the limits of its pool."""
        return {"limits": shape.limits, "job": self._provider.describe(shape)}

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        """Put a member into the line of its pool."""
        line = self._line(member.tag)
        line.limits = job["limits"]
        line.waiting.append(_Request(member, job["job"], written))
        self.look()

    def find(self, member: Started, home: str, job: str | None) -> None:
        """Follow the job of a member that an earlier service started; it may wait at the site."""
        line = self._line(member.tag)
        watched = _Watched(self, line, member)
        line.asked.add(watched)
        self._provider.find(watched, home, job)

    def end(self, job: JobName, reason: str, done: Report) -> None:
        """Ask for the end of a job."""
        self._provider.end(job, reason, done)

    def why(self, job: JobName) -> str | None:
        """Return why a job waits at the site."""
        return self._provider.why(job)

    def forget(self, job: JobName) -> None:
        """Follow a job no more."""
        self._provider.forget(job)

    def close(self) -> None:
        """Follow nothing any more."""
        self._closed = True
        self._lines.clear()
        if self._look is not None:
            self._look.cancel()
        self._provider.close()

    def _line(self, tag: MemberTag) -> _Line:
        pool = tag.member.rpartition(".")[0]
        return self._lines.setdefault((tag.name, tag.run, pool), _Line(tag.name, pool))

    # -- the lines ----------------------------------------------------------------------

    def look(self) -> None:
        """Look at the lines soon: a member has come, or something has changed for the others."""
        self._look_in(0.0)

    def _look_in(self, seconds: float) -> None:
        if not self._closed:
            if self._look is not None:
                self._look.cancel()
            self._look = self._loop.timer(seconds, self._admit_all)

    def _admit_all(self) -> None:
        self._look = None
        for line in list(self._lines.values()):
            self._admit(line)
        # Those of ensembles that have ended, among others: nobody says so.
        now = self.now()
        self._lines = {key: line for key, line in self._lines.items() if not line.idle(now)}
        if any(line.waiting for line in self._lines.values()) and self._look is None:
            self._look_in(LOOK_SECONDS)

    def _admit(self, line: _Line) -> None:
        """Ask for the members that the site may be asked for now; tell the others why they wait."""
        now = self.now()
        proven = {one for one in line.young if now - one.t_began >= YOUNG_SECONDS}
        line.young -= proven
        if any(one.t_asked >= line.t_failed for one in proven):
            line.failures = 0
        # Its provider knows whether an earlier service has asked for it.
        unwanted = [one for one in line.waiting if one.member.unwanted]
        if unwanted:
            line.waiting = deque(one for one in line.waiting if not one.member.unwanted)
        for request in unwanted:
            self._ask(line, request)
        while line.waiting and self._hindrance(line, now) is None:
            line.t_asked = now
            self._ask(line, line.waiting.popleft())
        hindrance = self._hindrance(line, now)
        for request in line.waiting:
            request.member.waits(SiteWaitError(hindrance))

    def _ask(self, line: _Line, request: _Request) -> None:
        watched = _Watched(self, line, request.member)
        line.asked.add(watched)
        self._provider.start(watched, request.job, request.written)

    def _hindrance(self, line: _Line, now: float) -> str | None:
        """Return why the site may not be asked for another member of a pool; None if it may."""
        limits, waiting = line.limits, len(line.asked)
        if line.failures:
            times = f"{counted(line.failures, 'failure')} in a row, the latest: {line.failure}"
            # The clock can be set back.
            if line.t_failed <= now < line.t_next:
                return f"{self._site} is asked again in {in_words(line.t_next - now)}: {times}"
            if any(one.t_asked >= line.t_failed for one in line.asked | line.young):
                return f"one member is tried alone after {times}"
        elif not line.accepted and waiting:
            return f"{self._site} has not taken the first one yet"
        if limits.queued and waiting >= limits.queued:
            return f"{waiting} are in the queue of {self._site}, as many as 'queued' allows"
        if 0.0 <= now - line.t_asked < limits.spacing:
            return f"'spacing' is {in_words(limits.spacing)}"
        return None

    def failed(self, line: _Line, member: _Watched, reason: str) -> None:
        """Note that a job was refused, or that a member ended at once.

        Those that were asked for before the latest failure say nothing new.
        """
        line.asked.discard(member)
        line.young.discard(member)
        self.look()
        if member.t_asked < line.t_failed:
            return
        line.failures += 1
        line.failure = reason
        pause = min(PAUSE_SECONDS * 2.0 ** min(line.failures - 1, 20), PAUSE_LIMIT)
        line.t_failed = self.now()
        line.t_next = line.t_failed + pause
        self._log_error(
            f"{bounded(line.ensemble)}: the next member of {bounded(line.pool)} is asked for in "
            f"{in_words(pause)} at the earliest, after {counted(line.failures, 'failure')} in a "
            f"row: {reason}"
        )
