"""The breaker: a member on which all jobs fail within seconds gets no more jobs, and is drained.

Such a member is always the one with the least load, so it would get job after job, until all have
failed. But the jobs themselves may be the cause, and then they fail everywhere. So when many
different jobs in a row have failed at once on a member, it is only *in doubt*. Jobs then go to
other members, and their outcomes there decide:

    in doubt ──a job of the same groups runs well elsewhere──► on trial ──one job fails──► in doubt
       │                                                          │
       │ they fail at once on most others, too                    │ it runs well, or for a while
       └──────────────────► trusted again ◄───────────────────────┘

A member that fails `ROUNDS` trials is drained. So jobs need not run twice to find a bad member. And
a bad part of a sweep, however long, does no harm: the jobs after it run well on the member, and
a job of a kind that has not run well elsewhere is no trial. Jobs that can run nowhere else are sent
to members in doubt, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.members import QUICK_SECONDS
from flux_ensemble.engine.commands import StartTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.placement import Placement

#: The number of failed trials after which a member in doubt is drained.
ROUNDS = 3

#: The key of the timer for the members in doubt; with a member's number, the key of the timer by
#: which that member is drained.
BREAKER_TIMER = "breaker:"

#: A job: rule id, number of the firing, index.
_Tag = tuple[str, int, int]


class Doubt:
    """The record of a member on which jobs failed at once.

    Attributes:
        failed: the number of different jobs that failed at once, since one ran well.
        bound: the number of such jobs that puts the member in doubt.
        groups: the groups of these jobs.
        since: when the member came into doubt, or its latest trial ended; None before.
        trials: the number of failed trials.
        open: True if one job may be placed on the member, as a trial.
        trial: the job of the trial that is under way, or None.
        against: other members on which such jobs have failed at once since `since`.
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
        """Return the record as JSON."""
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
        """Return the record that `dump` dumped."""
        failed, bound, groups, since, trials, open, trial, against = value
        doubt = cls(bound)
        doubt.failed, doubt.since, doubt.trials, doubt.open = failed, since, trials, open
        doubt.groups, doubt.against = list(groups), list(against)
        doubt.trial = None if trial is None else (trial[0], trial[1], trial[2])
        return doubt


