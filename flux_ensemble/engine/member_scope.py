"""Rules with `scope: member`: their evaluation for each member, their metrics and their jobs.

Such a rule numbers its firings over all members, so tags stay unique. Its turns are counted for
each member by the member's name (`RuleState.turns`); names of members are not used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, ages_of
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.members import Members, drop_bound
from flux_ensemble.engine.trigger_queue import TriggerQueue
from flux_ensemble.metrics.conditions import Lookup
from flux_ensemble.metrics.member_metrics import AT
from flux_ensemble.metrics.names import GAUGES
from flux_ensemble.metrics.paths import COUNT, ELAPSED, LEFT, OF_NAMES, MetricPath


class MemberScope:
    """The members of one engine, for the rules with `scope: member`."""

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members

    def up(self) -> list[Member]:
        """Return the members that are up, in the order of their numbers."""
        return [member for member in self._members.known.values() if member.state == "up"]

    def each(self, triggered: TriggerQueue) -> list[TriggerQueue]:
        """Return a triggered rule once for each member it is about: one, or all that are up."""
        ordinal, job = triggered.member, triggered.cause.event.get("job")
        if not ordinal and job is not None:
            ordinal = ordinal_of(job)
        ordinals = [ordinal] if ordinal else [member.ordinal for member in self.up()]
        # Only heartbeats have their own lookup, with the ages of active jobs.
        t = None if triggered.lookup is None else self._core.t
        return [
            TriggerQueue(
                triggered.state,
                triggered.cause,
                self.lookup(ordinal, t),
                triggered.memo,
                self._members.name_of(ordinal),
                ordinal,
            )
            for ordinal in ordinals
        ]

    def lookup(self, ordinal: int, t: float | None = None) -> Lookup:
        """Return the lookup of a member's metrics; what has a name is the ensemble's.

        Args:
            ordinal: the number of the member.
            t: the time of a heartbeat, to include the ages of the member's active jobs.
        """
        core, member = self._core, self._members.known.get(ordinal)
        name = self._members.name_of(ordinal)
        up = None if member is None else member.up
        t_expires = None if up is None else up.t_expires

        def value_of(path: MetricPath) -> Any:
            statistic, group, variable = path
            if path == LEFT:
                return None if t_expires is None else max(0.0, t_expires - core.t)
            if path == ELAPSED:
                return None if up is None else max(0.0, core.t - up.t)
            if statistic in OF_NAMES or (statistic == COUNT and AT in variable):
                return core.stats.lookup(path)
            ages = None
            if t is not None and (variable in GAUGES or variable == "pending"):
                gauge = "waiting" if variable == "pending" else variable
                jobs = self.jobs(ordinal, (group,))
                ages = ages_of(jobs, gauge, t, core.workload.absences)
            return core.stats.of_members.lookup(name, path, ages)

        return value_of

    def jobs(self, ordinal: int, groups: Collection[str]) -> Iterator[ActiveJob]:
        """Yield the active jobs of groups on a member."""
        member = self._members.known.get(ordinal)
        for key in () if member is None else member.jobs:
            job = self._core.workload.jobs[key]
            if job.group in groups:
                yield job

    def withdraw(self, ordinal: int, groups: Collection[str]) -> tuple[int, ...]:
        """Drop the waiting jobs of groups on a member, and return the keys of jobs to cancel.

        Jobs that were sent and have not appeared are cancelled when they appear.
        """
        member, workload = self._members.known.get(ordinal), self._core.workload
        if member is None:
            return ()
        drop_bound(self._core, ordinal, groups)
        for tag in member.flying:
            firing = workload.firings.get(tag[0], tag[1])
            if firing is not None and firing.group in groups:
                member.unwanted.add(tag)
        jobs = sorted(job.id for job in self.jobs(ordinal, groups) if job.may_be_canceled)
        for key in jobs:
            workload.jobs[key].canceling = True
        return tuple(jobs)

    def forget(self, name: str) -> None:
        """Forget the turns and metrics of a member that has ended."""
        for state in self._core.rules.states.values():
            if state.of_member:
                state.turns.pop(name, None)
        self._core.stats.of_members.forget(name)
