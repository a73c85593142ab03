"""Scaling: the size of the member, and requests to change it.

    grow, shrink ──ask──► Scale ──► done | refused | no answer in time ──► scale-done, scale-denied

There is one request at a time for each member. It is outstanding until it has its outcome
or its deadline passes; a later outcome is recorded, but triggers no rules. A request that cannot
be made (a bound is reached, or another one is outstanding) is denied at once, which is no failure
of its rule. A request that the member refuses, or does not answer in time, is a failure of its
rule, until a later request succeeds or a rule on `scale-denied` reacts. After several such failures
in a row the rule is disabled.

Members are known by name, although there is only one so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.model import Action
from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.commands import Effect, Scale, StartTimer, StopTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import CommandDone, CommandFailed, MemberChanged
from flux_ensemble.engine.pending import (
    SCALE_TIMER,
    Origin,
    Pending,
    ScaleOutcome,
    scale_timer,
)
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.metrics.names import MEMBER, MEMBER_METRICS
from flux_ensemble.metrics.paths import MetricPath


class Scaler:
    """Stores the sizes of an engine's members, and requests changes.

    Attributes:
        members: the latest report of each member.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = core.pending_table
        self.members: dict[str, MemberChanged] = {}
        #: Rule id -> the number of its requests that the member refused in a row.
        self._refusals: dict[str, int] = {}
        #: Member -> its latest denial, as JSON.
        self._denied: dict[str, Mapping[str, Any]] = {}

    # -- reports of members -------------------------------------------------------

    def on_changed(self, event: MemberChanged) -> Iterable[TriggerQueue]:
        """Store a member's report, and return the rules that it triggers."""
        changed = self.take(event)
        return () if self._core.t_start is None else self._triggered(event, changed)

    def is_news(self, event: MemberChanged) -> bool:
        """Return whether a member's report may matter to the ensemble.

        The size and bounds of a member that can change its size always matter, because requests
        depend on them. Other values matter if rules read them.
        """
        known = self.members.get(event.member)
        read = self._core.rules.wants_nodes
        if known is None:
            return bool(read) or not event.low == event.high == event.size
        if (known.size, known.low, known.high) != (event.size, event.low, event.high):
            return True
        return any(getattr(known, name) != getattr(event, name) for name in read)

    def take(self, event: MemberChanged) -> list[MetricPath]:
        """Store a member's report.

        Returns:
            The metrics that changed.
        """
        before = self.members.get(event.member)
        if before is not None and event.size < before.size:
            for shrunk in self._core.hooks.shrunk:
                shrunk()
        self.members[event.member] = event
        nodes, changed = self._core.stats.nodes, []
        for variable in MEMBER_METRICS["nodes"]:
            path = MetricPath("nodes", event.member, variable)
            value = getattr(event, variable)
            if nodes.get(path) != value:
                nodes[path] = value
                changed.append(path)
        return changed

    def begin(self) -> Iterator[TriggerQueue]:
        """Yield the rules triggered by the reports from before the start of the ensemble."""
        for event in self.members.values():
            paths = [
                MetricPath("nodes", event.member, variable) for variable in MEMBER_METRICS["nodes"]
            ]
            yield from self._triggered(event, paths)

    def _triggered(self, event: MemberChanged, changed: Iterable[MetricPath]) -> list[TriggerQueue]:
        """Return the rules on metrics that have changed."""
        seen = {
            "trigger": "member",
            "member": event.member,
            "size": event.size,
            "up": event.up,
            "free": event.free,
            "timestamp": self._core.t,
        }
        return [TriggerQueue(state, Cause(seen)) for state in self._core.rules.metric(changed)]

    def _resize(self, member: str, nodes: int) -> Iterable[TriggerQueue]:
        """Store the size after a request."""
        return self.on_changed(replace(self.members[member], t=self._core.t, size=nodes))

    # -- requests -----------------------------------------------------------------

    def elastic(self, member: str = MEMBER) -> bool:
        """Return whether the member can change its size, by its latest report."""
        known = self.members.get(member)
        return known is not None and not known.low == known.high == known.size

    def objection(self, action: Action, member: str = MEMBER) -> str | None:
        """Return why a request would be denied at once, as one sentence; None if it would not."""
        known = self.members.get(member)
        if known is None:
            # A member that does not report has a fixed size, as the local queue; others report
            # within the first moments.
            return "the size of the instance is fixed, as on the local queue, or not known yet"
        if not self.elastic(member):
            return "the instance has a fixed size"
        if member in self._table.scales:
            _, pending = self._table.scales[member]
            assert isinstance(pending.command, Scale)
            return f"the instance is changing its size to {_nodes(pending.command.to)} already"
        if self._target(known, action) is not None:
            return None
        low, high = self._bounds(known)
        bound, name = (high, "maximum") if action.name == "grow" else (low, "minimum")
        past = "at" if known.size == bound else "above" if known.size > bound else "below"
        return f"the instance is {past} its {name} of {_nodes(bound)}"

    def _bounds(self, known: MemberChanged) -> tuple[int, int]:
        wanted = self._core.spec.scaling
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
        core, known = self._core, self.members[member]
        to = self._target(known, action)
        assert to is not None
        by = to - known.size
        core.record(
            eventlog.Scale(rule=origin.rule, firing=origin.number, member=member, by=by, to=to)
        )
        pending = Pending(origin, Scale(self._table.next_id(), member, by, to))
        core.send(pending)
        self._table.expect_scale(member, core.t, pending)
        core.emit(StartTimer(scale_timer(pending), core.spec.scaling.deadline))

    def on_done(self, pending: Pending, event: CommandDone) -> Iterable[TriggerQueue]:
        """Handle the success of a request: store the new size."""
        command, origin = pending.command, pending.origin
        assert isinstance(command, Scale)
        self._close(command.member)
        self._refusals.pop(origin.rule, None)
        nodes = self._granted(pending, event)
        # Time has passed since the request, so its outcome begins a new chain of rules.
        self._tell("scale-done", replace(origin, chain=()), command.member, **nodes)
        return self._resize(command.member, nodes["nodes"])

    def on_failed(self, pending: Pending, event: CommandFailed) -> None:
        """Handle the refusal of a request."""
        assert isinstance(pending.command, Scale)
        self._close(pending.command.member)
        self._deny(pending.origin, pending.command.member, event.reason, event.detail)
        self._failed(pending.origin, event.reason, event.detail)

    def on_late(self, event: CommandDone | CommandFailed) -> Iterable[TriggerQueue]:
        """Handle the outcome of a command that is not pending: perhaps a request that timed out."""
        late = self._table.take_late_scale(event.command)
        if late is None:
            return ()
        member, pending = late
        if isinstance(event, CommandDone):
            return self._resize(member, self._granted(pending, event, late=True)["nodes"])
        self._record(pending.origin, member, ok=False, reason=event.reason, late=True)
        return ()

    def on_timer(self, key: str) -> bool:
        """Give up a request that was not answered in time; return False for any other timer."""
        if not key.startswith(SCALE_TIMER):
            return False
        for member, (_, pending) in self._table.scales.items():
            if scale_timer(pending) == key:
                seconds = self._core.spec.scaling.deadline
                reason = f"the instance did not answer within {seconds:g} seconds"
                self._table.give_up_scale(member)
                self._deny(replace(pending.origin, chain=()), member, reason)
                self._failed(pending.origin, reason)
                break
        return True

    def _close(self, member: str) -> None:
        """Close the outstanding request of a member, and stop the timer of its deadline."""
        self._core.emit(StopTimer(scale_timer(self._table.close_scale(member))))

    def _granted(self, pending: Pending, event: CommandDone, **context: Any) -> dict[str, int]:
        """Record a success; return the new size and its difference from the one before."""
        command = pending.command
        assert isinstance(command, Scale)
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
        if refusals < core.spec.scaling.refusals:
            self._refusals[origin.rule] = refusals
            return
        times = "once" if refusals == 1 else f"{refusals} times in a row"
        sentence = f"the instance did not change its size {times}: {reason}"
        if state.rule.on_error == "fail":
            core.fail(f"rule {state.rule.id!r}: {sentence}")
        else:
            core.disable(state, sentence)

    def _record(self, origin: Origin, member: str, **context: Any) -> None:
        self._core.record(
            eventlog.Outcome(rule=origin.rule, firing=origin.number, member=member, **context)
        )

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
            self._core.scale_outcomes.append(ScaleOutcome(trigger, origin, event))

    # -- status and invariants ----------------------------------------------------

    def queue(self) -> dict[str, Any] | None:
        """Return the nodes of the queue, the outstanding request and the latest denial, as JSON.

        The result is None before the queue has reported its nodes.
        """
        known = self.members.get(MEMBER)
        if known is None:
            return None
        return {
            "nodes": known.size,
            "low": known.low,
            "high": known.high,
            "request": self.outstanding(MEMBER),
            "denied": self._denied.get(MEMBER),
        }

    def report(self) -> dict[str, Any]:
        """Return the data of `queue` by member name, the earlier form in `status`."""
        return {
            member: {
                "size": known.size,
                "low": known.low,
                "high": known.high,
                "request": self.outstanding(member),
                "denied": self._denied.get(member),
            }
            for member, known in self.members.items()
        }

    def outstanding(self, member: str) -> dict[str, Any] | None:
        """Return the outstanding request to a member as JSON, or None."""
        if member not in self._table.scales:
            return None
        t, pending = self._table.scales[member]
        command, origin = pending.command, pending.origin
        assert isinstance(command, Scale)
        return {
            "rule": origin.rule,
            "firing": origin.number,
            "by": command.by,
            "to": command.to,
            "t": t,
        }

    def check(self, pending: Iterable[Effect]) -> None:
        """Check that the outstanding requests are the pending ones.

        Raises:
            AssertionError: they differ, or another invariant is broken.
        """
        assert not self._core.scale_outcomes
        scales = [command for command in pending if isinstance(command, Scale)]
        outstanding = [request.command.id for _, request in self._table.scales.values()]
        assert sorted(command.id for command in scales) == sorted(outstanding)
        assert all(command.by and command.member in self.members for command in scales)
        limit = self._core.spec.scaling.refusals
        assert all(0 < refusals < limit for refusals in self._refusals.values())

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return members and requests as JSON."""
        return {
            "members": [to_json(event) for event in self.members.values()],
            **self._table.dump_scales(),
            "refusals": dict(self._refusals),
            "denied": dict(self._denied),
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`; the pending commands must be loaded before."""
        for event in value["members"]:
            changed = event_from_json(event)
            assert isinstance(changed, MemberChanged)
            self.take(changed)
        self._table.load_scales(value)
        self._refusals = dict(value["refusals"])
        self._denied = dict(value["denied"])


def _nodes(count: int) -> str:
    return f"{count} node{'s'[: count != 1]}"
