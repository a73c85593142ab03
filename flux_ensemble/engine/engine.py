"""The engine: an ensemble as a pure state machine.

    event ──► Engine.handle ──► commands

It reads no clock, environment, configuration or random source; time is the event's
time. The same events give the same commands, whoever drives it.

One event is handled in three steps. First it changes the state: the job's phase, the
counts and streams. Then the rules that it triggers are evaluated in document order, and
those whose turn it is fire. Last the engine settles: it evaluates the rules for idle groups and
for answers to requests of rules, sends the jobs that may be sent now, and ends the ensemble if
nothing is left to do.

The engine is its core with the parts around it: the features, `actions` (the
effects of firings), `observer` (job events), `requests` (users' requests), `evaluation` (the choice
of the rules that fire). Only `handle` changes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.keys.rules import AGAIN, RUNNING_TRIGGER
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.absences import Absence
from flux_ensemble.engine.actions import Actions
from flux_ensemble.engine.commands import Command, Effect, StartMember, StartTimer
from flux_ensemble.engine.core import HEARTBEAT, Core
from flux_ensemble.engine.dispatch import Dispatch
from flux_ensemble.engine.evaluation import Evaluation
from flux_ensemble.engine.event_batches import EventBatches
from flux_ensemble.engine.events import (
    Absent,
    AllocationChanged,
    AllocationEnding,
    CommandDone,
    CommandFailed,
    Event,
    Interrupted,
    JobEvent,
    JobEvents,
    JobsAlike,
    MemberChanged,
    MemberDraining,
    MemberEnded,
    MemberExpires,
    MemberLost,
    MemberUp,
    Request,
    ShareChanged,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import split
from flux_ensemble.engine.jobs import Phase
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.engine.member_events import MemberEvents
from flux_ensemble.engine.member_scope import MemberScope
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.observer import Observer
from flux_ensemble.engine.requests import Requests
from flux_ensemble.engine.reruns import Reruns
from flux_ensemble.engine.rule_actions import RuleActions
from flux_ensemble.engine.submission_results import SubmissionResults
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.conditions import Lookup
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES, INTERRUPTED
from flux_ensemble.metrics.paths import LEFT, SHARE


class Engine(Core):
    """The state machine of one ensemble.

    Args:
        spec: the checked document.

    Attributes:
        members: the members, if the document has `members`; else None.
        observer: handles job events.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.members = Members(self) if spec.members else None
        placing = None if self.members is None else Dispatch(self, self.members)
        scope = self._scope = None if self.members is None else MemberScope(self, self.members)
        self._sending = Submitter(self, placing)
        for part in parts("engine"):
            self.hooks.add(part.feature(self, self._sending))
        self._submitted = SubmissionResults(self, self.members)
        self._actions = Actions(self, self._sending, self._submitted, self.members, scope)
        self.observer = Observer(self, self._sending, self.members)
        self._evaluation = Evaluation(self, RuleActions(self, self._actions), self.members, scope)
        self._together = EventBatches(
            self, self.members, self.observer, self._evaluation, self._come_to_rest
        )
        self.reruns = Reruns(self, self._sending, self.members)
        self.requests = Requests(self, self._actions, self.reruns)
        self._handlers: dict[type, Callable[[Any], Iterable[TriggerQueue]]] = {
            Started: self._on_started,
            Interrupted: self.observer.on_interrupted,
            MemberChanged: self.nodes.on_changed,
            Absent: self._on_absent,
            ShareChanged: self._on_share,
            AllocationChanged: self._on_allocation,
            AllocationEnding: self._on_ending,
            TimerFired: self._on_timer,
            CommandDone: self._actions.on_done,
            CommandFailed: self._actions.on_failed,
            Request: self.requests.on_request,
        }
        self._member_events: MemberEvents | None = None
        if self.members is not None and scope is not None:
            events = self._member_events = MemberEvents(
                self, self.members, self.observer, self._submitted, scope
            )
            self._handlers[MemberUp] = events.on_up
            self._handlers[MemberExpires] = events.on_expires
            self._handlers[MemberDraining] = events.on_draining
            self._handlers[MemberLost] = events.on_lost
            self._handlers[MemberEnded] = events.on_ended
            self._handlers[CommandDone] = self._on_done
            self._handlers[CommandFailed] = self._on_failed

    # -- the interface for drivers ------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Handle one event.

        Returns:
            The commands to perform, in order.
        """
        out: list[Command] = []
        self._out = out
        if type(event) is JobEvent:
            # Nearly all events are single job events.
            self._advance(event.t)
            triggered = self.observer.on_job_event(event)
            if triggered:
                self._evaluation.run(triggered)
            self._come_to_rest()
            return out
        if type(event) is JobEvents:
            self._together.several(event)
            return out
        if type(event) is JobsAlike:
            self._together.alike(event)
            return out
        self._advance(event.t)
        self._evaluation.run(self._handlers[type(event)](event))
        self._settle()
        if type(event) is Request:
            self._submitted.unsent(event.request)
        self._rest_if_idle()
        return out

    def knows(self, alike: JobsAlike) -> bool:
        """Return whether the jobs have all been sent, each once.

        Only such a batch may be given to `handle`.
        """
        return self._together.knows(alike)

    def _advance(self, t: float) -> None:
        if t > self.t:
            self.t = self.stats.t = t

    def _settle(self) -> None:
        """Do the work that an event leaves besides the rules that it triggers.

        This is: do the work of features, evaluate rules on idle groups and on answers to
        requests, send jobs.
        """
        workload = self.workload
        hooks = self.hooks
        if hooks.unsettled:
            self._settle_features()
        if workload.drained or self.answers or self.deferred:
            self._evaluation.follow_up()
            if hooks.unsettled:
                self._settle_features()
        if workload.room > 0 and workload.backlog.queues:
            self._sending.send_jobs()

    def _come_to_rest(self) -> None:
        self._settle()
        self._rest_if_idle()

    def _rest_if_idle(self) -> None:
        if not self.workload.busy and not self.pending_table.busy:
            self._rest()

    @property
    def ended(self) -> bool:
        """True if the ensemble is in a final state."""
        return self.state in FINAL_STATES

    @property
    def idle(self) -> bool:
        """True if all jobs of the ensemble are over and no command is pending."""
        return not self.workload.busy and not self.pending_table.busy

    @property
    def wants_events(self) -> frozenset[str]:
        """Names of the job events (RFC 21) that the rules need; rules added later may need more."""
        return self.rules.wants_events

    @property
    def reacts(self) -> bool:
        """True if a rule or a feature may react to a job's events.

        Rules that are added later may make it true.
        """
        return self.hooks.reacts or bool(self.rules.reacting)

    @property
    def wants_nodes(self) -> frozenset[str]:
        """The metrics `nodes.*` that the rules read; rules added later may read more."""
        return self.rules.wants_nodes

    @property
    def wants_share(self) -> bool:
        """True if rules read the metric `share.queue`; rules added later may do so."""
        return self.rules.wants_share

    @property
    def wants_of_member(self) -> tuple[frozenset[str], bool, bool]:
        """`wants_nodes`; True if the expiration of the allocation matters; and `reacts`."""
        wants_expiration = self.rules.wants_expiration or self.t_walltime is not None
        return self.rules.wants_nodes, wants_expiration, self.reacts

    @property
    def wants_version(self) -> tuple[int, str, bool, bool]:
        """Another value whenever `wants_foreign`, `wants_events` or `wants_of_member` has one."""
        return self.rules.version, self.state, self.t_walltime is None, self.hooks.reacts

    @property
    def t_foreign(self) -> float:
        """The time before which events of foreign jobs are ignored if they were not seen yet."""
        added = list(self.rules.states.values())[len(self.spec.rules) :]
        if any(state.rule.scope == "queue" for state in added):
            # Events from before these rules were added do not matter to the rules.
            return self.t
        return math.inf if self.t_start is None else self.t_start

    @property
    def pending(self) -> list[Effect]:
        """The commands without an outcome, in the order of their ids."""
        return [pending.command for pending in self.pending_table.commands.values()]

    def expects(self, tag: Tag, job: int | None = None) -> bool:
        """Return whether a job with this tag was sent and has not appeared in the queue.

        Args:
            tag: the job's tag.
            job: the job's key, if it has one: then the job must be on the member to which it was
                sent.
        """
        if job is not None and self.members is not None:
            return self.members.expects(job, tag)
        return self.workload.firings.expecting(tag.rule, tag.firing, tag.index) is not None

    def named(self, key: int) -> dict[str, Any]:
        """Return a job as clients name it: `id`, and `member` if the job is on a member."""
        return {"id": split(key)[1], **self.where(key)}

    def scope_of(self, ordinal: int, t: float) -> Lookup:
        """Return the metrics of a member at time `t`, as rules with `scope: member` read them."""
        return self.stats.lookup if self._scope is None else self._scope.lookup(ordinal, t)

    def check(self) -> None:
        """Check the invariants that hold after every event.

        Raises:
            AssertionError: an invariant is broken.
        """
        self.workload.check()
        limits = self.spec.limits
        assert self.workload.total <= limits.jobs
        assert not self.answers
        if self.members is not None:
            self.members.check()
        for feature in self.hooks.features:
            if feature.check is not None:
                feature.check()
        jobs = self.workload.jobs.values()
        assert self.stats.pending_nodes == sum(job.nodes for job in jobs)
        assert all((job.nodes > 0) == (job.phase < Phase.RUNNING) for job in jobs)
        for group, counts in self.stats.counts.items():
            outcomes = sum(counts[outcome] for outcome in ATTEMPT_OUTCOMES)
            assert counts["attempts"] == outcomes
            # The other attempts run again, or the ensemble has failed meanwhile.
            assert counts["gave-up"] <= counts["finished"] <= counts["attempts"]
            retries = any(job_set.retries.times for job_set in self.spec.groups[group].sets) or any(
                group in feature.again for feature in self.hooks.features
            )
            submits_again = any(
                action.name in AGAIN
                for state in self.rules.states.values()
                for action in state.rule.actions
            )
            again = retries or submits_again or counts[INTERRUPTED] or self.rerun
            assert again or counts["finished"] == counts["attempts"]
            running = [
                job
                for job in self.workload.active(group)
                if job.phase in (Phase.PENDING, Phase.RUNNING)
            ]
            assert counts["submitted"] - counts["attempts"] == len(running)
        for state in self.rules.states.values():
            repetitions = state.repetitions
            assert repetitions is None or state.fired + (state.left or 0) == repetitions
        if self.ended:
            assert self.t_end is not None
            assert self.reason

    # -- events -------------------------------------------------------------------

    def _on_started(self, event: Started) -> Iterator[TriggerQueue]:
        if self.t_start is not None:
            return
        self.t_start = event.t
        self.stats.start(event.t)
        self.record(eventlog.Start())
        if self.spec.heartbeat:
            self.emit(StartTimer(HEARTBEAT, self.spec.heartbeat, self.spec.heartbeat))
        for state in self.rules.states.values():
            self.start_timer(state)
        if self.members is not None:
            self.members.begin()
        for state in self.rules.plain("start"):
            yield TriggerQueue(state, Cause({"trigger": "start"}))
        yield from self.nodes.begin()

    def _on_timer(self, event: TimerFired) -> Iterable[TriggerQueue]:
        key = event.key
        triggered = self._actions.call_again(key)
        if triggered is not None:
            return triggered
        if self._member_events is not None:
            triggered = self._member_events.on_timer(key)
            if triggered is not None:
                return triggered
        if self._sending.delay_over(key):
            return ()
        for takes in self.hooks.timers:
            if takes(key):
                return ()
        if self.state != "running":
            return ()
        if key == HEARTBEAT:
            return self._evaluation.heartbeat(event.t)
        state = self.rules.states.get(key.removeprefix("rule:"))
        if state is None or not state.timer:
            return ()
        if state.rule.trigger == RUNNING_TRIGGER:
            return self._evaluation.look(state, event.t)
        if not state.rule.every:
            state.timer = False
        seen: dict[str, Any] = {"trigger": state.rule.trigger, "timestamp": event.t}
        if state.rule.trigger == "time-left":
            seen["left"] = self.stats.lookup(LEFT)
        return (TriggerQueue(state, Cause(seen)),)

    def _on_absent(self, event: Absent) -> Iterable[TriggerQueue]:
        absence = Absence(event.since, event.t, event.undone, event.ended)
        self.workload.absences.add(absence)
        return ()

    def _on_share(self, event: ShareChanged) -> Iterable[TriggerQueue]:
        self.stats.share = event.share
        if not self.acting:
            return ()
        seen = {"trigger": "share", "share": event.share, "timestamp": event.t}
        return [TriggerQueue(state, Cause(seen)) for state in self.rules.metric([SHARE])]

    def _on_allocation(self, event: AllocationChanged) -> Iterable[TriggerQueue]:
        self.stats.t_expires = event.t_expires
        self.not_started.clear()
        if self.t_walltime is not None:
            self.t_walltime = None
            self.record(eventlog.Allocation(t_expires=event.t_expires))
        if self.acting:
            for state in self.rules.plain("time-left"):
                self.stop_timer(state)
                self.start_timer(state)
        return ()

    def _on_ending(self, event: AllocationEnding) -> Iterable[TriggerQueue]:
        if self.t_walltime is None and not self.ended:
            self.stats.t_expires = self.t_walltime = event.t_expires
            active, busy = len(self.workload.jobs), self.workload.busy
            self.record(
                eventlog.Walltime(t_expires=event.t_expires, active=active, waiting=busy - active)
            )
        return ()

    def _on_done(self, event: CommandDone) -> Iterable[TriggerQueue]:
        """Handle a command that succeeded; of a member that was requested, its job is noted."""
        assert self.members is not None
        pending = self.pending_table.commands.get(event.command)
        if pending is not None and isinstance(pending.command, StartMember):
            self.members.started(pending.command.ordinal, event.result.get("job"))
        return self._actions.on_done(event)

    def _on_failed(self, event: CommandFailed) -> Iterable[TriggerQueue]:
        """Handle a failed command; a member whose start failed has ended."""
        assert self._member_events is not None
        pending = self.pending_table.commands.get(event.command)
        if pending is None or not isinstance(pending.command, StartMember):
            return self._actions.on_failed(event)
        command = pending.command
        ended = MemberEnded(event.t, command.member, command.ordinal, event.reason)
        self.pending_table.take(event.command)
        return self._member_events.on_ended(ended)

    # -- the end of an event ------------------------------------------------------

    def _settle_features(self) -> None:
        """Do the work that the event left to features; evaluate the rules that this triggers."""
        unsettled = self.hooks.unsettled
        while unsettled and self.state == "running" and self.t_start is not None:
            for settle in list(unsettled.values()):
                self._evaluation.run(settle())
            # Such a rule can make a group idle, and a rule on idle can give a feature work.
            self._evaluation.follow_up()

    def _rest(self) -> None:
        """End the ensemble, of which nothing is active, if no rule can fire any more."""
        if self.state == "ending":
            self.finish()
        elif (
            self.state == "running"
            and self.t_start is not None
            and self.spec.finish == "idle"
            and not self._evaluation.can_fire()
        ):
            if self.refusal is not None:
                self.fail(self.refusal)
            else:
                self.end("completed", "nothing is active and no rule can fire any more")
