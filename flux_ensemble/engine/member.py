"""One member: what it is, how far it is, and which jobs it has."""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.document.members import Pool
from flux_ensemble.engine.events import MemberUp
from flux_ensemble.engine.placement import Place

#: What a member goes through: state -> the states that can follow. One that has ended is forgotten.
TRANSITIONS: Mapping[str, frozenset[str]] = {
    "starting": frozenset({"up", "draining", "lost", "ended"}),
    "up": frozenset({"draining", "lost", "ended"}),
    "draining": frozenset({"lost", "ended"}),
    "lost": frozenset({"ended"}),
    "ended": frozenset(),
}

#: States of members that jobs may be placed on, now or soon.
LIVE = ("starting", "up")

#: States of members that say how they are.
CONNECTED = ("up", "draining")

#: What the rule ids of what the engine does by itself begin with; no id in a document has a colon.
MEMBER_RULE = "member:"

#: How many seconds before an allocation expires its end is taken for that.
EXPIRY_SECONDS = 1.0

#: Why a job is cancelled that is to run elsewhere.
MOVED = "its member is draining"


class Member:
    """One member.

    Attributes:
        name, ordinal, pool: as in `StartMember`.
        state: one of `TRANSITIONS`; `enter` changes it.
        reason: why it is draining or lost.
        place: what placement knows of it; None before it is up.
        up: what it said when it was up, but for `t_expires`, which is the latest.
        flying: jobs that were sent to it and have not shown, with their cores.
        unwanted: those of them that are cancelled when they show.
        jobs: the cores of its active jobs, by key.
        ending: it was told to end.
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

    def is_over(self, t: float) -> bool:
        """Whether its time is up at time `t`."""
        t_expires = None if self.up is None else self.up.t_expires
        return t_expires is not None and t >= t_expires - EXPIRY_SECONDS

    def enter(self, state: str) -> None:
        """Change the state.

        Raises:
            AssertionError: `TRANSITIONS` does not have the transition.
        """
        assert state in TRANSITIONS[self.state], f"{self.name}: from {self.state!r} to {state!r}"
        self.state = state

    def withdrew(self, tag: tuple[str, int, int]) -> bool:
        """Whether a job that has shown now is to be cancelled."""
        withdrawn = tag in self.unwanted
        self.unwanted.discard(tag)
        return withdrawn

    def passed(self, tag: tuple[str, int, int], t: float) -> None:
        """A job that was sent has come, and has gone by time `t`."""
        cores = self.flying.pop(tag)
        if self.place is not None:
            self.place.ended(cores, t)

    def left(self, key: int, t: float) -> None:
        """An active job has gone by time `t`."""
        cores = self.jobs.pop(key)
        if self.place is not None:
            self.place.ended(cores, t)

    @property
    def busy(self) -> int:
        """How many jobs it has, or gets."""
        return len(self.jobs) + len(self.flying)
