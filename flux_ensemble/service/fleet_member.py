"""What is asked of one member, until it has an outcome: also over the next connection."""

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

#: Asks something of a member; the outcome goes to `Done`.
Ask = Callable[[Submitting, Done], None]

#: What a request comes to whose connection breaks as it is sent.
_BROKEN = frozenset(("EPIPE", "ECONNRESET", "ENOTCONN"))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a member.

    Args:
        ask: asks it.
        done: gets the outcome.
        over: called instead when the member is gone.
    """

    ask: Ask
    done: Done
    over: Callable[[], None]


class FleetMember:
    """One member, as far as its ensemble has to do with it.

    Attributes:
        tracker: knows which of its jobs are the ensemble's, by their keys.
        catch_up: takes in the jobs that were there when it was attached, until it has all of them.
        caught_up: is what has taken them in, until the member is up.
        instance, nested: where commands go; None while nothing can be asked of it.
        asked: what has no outcome, by a running number.
        late: what it told while its first memos are read, to be taken in after these; None while
            none are.
    """

    def __init__(self, ordinal: int, tracker: Tracker) -> None:
        self.ordinal = ordinal
        self.tracker = tracker
        self.catch_up: CatchUp | None = None
        self.caught_up: CatchUp | None = None
        self.instance: Followed | None = None
        self.nested: Submitting | None = None
        self.asked: dict[int, Asked] = {}
        self.late: list[Callable[[], None]] | None = None
        self._numbers = count(1)

    def history(self, live: list[Ensemble]) -> CatchUp:
        """What takes in the jobs that were there when it was attached.

        Args:
            live: the ensemble, if it is live.
        """
        if self.catch_up is None:
            # What was to follow on an earlier history comes with this one.
            self.late = None
            self.catch_up = CatchUp(self.tracker, live, self.ordinal)
        return self.catch_up

    def take_history(
        self, live: list[Ensemble], instance: Followed, warn: Callable[[str], None]
    ) -> None:
        """Apply that, once all is read which the journal may not have told right.

        Args:
            live: as for `history`.
            instance: the connection that has told it.
            warn: gets a sentence about what cannot be read.
        """
        catch_up = self.caught_up = self.history(live)
        self.catch_up = None
        # What comes meanwhile happened later.
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
        """Whether something is to be taken in later; then it will be."""
        if self.late is not None:
            self.late.append(what)
        return self.late is not None

    def go_on(self) -> None:
        """Take in what it has told, whether all memos were read or not."""
        late, self.late = self.late, None
        if late is not None and self.caught_up is not None:
            self.caught_up.apply()
            for what in late:
                what()

    def follow(self, names: frozenset[str], places: bool, engine: Engine) -> None:
        """Follow more job events from now on, if it is connected.

        Args:
            names, places: see `Instance.follow`.
            engine: says how many members there are, and whether something reacts to single jobs.
        """
        if self.instance is not None:
            self.instance.follow(names, places)
            if isinstance(self.instance, AttachedInstance):
                members = engine.members
                many = 0 if members is None else len(members.known)
                self.instance.hold(hold_seconds(many, engine.reacts))

    @property
    def connected(self) -> bool:
        """Something can be asked of it."""
        return self.instance is not None and not self.instance.closed

    def ask(self, asked: Asked) -> None:
        """Ask it, now or when it is up."""
        number = next(self._numbers)
        self.asked[number] = asked
        self.perform((number,))

    def perform(self, numbers: Iterable[int]) -> None:
        """Ask what has no outcome yet of what `asked` has under these numbers."""
        for number in numbers:
            if number in self.asked and self.nested is not None and self.connected:
                self._perform(self.nested, number)

    def _perform(self, nested: Submitting, number: int) -> None:
        self.asked[number].ask(nested, partial(self._told, self.instance, number))

    def _told(self, instance: Followed | None, number: int, outcome: Outcome) -> None:
        # It is asked once more over the next connection, and has its outcome from that.
        if self.instance is not instance or not self.connected:
            return
        if isinstance(outcome, CommandFailed) and outcome.errno in _BROKEN:
            return
        asked = self.asked.pop(number, None)
        if asked is not None:
            asked.done(outcome)


def ask_all(asks: Sequence[tuple[FleetMember, Ask]], command: int, done: Done) -> None:
    """Ask several members for their parts of a command; those that are gone are no error.

    Args:
        asks: each with what asks it.
        command: the id of the command.
        done: gets the first failure, or else the last outcome.
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
        member.ask(Asked(ask, answered, over))
