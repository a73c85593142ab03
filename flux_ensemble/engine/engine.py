"""The engine: an ensemble as a pure state machine.

    event ──► Engine.handle ──► commands

It reads no clock, environment, configuration or random source; time is the event's
time. The same events give the same commands, whoever drives it.

One event is handled in three steps. First it changes the state: the job's phase, the
counts and streams. Then the rules that it triggers are evaluated in document order, and
those whose turn it is fire. Last the engine settles: rules for what has run empty and
for what became of requests for scaling, jobs that may be sent now, and the end of the
ensemble.

The parts: `workload` (jobs), `rules` (rule counters and their index), `metrics`,
`observer` (what job events do), `actions` (what firing does), `scaling` (the member's
size), `requests` (what users ask for). Only `handle` is called from outside; the parts call
back into the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.engine.actions import Actions
from flux_ensemble.engine.commands import Command, Effect, Finish, Record, StartTimer, StopTimer
from flux_ensemble.engine.conditions import Lookup
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    Event,
    Interrupted,
    JobEvent,
    MemberChanged,
    Request,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.jobs import Phase
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.engine.metrics import Metrics
from flux_ensemble.engine.numbers import finite
from flux_ensemble.engine.observer import Cause, Observer
from flux_ensemble.engine.requests import answer
from flux_ensemble.engine.rules import RuleIndex, RuleState
from flux_ensemble.engine.scaling import Scaling
from flux_ensemble.engine.status import report
from flux_ensemble.engine.workload import Workload
from flux_ensemble.spec.model import (
    OUTCOME_TRIGGERS,
    SCALE_ACTIONS,
    Action,
    Rule,
    Spec,
)

#: How many rules may fire each other with no job or time between them.
CHAIN_LIMIT = 100

HEARTBEAT = "heartbeat"


class Engine:
    """One ensemble.

    Args:
        spec: the checked document.

    Attributes:
        state: "running", "paused", "ending" (its jobs are being cancelled), or one of
            the final states "completed", "failed", "canceled".
        reason: why it is in a final state, or will be.
        t: time of the latest event.
        firings: how often rules have fired.
        interrupted: how many jobs ended because the instance shut down.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.state = "running"
        self.reason = ""
        self.t = 0.0
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.firings = 0
        self.interrupted = 0
        self.stats = Metrics(spec.groups, spec.statistics)
        self.rules = RuleIndex(spec)
        self.workload = Workload(spec.groups, spec.limits.active_jobs)
        self.actions = Actions(self)
        self.observer = Observer(self)
        self.scaling = Scaling(self)
        self._final: tuple[str, str] | None = None
        self._out: list[Command] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            Started: self._on_started,
            JobEvent: self.observer.on_job_event,
            Interrupted: self.observer.on_interrupted,
            MemberChanged: self.scaling.on_changed,
            TimerFired: self._on_timer,
            CommandDone: self.actions.on_done,
            CommandFailed: self.actions.on_failed,
            Request: lambda request: answer(self, request),
        }

    # -- what drivers use ---------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take in one event.

        Returns:
            What is to be done, in order.
        """
        out: list[Command] = []
        self._out = out
        if event.t > self.t:
            self.t = event.t
        self._handlers[type(event)](event)
        workload = self.workload
        if workload.drained or self.scaling.told:
            self._follow_up()
        if workload.room > 0 and workload.firings.backlog:
            self.actions.send_jobs()
        if not workload.busy and not self.actions.busy:
            self._rest()
        return out

    @property
    def ended(self) -> bool:
        """The ensemble is in a final state."""
        return self.state in FINAL_STATES

    @property
    def idle(self) -> bool:
        """No job and no command of it is under way."""
        return not self.workload.busy and not self.actions.busy

    @property
    def wants_events(self) -> frozenset[str]:
        """Names of the job events (RFC 21) that it needs; the set may grow."""
        return self.rules.wants_events

    @property
    def wants_foreign(self) -> bool:
        """It needs the events of jobs that it did not submit."""
        return self.acting and self.rules.wants_foreign

    def wants_job(self, name: str | None) -> bool:
        """It needs the events of a job of this name that it did not submit."""
        return self.acting and self.rules.wants_job(name)

    @property
    def t_foreign(self) -> float:
        """What jobs of others did until then, and it has not seen, is none of its business."""
        added = list(self.rules.states.values())[len(self.spec.rules) :]
        if any(state.rule.scope == "queue" for state in added):
            # It did not want to see what those rules are about before they were there.
            return self.t
        return math.inf if self.t_start is None else self.t_start

    @property
    def wants_nodes(self) -> frozenset[str]:
        """Which of the metrics `nodes.*` ("size", "up", "free") its rules read; may grow."""
        return self.rules.wants_nodes

    @property
    def acting(self) -> bool:
        """Rules can fire; while paused what they do waits."""
        return self.state in ("running", "paused")

    @property
    def pending(self) -> list[Effect]:
        """The commands whose outcome has not come back, in the order of their ids."""
        return self.actions.pending

    def expects(self, tag: Tag) -> bool:
        """Whether a job with this tag was sent to the member and has not shown in the queue."""
        return self.workload.firings.expecting(tag.rule, tag.firing, tag.index) is not None

    def metrics(self, t: float) -> dict[str, Any]:
        """All metrics at time `t`, nested as in `Metrics.snapshot`."""
        return self.stats.snapshot(lambda group, gauge: self.workload.ages(group, gauge, t))

    def status(self) -> dict[str, Any]:
        """State, counts per group, and rules, as JSON (docs/rpc.md, `ensemble.status`)."""
        return report(self)

    def check(self) -> None:
        """The invariants that hold after every event.

        Raises:
            AssertionError: one does not.
        """
        self.workload.check()
        limits = self.spec.limits
        assert self.workload.total <= limits.jobs
        self.scaling.check(self.pending)
        jobs = self.workload.jobs.values()
        assert self.stats.pending_nodes == sum(job.nodes for job in jobs)
        assert all((job.nodes > 0) == (job.phase < Phase.RUNNING) for job in jobs)
        for group, counts in self.stats.counts.items():
            outcomes = sum(counts[outcome] for outcome in OUTCOME_TRIGGERS.values())
            assert counts["finished"] == outcomes
            running = [
                job
                for job in self.workload.active(group)
                if job.phase in (Phase.PENDING, Phase.RUNNING)
            ]
            assert counts["submitted"] - counts["finished"] == len(running)
        for state in self.rules.states.values():
            repetitions = state.rule.action.repetitions
            assert repetitions is None or state.fired + (state.left or 0) == repetitions
        if self.ended:
            assert self.t_end is not None
            assert self.reason

    # -- what the parts use -------------------------------------------------------

    def emit(self, command: Command) -> None:
        """Add a command to what the current event brings about."""
        self._out.append(command)

    def record(self, name: str, **context: Any) -> None:
        """Add an entry to the eventlog."""
        self._out.append(Record(self.t, name, context))

    def evaluate(
        self,
        state: RuleState,
        cause: Cause,
        *,
        lookup: Lookup | None = None,
        memo: Mapping[str, Any] | None = None,
    ) -> None:
        """Evaluate a triggered rule, and fire it if its condition holds and it is its turn."""
        if not state.armed or not self.acting:
            return
        lookup = lookup or self.stats.lookup
        value = lookup(state.path) if state.path is not None else None
        condition = state.condition
        if condition is not None and not condition.holds(value, lookup, memo):
            return
        if not state.take_turn(self.t):
            return
        if not state.live:
            self.rules.retire(state)
            if state.rule.scope == "queue":
                self.observer.forget_foreign()
            self._stop_timer(state)
        if cause.rule is not None:
            state.causes.add(cause.rule)
        chain = (*cause.chain, state.rule.id)
        if not self.chain_may_grow(chain):
            return
        event = cause.event
        if state.path is not None:
            event = {**event, "metric": str(state.path), "value": finite(value)}
        self.actions.fire(state, Cause(event, cause.rule, chain))

    def add_rule(self, rule: Rule, chain: tuple[str, ...]) -> None:
        """Take in a rule that a custom function returned; it is evaluated at once."""
        state = self.rules.add(rule)
        self._arm(state)
        self.evaluate_now(state, {"trigger": "added"}, chain)

    def evaluate_now(
        self, state: RuleState, event: Mapping[str, Any], chain: tuple[str, ...]
    ) -> None:
        """Evaluate a start or metric rule that has just been added or enabled."""
        trigger = state.rule.trigger
        if trigger == "start" or (trigger == "metric" and state.condition is not None):
            self.evaluate(state, Cause(event, None, chain))

    def set_enabled(self, state: RuleState, enabled: bool, reason: str) -> None:
        """Turn a rule on or off."""
        if state.enabled == enabled:
            return
        state.enabled = enabled
        self.record(
            f"rule-{'enabled' if enabled else 'disabled'}", rule=state.rule.id, reason=reason
        )

    def chain_may_grow(self, chain: tuple[str, ...]) -> bool:
        """Whether rules that led to each other may go on; if not, the ensemble fails."""
        if len(chain) <= CHAIN_LIMIT:
            return True
        names = ", ".join(dict.fromkeys(chain))
        self.fail(f"rules fire each other with no job or time between them: {names}")
        return False

    def fail(self, reason: str) -> None:
        """End the ensemble as failed."""
        self.end("failed", reason)

    def end(self, state: str, reason: str, *, cancel: bool = False) -> None:
        """End the ensemble: no rule fires any more, and jobs that wait are dropped.

        Args:
            state: the final state.
            reason: one sentence or phrase.
            cancel: cancel its jobs, and end when they are gone.
        """
        if not self.acting:
            return
        self._final = (state, reason)
        self.state = "ending"
        self.reason = reason
        self.observer.forget_foreign()
        if self.spec.heartbeat:
            self.emit(StopTimer(HEARTBEAT))
        for rule in self.rules.states.values():
            self._stop_timer(rule)
        self.actions.abandon()
        self.scaling.abandon()
        if cancel:
            self.actions.cancel_jobs(list(self.spec.groups), reason)
        else:
            self.workload.drop_waiting()
            self._finish()

    # -- events -------------------------------------------------------------------

    def _on_started(self, event: Started) -> None:
        if self.t_start is not None:
            return
        self.t_start = event.t
        self.record("start")
        if self.spec.heartbeat:
            self.emit(StartTimer(HEARTBEAT, self.spec.heartbeat, self.spec.heartbeat))
        for state in list(self.rules.states.values()):
            self._arm(state)
        for state in self.rules.plain("start"):
            self.evaluate(state, Cause({"trigger": "start"}))
        self.scaling.begin()

    def _arm(self, state: RuleState) -> None:
        rule = state.rule
        if rule.trigger != "timer":
            return
        every = rule.every or 0.0
        after = rule.after if rule.after is not None else every
        state.timer = True
        self.emit(StartTimer(f"rule:{rule.id}", after, every))

    def _stop_timer(self, state: RuleState) -> None:
        if state.timer:
            state.timer = False
            self.emit(StopTimer(f"rule:{state.rule.id}"))

    def _on_timer(self, event: TimerFired) -> None:
        if self.actions.on_timer(event.key) or self.scaling.on_timer(event.key):
            return
        if self.state != "running":
            return
        if event.key == HEARTBEAT:
            self._on_heartbeat(event.t)
            return
        state = self.rules.states.get(event.key.removeprefix("rule:"))
        if state is None or not state.timer:
            return
        if not state.rule.every:
            state.timer = False
        self.evaluate(state, Cause({"trigger": "timer", "timestamp": event.t}))

    def _on_heartbeat(self, t: float) -> None:
        lookup = self._heartbeat_lookup(t)
        event = {"trigger": HEARTBEAT, "timestamp": self.t}
        for state in self.rules.plain("metric", HEARTBEAT):
            # A metric rule without a condition is about updates, and this is none.
            if state.rule.trigger == HEARTBEAT or state.condition is not None:
                self.evaluate(state, Cause(event), lookup=lookup)

    def _heartbeat_lookup(self, t: float) -> Lookup:
        """The metrics at a time: where the clock was set back that is not the latest of all."""
        return self.stats.at(lambda group, gauge: self.workload.ages(group, gauge, t)).lookup

    # -- the end of an event ------------------------------------------------------

    def _rest(self) -> None:
        """Nothing is under way: end if that is the end."""
        if self.state == "ending":
            self._finish()
        elif (
            self.state == "running"
            and self.t_start is not None
            and self.spec.finish == "idle"
            and not self._can_fire()
        ):
            self.end("completed", "nothing is active and no rule can fire any more")

    def _follow_up(self) -> None:
        """Evaluate the rules for what has run empty, and for what requests have come to.

        Those that fire can bring about more of both, so all that happens here is one chain.
        """
        drained, told = self.workload.drained, self.scaling.told
        depth: tuple[str, ...] = ()
        while drained or told:
            while told:
                news = told.popleft()
                for state in self.rules.plain(news.trigger):
                    if state.rule.name in (None, news.origin.rule):
                        firings = self.firings
                        chain = max(news.origin.chain, depth, key=len)
                        self.evaluate(state, Cause(news.event, news.origin.rule, chain))
                        if self.firings > firings:
                            depth = (*chain, state.rule.id)
            states = [state for group in drained for state in self.rules.idle(group)]
            drained.clear()
            for state in sorted(states, key=lambda state: state.position):
                if not self.workload.busy_of(state.rule.group):
                    event = {"trigger": "idle", "group": state.rule.group, "timestamp": self.t}
                    self.evaluate(state, Cause(event, None, depth))
                    depth = (*depth, state.rule.id)

    def _can_fire(self) -> bool:
        """Some rule could still fire though nothing is active."""
        if self.wants_foreign and any(
            state.armed and state.rule.scope == "queue" for state in self.rules.plain("foreign")
        ):
            return True
        if any(state.armed and state.timer for state in self.rules.plain("timer")):
            return True
        if not self.spec.heartbeat:
            return False
        if any(state.armed for state in self.rules.plain(HEARTBEAT)):
            return True
        lookup = self._heartbeat_lookup(self.t)
        return any(
            state.armed
            and state.condition is not None
            and state.condition.holds(lookup(state.path) if state.path else None, lookup)
            and self._could_do(state.rule.action)
            for state in self.rules.plain("metric")
        )

    def _could_do(self, action: Action) -> bool:
        """An action would come to something: not so where the member is at its bound."""
        return action.name not in SCALE_ACTIONS or self.scaling.objection(action) is None

    def _finish(self) -> None:
        assert self._final is not None
        self.state, self.reason = self._final
        self.t_end = self.t
        self.record("finish", state=self.state, reason=self.reason)
        self.emit(Finish(self.state, self.reason))
