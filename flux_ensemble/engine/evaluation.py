"""Evaluation: the choice of the rules that fire, and their order.

    Triggered ──► condition holds, and it is its turn? ──► action ──► further Triggered

Evaluation is depth first: the rules that an action triggers are evaluated at once, before other
triggered rules, and before the rest of the action, such as further items that a custom function
returned. It uses its own stack instead of recursion, so chains of rules do not use up Python's
stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flux_ensemble.document.model import Action
from flux_ensemble.engine.combinations import MAX_COMBINATIONS, parse_name
from flux_ensemble.engine.core import HEARTBEAT, Core
from flux_ensemble.engine.job_view import CombinationView, caused_by
from flux_ensemble.engine.jobs import Phase
from flux_ensemble.engine.member_scope import MemberScope
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.rule_actions import RuleActions
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.rules import idle_of
from flux_ensemble.engine.tallies import Tally, values_in
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.metrics.conditions import Lookup, variables
from flux_ensemble.metrics.numbers import finite


class Evaluation:
    """Evaluates the rules of one engine."""

    def __init__(
        self,
        core: Core,
        actions: RuleActions,
        members: Members | None = None,
        scope: MemberScope | None = None,
    ) -> None:
        self._members = members
        self._scope = scope
        self._core = core
        self._actions = actions

    def run(self, triggered: Iterable[TriggerQueue]) -> None:
        """Evaluate rules, and the rules that these trigger.

        Args:
            triggered: the rules; each is taken from the iterable only when all work of those before
                it is done.
        """
        stack = [iter(triggered)]
        while stack:
            for item in stack[-1]:
                more = self._evaluate(item)
                if more:
                    stack.append(iter(more))
                    break
            else:
                stack.pop()

    def _evaluate(self, triggered: TriggerQueue) -> Iterable[TriggerQueue]:
        """Fire a rule if its condition holds and its limits (`Turns`) allow it to run."""
        core, state, cause = self._core, triggered.state, triggered.cause
        if not state.armed or not core.acting:
            return ()
        if state.of_member and triggered.combination is None:
            return () if self._scope is None else self._scope.each(triggered)
        lookup = triggered.lookup or core.stats.lookup
        value = lookup(state.path) if state.path is not None else None
        condition = state.condition
        if condition is not None and not condition.holds(value, lookup, triggered.memo, cause.job):
            return ()
        if not state.take_turn(core.t, triggered.combination):
            return ()
        if len(state.turns) > MAX_COMBINATIONS:
            core.fail(_too_many(state))
            return ()
        if not state.live:
            core.rules.retire(state)
            if state.rule.scope == "queue":
                core.forget_foreign()
            core.stop_timer(state)
        if cause.rule is not None:
            state.causes.add(cause.rule)
        chain = (*cause.chain, state.rule.id)
        if not core.chain_may_grow(chain):
            return ()
        event = cause.event
        if state.path is not None:
            event = {**event, "metric": str(state.path), "value": finite(value)}
        elif state.rule.detector is not None:
            value = core.stats.detected.get(state.rule.id)
            event = {**event, "metric": state.rule.name, "value": value}
        member = 0
        if state.of_member:
            event, member = {**event, "member": triggered.combination}, triggered.member
        values = variables(lookup, triggered.memo, cause.job)
        fired = Cause(
            event,
            cause.rule,
            chain,
            cause.job,
            cause.group,
            cause.combinations,
            member,
            cause.news,
        )
        return self._actions.fire(state, fired, values)

    # -- heartbeats -----------------------------------------------------------------

    def heartbeat(self, t: float) -> Iterator[TriggerQueue]:
        """Yield the rules that a heartbeat at time `t` triggers."""
        core, lookup = self._core, self._heartbeat_lookup(t)
        cause = Cause({"trigger": HEARTBEAT, "timestamp": core.t})
        for state in core.rules.plain("metric", HEARTBEAT):
            # A metric rule without a condition fires at updates of the metric, not at heartbeats.
            if state.rule.trigger == HEARTBEAT or state.condition is not None:
                yield TriggerQueue(state, cause, lookup)

    def _heartbeat_lookup(self, t: float) -> Lookup:
        """Return the metrics at time `t`, which is before `core.t` if the clock was set back."""
        workload = self._core.workload
        return self._core.stats.at(lambda group, gauge: workload.ages(group, gauge, t)).lookup

    # -- running jobs -----------------------------------------------------------------

    def look(self, state: RuleState, t: float) -> Iterator[TriggerQueue]:
        """Yield a rule on `job-running` for each job that runs at time `t`.

        A job for which the rule has fired before is left out.
        """
        core, id = self._core, state.rule.id
        active = core.workload.active
        jobs = [job for group in state.rule.groups or (None,) for job in active(group)]
        for job in sorted(jobs, key=lambda job: job.id):
            if not (state.armed and core.acting):
                return
            if job.phase is not Phase.RUNNING or job.canceling or id in job.told:
                continue
            fired = state.fired
            yield TriggerQueue(state, caused_by(core, job, "running", t, {}))
            if state.fired > fired:
                job.told = (*job.told, id)

    # -- the end of an event ----------------------------------------------------------

    def follow_up(self) -> None:
        """Evaluate the rules for idle groups, and for answers to requests of rules.

        Rules that fire can cause more of both, so all firings of one call are one chain.
        """
        core, answers, drained = self._core, self._core.answers, self._core.workload.drained
        deferred = core.deferred
        depth: tuple[str, ...] = ()
        while True:
            while answers:
                answer = answers.popleft()
                asked = answer.origin.rule
                for state in core.rules.plain(answer.trigger):
                    if state.rule.name in (None, asked):
                        firings = core.firings
                        chain = max(answer.origin.chain, depth, key=len)
                        self.run([TriggerQueue(state, Cause(answer.event, asked, chain))])
                        if core.firings > firings:
                            depth = (*chain, state.rule.id)
                            # A rule reacted to the denial, so it is no error of `asked` any more.
                            core.make_up_for(asked)
            waiting = dict(deferred)
            for idle in drained:
                waiting.update(dict.fromkeys(core.rules.idle(idle)))
            drained.clear()
            deferred.clear()
            # Combinations of one rule that are idle at once did not cause each other, so they
            # lengthen the chain by one only.
            each: dict[str, None] = {}
            for state, idle in sorted(waiting, key=lambda item: item[0].position):
                names = idle_of(state.rule, idle)
                if not (state.armed and core.acting) or any(map(core.workload.busy_of, names)):
                    continue
                tally, values = core.workload.tallies.get(state.rule.id), values_in(idle)
                if tally is not None and not tally.begun(values):
                    continue
                if any(map(core.pending_table.busy_of, names)):
                    deferred[state, idle] = None
                    continue
                fired = state.fired
                self.run([_idle(state, idle, core.t, depth, tally)])
                if tally is not None:
                    may_fire = not state.rule.by or state.may_run_for(idle or "")
                    tally.looked_at(values, state.fired > fired, may_fire=may_fire)
                if not state.live:
                    core.workload.tallies.pop(state.rule.id, None)
                if state.rule.by:
                    each[state.rule.id] = None
                else:
                    depth = (*depth, state.rule.id)
            depth = (*depth, *each)
            if not drained and not answers:
                return

    def can_fire(self) -> bool:
        """Return whether some rule can still fire although nothing is active."""
        core = self._core
        if core.hooks.unsettled:
            return True
        plain = core.rules.plain
        if core.wants_foreign and any(
            state.armed and state.rule.scope == "queue" for state in plain("foreign")
        ):
            return True
        if any(state.armed and state.timer for state in plain("timer")):
            return True
        if any(map(self._awaits_member, plain("member-up"))):
            return True
        if not core.spec.heartbeat:
            return False
        at = self._heartbeat_lookup(core.t)
        if any(state.armed and any(self._lookups(state, at)) for state in plain(HEARTBEAT)):
            return True
        return any(
            state.condition.holds(lookup(state.path) if state.path else None, lookup)
            and any(map(self._could_do, state.rule.actions))
            for state in plain("metric")
            if state.armed and state.condition is not None
            for lookup in self._lookups(state, at)
        )

    def _awaits_member(self, state: RuleState) -> bool:
        """Return whether a rule on `member-up` waits for a member that starts, and could act.

        A member whose own job was refused or has ended is not starting any more.
        """
        if not state.armed or self._members is None:
            return False
        starting = self._members.starting(state.rule.name)
        return bool(starting) and any(map(self._could_do, state.rule.actions))

    def _lookups(self, state: RuleState, lookup: Lookup) -> Iterable[Lookup]:
        """Return the lookups with which a rule can be evaluated at a heartbeat.

        A rule with `scope: member` has one for each member that is up; another rule has `lookup`.
        """
        if not state.of_member or self._scope is None:
            return (lookup,)
        members = [member for member in self._scope.up() if state.may_run_for(member.name)]
        return [self._scope.lookup(member.ordinal, self._core.t) for member in members]

    def _could_do(self, action: Action) -> bool:
        """Return whether an action would have an effect."""
        effective = self._core.hooks.effective.get(action.name)
        return effective is None or effective(action)


def _idle(
    state: RuleState, idle: str | None, t: float, chain: tuple[str, ...], tally: Tally | None
) -> TriggerQueue:
    """Return a rule as triggered because groups, combinations, or the ensemble are idle."""
    rule, names = state.rule, idle_of(state.rule, idle)
    event: dict[str, Any] = {"trigger": "idle", "group": rule.group, "timestamp": t}
    if rule.more_groups:
        event["groups"] = list(rule.groups)
    went = {} if tally is None else tally.of(values_in(idle))
    if not rule.by or idle is None:
        view = None if tally is None else CombinationView({}, went)
        return TriggerQueue(state, Cause(event, None, chain, view))
    event["params"] = parse_name(idle)[1]
    view = CombinationView(event["params"], went)
    cause = Cause(event, None, chain, view, combinations=tuple(filter(None, names)))
    return TriggerQueue(state, cause, combination=idle)


def _too_many(state: RuleState) -> str:
    """Return the reason of the failure when a rule with `by` fired for too many combinations."""
    return (
        f"rule {state.rule.id!r} fired for more than {MAX_COMBINATIONS} combinations of values; "
        "with 'repetitions: unlimited' it need not remember them, or give it fewer parameters in "
        "'by'"
    )
