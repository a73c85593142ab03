"""The handling of members' events, and of the jobs of members that end.

Nothing is decided about the jobs of a lost member before it has ended (`MemberEnded`). Jobs whose
end was reported have left by then. The others are ended here, by the events that the member would
have posted, so that they are counted, recorded and retried as any job is. Such an end is an
interruption, whether the member was lost or not; `retries` decides whether the job runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.keys.rules import MEMBER_TRIGGERS
from flux_ensemble.engine.breaker import BREAKER_TIMER
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import (
    JobEvent,
    MemberDraining,
    MemberEnded,
    MemberExpires,
    MemberLost,
    MemberUp,
    Tag,
)
from flux_ensemble.engine.job_keys import make
from flux_ensemble.engine.jobs import MEMBER_LOST, ActiveJob, Phase
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.engine.member import CONNECTED, LIVE, SURPLUS_TIMER, Member
from flux_ensemble.engine.member_scope import MemberScope
from flux_ensemble.engine.members import DRAIN_TIMER, Members, change_limit
from flux_ensemble.engine.observer import Observer
from flux_ensemble.engine.submission_results import SubmissionResults
from flux_ensemble.engine.surplus import Surplus
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue

#: The id for a job that was sent to a member and never appeared there; no queue assigns it.
_NO_ID = 0

_UP, _DRAINING, _LOST = MEMBER_TRIGGERS


class MemberEvents:
    """Handles the events of members for one engine."""

    def __init__(
        self,
        core: Core,
        members: Members,
        observer: Observer,
        submitted: SubmissionResults,
        scope: MemberScope,
    ) -> None:
        self._surplus = Surplus(core, members)
        self._scope = scope
        self._core = core
        self._members = members
        self._observer = observer
        self._submitted = submitted

    def on_up(self, event: MemberUp) -> Iterable[TriggerQueue]:
        """Open a member that has come up."""
        member = self._members.known.get(event.ordinal)
        if member is None or member.state != "starting":
            return ()
        self._members.opened(member, event)
        self._core.record(
            eventlog.MemberUp(
                member=member.name,
                nodes=event.nodes,
                cores=event.cores,
                t_expires=event.t_expires,
            )
        )
        return self._triggered(_UP, member)

    def on_expires(self, event: MemberExpires) -> Iterable[TriggerQueue]:
        """Change the time limit of a member."""
        member = self._members.known.get(event.ordinal)
        if member is None or member.state not in CONNECTED or member.up is None:
            return ()
        if event.t_expires != member.up.t_expires:
            change_limit(self._core, self._members.placement, member, event.t_expires)
            self._core.record(eventlog.MemberExpires(member=member.name, t_expires=event.t_expires))
        return ()

    def on_timer(self, key: str) -> Iterable[TriggerQueue] | None:
        """Handle a timer of the breaker, of a drain or of `surplus`; return None for any other."""
        if key.startswith(BREAKER_TIMER):
            return self._judge(key.removeprefix(BREAKER_TIMER))
        if key == SURPLUS_TIMER:
            self._surplus.look()
            return ()
        if not key.startswith(DRAIN_TIMER):
            return None
        member = self._members.known.get(int(key.removeprefix(DRAIN_TIMER)))
        return () if member is None else self._drain(member, "its time is nearly up")

    def _judge(self, ordinal: str) -> Iterable[TriggerQueue]:
        """Have the breaker check running jobs or, if there is an ordinal, drain that member."""
        breaker = self._members.breaker
        if not ordinal:
            breaker.look()
            return ()
        member, reason = self._members.known.get(int(ordinal)), breaker.verdict(int(ordinal))
        return () if member is None or reason is None else self._drain(member, reason)

    def on_draining(self, event: MemberDraining) -> Iterable[TriggerQueue]:
        """Drain a member; if it ends by itself before its time is up, it is lost from now on."""
        member = self._members.known.get(event.ordinal)
        if member is None:
            return ()
        if event.ends and self._is_needed(member) and not member.is_over(event.t):
            return self._lost(member, event.reason)
        return self._drain(member, event.reason)

    def _is_needed(self, member: Member) -> bool:
        """Return whether the end of a member would be a loss.

        It is none if the member drains already, or if the ensemble is over.
        """
        return member.state in LIVE and self._core.state not in FINAL_STATES

    def _drain(self, member: Member, reason: str) -> Iterable[TriggerQueue]:
        if member.state != "up":
            return ()
        self._members.drain(member, reason)
        return self._triggered(_DRAINING, member)

    def on_lost(self, event: MemberLost) -> Iterable[TriggerQueue]:
        """Mark a member that does not answer any more as lost, unless it was requested to end."""
        member = self._members.known.get(event.ordinal)
        if member is None or member.state == "lost" or member.ending:
            return ()
        return self._lost(member, event.reason)

    def _lost(self, member: Member, reason: str) -> Iterable[TriggerQueue]:
        self._lose(member, reason)
        return self._triggered(_LOST, member)

    def _lose(self, member: Member, reason: str) -> None:
        self._members.lose(member, reason)
        self._core.record(
            eventlog.MemberLost(member=member.name, reason=reason, active=member.busy)
        )

    def on_ended(self, event: MemberEnded) -> Iterator[TriggerQueue]:
        """End the jobs that were still on a member when it ended, and forget the member."""
        member = self._members.known.get(event.ordinal)
        if member is None:
            return
        core = self._core
        unsaid = self._is_needed(member)
        lost = unsaid or member.state == "lost"
        if unsaid:
            self._lose(member, event.reason)
        self._members.end(member)
        jobs = [core.workload.jobs[key] for key in sorted(member.jobs)]
        flying = list(member.flying)
        core.record(
            eventlog.MemberEnded(
                member=member.name,
                reason=event.reason,
                unended=len(jobs),
                unseen=len(flying),
            )
        )
        for job in jobs:
            # The action of a rule on the job before can end this one.
            if core.workload.jobs.get(job.id) is job:
                yield from self._conclude(member, job, event, lost)
        for rule, number, index in flying:
            firing = core.workload.firings.expecting(rule, number, index)
            if firing is not None:
                key = make(member.ordinal, _NO_ID)
                tag = Tag(firing.group, rule, number, index)
                yield from self._observer.on_job_event(JobEvent(event.t, key, "submit", {}, tag))
                job = core.workload.jobs[key]
                yield from self._conclude(member, job, event, lost)
        for id in self._members.forget(member):
            # The member will not report the outcome of this command any more.
            pending = core.pending_table.take(id)
            assert pending is not None
            if pending.firing is not None:
                core.workload.confirm(pending.firing)
            self._submitted.accepted(pending, ())
        if unsaid:
            yield from self._triggered(_LOST, member)
        if event.outage or (member.up is None and not member.pool.started_by.enclosing):
            # A site that does not take it now may do so later, and is asked ever more rarely. The
            # rules on the loss were evaluated before, and may have started another member.
            self._members.refill(member.pool)
        self._scope.forget(member.name)

    def _conclude(
        self, member: Member, job: ActiveJob, event: MemberEnded, lost: bool
    ) -> Iterator[TriggerQueue]:
        """Post the events that end a job whose member has ended."""
        end: list[tuple[str, dict[str, Any]]] = [("clean", {})]
        if job.phase < Phase.FINISHED:
            if not lost:
                job.evict()
            note = f"member {member.name} {'was lost' if lost else 'has ended'}: {event.reason}"
            kind = MEMBER_LOST if lost else "cancel"
            end.insert(0, ("exception", {"type": kind, "severity": 0, "note": note}))
        if job.phase is Phase.NEW:
            end.insert(0, ("validate", {}))
        for name, context in end:
            yield from self._observer.on_job_event(JobEvent(event.t, job.id, name, context))

    def _triggered(self, trigger: str, member: Member) -> list[TriggerQueue]:
        """Return the rules on a trigger such as `member-up` that are about the member's pool."""
        core = self._core
        seen = {
            "trigger": trigger,
            "member": member.name,
            "pool": member.pool.name,
            "reason": member.reason,
            "timestamp": core.t,
        }
        return [
            TriggerQueue(state, Cause(seen), member=member.ordinal)
            for state in core.rules.plain(trigger)
            if state.rule.name in (None, member.pool.name)
        ]
