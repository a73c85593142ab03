"""Requests to change the number of nodes of the queue.

    grow, shrink ──ask──► Scale ──► done | refused | no answer in time ──► scale-done, scale-denied

There is one request at a time for each queue. It is outstanding until it has its outcome
or its deadline passes; a later outcome is recorded, but triggers no rules. A request that cannot
be made (a bound is reached, or another one is outstanding) is denied at once, which is no failure
of its rule. A request that the queue refuses, or does not answer in time, is a failure of its
rule, until a later request succeeds or a rule on `scale-denied` reacts. After several such failures
in a row the rule is disabled.

With a label, `grow` and `shrink` are about the members of a pool, which decides at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble.document.model import Action
from flux_ensemble.engine.codec import command_from_json, to_json
from flux_ensemble.engine.commands import Scale, StartTimer, StopTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import CommandDone, CommandFailed, MemberChanged
from flux_ensemble.engine.feature import CommandHooks, Feature
from flux_ensemble.engine.pending import Answer, Call, Origin, Pending
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.engine.trigger_queue import TriggerQueue
from flux_ensemble.eventlog import Outcome
from flux_ensemble.features.scaling.document import Scaling
from flux_ensemble.features.scaling.entries import Scale as ScaleEntry
from flux_ensemble.metrics.names import MEMBER

#: Prefix of the keys of timers.
_TIMER = "scale:"


def feature(core: Core, sending: Submitter) -> Feature:
    """Make what scaling has of an engine."""
    scaler = Scaler(core, sending)
    actions = ("grow", "shrink")
    return Feature(
        "scaling",
        actions=dict.fromkeys(actions, scaler.resize),
        effective=dict.fromkeys(actions, scaler.has_effect),
        refuses=dict.fromkeys(actions, scaler.refuses),
        commands={Scale: CommandHooks(done=scaler.on_done, failed=scaler.on_failed)},
        late=scaler.on_late,
        timer=scaler.on_timer,
        ends=scaler.give_up_all,
        of_nodes=scaler.report,
        dump=scaler.dump,
        load=scaler.load,
        check=scaler.check,
    )


class Scaler:
    """Requests other sizes for one engine."""

    def __init__(self, core: Core, sending: Submitter) -> None:
        self._core = core
        self._sending = sending
        self._table = core.pending_table
        self._known = core.nodes.known
        bounds = core.spec.settings["scaling"]
        assert isinstance(bounds, Scaling)
        self._wanted = bounds
        #: Member -> time and id of the outstanding request to change its size.
        self._outstanding: dict[str, tuple[float, int]] = {}
        #: Member -> the latest request that was given up.
        self._late: dict[str, Pending] = {}
        #: Rule id -> the number of its requests that the member refused in a row.
        self._refusals: dict[str, int] = {}
        #: Member -> its latest denial, as JSON.
        self._denied: dict[str, Mapping[str, Any]] = {}

    # -- actions ------------------------------------------------------------------

    def resize(self, origin: Origin, call: Call) -> Iterable[TriggerQueue]:
        """Perform a `grow` or `shrink`, of a pool or of the queue."""
        members = self._sending.members
        if call.action.label is not None and members is not None:
            members.resize(call.action, origin)
        else:
            self.ask(call.action, origin)
        return ()

    def has_effect(self, action: Action) -> bool:
        """Return whether an action would change a size; it does not at the bounds."""
        members = self._sending.members
        if action.label is not None and members is not None:
            return members.objection(action) is None
        return self.objection(action) is None

    def refuses(self, action: Action) -> str | None:
        """Return why a user cannot request an action; None if it is possible."""
        if action.label is not None or self.elastic():
            return None
        return f"{action.name!r} needs an instance that can change its nodes"

    def elastic(self, member: str = MEMBER) -> bool:
        """Return whether the member can change its size, by its latest report."""
        known = self._known.get(member)
        return known is not None and not known.low == known.high == known.size

    def objection(self, action: Action, member: str = MEMBER) -> str | None:
        """Return why a request would be denied at once, as one sentence; None if it would not."""
        known = self._known.get(member)
        if known is None:
            # A member that does not report has a fixed size, as the local queue; others report
            # within the first moments.
            return "the size of the instance is fixed, as on the local queue, or not known yet"
        if not self.elastic(member):
            return "the instance has a fixed size"
        if member in self._outstanding:
            to = _scale(self._request(member)).to
            return f"the instance is changing its size to {_nodes(to)} already"
        if self._target(known, action) is not None:
            return None
        low, high = self._bounds(known)
        bound, name = (high, "maximum") if action.name == "grow" else (low, "minimum")
        past = "at" if known.size == bound else "above" if known.size > bound else "below"
        return f"the instance is {past} its {name} of {_nodes(bound)}"

    def _bounds(self, known: MemberChanged) -> tuple[int, int]:
        wanted = self._wanted
        high = known.high if wanted.max_nodes is None else min(known.high, wanted.max_nodes)
        return max(known.low, wanted.min_nodes), high

    def _target(self, known: MemberChanged, action: Action) -> int | None:
        """Return the size to request; None if the size is at the bound already."""
        low, high = self._bounds(known)
        if action.name == "grow":
            to = min(known.size + action.value, high)
            return to if to > known.size else None
        to = max(known.size - action.value, low)
        return to if to < known.size else None

    def ask(self, action: Action, origin: Origin, member: str = MEMBER) -> None:
        """Perform a `grow` or `shrink`: send a request, or deny it."""
        objection = self.objection(action, member)
        if objection is not None:
            self._deny(origin, member, objection)
            return
        core, known = self._core, self._known[member]
        to = self._target(known, action)
        assert to is not None
        by = to - known.size
        core.record(ScaleEntry(rule=origin.rule, firing=origin.number, member=member, by=by, to=to))
        pending = Pending(origin, Scale(self._table.next_id(), member, by, to))
        core.send(pending)
        self._outstanding[member] = core.t, pending.command.id
        core.emit(StartTimer(_timer(pending.command.id), self._wanted.deadline))

    def on_done(self, pending: Pending, event: CommandDone) -> Iterable[TriggerQueue]:
        """Handle the success of a request: store the new size."""
        command, origin = _scale(pending), pending.origin
        self._close(command.member)
        self._refusals.pop(origin.rule, None)
        nodes = self._granted(pending, event)
        # Time has passed since the request, so its outcome begins a new chain of rules.
        self._tell("scale-done", replace(origin, chain=()), command.member, **nodes)
        return self._core.nodes.resized(command.member, nodes["nodes"])

    def on_failed(self, pending: Pending, event: CommandFailed) -> None:
        """Handle the refusal of a request."""
        member = _scale(pending).member
        self._close(member)
        self._deny(pending.origin, member, event.reason, event.detail)
        self._failed(pending.origin, event.reason, event.detail)

    def on_late(self, event: CommandDone | CommandFailed) -> Iterable[TriggerQueue]:
        """Handle the outcome of a command that is not pending: perhaps a request that timed out."""
        late = [(name, one) for name, one in self._late.items() if one.command.id == event.command]
        if not late:
            return ()
        ((member, pending),) = late
        del self._late[member]
        if isinstance(event, CommandDone):
            nodes = self._granted(pending, event, late=True)["nodes"]
            return self._core.nodes.resized(member, nodes)
        self._record(pending.origin, member, ok=False, reason=event.reason, late=True)
        return ()

    def on_timer(self, key: str) -> bool:
        """Give up a request that was not answered in time; return False for any other timer."""
        if not key.startswith(_TIMER):
            return False
        for member, (_, id) in self._outstanding.items():
            if _timer(id) == key:
                seconds = self._wanted.deadline
                reason = f"the instance did not answer within {seconds:g} seconds"
                pending = self._give_up(member)
                self._deny(replace(pending.origin, chain=()), member, reason)
                self._failed(pending.origin, reason)
                break
        return True

    def _close(self, member: str) -> None:
        """Close the outstanding request of a member, and stop the timer of its deadline."""
        _, id = self._outstanding.pop(member)
        self._core.emit(StopTimer(_timer(id)))

    def _request(self, member: str) -> Pending:
        """Return the outstanding request of a member."""
        return self._table.commands[self._outstanding[member][1]]

    def _give_up(self, member: str) -> Pending:
        """Give up the outstanding request of a member, and return it; an outcome may still come."""
        _, id = self._outstanding.pop(member)
        pending = self._table.take(id)
        assert pending is not None
        self._late[member] = pending
        return pending

    def give_up_all(self) -> None:
        """Give up all requests, because the ensemble ends."""
        for member in list(self._outstanding):
            self._core.emit(StopTimer(_timer(self._give_up(member).command.id)))

    def _granted(self, pending: Pending, event: CommandDone, **context: Any) -> dict[str, int]:
        """Record a success; return the new size and its difference from the one before."""
        command = _scale(pending)
        granted = {
            "nodes": event.result.get("nodes", command.to),
            "by": event.result.get("by", command.by),
        }
        self._record(pending.origin, command.member, ok=True, **granted, **context)
        self._core.make_up_for(pending.origin.rule)
        return granted

    # -- denials and failures -----------------------------------------------------

    def _deny(self, origin: Origin, member: str, reason: str, detail: str = "") -> None:
        core = self._core
        self._record(origin, member, ok=False, reason=reason, detail=detail)
        self._denied[member] = {
            "rule": origin.rule,
            "firing": origin.number,
            "reason": reason,
            "t": core.t,
        }
        self._tell("scale-denied", origin, member, reason=reason)

    def _failed(self, origin: Origin, reason: str, detail: str = "") -> None:
        """Count a failed request of a rule; disable the rule after too many in a row."""
        core = self._core
        state = core.rules.states.get(origin.rule)
        if state is None:
            return
        state.error = f"{reason}\n{detail}".rstrip()
        refusals = self._refusals.pop(origin.rule, 0) + 1
        if refusals < self._wanted.refusals:
            self._refusals[origin.rule] = refusals
            return
        times = "once" if refusals == 1 else f"{refusals} times in a row"
        sentence = f"the instance did not change its size {times}: {reason}"
        if state.rule.on_error == "fail":
            core.fail(f"rule {state.rule.id!r}: {sentence}")
        else:
            core.disable(state, sentence)

    def _record(self, origin: Origin, member: str, **context: Any) -> None:
        self._core.record(Outcome(rule=origin.rule, firing=origin.number, member=member, **context))

    def _tell(self, trigger: str, origin: Origin, member: str, **context: Any) -> None:
        event = {
            "trigger": trigger,
            "rule": origin.rule,
            "firing": origin.number,
            "member": member,
            "timestamp": self._core.t,
            **context,
        }
        if self._core.acting:
            self._core.answers.append(Answer(trigger, origin, event))

    # -- status and invariants ----------------------------------------------------

    def report(self, member: str) -> dict[str, Any]:
        """Return the outstanding request to a member and its latest denial, as JSON."""
        return {"request": self._shown(member), "denied": self._denied.get(member)}

    def _shown(self, member: str) -> dict[str, Any] | None:
        """Return the outstanding request to a member as JSON, or None."""
        if member not in self._outstanding:
            return None
        pending = self._request(member)
        command, origin = _scale(pending), pending.origin
        return {
            "rule": origin.rule,
            "firing": origin.number,
            "by": command.by,
            "to": command.to,
            "t": self._outstanding[member][0],
        }

    def check(self) -> None:
        """Check that the outstanding requests are the pending ones.

        Raises:
            AssertionError: they differ, or another invariant is broken.
        """
        commands = [pending.command for pending in self._table.commands.values()]
        scales = [command for command in commands if isinstance(command, Scale)]
        outstanding = [id for _, id in self._outstanding.values()]
        assert sorted(command.id for command in scales) == sorted(outstanding)
        assert all(command.by and command.member in self._known for command in scales)
        assert all(0 < refusals < self._wanted.refusals for refusals in self._refusals.values())

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the requests as JSON, together with the reports of nodes: see `snapshot.dump`."""
        return {
            "members": self._core.nodes.dump(),
            "outstanding": {member: [t, id] for member, (t, id) in self._outstanding.items()},
            "late": {
                member: [pending.origin.dump(), to_json(pending.command)]
                for member, pending in self._late.items()
            },
            "refusals": dict(self._refusals),
            "denied": dict(self._denied),
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`."""
        for member, (t, id) in value.get("outstanding", {}).items():
            self._outstanding[member] = t, id
        for member, (origin, command) in value.get("late", {}).items():
            request = command_from_json(command)
            assert isinstance(request, Scale)
            self._late[member] = Pending(Origin.load(origin), request)
        self._refusals = dict(value.get("refusals", {}))
        self._denied = dict(value.get("denied", {}))


def _scale(pending: Pending) -> Scale:
    command = pending.command
    assert isinstance(command, Scale)
    return command


def _timer(id: int) -> str:
    """Return the key of the timer after which a request is given up."""
    return f"{_TIMER}{id}"


def _nodes(count: int) -> str:
    return f"{count} node{'s'[: count != 1]}"
