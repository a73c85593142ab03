"""What is pending: commands without an outcome, held actions, and calls to be repeated."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.model import REQUEST_RULE, RETRY_RULE, Action
from flux_ensemble.engine.codec import command_from_json, to_json
from flux_ensemble.engine.commands import Effect
from flux_ensemble.engine.compact import not_default
from flux_ensemble.engine.fastclass import fastclass
from flux_ensemble.engine.firings import Firing

#: Prefix of the keys that `scale_timer` returns.
SCALE_TIMER = "scale:"


@fastclass
class Origin:
    """The firing that a command belongs to.

    Args:
        rule: rule id, or one of the reserved ids.
        number: the firing's number.
        chain: rules that led here with no job or time between, the rule included.
        request: the request to answer, or None.
    """

    rule: str
    number: int
    chain: tuple[str, ...] = ()
    request: int | None = None

    def dump(self) -> list[Any]:
        """The origin as JSON."""
        return [self.rule, self.number, self.chain, self.request]

    @classmethod
    def load(cls, value: Any) -> Origin:
        """The origin that `dump` returned."""
        rule, number, chain, request = value
        return cls(rule, number, tuple(chain), request)


@dataclass(frozen=True, slots=True)
class Call:
    """An action to perform and the event that asked for it.

    `attempt` counts the calls of a custom function from 0.
    """

    action: Action
    event: Mapping[str, Any]
    attempt: int = 0

    def dump(self) -> dict[str, Any]:
        """The call as JSON."""
        return {
            "action": not_default(self.action),
            "event": self.event,
            "attempt": self.attempt,
        }

    @classmethod
    def load(cls, value: Any) -> Call:
        """The call that `dump` returned."""
        return cls(Action(**value["action"]), value["event"], value["attempt"])


@fastclass
class Pending:
    """A command whose outcome has not come back.

    Args:
        origin: the firing that it belongs to.
        command: the command.
        firing: of a submission, the firing whose jobs it submits.
        call: of a call of a custom function, the action.
    """

    origin: Origin
    command: Effect
    firing: Firing | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An action, or what a custom function returned, that waits for a resume."""

    origin: Origin
    what: Call | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ScaleOutcome:
    """The outcome of a request to change the member's size, for the rules on `trigger`.

    Args:
        trigger: one of `SCALE_TRIGGERS`.
        origin: the firing that asked.
        event: what the log and custom functions get to see.
    """

    trigger: str
    origin: Origin
    event: Mapping[str, Any]


