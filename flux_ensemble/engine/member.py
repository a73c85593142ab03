"""A member of an ensemble: its state, its resources, and its jobs."""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.document.members import Pool
from flux_ensemble.engine.events import MemberUp
from flux_ensemble.engine.placement import Place

#: State of a member -> the states that can follow. A member that has ended is forgotten.
TRANSITIONS: Mapping[str, frozenset[str]] = {
    "starting": frozenset({"up", "draining", "lost", "ended"}),
    "up": frozenset({"draining", "lost", "ended"}),
    "draining": frozenset({"lost", "ended"}),
    "lost": frozenset({"ended"}),
    "ended": frozenset(),
}

#: States of members on which jobs may be placed, now or soon.
LIVE = ("starting", "up")

#: States of members that report.
CONNECTED = ("up", "draining")

#: Prefix of the rule ids of commands on members that the engine sends by itself. No id in a
#: document has a colon.
MEMBER_RULE = "member:"

#: The seconds before the expiration of an allocation from which on an end counts as expiration.
EXPIRY_SECONDS = 1.0

#: Key of the timer by which members are looked for that no job needs.
SURPLUS_TIMER = "surplus:"

#: The reason for the cancellation of a job that is to run elsewhere.
MOVED = "its member is draining"


class Member:
    """A member of one engine.

    Attributes:
        name, ordinal, pool: as in `StartMember`.
        state: one of `TRANSITIONS`; `enter` changes it.
        reason: the reason why the member is draining, lost or in doubt.
        place: the member's data for placement; None before it is up.
        up: the member's report when it came up, with the latest `t_expires`.
        flying: jobs that were sent to the member and have not appeared -> their cores.
        unwanted: the jobs in `flying` that are to be cancelled when they appear.
        jobs: key of an active job -> its cores.
        ending: True if the member was requested to end.
        job: the id of its job, where its provider writes that down before the job may start; None
            where the provider's own record has it.
        t_unneeded: since when no job needs the member, which is starting; None if one does.
    """

    def __init__(self, name: str, ordinal: int, pool: Pool) -> None:
        self.name = name
        self.ordinal = ordinal
        self.pool = pool
        self.state = "starting"
        self.reason = ""
        self.place: Place | None = None
        self.up: MemberUp | None = None
        self.flying: dict[tuple[str, int, int], int] = {}
        self.unwanted: set[tuple[str, int, int]] = set()
        self.jobs: dict[int, int] = {}
        self.ending = False
        self.job: str | None = None
        self.t_unneeded: float | None = None

    def is_over(self, t: float) -> bool:
        """Return whether the member's time is up at time `t`."""
        t_expires = None if self.up is None else self.up.t_expires
        return t_expires is not None and t >= t_expires - EXPIRY_SECONDS

    def enter(self, state: str) -> None:
        """Change the state.

        Raises:
            AssertionError: the transition is not in `TRANSITIONS`.
        """
        assert state in TRANSITIONS[self.state], f"{self.name}: from {self.state!r} to {state!r}"
        self.state = state

    def withdrew(self, tag: tuple[str, int, int]) -> bool:
        """Return whether a job that appears now is to be cancelled, and forget that."""
        withdrawn = tag in self.unwanted
        self.unwanted.discard(tag)
        return withdrawn

    def passed(self, tag: tuple[str, int, int], t: float) -> None:
        """Note that a job that was sent has appeared, and was gone by time `t`."""
        cores = self.flying.pop(tag)
        if self.place is not None:
            self.place.ended(cores, t)

    def left(self, key: int, t: float) -> None:
        """Note that an active job was gone by time `t`."""
        cores = self.jobs.pop(key)
        if self.place is not None:
            self.place.ended(cores, t)

    @property
    def busy(self) -> int:
        """The number of jobs that are on the member, or were sent to it."""
        return len(self.jobs) + len(self.flying)
