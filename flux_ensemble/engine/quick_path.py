"""The job events that make no room for other jobs.

Most jobs are submitted, start, succeed and are clean. Only the event `clean` of such a job can make
room for a job that waits. So the engine does not try to send jobs after the other events.
"""

from __future__ import annotations

from flux_ensemble.engine.core import SUBMISSION_SECONDS, Core
from flux_ensemble.engine.events import JobEvents
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.placement import Need

_PLAIN = frozenset(("submit", "validate", "start", "finish"))

#: The least that a job can need.
_LEAST = Need()


class Plain:
    """Decides for one engine whether events can make room for other jobs.

    Args:
        core: the engine's core.
        members: the members.
    """

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members
        self._longest = max((group.longest for group in core.spec.groups.values()), default=0.0)

    def are(self, several: JobEvents) -> bool:
        """Return whether none of the events makes room for a job, except a last "clean"."""
        success = False
        for event in several.events[:-1]:
            if event[1] not in _PLAIN:
                return False
            if event[1] == "finish":
                success = len(event) > 2 and event[2].get("status") == 0
                if not success:
                    return False
        last = several.events[-1][1]
        if (last != "clean" or not success) and last not in ("validate", "start"):
            return False
        return self.now(max(self._core.t, several.t))

    def now(self, t: float) -> bool:
        """Return whether until time `t` only room limits which jobs are sent."""
        core = self._core
        if core.copies.works or not self._members.breaker.idle:
            return False
        t_expires = core.stats.t_expires
        # The allocation must last long enough for the longest group.
        return t_expires is None or self._longest <= t_expires - t - SUBMISSION_SECONDS

    @property
    def more(self) -> bool:
        """True if an event left work besides rules to evaluate and jobs to send."""
        core, workload = self._core, self._core.workload
        drained = workload.drained or not workload.busy
        return bool(drained or core.scale_outcomes or core.deferred or core.search_due)

    def makes_room(self, key: int) -> bool:
        """Return whether a job that is gone may have made room for others."""
        workload = self._core.workload
        if not workload.backlog.queues:
            return False
        member = self._members.known.get(ordinal_of(key))
        if member is None or member.place is None:
            return True
        # If a limit of active jobs was in the way, the next job may go to any member.
        limited = workload.room <= 1 or bool(workload.backlog.bounds)
        return limited or member.place.room(_LEAST, self._core.t) > 0
