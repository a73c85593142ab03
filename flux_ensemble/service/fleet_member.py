"""Commands to one member, each kept until it has an outcome, also over the next connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.engine.job_keys import split
from flux_ensemble.queues.flux.steps import Steps, run
from flux_ensemble.queues.nested.send_buffer import hold_seconds
from flux_ensemble.queues.nested.service_handle import AttachedInstance, Followed, Submitting
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Done, Outcome
from flux_ensemble.service.recovery.catchup import CatchUp
from flux_ensemble.service.tracker import Tracker

#: Sends a command to a member; the outcome goes to `Done`.
Ask = Callable[[Submitting, Done], None]

#: Errors of a request whose connection breaks while it is sent.
_BROKEN = frozenset(("EPIPE", "ECONNRESET", "ENOTCONN"))


@dataclass(frozen=True, slots=True)
class MemberRequest:
    """A command to a member.

    Args:
        ask: sends the command.
        done: receives the outcome.
        over: called instead when the member is gone.
    """

    ask: Ask
    done: Done
    over: Callable[[], None]


class FleetMember:
    """A member, as its ensemble uses it.

    Attributes:
        tracker: knows by their keys which jobs of the member are the ensemble's.
        catch_up: collects the jobs that existed when the member was attached, until it has all.
        caught_up: the complete collection, until the member is up.
        instance, nested: receive commands; None while no command can be sent.
        asked: commands without an outcome, by a running number.
        late: reports that arrived while the first memos are read, to be processed after these; None
            if no memos are being read.
    """

    def __init__(self, ordinal: int, tracker: Tracker) -> None:
        self.ordinal = ordinal
        self.tracker = tracker
        self.catch_up: CatchUp | None = None
        self.caught_up: CatchUp | None = None
        self.instance: Followed | None = None
        self.nested: Submitting | None = None
        self.asked: dict[int, MemberRequest] = {}
        self.late: list[Callable[[], None]] | None = None
        self._numbers = count(1)

    def history(self, live: list[Ensemble]) -> CatchUp:
        """Return the collection of the jobs that existed when the member was attached.

        Args:
            live: the ensemble, if it is live.
        """
        if self.catch_up is None:
            # Reports that were to follow an earlier history come again with this one.
            self.late = None
            self.catch_up = CatchUp(self.tracker, live, self.ordinal)
        return self.catch_up

    def take_history(
        self, live: list[Ensemble], instance: Followed, warn: Callable[[str], None]
    ) -> None:
        """Apply the history, once everything is read that the journal may have reported wrongly.

        Args:
            live: as for `history`.
            instance: the connection that has sent the history.
            warn: receives a sentence about what cannot be read.
        """
        catch_up = self.caught_up = self.history(live)
        self.catch_up = None
        # Reports that arrive meanwhile are about later events.
        self.late = []
        if not catch_up.doubtful:
            self.go_on()
            return
        run(
            self._read_memos(catch_up, instance, warn),
            over=lambda: catch_up is not self.caught_up or self.late is None or instance.closed,
        )

    def _read_memos(
        self, catch_up: CatchUp, instance: Followed, warn: Callable[[str], None]
    ) -> Steps:
        yield from catch_up.read_memos(lambda job: partial(instance.eventlog, split(job)[1]), warn)
        self.go_on()

    def later(self, what: Callable[[], None]) -> bool:
        """Defer a call until the memos are read; return False if none are being read."""
        if self.late is not None:
            self.late.append(what)
        return self.late is not None

    def go_on(self) -> None:
        """Apply the history and then the deferred reports, whether all memos were read or not."""
        late, self.late = self.late, None
        if late is not None and self.caught_up is not None:
            self.caught_up.apply()
            for what in late:
                what()

    def follow(self, names: frozenset[str], places: bool, engine: Engine) -> None:
        """Follow more job events from now on, if the member is connected.

        Args:
            names, places: see `Instance.follow`.
            engine: knows how many members there are, and whether something reacts to single jobs.
        """
        if self.instance is not None:
            self.instance.follow(names, places)
            if isinstance(self.instance, AttachedInstance):
                members = engine.members
                many = 0 if members is None else len(members.known)
                self.instance.hold(hold_seconds(many, engine.reacts))

    @property
    def connected(self) -> bool:
        """A connection is open, so commands can be sent."""
        return self.instance is not None and not self.instance.closed

    def ask(self, asked: MemberRequest) -> None:
        """Send a command, now or when the member is up."""
        number = next(self._numbers)
        self.asked[number] = asked
        self.perform((number,))

    def perform(self, numbers: Iterable[int]) -> None:
        """Send those of the numbered commands that have no outcome yet."""
        for number in numbers:
            if number in self.asked and self.nested is not None and self.connected:
                self._perform(self.nested, number)

    def _perform(self, nested: Submitting, number: int) -> None:
        self.asked[number].ask(nested, partial(self._told, self.instance, number))

    def _told(self, instance: Followed | None, number: int, outcome: Outcome) -> None:
        # The command is sent once more over the next connection, which has the outcome.
        if self.instance is not instance or not self.connected:
            return
        if isinstance(outcome, CommandFailed) and outcome.errno in _BROKEN:
            return
        asked = self.asked.pop(number, None)
        if asked is not None:
            asked.done(outcome)


def ask_all(asks: Sequence[tuple[FleetMember, Ask]], command: int, done: Done) -> None:
    """Send several members their parts of a command; members that are gone are no error.

    Args:
        asks: each member with a function that sends its part.
        command: the id of the command.
        done: receives the first failure, or else the last outcome.
    """
    left, failures = len(asks), list[CommandFailed]()

    def answered(outcome: Outcome) -> None:
        nonlocal left
        left -= 1
        if isinstance(outcome, CommandFailed):
            failures.append(outcome)
        if not left:
            done(failures[0] if failures else outcome)

    if not asks:
        done(CommandDone(time.time(), command))
    for member, ask in asks:
        over = partial(answered, CommandDone(time.time(), command))
        member.ask(MemberRequest(ask, answered, over))
