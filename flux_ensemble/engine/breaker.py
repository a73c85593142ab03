"""The breaker: a member that fails everything at once gets no more jobs, and is drained.

A member whose jobs all fail within seconds is always the one with the least load, so it would get
job after job, until all have failed. But jobs that fail may be to blame themselves, and then they
fail everywhere. So a member is only *in doubt* when many different jobs in a row have failed on it
at once. Then jobs go to others, and these decide:

    in doubt ──a job of the same groups runs well elsewhere──► on trial ──one job fails──► in doubt
       │                                                          │
       │ they fail at once on most others, too                    │ it runs well, or for a while
       └──────────────────► trusted again ◄───────────────────────┘

The member that fails in `ROUNDS` trials is drained. So the jobs are not tried twice, and a part of
a sweep that is bad does no harm, however long it is: what comes after it runs well on the member,
and what comes before others have run it is no trial. Where jobs can run nowhere else they go to
members in doubt, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from flux_ensemble.document.members import QUICK_SECONDS
from flux_ensemble.engine.commands import StartTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.placement import Placement

#: A member that is in doubt is drained after so many trials.
ROUNDS = 3

#: Begins the key of the timer for the members in doubt, or for one that is to be drained.
BREAKER_TIMER = "breaker:"

#: A job: rule id, number of the firing, index.
_Tag = tuple[str, int, int]


class Doubt:
    """What is known of a member on which jobs failed at once.

    Attributes:
        failed: how many different jobs have, since one ran well.
        bound: with how many it is in doubt.
        groups: of these jobs.
        since: since when it is in doubt, or the latest trial was over; None before.
        trials: how many trials have failed.
        open: one job may be placed on it, as a trial.
        trial: that job.
        against: other members on which such jobs have failed at once since.
    """

    def __init__(self, bound: int) -> None:
        self.failed = 0
        self.bound = bound
        self.groups: list[str] = []
        self.since: float | None = None
        self.trials = 0
        self.open = False
        self.trial: _Tag | None = None
        self.against: list[int] = []

    def dump(self) -> list[Any]:
        """It as JSON."""
        return [
            self.failed,
            self.bound,
            self.groups,
            self.since,
            self.trials,
            self.open,
            self.trial,
            self.against,
        ]

    @classmethod
    def load(cls, value: list[Any]) -> Doubt:
        """What `dump` returned."""
        failed, bound, groups, since, trials, open, trial, against = value
        doubt = cls(bound)
        doubt.failed, doubt.since, doubt.trials, doubt.open = failed, since, trials, open
        doubt.groups, doubt.against = list(groups), list(against)
        doubt.trial = None if trial is None else (trial[0], trial[1], trial[2])
        return doubt


class Breaker:
    """Watches the members of one engine.

    Args:
        core: of the engine.
        known: the members, by their numbers.
        placement: what is open of them.

    Attributes:
        closed: the numbers of members in doubt that are not on trial.
    """

    def __init__(self, core: Core, known: Mapping[int, Member], placement: Placement) -> None:
        self._core = core
        self._known = known
        self._placement = placement
        self._doubts: dict[int, Doubt] = {}
        #: Those that are in doubt.
        self._doubted: dict[int, Doubt] = {}
        self.closed: set[int] = set()
        self._waking = False

    # -- what jobs do -----------------------------------------------------------------

    def started(self, job: ActiveJob) -> None:
        """A job runs: if it still does in a while, it runs well."""
        if self._doubted and not self._waking and any(self._concerned(job)):
            self._wake(QUICK_SECONDS)

    def ended(self, job: ActiveJob) -> None:
        """A job has ended, and its outcome is known."""
        ordinal = ordinal_of(job.id)
        if _ran_well(job):
            if ordinal in self._doubts:
                self._trust(ordinal, "a job ran well on it")
            if self._doubted:
                self._in_favour(job)
        elif job.outcome == "failed" and not job.interrupted:
            if self._doubted:
                self._count_against(job)
            member = self._known[ordinal]
            if member.pool.breaker and member.state == "up":
                self._failed(ordinal, job, member.pool.breaker)
        elif ordinal in self._doubted:
            self._no_trial(self._doubted[ordinal], ordinal, job)

    def _failed(self, ordinal: int, job: ActiveJob, bound: int) -> None:
        """A job failed at once on a member that is up."""
        assert job.firing is not None
        doubt = self._doubts.setdefault(ordinal, Doubt(bound))
        first = not job.firing.attempt and job.firing.work is None
        if doubt.since is None:
            # Each job counts once.
            if first:
                doubt.failed += 1
                if job.firing.group not in doubt.groups:
                    doubt.groups.append(job.firing.group)
            if doubt.failed >= doubt.bound and self._others(ordinal):
                self._doubt(ordinal, doubt)
        elif doubt.trial == _tag_of(job):
            if not first or job.firing.group not in doubt.groups:
                return self._no_trial(doubt, ordinal, job)
            doubt.trials += 1
            doubt.trial, doubt.since = None, self._core.t
            doubt.against.clear()
            if doubt.trials == ROUNDS:
                self._core.emit(StartTimer(f"{BREAKER_TIMER}{ordinal}", 0.0))
        return None

    def _no_trial(self, doubt: Doubt, ordinal: int, job: ActiveJob) -> None:
        """What became of a job says nothing: if it was a trial, another one is."""
        if doubt.trial == _tag_of(job):
            doubt.trial, doubt.open = None, True
            self.closed.discard(ordinal)

    # -- members in doubt -----------------------------------------------------------------

    def _doubt(self, ordinal: int, doubt: Doubt) -> None:
        member, core = self._known[ordinal], self._core
        doubt.since = core.t
        self._doubted[ordinal] = doubt
        self.closed.add(ordinal)
        member.reason = (
            f"in doubt: {doubt.failed} jobs in a row have failed within {QUICK_SECONDS:g} seconds"
        )
        core.record("member-doubted", member=member.name, jobs=doubt.failed, groups=doubt.groups)
        for other in sorted(self._doubted):
            self._acquit(other)

    def _trust(self, ordinal: int, reason: str) -> None:
        """A member is as good as others."""
        doubt = self._doubts.pop(ordinal, None)
        if doubt is not None and doubt.since is not None:
            self._close(ordinal)
            member = self._known[ordinal]
            member.reason = ""
            self._core.record("member-trusted", member=member.name, reason=reason)

    def _close(self, ordinal: int) -> None:
        self._doubted.pop(ordinal, None)
        self.closed.discard(ordinal)

    def _acquit(self, ordinal: int) -> None:
        """Trust a member if most others are no better: then it is the jobs."""
        doubt = self._doubted[ordinal]
        others = self._others(ordinal, doubted=True)
        no_better = sum(other in doubt.against or other in self._doubted for other in others)
        if 2 * no_better > len(others):
            bound = 2 * doubt.bound
            self._trust(ordinal, "such jobs fail on most other members, too")
            # If they go on to fail, that need not be said again so soon.
            self._doubts[ordinal] = Doubt(bound)

    def _others(self, ordinal: int, *, doubted: bool = False) -> list[int]:
        """The other members that are open, those that are in doubt only if asked for."""
        return [
            place.ordinal
            for place in self._placement.places.values()
            if place.open
            and place.ordinal != ordinal
            and (doubted or place.ordinal not in self._doubted)
        ]

    # -- what others say --------------------------------------------------------------------

    def _concerned(self, job: ActiveJob) -> Iterable[tuple[int, Doubt]]:
        """The members in doubt about which a job on another one says something."""
        own = ordinal_of(job.id)
        if own in self._doubted:
            return
        for ordinal, doubt in sorted(self._doubted.items(), key=itemgetter(0)):
            assert doubt.since is not None
            if job.group in doubt.groups and job.t_submit >= doubt.since:
                yield ordinal, doubt

    def _in_favour(self, job: ActiveJob) -> None:
        """Such a job runs well elsewhere: the members in doubt get a trial."""
        for ordinal, doubt in self._concerned(job):
            if doubt.trial is None and doubt.trials < ROUNDS:
                doubt.open = True
                self.closed.discard(ordinal)

    def _count_against(self, job: ActiveJob) -> None:
        own = ordinal_of(job.id)
        for ordinal, doubt in list(self._concerned(job)):
            if own not in doubt.against:
                doubt.against.append(own)
                self._acquit(ordinal)

    # -- the clock --------------------------------------------------------------------------

    def _wake(self, after: float) -> None:
        self._waking = True
        self._core.emit(StartTimer(BREAKER_TIMER, after))

    def look(self) -> None:
        """Some time has passed: see which jobs have run for a while elsewhere."""
        self._waking = False
        if not self._core.acting:
            return
        workload, t = self._core.workload, self._core.t
        groups = {group for doubt in self._doubted.values() for group in doubt.groups}
        younger: list[float] = []
        for group in sorted(groups):
            for job in workload.active(group):
                if job.phase is Phase.RUNNING and any(self._concerned(job)):
                    assert job.t_start is not None
                    ran = t - job.t_start
                    if ran >= QUICK_SECONDS:
                        self._in_favour(job)
                    else:
                        younger.append(QUICK_SECONDS - ran)
        if younger and self.closed:
            self._wake(min(younger))

    def verdict(self, ordinal: int) -> str | None:
        """Why a member is to be drained; None if it is not."""
        doubt = self._doubted.get(ordinal)
        if doubt is None or doubt.trials < ROUNDS:
            return None
        return (
            f"{doubt.failed} jobs in a row have failed on it within {QUICK_SECONDS:g} seconds, and "
            f"{ROUNDS} more after others had run well elsewhere"
        )

    # -- what is done with members ------------------------------------------------------------

    def on_trial(self, ordinal: int) -> bool:
        """Whether a member gets one job, and no more."""
        doubt = self._doubted.get(ordinal)
        return doubt is not None and doubt.open

    def placed(self, ordinal: int, firing: Firing, index: int) -> None:
        """A job was placed on a member that is on trial."""
        doubt = self._doubted[ordinal]
        doubt.trial, doubt.open = (firing.rule, firing.number, index), False
        self.closed.add(ordinal)

    def forget(self, ordinal: int) -> None:
        """A member gets no more jobs in any case."""
        self._doubts.pop(ordinal, None)
        self._close(ordinal)

    # -- snapshots ----------------------------------------------------------------------------

    def dump(self) -> list[Any]:
        """It as JSON: whether a timer is set, and the doubts by member."""
        return [self._waking, [[ordinal, doubt.dump()] for ordinal, doubt in self._doubts.items()]]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to dump."""
        return not self._waking and not self._doubts

    def load(self, value: list[Any]) -> None:
        """Set what `dump` returned."""
        self._waking, doubts = value
        for ordinal, dumped in doubts:
            doubt = self._doubts[ordinal] = Doubt.load(dumped)
            if doubt.since is not None:
                self._doubted[ordinal] = doubt
                if not doubt.open:
                    self.closed.add(ordinal)


def _tag_of(job: ActiveJob) -> _Tag:
    assert job.firing is not None
    return job.firing.rule, job.firing.number, job.index


def _ran_well(job: ActiveJob) -> bool:
    """Whether a job that has ended succeeded, or ran for a while."""
    if job.outcome == "success":
        return True
    return (
        job.t_start is not None
        and job.t_end is not None
        and job.t_end - job.t_start >= QUICK_SECONDS
    )
