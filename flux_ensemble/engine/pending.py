"""The table of pending work: commands without an outcome, held actions, calls to be repeated."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.model import REQUEST_RULE, RETRY_RULE, Action
from flux_ensemble.engine.codec import command_from_json, to_json
from flux_ensemble.engine.commands import Ask, Effect, StartMember
from flux_ensemble.engine.compact import not_default
from flux_ensemble.engine.fastclass import fastclass
from flux_ensemble.engine.firings import Firing


@fastclass
class Origin:
    """The firing to which a command belongs.

    Args:
        rule: rule id, or one of the reserved ids.
        number: the firing's number.
        chain: rules that led here with no job or time between, the rule included.
        request: the request to answer, or None.
        groups: the groups that the rule is about, and that of the triggering job.
        member: the number of the firing's member, for a rule with `scope: member`; else 0.
    """

    rule: str
    number: int
    chain: tuple[str, ...] = ()
    request: int | None = None
    groups: tuple[str, ...] = ()
    member: int = 0

    def dump(self) -> list[Any]:
        """Return the origin as JSON."""
        more = [self.groups, self.member] if self.member else [self.groups] if self.groups else []
        return [self.rule, self.number, self.chain, self.request, *more]

    @classmethod
    def load(cls, value: Any) -> Origin:
        """Return the origin of a dump, perhaps by a version that had no groups."""
        rule, number, chain, request, *more = value
        groups = tuple(more[0]) if more else ()
        return cls(rule, number, tuple(chain), request, groups, *more[1:])


@dataclass(frozen=True, slots=True)
class Call:
    """An action to perform and the event that triggered it.

    `attempt` counts the calls of a custom function from 0.
    """

    action: Action
    event: Mapping[str, Any]
    attempt: int = 0

    def dump(self) -> dict[str, Any]:
        """Return the call as JSON."""
        return {
            "action": not_default(self.action),
            "event": self.event,
            "attempt": self.attempt,
        }

    @classmethod
    def load(cls, value: Any) -> Call:
        """Return the call of a dump."""
        return cls(Action(**value["action"]), value["event"], value["attempt"])


@fastclass
class Pending:
    """A command without an outcome.

    Args:
        origin: the firing to which the command belongs.
        command: the command.
        firing: for a submission, the firing whose jobs it submits.
        call: for a call of a custom function, the action.
    """

    origin: Origin
    command: Effect
    firing: Firing | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An action, or a custom function's list of results, that waits for a resume."""

    origin: Origin
    what: Call | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request of a rule, for the rules on `trigger`.

    Args:
        trigger: one of `OF_REQUESTS`.
        origin: the firing that made the request.
        event: the event for the log and for custom functions.
    """

    trigger: str
    origin: Origin
    event: Mapping[str, Any]


class PendingTable:
    """The pending work of one ensemble.

    Attributes:
        commands: the commands without an outcome, by id.
    """

    def __init__(self) -> None:
        self.commands: dict[int, Pending] = {}
        #: How many of them start members.
        self._starts = 0
        #: The items that wait for a resume, in order.
        self._held: deque[Held] = deque()
        #: Key of a timer -> the custom function to call again when it fires.
        self._retries: dict[str, tuple[Origin, Call]] = {}
        #: Key of a timer -> the origin of the ask to repeat when it fires.
        self._asks: dict[str, Origin] = {}
        #: Group -> the number of open asks, calls and held actions whose origin names the group.
        self._of_group: defaultdict[str, int] = defaultdict(int)
        self._last_id = 0
        #: The next number of firings of each reserved rule id.
        self._numbers = dict.fromkeys((REQUEST_RULE, RETRY_RULE), 0)

    @property
    def busy(self) -> bool:
        """True if anything is pending, held, or to be repeated.

        A member that is to be started does not count: it can wait at a site for days, and is not
        needed when nothing else is left.
        """
        busy = len(self.commands) > self._starts
        return bool(busy or self._held or self._retries or self._asks)

    @property
    def calling(self) -> bool:
        """True if a call of a custom function is open or to be repeated, or anything is held."""
        calls = any(pending.call is not None for pending in self.commands.values())
        return calls or bool(self._held or self._retries)

    def busy_of(self, group: str | None) -> bool:
        """Return whether a group has an open ask, call or held action; None: `busy`."""
        return self.busy if group is None else group in self._of_group

    def next_id(self) -> int:
        """Return the id for a new command."""
        self._last_id += 1
        return self._last_id

    def next_number(self, rule: str) -> int:
        """Return the number for a new firing of a reserved rule id."""
        number = self._numbers[rule]
        self._numbers[rule] = number + 1
        return number

    @property
    def jobs_again(self) -> int:
        """The number of jobs that have been submitted again."""
        return self._numbers[RETRY_RULE]

    # -- commands -------------------------------------------------------------------

    def add(self, pending: Pending) -> None:
        """Add a command that was sent."""
        self.commands[pending.command.id] = pending
        self._starts += type(pending.command) is StartMember
        if pending.firing is not None:
            pending.firing.unanswered += pending.origin.request is not None
        elif pending.call is not None or type(pending.command) is Ask:
            self._open(pending.origin)

    def take(self, id: int) -> Pending | None:
        """Remove and return a command that has its outcome; None if it is not pending."""
        pending = self.commands.pop(id, None)
        if pending is None:
            return None
        self._starts -= type(pending.command) is StartMember
        if pending.firing is not None:
            pending.firing.unanswered -= pending.origin.request is not None
        elif pending.call is not None or type(pending.command) is Ask:
            self._close(pending.origin)
        return pending

    def hold(self, held: Held) -> None:
        """Keep an item for the resume."""
        self._held.append(held)
        self._open(held.origin)

    def next_held(self) -> Held | None:
        """Remove and return the item that was held first; None if there is none."""
        if not self._held:
            return None
        held = self._held.popleft()
        self._close(held.origin)
        return held

    def repeat(self, key: str, origin: Origin, call: Call) -> None:
        """Keep a call to repeat when the timer `key` fires."""
        self._retries[key] = origin, call
        self._open(origin)

    def take_retry(self, key: str) -> tuple[Origin, Call] | None:
        """Remove and return the call to repeat; None if the timer is not for a call."""
        retry = self._retries.pop(key, None)
        if retry is not None:
            self._close(retry[0])
        return retry

    def ask_again(self, key: str, origin: Origin) -> None:
        """Note that an ask is repeated when the timer `key` fires."""
        self._asks[key] = origin
        self._open(origin)

    def asked_again(self, key: str) -> bool:
        """Forget the repeated ask of a timer; return whether there was one."""
        origin = self._asks.pop(key, None)
        if origin is not None:
            self._close(origin)
        return origin is not None

    def _open(self, origin: Origin) -> None:
        for group in origin.groups:
            self._of_group[group] += 1

    def _close(self, origin: Origin) -> None:
        for group in origin.groups:
            self._of_group[group] -= 1
            if not self._of_group[group]:
                del self._of_group[group]

    def abandon(self) -> list[str]:
        """Drop held actions, calls of custom functions, and asks.

        Returns:
            Keys of the timers to stop.
        """
        self._held.clear()
        timers = [*self._retries, *self._asks]
        self._retries.clear()
        self._asks.clear()
        self._of_group.clear()
        for id, pending in list(self.commands.items()):
            if pending.call is not None or type(pending.command) is Ask:
                del self.commands[id]
        return timers

    # -- snapshots ------------------------------------------------------------------

    def dump(self, positions: Mapping[Firing, int]) -> dict[str, Any]:
        """Return the table as JSON.

        Args:
            positions: the positions of the open firings, by which a snapshot refers to firings.
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
                for held in self._held
            ],
            "retries": [
                [key, origin.dump(), call.dump()] for key, (origin, call) in self._retries.items()
            ],
        }

    def load(self, value: Any, firings: Sequence[Firing]) -> None:
        """Set the table from the result of `dump`; `firings` are the open ones by position."""
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
            # A list holds the results of a custom function.
            held = what if isinstance(what, list) else Call.load(what)
            self.hold(Held(Origin.load(origin), held))
        for key, origin, call in value["retries"]:
            self.repeat(key, Origin.load(origin), Call.load(call))


def _load_command(value: Any) -> Effect:
    command = command_from_json(value)
    assert isinstance(command, Effect)
    return command
