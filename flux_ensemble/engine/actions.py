"""Actions: the effects of firings, and the outcomes of their commands.

A firing is recorded, performed at once (or held while the ensemble is paused), and
turned into commands. Each command with an id is pending until its outcome comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.actions import parse_action
from flux_ensemble.document.model import Action
from flux_ensemble.document.rules import parse_rule
from flux_ensemble.engine.commands import (
    MEMBER_COMMANDS,
    CallCustom,
    CancelJobs,
    Reply,
    StartTimer,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.engine.feature import Perform
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of, split
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.engine.member_scope import MemberScope
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.pending import Call, Held, Origin, Pending
from flux_ensemble.engine.render import ShownActions, action_json, rule_json
from flux_ensemble.engine.submission_results import SubmissionResults
from flux_ensemble.engine.submitter import WITHDRAWN, Submitter, because
from flux_ensemble.engine.trigger_queue import TriggerQueue
from flux_ensemble.metrics.paths import OF_NAMES, parse_label
from flux_ensemble.scalars import numbers

#: The most further calls of a custom function by `on-error: retry`, and the first delay in
#: seconds, which doubles each time.
RETRIES = 3
RETRY_DELAY = 1.0


class Actions:
    """Performs actions for one engine."""

    def __init__(
        self,
        core: Core,
        sending: Submitter,
        submitted: SubmissionResults,
        members: Members | None = None,
        scope: MemberScope | None = None,
    ) -> None:
        self._core = core
        self._scope = scope
        self._members = members
        self._submitted = submitted
        self._sending = sending
        self._table = core.pending_table
        self._shown = ShownActions(core.spec.groups)
        #: Reasons of cancellations that follow from another action, which has its own outcome.
        self._quiet = frozenset({WITHDRAWN}).union(*[one.quiet for one in core.hooks.features])
        self._performs: dict[str, Perform] = {
            "submit": self._submit,
            "cancel": self._cancel,
            "update": self._update,
            "custom": self._call,
            "terminate": self._terminate,
            "enable": self._enable,
            "disable": self._disable,
            "reset": self._reset,
        }
        for feature in core.hooks.features:
            self._performs.update(feature.actions)

    # -- firing -------------------------------------------------------------------

    def run(
        self,
        origin: Origin,
        action: Action,
        title: str,
        event: Mapping[str, Any],
        told: Mapping[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> Iterable[TriggerQueue]:
        """Record a firing, and perform its action now or at the resume.

        Args:
            origin: the firing.
            action: the action.
            title: the rule's title, for the log.
            event: the event that made the rule fire.
            told: the event as a custom function receives it; default: `event`.
            again: the same object may be performed again, and lives as long as the engine: its
                JSON form is kept.
        """
        shown, jobs = self._shown.of(action, keep=again)
        self.record_firing(origin, shown, title, event, jobs)
        return self._perform_or_hold(Held(origin, Call(action, told or event)))

    def record_firing(
        self,
        origin: Origin,
        action: Mapping[str, Any],
        title: str,
        event: Mapping[str, Any],
        jobs: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Record a firing.

        Args:
            origin: the firing.
            action: what it does, as `action_json` has it.
            title: the rule's title.
            event: what made it fire.
            jobs: the job sets of a submission.
        """
        self._core.firings += 1
        cause = dict(event) if "job" not in event else {**event, "job": split(event["job"])[1]}
        self._core.record(
            eventlog.Fire(
                rule=origin.rule,
                firing=origin.number,
                trigger=title,
                action=action,
                cause=cause,
                jobs=jobs,
            )
        )

    def resume(self) -> Iterator[TriggerQueue]:
        """Perform the actions that were held during a pause, and yield the triggered rules."""
        while self._core.state == "running" and (held := self._table.next_held()) is not None:
            yield from self._perform_held(held)

    def _perform_or_hold(self, held: Held) -> Iterable[TriggerQueue]:
        if self._core.state == "paused":
            self._table.hold(held)
            return ()
        return self._perform_held(held)

    def _perform_held(self, held: Held) -> Iterable[TriggerQueue]:
        if isinstance(held.what, Call):
            return self._perform(held.origin, held.what)
        return self._returned(held.origin, held.what)

    def _perform(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        return self._performs[call.action.name](origin, call)

    # -- actions --------------------------------------------------------------------

    def _groups(self, action: Action) -> list[str]:
        """Return the group, or else, that an action names; all groups without a name."""
        return list(self._core.spec.groups) if action.label is None else [action.label]

    def _submit(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        action = call.action
        reason = self._sending.submit(
            self._groups(action)[0],
            action.count,
            action.params,
            origin,
            overrides=action.overrides,
            near=ordinal_of(call.event["job"]) if action.near else origin.member,
            bound=origin.member > 0,
        )
        if reason is not None:
            self._core.outcome(origin, jobs=0, reason=reason)
        return ()

    def _cancel(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        core, groups = self._core, self._groups(call.action)
        if call.action.jobs is not None:
            self._cancel_job(call.event["job"], origin)
        elif origin.member and self._scope is not None:
            jobs = self._scope.withdraw(origin.member, groups)
            if jobs:
                core.cancel(jobs, because(origin), origin)
            else:
                core.outcome(origin, jobs=0)
        elif not core.cancel_jobs(groups, because(origin), origin):
            core.outcome(origin, jobs=0)
        return ()

    def _update(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        workload, action, groups = self._core.workload, call.action, self._groups(call.action)
        if action.jobs is not None:
            job = workload.jobs.get(call.event["job"])
            self._update_jobs([] if job is None else [job], action, origin)
        elif origin.member and self._scope is not None:
            self._update_jobs(self._scope.jobs(origin.member, groups), action, origin)
        else:
            active = workload.active
            self._update_jobs((job for name in groups for job in active(name)), action, origin)
        return ()

    def _terminate(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        action = call.action
        self._core.outcome(origin)
        reason = action.reason or "a terminate action ran"
        self._core.end(action.state, f"{reason} ({because(origin)})", cancel=action.cancel)
        return ()

    def _enable(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        core = self._core
        core.outcome(origin)
        state = core.rules.states[self._groups(call.action)[0]]
        return core.enable(state, because(origin), origin.chain)

    def _disable(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        core = self._core
        core.outcome(origin)
        core.disable(core.rules.states[self._groups(call.action)[0]], because(origin))
        return ()

    def _reset(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        core = self._core
        label = self._groups(call.action)[0]
        group, variable = parse_label(label, core.spec.groups, core.spec.by)
        if origin.member and self._members is not None:
            name = self._members.name_of(origin.member)
            number = core.stats.of_members.reset(group, variable, name)
        else:
            number = core.stats.reset(group, variable)
        core.outcome(origin, streams=number)
        return ()

    # -- jobs ---------------------------------------------------------------------

    def _cancel_job(self, id: int, origin: Origin) -> None:
        """Cancel the triggering job, if it is active."""
        job = self._core.workload.jobs.get(id)
        if job is None or not job.may_be_canceled:
            self._core.outcome(origin, jobs=0)
            return
        job.canceling = True
        self._core.cancel((id,), because(origin), origin)

    def _update_jobs(self, candidates: Iterable[ActiveJob], action: Action, origin: Origin) -> None:
        # Flux sets the urgency of a job until it is allocated resources, its duration
        # until it ends.
        last = Phase.PENDING if action.urgency is not None else Phase.RUNNING
        jobs = tuple(job.id for job in candidates if job.phase <= last and not job.canceling)
        if not jobs:
            self._core.outcome(origin, jobs=0)
            return
        command = UpdateJobs(self._table.next_id(), jobs, action.urgency, action.duration)
        self._core.send(Pending(origin, command))

    # -- custom functions ---------------------------------------------------------

    def _call(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        core = self._core
        state = core.rules.states.get(origin.rule)
        metrics = core.metrics(core.t)
        # Functions calculate with parameters: they receive numbers, not the text of the document.
        metrics.update(numbers({key: metrics[key] for key in OF_NAMES if key in metrics}))
        command = CallCustom(
            self._table.next_id(),
            call.action.label or "",
            {
                "metrics": metrics,
                "event": dict(call.event),
                "rule": rule_json(state.rule) if state is not None else {},
                "action": action_json(call.action),
            },
            call.action.timeout,
        )
        core.send(Pending(origin, command, call=call))
        return ()

    def _returned(
        self, origin: Origin, items: Iterable[Mapping[str, Any]]
    ) -> Iterator[TriggerQueue]:
        """Perform the actions and add the rules that a custom function returned.

        The rules that an item triggers are evaluated before the next item is handled.
        """
        core = self._core
        rules = core.rules.states
        for item in items:
            if not core.acting or not core.chain_may_grow(origin.chain):
                return
            value = item["value"]
            try:
                if item["kind"] == "rule":
                    rule = parse_rule(value, core.spec, rules, _free_id(rules))
                    core.record(eventlog.RuleAdded(rule=rule.id, by=origin.rule))
                    triggered: Iterable[TriggerQueue] = core.add_rule(rule, origin.chain)
                else:
                    action = parse_action(value, core.spec, rules)
                    triggered = self._run_returned(origin, action)
            except ValueError as error:
                self.failed(origin, f"the custom function returned what cannot be used: {error}")
                return
            yield from triggered

    def _run_returned(self, origin: Origin, action: Action) -> Iterable[TriggerQueue]:
        state = self._core.rules.states.get(origin.rule)
        number = state.next_number() if state else self._table.next_number(origin.rule)
        title = state.rule.title if state else origin.rule
        event = {"trigger": "custom", "rule": origin.rule, "firing": origin.number}
        follow = replace(origin, number=number, chain=(*origin.chain, origin.rule), request=None)
        return self.run(follow, action, title, event)

    def call_again(self, key: str) -> Iterable[TriggerQueue] | None:
        """Call a custom function again if the timer `key` is for that; else return None."""
        retry = self._table.take_retry(key)
        return None if retry is None else self._perform_or_hold(Held(*retry))

    # -- outcomes -----------------------------------------------------------------

    def on_done(self, event: CommandDone) -> Iterable[TriggerQueue]:
        """Handle the success of a command."""
        core, pending = self._core, self._table.take(event.command)
        if pending is None:
            return self._late(event)
        origin, firing = pending.origin, pending.firing
        if firing is not None:
            core.workload.confirm(firing)
            if core.hooks.unaccepted and firing.over():
                for unaccepted in core.hooks.unaccepted:
                    unaccepted(firing)
            self._submitted.accepted(pending, event.result.get("ids", ()))
        elif pending.call is not None:
            if "state" in event.result:
                core.function_states[pending.call.action.label or ""] = event.result["state"]
            self._core.outcome(origin)
            returned = list(event.result.get("returned", ()))
            if returned:
                return self._perform_or_hold(Held(origin, returned))
        elif (of_feature := core.hooks.commands.get(type(pending.command))) is not None:
            return of_feature.done(pending, event)
        elif not self._follows(pending.command):
            self._core.outcome(origin, jobs=len(getattr(pending.command, "jobs", ())))
        return ()

    def on_failed(self, event: CommandFailed) -> Iterable[TriggerQueue]:
        """Handle the failure of a command."""
        core, pending = self._core, self._table.take(event.command)
        if pending is None:
            return self._late(event)
        origin, firing = pending.origin, pending.firing
        if firing is not None:
            assert isinstance(pending.command, SubmitJobs)
            if self._members is not None and not self._members.takes_jobs(pending.command.ordinal):
                # Only the end of the member shows which of the jobs it had.
                core.workload.confirm(firing)
                self._submitted.accepted(pending, ())
                return ()
            refused = pending.command.count - len(event.ids)
            core.workload.confirm(firing, refused)
            if origin.request is None:
                self._refused(pending, firing, refused, event.reason)
                return ()
            self._refusal(origin, event.reason)
            firing.answered = True
            core.emit(Reply(origin.request, errno=event.errno, reason=event.reason))
        elif (of_feature := core.hooks.commands.get(type(pending.command))) is not None:
            failing = of_feature.failed(pending, event)
            if failing is not None:
                self.failed(failing, event.reason, event.detail)
        else:
            self.failed(origin, event.reason, event.detail, pending.call)
        return ()

    def _late(self, event: CommandDone | CommandFailed) -> Iterable[TriggerQueue]:
        """Handle the outcome of a command that is not pending any more."""
        for late in self._core.hooks.late:
            triggered = late(event)
            if triggered:
                return triggered
        return ()

    def _refused(self, pending: Pending, firing: Firing, jobs: int, reason: str) -> None:
        """Handle jobs that the queue refused for good: drop the waiting jobs of their firing.

        Args:
            pending: the command.
            firing: the firing of the jobs.
            jobs: the number of jobs of the command that were refused.
            reason: the queue's reason.
        """
        core = self._core
        if not core.acting:
            # The waiting jobs of the firing are dropped already.
            self._refusal(pending.origin, reason)
            return
        jobs += core.workload.drop(firing)
        core.refuse(firing.group, jobs, reason)
        for refused in core.hooks.refused:
            refused(firing)
        many = "1 job" if jobs == 1 else f"{jobs} jobs"
        self.failed(pending.origin, f"{many} of group {firing.group!r} refused: {reason}")

    def failed(
        self, origin: Origin, reason: str, detail: str = "", call: Call | None = None
    ) -> None:
        """Record the failure of a rule's action, and apply the rule's `on-error`."""
        core = self._core
        kind = eventlog.Outcome if call is None else eventlog.CustomError
        core.record(
            kind(rule=origin.rule, firing=origin.number, ok=False, reason=reason, detail=detail)
        )
        state = core.rules.states.get(origin.rule)
        if state is None:
            return
        state.error = f"{reason}\n{detail}".rstrip()
        match state.rule.on_error:
            case "fail":
                core.fail(f"rule {state.rule.id!r}: {reason}")
            case "retry" if call is not None and call.attempt < RETRIES and core.acting:
                key = f"retry:{origin.rule}:{origin.number}"
                self._table.repeat(key, origin, replace(call, attempt=call.attempt + 1))
                core.emit(StartTimer(key, RETRY_DELAY * 2**call.attempt))
            case _:
                core.disable(state, reason)

    def _follows(self, command: Any) -> bool:
        """Return whether the outcome of a command is not recorded as the outcome of a firing.

        This holds for commands on members, and for cancellations that follow from another action.
        """
        if isinstance(command, MEMBER_COMMANDS):
            return True
        return type(command) is CancelJobs and command.reason in self._quiet

    def _refusal(self, origin: Origin, reason: str) -> None:
        self._core.record(
            eventlog.Outcome(rule=origin.rule, firing=origin.number, ok=False, reason=reason)
        )


def _free_id(rules: Collection[str]) -> str:
    number = len(rules)
    while f"rule-{number}" in rules:
        number += 1
    return f"rule-{number}"