class Breaker:
    """Watches the members of one engine.

    Args:
        core: the engine's core.
        known: the members, by their numbers.
        placement: the open members and their room.

    Attributes:
        closed: the numbers of members in doubt that are not on trial.
    """

    def __init__(self, core: Core, known: Mapping[int, Member], placement: Placement) -> None:
        self._core = core
        self._known = known
        self._placement = placement
        self._doubts: dict[int, Doubt] = {}
        #: The entries of `_doubts` whose member is in doubt.
        self._doubted: dict[int, Doubt] = {}
        self.closed: set[int] = set()
        self._waking = False

    # -- events of jobs ---------------------------------------------------------------

    def started(self, job: ActiveJob) -> None:
        """Note the start of a job: if it still runs after `QUICK_SECONDS`, it runs well."""
        if self._doubted and not self._waking and any(self._concerned(job)):
            self._wake(QUICK_SECONDS)

    def ended(self, job: ActiveJob) -> None:
        """Note the end of a job, whose outcome is known."""
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
        """Note that a job failed at once on a member that is up."""
        assert job.firing is not None
        doubt = self._doubts.setdefault(ordinal, Doubt(bound))
        first = not job.firing.attempt and job.firing.work is None
        if doubt.since is None:
            # Each job counts once: neither retries nor copies count.
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
        """Ignore the end of a job; if the job was a trial, allow another one."""
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
        core.record(
            eventlog.MemberDoubted(member=member.name, jobs=doubt.failed, groups=doubt.groups)
        )
        for other in sorted(self._doubted):
            self._acquit(other)

    def _trust(self, ordinal: int, reason: str) -> None:
        """Forget the failures on a member; log that if it was in doubt."""
        doubt = self._doubts.pop(ordinal, None)
        if doubt is not None and doubt.since is not None:
            self._close(ordinal)
            member = self._known[ordinal]
            member.reason = ""
            self._core.record(eventlog.MemberTrusted(member=member.name, reason=reason))

    def _close(self, ordinal: int) -> None:
        self._doubted.pop(ordinal, None)
        self.closed.discard(ordinal)

    def _acquit(self, ordinal: int) -> None:
        """Trust a member if most others are no better: then the jobs are the cause."""
        doubt = self._doubted[ordinal]
        others = self._others(ordinal, doubted=True)
        no_better = sum(other in doubt.against or other in self._doubted for other in others)
        if 2 * no_better > len(others):
            bound = 2 * doubt.bound
            self._trust(ordinal, "such jobs fail on most other members, too")
            # If such jobs continue to fail, doubt and trust would be logged again and again.
            self._doubts[ordinal] = Doubt(bound)

    def _others(self, ordinal: int, *, doubted: bool = False) -> list[int]:
        """Return the other members that are open; those in doubt only if `doubted`."""
        return [
            place.ordinal
            for place in self._placement.places.values()
            if place.open
            and place.ordinal != ordinal
            and (doubted or place.ordinal not in self._doubted)
        ]

    # -- evidence from other members --------------------------------------------------------

    def _concerned(self, job: ActiveJob) -> Iterable[tuple[int, Doubt]]:
        """Yield the members in doubt for which a job on another member is evidence.

        These are the members that the job's group failed on, if the job was submitted later.
        """
        own = ordinal_of(job.id)
        if own in self._doubted:
            return
        for ordinal, doubt in sorted(self._doubted.items(), key=itemgetter(0)):
            assert doubt.since is not None
            if job.group in doubt.groups and job.t_submit >= doubt.since:
                yield ordinal, doubt

    def _in_favour(self, job: ActiveJob) -> None:
        """Open a trial on the members in doubt, as a job of the same group ran well elsewhere."""
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
        """Handle the timer: find jobs that have run for `QUICK_SECONDS` on other members."""
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
        """Return the reason why a member is to be drained; None if it is not."""
        doubt = self._doubted.get(ordinal)
        if doubt is None or doubt.trials < ROUNDS:
            return None
        return (
            f"{doubt.failed} jobs in a row have failed on it within {QUICK_SECONDS:g} seconds, and "
            f"{ROUNDS} more after others had run well elsewhere"
        )

    # -- placement ----------------------------------------------------------------------------

    def on_trial(self, ordinal: int) -> bool:
        """Return whether a member may get one job as a trial, and no more."""
        doubt = self._doubted.get(ordinal)
        return doubt is not None and doubt.open

    def placed(self, ordinal: int, firing: Firing, index: int) -> None:
        """Note that a job was placed on a member as its trial."""
        doubt = self._doubted[ordinal]
        doubt.trial, doubt.open = (firing.rule, firing.number, index), False
        self.closed.add(ordinal)

    def forget(self, ordinal: int) -> None:
        """Forget a member that gets no more jobs in any case."""
        self._doubts.pop(ordinal, None)
        self._close(ordinal)

    # -- snapshots ----------------------------------------------------------------------------

    def dump(self) -> list[Any]:
        """Return the breaker as JSON: True if the timer is set, and the doubts by member."""
        return [self._waking, [[ordinal, doubt.dump()] for ordinal, doubt in self._doubts.items()]]

    @property
    def idle(self) -> bool:
        """True if there is nothing to dump."""
        return not self._waking and not self._doubts

    def load(self, value: list[Any]) -> None:
        """Set the state from the result of `dump`."""
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
    """Return whether a job that has ended succeeded, or ran for at least `QUICK_SECONDS`."""
    if job.outcome == "success":
        return True
    return (
        job.t_start is not None
        and job.t_end is not None
        and job.t_end - job.t_start >= QUICK_SECONDS
    )