class PendingTable:
    """What is pending in one ensemble.

    Attributes:
        commands: the commands without an outcome, by id.
        held: what waits for a resume, in order.
        retries: custom functions to call again, by the key of the timer that says when.
        scales: by member, the outstanding request to change its size, and its time.
        late_scales: by member, the latest request that was given up.
    """

    def __init__(self) -> None:
        self.commands: dict[int, Pending] = {}
        self.held: deque[Held] = deque()
        self.retries: dict[str, tuple[Origin, Call]] = {}
        self.scales: dict[str, tuple[float, Pending]] = {}
        self.late_scales: dict[str, Pending] = {}
        self._last_id = 0
        #: The next number of firings of each reserved rule id.
        self._numbers = dict.fromkeys((REQUEST_RULE, RETRY_RULE), 0)

    @property
    def busy(self) -> bool:
        """Whether anything is pending, held, or to be repeated."""
        return bool(self.commands or self.held or self.retries)

    def next_id(self) -> int:
        """The id of a new command."""
        self._last_id += 1
        return self._last_id

    def next_number(self, rule: str) -> int:
        """The number of a new firing of a reserved rule id."""
        number = self._numbers[rule]
        self._numbers[rule] = number + 1
        return number

    @property
    def jobs_again(self) -> int:
        """How many jobs have been submitted again."""
        return self._numbers[RETRY_RULE]

    # -- commands -------------------------------------------------------------------

    def add(self, pending: Pending) -> None:
        """Add a command that was sent."""
        self.commands[pending.command.id] = pending

    def take(self, id: int) -> Pending | None:
        """Remove a command that has its outcome; None if it is not pending."""
        return self.commands.pop(id, None)

    def abandon(self) -> list[str]:
        """Drop held actions, calls of custom functions, and requests to change a size.

        Returns:
            Keys of the timers to stop.
        """
        self.held.clear()
        timers = [*self.retries, *(scale_timer(pending) for _, pending in self.scales.values())]
        self.retries.clear()
        for id in [id for id, pending in self.commands.items() if pending.call is not None]:
            del self.commands[id]
        for member in list(self.scales):
            self.give_up_scale(member)
        return timers

    # -- requests to change a member's size -------------------------------------------

    def expect_scale(self, member: str, t: float, pending: Pending) -> None:
        """Add a request that was sent at time `t`."""
        self.scales[member] = t, pending

    def close_scale(self, member: str) -> Pending:
        """Remove the outstanding request, which has its outcome."""
        _, pending = self.scales.pop(member)
        return pending

    def give_up_scale(self, member: str) -> Pending:
        """Give up the outstanding request; its outcome may still come."""
        pending = self.close_scale(member)
        self.late_scales[member] = pending
        del self.commands[pending.command.id]
        return pending

    def take_late_scale(self, id: int) -> tuple[str, Pending] | None:
        """Remove a given-up request that has its outcome; its member too, or None."""
        for member, pending in self.late_scales.items():
            if pending.command.id == id:
                return member, self.late_scales.pop(member)
        return None

    # -- snapshots ------------------------------------------------------------------

    def dump(self, positions: Mapping[Firing, int]) -> dict[str, Any]:
        """The table as JSON, without the requests to change a member's size.

        Args:
            positions: of the open firings; a snapshot refers to firings by them.
        """
        return {
            "last_id": self._last_id,
            "numbers": dict(self._numbers),
            "pending": [
                [
                    pending.origin.dump(),
                    to_json(pending.command),
                    None if pending.firing is None else positions[pending.firing],
                    None if pending.call is None else pending.call.dump(),
                ]
                for pending in self.commands.values()
            ],
            "held": [
                [
                    held.origin.dump(),
                    held.what.dump() if isinstance(held.what, Call) else held.what,
                ]
                for held in self.held
            ],
            "retries": [
                [key, origin.dump(), call.dump()] for key, (origin, call) in self.retries.items()
            ],
        }

    def load(self, value: Any, firings: Sequence[Firing]) -> None:
        """Set what `dump` returned; `firings` are the open ones in order of position."""
        self._last_id = value["last_id"]
        self._numbers = dict(value["numbers"])
        for origin, command, position, call in value["pending"]:
            firing = None if position is None else firings[position]
            if firing is not None:
                firing.outstanding += 1
            self.add(
                Pending(
                    Origin.load(origin),
                    _load_command(command),
                    firing,
                    None if call is None else Call.load(call),
                )
            )
        for origin, what in value["held"]:
            # A list is what a custom function returned.
            held = what if isinstance(what, list) else Call.load(what)
            self.held.append(Held(Origin.load(origin), held))
        for key, origin, call in value["retries"]:
            self.retries[key] = Origin.load(origin), Call.load(call)

    def dump_scales(self) -> dict[str, Any]:
        """The requests to change a member's size as JSON."""
        return {
            "outstanding": {
                member: [t, pending.command.id] for member, (t, pending) in self.scales.items()
            },
            "late": {
                member: [pending.origin.dump(), to_json(pending.command)]
                for member, pending in self.late_scales.items()
            },
        }

    def load_scales(self, value: Any) -> None:
        """Set what `dump_scales` returned; the commands are loaded already."""
        for member, (t, id) in value["outstanding"].items():
            self.scales[member] = t, self.commands[id]
        for member, (origin, command) in value["late"].items():
            self.late_scales[member] = Pending(Origin.load(origin), _load_command(command))


def scale_timer(pending: Pending) -> str:
    """Key of the timer after which a request to change a member's size is given up."""
    return f"{SCALE_TIMER}{pending.command.id}"


def _load_command(value: Any) -> Effect:
    command = command_from_json(value)
    assert isinstance(command, Effect)
    return command
