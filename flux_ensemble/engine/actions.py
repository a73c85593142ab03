"""Actions: what happens when a rule fires, and what comes of it.

A firing is recorded, performed at once (or held while the ensemble is paused), and
turned into commands. Each command with an id is pending until its outcome comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flux_ensemble.engine.commands import (
    CallCustom,
    CancelJobs,
    Effect,
    Reply,
    Scale,
    StartTimer,
    StopTimer,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import Job, Phase
from flux_ensemble.engine.pending import Call, Held, Origin, Pending
from flux_ensemble.engine.render import action_json, describe, rule_json
from flux_ensemble.engine.rules import RuleState
from flux_ensemble.spec.model import REQUEST_RULE, RETRY_RULE, Action
from flux_ensemble.spec.rules import parse_action, parse_rule

if TYPE_CHECKING:
    from flux_ensemble.engine.engine import Engine
    from flux_ensemble.engine.observer import Cause

#: How often `on-error: retry` calls a custom function again, and the first delay in
#: seconds, which doubles each time.
RETRIES = 3
RETRY_DELAY = 1.0


class Actions:
    """Performs actions for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pending: dict[int, Pending] = {}
        self._held: deque[Held] = deque()
        self._retries: dict[str, tuple[Origin, Call]] = {}
        self._numbers = dict.fromkeys((REQUEST_RULE, RETRY_RULE), 0)
        self._last_id = 0

    @property
    def busy(self) -> bool:
        """Something is pending, held, or to be tried again."""
        return bool(self._pending or self._held or self._retries)

    @property
    def pending(self) -> list[Effect]:
        """The commands whose outcome has not come back, in the order of their ids."""
        return [pending.command for pending in self._pending.values()]

    # -- firing -------------------------------------------------------------------

    def fire(self, state: RuleState, cause: Cause) -> None:
        """Run the action of a rule, once."""
        origin = Origin(state.rule.id, state.next_number(), cause.chain)
        self._fire(origin, state.rule.action, state.rule.title, cause.event)

    def request(self, action: Action, request: int, event: Mapping[str, Any]) -> Origin:
        """Run an action that a user asks for."""
        origin = Origin(REQUEST_RULE, self._next_number(REQUEST_RULE), (), request)
        self._fire(origin, action, REQUEST_RULE, event)
        return origin

    def _fire(self, origin: Origin, action: Action, title: str, event: Mapping[str, Any]) -> None:
        engine = self._engine
        engine.firings += 1
        context: dict[str, Any] = {
            "rule": origin.rule,
            "firing": origin.number,
            "trigger": title,
            "action": action_json(action),
            "cause": dict(event),
        }
        if action.name == "submit":
            group = engine.spec.groups[action.label or ""]
            context["jobs"] = describe(group, action)
        engine.record("fire", **context)
        self._perform_or_hold(Held(origin, Call(action, event)))

    def resume(self) -> None:
        """Perform what was held while the ensemble was paused."""
        while self._held and self._engine.state == "running":
            self._perform_held(self._held.popleft())

    def _perform_or_hold(self, held: Held) -> None:
        if self._engine.state == "paused":
            self._held.append(held)
        else:
            self._perform_held(held)

    def _perform_held(self, held: Held) -> None:
        if isinstance(held.what, Call):
            self._perform(held.origin, held.what)
        else:
            self._returned(held.origin, held.what)

    def _perform(self, origin: Origin, call: Call) -> None:
        engine, action = self._engine, call.action
        groups = list(engine.spec.groups) if action.label is None else [action.label]
        match action.name:
            case "submit":
                self.submit(groups[0], action.count, action.params, origin)
            case "cancel":
                if not self.cancel_jobs(groups, _because(origin), origin):
                    self._outcome(origin, jobs=0)
            case "update":
                self._update(groups, action, origin)
            case "custom":
                self._call(origin, call)
            case "terminate":
                self._outcome(origin)
                reason = "a terminate action ran"
                engine.end("completed", f"{reason} ({_because(origin)})", cancel=action.cancel)
            case "enable" | "disable":
                self._outcome(origin)
                self._switch(engine.rules.states[groups[0]], action, origin)
            case "grow" | "shrink":
                engine.scaling.ask(action, origin)

    def _switch(self, state: RuleState, action: Action, origin: Origin) -> None:
        was = state.enabled
        self._engine.set_enabled(state, action.name == "enable", _because(origin))
        if state.enabled and not was:
            self._engine.evaluate_now(state, {"trigger": "enabled"}, origin.chain)

    # -- jobs ---------------------------------------------------------------------

    def submit(
        self,
        group: str,
        each: int | None,
        params: Mapping[str, Any] | None,
        origin: Origin,
        *,
        only: int | None = None,
        attempt: int = 0,
    ) -> None:
        """Ask for the jobs of one submission of a group, or for one of them again.

        Args:
            group: the group's name.
            each: overrides the group's count.
            params: override the group's parameters.
            origin: the firing that asks.
            only: the index of the one job to ask for, or None for all.
            attempt: how often that one has been tried before.
        """
        engine = self._engine
        size = len(engine.spec.groups[group].submission(each, params))
        indices = range(size) if only is None else range(only, only + 1)
        limit = engine.spec.limits.jobs
        if engine.workload.total + len(indices) > limit:
            engine.fail(self._over_limit(group, origin, len(indices), limit))
            return
        engine.workload.add(
            Firing(
                origin.rule, origin.number, group, indices, each, params, attempt, origin.request
            )
        )

    def retry(self, firing: Firing, index: int) -> None:
        """Ask for a failed job again."""
        origin = Origin(RETRY_RULE, self._next_number(RETRY_RULE))
        self._engine.record(
            "retry",
            rule=firing.rule,
            firing=firing.number,
            index=index,
            attempt=firing.attempt + 1,
            retry=origin.number,
        )
        self.submit(
            firing.group,
            firing.each,
            firing.params,
            origin,
            only=index,
            attempt=firing.attempt + 1,
        )

    def _over_limit(self, group: str, origin: Origin, jobs: int, limit: int) -> str:
        engine = self._engine
        asked = f"{engine.workload.total + jobs} jobs in all, and limits.jobs is {limit}"
        sentence = f"{_because(origin)} would submit group {group!r}: {asked}"
        cycle = engine.rules.cycle(origin.rule)
        return f"{sentence}; rules that fire each other: {', '.join(cycle)}" if cycle else sentence

    def send_jobs(self) -> None:
        """Send the jobs that wait, as far as the limits allow."""
        engine = self._engine
        if engine.state != "running" or engine.t_start is None:
            return
        while (batch := engine.workload.next_batch()) is not None:
            firing, first, count = batch
            origin = Origin(firing.rule, firing.number, (), firing.request)
            command = SubmitJobs(
                self._next_id(),
                firing.group,
                firing.rule,
                firing.number,
                first,
                count,
                firing.each,
                firing.params,
            )
            self._send(Pending(origin, command, firing=firing), command.id)

    def cancel_unseen(self, job: Job, firing: Firing) -> None:
        """Cancel a job that was given up before it showed in the queue."""
        job.canceling = True
        origin = Origin(firing.rule, firing.number)
        self._cancel((job.id,), "canceled before it showed in the queue", origin)

    def cancel_jobs(self, groups: Iterable[str], reason: str, origin: Origin | None = None) -> int:
        """Cancel the active jobs of groups, and drop those that wait.

        Returns:
            How many active jobs are being cancelled.
        """
        jobs, _ = self._engine.workload.withdraw(groups)
        if jobs:
            origin = origin or Origin(REQUEST_RULE, self._next_number(REQUEST_RULE))
            self._cancel(tuple(job.id for job in jobs), reason, origin)
        return len(jobs)

    def _cancel(self, jobs: tuple[int, ...], reason: str, origin: Origin) -> None:
        command = CancelJobs(self._next_id(), jobs, reason)
        self._send(Pending(origin, command), command.id)

    def _update(self, groups: Iterable[str], action: Action, origin: Origin) -> None:
        # Flux sets the urgency of a job until it is allocated resources, its duration
        # until it ends.
        last = Phase.PENDING if action.urgency is not None else Phase.RUNNING
        jobs = tuple(
            job.id
            for group in groups
            for job in self._engine.workload.active(group)
            if job.phase <= last and not job.canceling
        )
        if not jobs:
            self._outcome(origin, jobs=0)
            return
        command = UpdateJobs(self._next_id(), jobs, action.urgency, action.duration)
        self._send(Pending(origin, command), command.id)

    # -- the member's size --------------------------------------------------------

    def scale(self, origin: Origin, member: str, by: int, to: int) -> Pending:
        """Ask a member for another size."""
        command = Scale(self._next_id(), member, by, to)
        pending = Pending(origin, command)
        self._send(pending, command.id)
        return pending

    def forget(self, id: int) -> None:
        """The outcome of a command is waited for no more."""
        del self._pending[id]

    # -- custom functions ---------------------------------------------------------

    def _call(self, origin: Origin, call: Call) -> None:
        engine = self._engine
        state = engine.rules.states.get(origin.rule)
        command = CallCustom(
            self._next_id(),
            call.action.label or "",
            {
                "metrics": engine.metrics(engine.t),
                "event": dict(call.event),
                "rule": rule_json(state.rule) if state is not None else {},
                "action": action_json(call.action),
            },
            call.action.timeout,
        )
        self._send(Pending(origin, command, call=call), command.id)

    def _returned(self, origin: Origin, items: Iterable[Mapping[str, Any]]) -> None:
        """Take in what a custom function returned: actions to perform, rules to add."""
        engine = self._engine
        rules = engine.rules.states
        for item in items:
            if not engine.acting:
                return
            if not engine.chain_may_grow(origin.chain):
                return
            value = item["value"]
            try:
                if item["kind"] == "rule":
                    rule = parse_rule(value, engine.spec, rules, _free_id(rules))
                    engine.record("rule-added", rule=rule.id, by=origin.rule)
                    engine.add_rule(rule, origin.chain)
                else:
                    self._perform_returned(origin, parse_action(value, engine.spec, rules))
            except ValueError as error:
                self._failed(origin, f"the custom function returned what cannot be used: {error}")
                return

    def _perform_returned(self, origin: Origin, action: Action) -> None:
        state = self._engine.rules.states.get(origin.rule)
        number = state.next_number() if state else self._next_number(origin.rule)
        title = state.rule.title if state else origin.rule
        event = {"trigger": "custom", "rule": origin.rule, "firing": origin.number}
        follow = replace(origin, number=number, chain=(*origin.chain, origin.rule), request=None)
        self._fire(follow, action, title, event)

    def on_timer(self, key: str) -> bool:
        """Try a custom function again if that is what the timer is for."""
        retry = self._retries.pop(key, None)
        if retry is None:
            return False
        self._perform_or_hold(Held(*retry))
        return True

    # -- outcomes -----------------------------------------------------------------

    def on_done(self, event: CommandDone) -> None:
        """A command succeeded."""
        pending = self._pending.pop(event.command, None)
        if pending is None:
            self._engine.scaling.on_late(event)
            return
        origin = pending.origin
        if pending.firing is not None:
            self._engine.workload.confirm(pending.firing)
            if origin.request is not None:
                ids = list(event.result.get("ids", ()))
                reply = {"ids": ids, "firing": origin.number}
                self._engine.emit(Reply(origin.request, reply))
            if not pending.firing.waiting and not pending.firing.outstanding:
                self._outcome(origin, jobs=pending.firing.stop - pending.firing.first)
        elif pending.call is not None:
            self._outcome(origin)
            returned = list(event.result.get("returned", ()))
            if returned:
                self._perform_or_hold(Held(origin, returned))
        elif isinstance(pending.command, Scale):
            self._engine.scaling.on_done(pending, event)
        else:
            self._outcome(origin, jobs=len(getattr(pending.command, "jobs", ())))

    def on_failed(self, event: CommandFailed) -> None:
        """A command failed."""
        pending = self._pending.pop(event.command, None)
        if pending is None:
            self._engine.scaling.on_late(event)
            return
        origin = pending.origin
        if pending.firing is not None:
            assert isinstance(pending.command, SubmitJobs)
            count = pending.command.count
            self._engine.workload.confirm(pending.firing, count - len(event.ids))
            self._engine.record(
                "outcome", rule=origin.rule, firing=origin.number, ok=False, reason=event.reason
            )
            if origin.request is not None:
                self._engine.emit(Reply(origin.request, errno=event.errno, reason=event.reason))
                return
            group = pending.firing.group
            self._engine.fail(f"the queue refused jobs of group {group!r}: {event.reason}")
        elif isinstance(pending.command, Scale):
            self._engine.scaling.on_failed(pending, event)
        else:
            self._failed(origin, event.reason, event.detail, pending.call)

    def _failed(
        self, origin: Origin, reason: str, detail: str = "", call: Call | None = None
    ) -> None:
        """What a rule wanted went wrong; its `on-error` says what to do."""
        engine = self._engine
        engine.record(
            "custom-error" if call is not None else "outcome",
            rule=origin.rule,
            firing=origin.number,
            ok=False,
            reason=reason,
            detail=detail,
        )
        state = engine.rules.states.get(origin.rule)
        if state is None:
            return
        state.error = f"{reason}\n{detail}".rstrip()
        match state.rule.on_error:
            case "fail":
                engine.fail(f"rule {state.rule.id!r}: {reason}")
            case "retry" if call is not None and call.attempt < RETRIES and engine.acting:
                key = f"retry:{origin.rule}:{origin.number}"
                self._retries[key] = (origin, replace(call, attempt=call.attempt + 1))
                engine.emit(StartTimer(key, RETRY_DELAY * 2**call.attempt))
            case _:
                engine.set_enabled(state, False, reason)

    def abandon(self) -> None:
        """The ensemble ends: nothing that is held, pending in user code, or to be retried
        matters any more."""
        self._held.clear()
        for key in self._retries:
            self._engine.emit(StopTimer(key))
        self._retries.clear()
        for id in [id for id, pending in self._pending.items() if pending.call is not None]:
            self.forget(id)

    # -- helpers ------------------------------------------------------------------

    def _send(self, pending: Pending, id: int) -> None:
        self._pending[id] = pending
        self._engine.emit(pending.command)

    def _outcome(self, origin: Origin, **context: Any) -> None:
        self._engine.record("outcome", rule=origin.rule, firing=origin.number, ok=True, **context)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _next_number(self, rule: str) -> int:
        number = self._numbers[rule]
        self._numbers[rule] = number + 1
        return number


def _free_id(rules: Collection[str]) -> str:
    number = len(rules)
    while f"rule-{number}" in rules:
        number += 1
    return f"rule-{number}"


def _because(origin: Origin) -> str:
    if origin.rule == REQUEST_RULE:
        return "a request"
    return "a retry" if origin.rule == RETRY_RULE else f"rule {origin.rule!r}"
