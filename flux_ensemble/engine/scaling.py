"""Scaling: what the member says of its size, and the requests to change it.

    grow, shrink ──ask──► Scale ──► done | refused | no answer in time ──► scale-done, scale-denied

There is one request at a time for each member. It is outstanding until it has its outcome
or its deadline passes; an outcome that comes later is recorded, and is no event for rules.
A request that cannot be made (the bound is reached, another one is outstanding) is denied at
once. A rule whose requests the member refuses again and again is disabled.

Everything here goes by the member's name, though there is but one member yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flux_ensemble.engine.commands import Scale, StartTimer, StopTimer
from flux_ensemble.engine.events import CommandDone, CommandFailed, MemberChanged
from flux_ensemble.engine.observer import Cause
from flux_ensemble.engine.paths import MetricPath
from flux_ensemble.engine.pending import Origin, Pending
from flux_ensemble.spec.model import MEMBER, MEMBER_METRICS, Action

if TYPE_CHECKING:
    from flux_ensemble.engine.engine import Engine

_TIMER = "scale:"


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a request, for the rules on `trigger`; `origin` asked for it."""

    trigger: str
    origin: Origin
    event: Mapping[str, Any]


class Scaling:
    """Knows the members of one engine, and changes their size.

    Attributes:
        members: what each member said of itself last.
        told: what rules are still to be told.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.members: dict[str, MemberChanged] = {}
        self.told: deque[Told] = deque()
        #: The request that is outstanding, by member, and when it was made.
        self._outstanding: dict[str, tuple[float, Pending]] = {}
        #: The latest one that was given up without an outcome, by member.
        self._late: dict[str, Pending] = {}
        #: How often the member refused requests of a rule, in a row.
        self._refusals: dict[str, int] = {}
        self._denied: dict[str, Mapping[str, Any]] = {}

    # -- what the member says -----------------------------------------------------

    def on_changed(self, event: MemberChanged) -> None:
        """A member says what it has."""
        changed = self.take(event)
        if self._engine.t_start is not None:
            self._evaluate(event, changed)

    def is_news(self, event: MemberChanged) -> bool:
        """Whether what a member says of itself may matter to the ensemble.

        The size of one that can change it does, as requests go by it; all else does where
        rules read it.
        """
        known = self.members.get(event.member)
        read = self._engine.wants_nodes
        if known is None:
            return bool(read) or not event.low == event.high == event.size
        if (known.size, known.low, known.high) != (event.size, event.low, event.high):
            return True
        return any(getattr(known, one) != getattr(event, one) for one in read)

    def take(self, event: MemberChanged) -> list[MetricPath]:
        """Note what a member has.

        Returns:
            The metrics that changed.
        """
        self.members[event.member] = event
        nodes, changed = self._engine.stats.nodes, []
        for variable in MEMBER_METRICS["nodes"]:
            path = MetricPath("nodes", event.member, variable)
            value = getattr(event, variable)
            if nodes.get(path) != value:
                nodes[path] = value
                changed.append(path)
        return changed

    def begin(self) -> None:
        """The ensemble begins: what was said before is news to its rules."""
        for event in self.members.values():
            paths = [MetricPath("nodes", event.member, one) for one in MEMBER_METRICS["nodes"]]
            self._evaluate(event, paths)

    def _evaluate(self, event: MemberChanged, changed: Iterable[MetricPath]) -> None:
        seen = {
            "trigger": "member",
            "member": event.member,
            "size": event.size,
            "up": event.up,
            "free": event.free,
            "timestamp": self._engine.t,
        }
        for state in self._engine.rules.metric(changed):
            self._engine.evaluate(state, Cause(seen))

    def _resize(self, member: str, nodes: int) -> None:
        """Take the size that a request has come to."""
        self.on_changed(replace(self.members[member], t=self._engine.t, size=nodes))

    # -- requests -----------------------------------------------------------------

    def elastic(self, member: str = MEMBER) -> bool:
        """The member can change its size, as far as it has said."""
        known = self.members.get(member)
        return known is not None and not known.low == known.high == known.size

    def objection(self, action: Action, member: str = MEMBER) -> str | None:
        """Why a request would be denied at once, as one sentence; None if it would not."""
        known = self.members.get(member)
        if known is None:
            return f"member {member!r} has not said yet what size it has"
        if not self.elastic(member):
            return f"member {member!r} has a fixed size"
        if member in self._outstanding:
            _, pending = self._outstanding[member]
            assert isinstance(pending.command, Scale)
            return f"member {member!r} is changing its size to {_nodes(pending.command.to)} already"
        if self._target(known, action) is not None:
            return None
        low, high = self._bounds(known)
        bound, name = (high, "maximum") if action.name == "grow" else (low, "minimum")
        past = "at" if known.size == bound else "above" if known.size > bound else "below"
        return f"member {member!r} is {past} its {name} of {_nodes(bound)}"

    def _bounds(self, known: MemberChanged) -> tuple[int, int]:
        given = self._engine.spec.scaling
        high = known.high if given.max_size is None else min(known.high, given.max_size)
        return max(known.low, given.min_size), high

    def _target(self, known: MemberChanged, action: Action) -> int | None:
        """The size to ask for; None if the bounds leave nothing to ask for."""
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
        engine, known = self._engine, self.members[member]
        to = self._target(known, action)
        assert to is not None
        engine.record(
            "scale",
            rule=origin.rule,
            firing=origin.number,
            member=member,
            by=to - known.size,
            to=to,
        )
        pending = engine.actions.scale(origin, member, to - known.size, to)
        self._outstanding[member] = engine.t, pending
        engine.emit(StartTimer(_timer(pending), engine.spec.scaling.deadline))

    def on_done(self, pending: Pending, event: CommandDone) -> None:
        """The member has changed its size."""
        command, origin = pending.command, pending.origin
        assert isinstance(command, Scale)
        self._close(command.member)
        self._refusals.pop(origin.rule, None)
        nodes = self._granted(pending, event)
        # The request took its time, so what follows from it is a chain of its own.
        self._tell("scale-done", replace(origin, chain=()), command.member, **nodes)
        self._resize(command.member, nodes["nodes"])

    def on_failed(self, pending: Pending, event: CommandFailed) -> None:
        """The member refuses."""
        assert isinstance(pending.command, Scale)
        self._close(pending.command.member)
        self._deny(pending.origin, pending.command.member, event.reason, event.detail)
        self._count_refusal(pending.origin, event.reason)

    def on_late(self, event: CommandDone | CommandFailed) -> None:
        """An outcome of something that is not pending: perhaps of a request given up."""
        ids = {pending.command.id: member for member, pending in self._late.items()}
        member = ids.get(event.command)
        if member is None:
            return
        pending = self._late.pop(member)
        if isinstance(event, CommandDone):
            self._resize(member, self._granted(pending, event, late=True)["nodes"])
        else:
            self._record(pending.origin, member, ok=False, reason=event.reason, late=True)

    def on_timer(self, key: str) -> bool:
        """Give up a request that was not answered, if that is what the timer is for."""
        if not key.startswith(_TIMER):
            return False
        for member, (_, pending) in self._outstanding.items():
            if _timer(pending) == key:
                seconds = self._engine.spec.scaling.deadline
                reason = f"member {member!r} did not answer within {seconds:g} seconds"
                self._give_up(member)
                self._deny(replace(pending.origin, chain=()), member, reason)
                self._count_refusal(pending.origin, reason)
                break
        return True

    def abandon(self) -> None:
        """The ensemble ends: it waits for no request any more."""
        self.told.clear()
        for member, (_, pending) in list(self._outstanding.items()):
            self._engine.emit(StopTimer(_timer(pending)))
            self._give_up(member)

    def _close(self, member: str) -> None:
        """A request has its outcome."""
        _, pending = self._outstanding.pop(member)
        self._engine.emit(StopTimer(_timer(pending)))

    def _give_up(self, member: str) -> None:
        _, self._late[member] = self._outstanding.pop(member)
        self._engine.actions.forget(self._late[member].command.id)

    def _granted(self, pending: Pending, event: CommandDone, **context: Any) -> dict[str, int]:
        """Record a success; the size after it, and by how much that differs from before."""
        command = pending.command
        assert isinstance(command, Scale)
        granted = {
            "nodes": event.result.get("nodes", command.to),
            "by": event.result.get("by", command.by),
        }
        self._record(pending.origin, command.member, ok=True, **granted, **context)
        return granted

    # -- what is denied -----------------------------------------------------------

    def _deny(self, origin: Origin, member: str, reason: str, detail: str = "") -> None:
        engine = self._engine
        self._record(origin, member, ok=False, reason=reason, detail=detail)
        self._denied[member] = {
            "rule": origin.rule,
            "firing": origin.number,
            "reason": reason,
            "t": engine.t,
        }
        state = engine.rules.states.get(origin.rule)
        if state is not None:
            state.error = f"{reason}\n{detail}".rstrip()
        self._tell("scale-denied", origin, member, reason=reason)

    def _count_refusal(self, origin: Origin, reason: str) -> None:
        """The member did not do what a rule wanted; after some times it is wanted no more."""
        engine = self._engine
        state = engine.rules.states.get(origin.rule)
        if state is None:
            return
        refusals = self._refusals.pop(origin.rule, 0) + 1
        if refusals < engine.spec.scaling.refusals:
            self._refusals[origin.rule] = refusals
            return
        times = "once" if refusals == 1 else f"{refusals} times in a row"
        sentence = f"the member did not change its size {times}: {reason}"
        if state.rule.on_error == "fail":
            engine.fail(f"rule {state.rule.id!r}: {sentence}")
        else:
            engine.set_enabled(state, False, sentence)

    def _record(self, origin: Origin, member: str, **context: Any) -> None:
        self._engine.record(
            "outcome", rule=origin.rule, firing=origin.number, member=member, **context
        )

    def _tell(self, trigger: str, origin: Origin, member: str, **context: Any) -> None:
        event = {
            "trigger": trigger,
            "rule": origin.rule,
            "firing": origin.number,
            "member": member,
            "timestamp": self._engine.t,
            **context,
        }
        if self._engine.acting:
            self.told.append(Told(trigger, origin, event))

    # -- status and invariants ----------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Each member with its outstanding request and its latest denial, as JSON."""
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
        """The request to a member that is outstanding, as JSON, or None."""
        if member not in self._outstanding:
            return None
        t, pending = self._outstanding[member]
        command, origin = pending.command, pending.origin
        assert isinstance(command, Scale)
        return {
            "rule": origin.rule,
            "firing": origin.number,
            "by": command.by,
            "to": command.to,
            "t": t,
        }

    def check(self, pending: Iterable[Any]) -> None:
        """The requests that are outstanding are those that are pending.

        Raises:
            AssertionError: they are not.
        """
        assert not self.told
        scales = [one for one in pending if isinstance(one, Scale)]
        outstanding = [one.command for _, one in self._outstanding.values()]
        assert sorted(one.id for one in scales) == sorted(one.id for one in outstanding)
        assert all(one.by and one.member in self.members for one in scales)
        assert all(0 < one < self._engine.spec.scaling.refusals for one in self._refusals.values())


def _timer(pending: Pending) -> str:
    return f"{_TIMER}{pending.command.id}"


def _nodes(count: int) -> str:
    return f"{count} node{'s'[: count != 1]}"
