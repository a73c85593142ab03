"""Many asynchronous calls, a bounded number of them in progress, with fair turns.

`Calls` are those of one command. Calls of one lane (one ensemble) are started in order; lanes take
turns call by call (`queues.flux.turns`), so that a burst of 5,000 does not keep others waiting. A
burst does not stop the loop either: after some milliseconds of starting calls the loop gets its
turn.

A `Window` limits how many calls are in progress.

A call counts as in progress until it has reported, or has arrived (`Calls.arrived`): from then on
it delays nothing, although its report may take as long again.

If the further calls of a batch depend on the outcome of one of them, the batch steps aside until
that call has reported (`Calls.alone`), and the next batch of its lane has its turn.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any

from flux_ensemble.queues.flux.turns import InTurn, Turns

#: Seconds of starting calls after which the loop gets its turn.
TURN_SECONDS = 0.002

#: Receives the result of a call: None, or the error.
Report = Callable[[Exception | None], None]


class Calls:
    """The calls of one command.

    Args:
        count: number of calls.
        start: starts call `i`, whose report is called once, now or later; an exception that
            it raises counts as the report.
        finish: called once, when all started calls have reported.
        stop_at_error: start no more calls after the first that fails.

    Attributes:
        started: number of calls that have been started.
        alone: the call that has to report before the next one is started, or None. `start` sets
            it, or it is set later, when the other calls would have the same outcome.
        errors: (call, exception) in the order of the reports.
        revoked: True if its remaining calls were dropped.
    """

    def __init__(
        self,
        count: int,
        start: Callable[[int, Report], None],
        finish: Callable[[Calls], None],
        *,
        stop_at_error: bool,
    ) -> None:
        self._count = count
        self._start = start
        self._finish = finish
        self._stop_at_error = stop_at_error
        self.started = 0
        self.alone: int | None = None
        self.errors: list[tuple[int, Exception]] = []
        self.revoked = False
        self._pending = 0
        #: The calls that have neither reported nor arrived, with the callbacks for their arrival.
        self._under_way: dict[int, Callable[[Calls], None]] = {}

    @property
    def waiting(self) -> int:
        """Number of calls that are still to be started."""
        return self._count - self.started if self.more else 0

    @property
    def more(self) -> bool:
        """True if there is a call to start."""
        return (
            self.started < self._count
            and not self.revoked
            and not (self._stop_at_error and self.errors)
        )

    def start_next(
        self, arrived: Callable[[Calls], None], reported: Callable[[Calls, bool], None]
    ) -> None:
        """Start the next call.

        Args:
            arrived: called when the call has arrived, if that is before its report.
            reported: called when the call has reported; True if it had not arrived before.
        """
        call = self.started
        self.started += 1
        self._pending += 1
        self._under_way[call] = arrived

        def report(error: Exception | None) -> None:
            self._pending -= 1
            if self.alone == call:
                self.alone = None
            if error is not None:
                self.errors.append((call, error))
            reported(self, self._under_way.pop(call, None) is not None)
            self.finish_if_over()

        try:
            self._start(call, report)
        except Exception as error:  # of any kind: it belongs to this batch alone
            report(error)

    def arrived(self, call: int) -> None:
        """Note that a call has reached its receiver; its report may come much later."""
        tell = self._under_way.pop(call, None)
        if tell is not None:
            tell(self)

    def finish_if_over(self) -> None:
        """Call `finish` if no call is in progress and none is left to start."""
        if not self._pending and not self.more:
            finish, self._finish = self._finish, _ignore
            finish(self)


def _ignore(calls: Calls) -> None:
    pass


class Window:
    """A limit of calls in progress: a fixed number, or one that follows the rate of answers.

    Calls are started in bulk, since calls that come together cost less. When the limit is reached,
    no more are started until a quarter of them is answered.

    Args:
        limit: the number to begin with.
        seconds: if given, the limit is the number answered in this time, by the measured rate.
        low, high: bounds of the limit.
        clock: seconds that only grow.

    Attributes:
        limit: the present number.
    """

    def __init__(
        self,
        limit: int,
        *,
        seconds: float = 0.0,
        low: int = 1,
        high: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self._seconds = seconds
        self._low = low
        self._high = high
        self._clock = clock
        #: The time when the window was full, and the number of calls then.
        self._full: tuple[float, int] | None = None

    def has_room(self, pending: int) -> bool:
        """Return whether another call may be started, with this many in progress."""
        if self._full is None:
            if pending < self.limit:
                return True
            self._full = self._clock(), pending
            return False
        if self.limit - pending < self.limit // 4:
            return False
        t_full, before = self._full
        self._full = None
        elapsed = self._clock() - t_full
        if self._seconds and elapsed > 0:
            rate = (before - pending) / elapsed
            self.limit = max(self._low, min(round(rate * self._seconds), self._high))
        return pending < self.limit


class Pipeline:
    """Runner of batches, with a bounded number of calls in progress in all.

    Args:
        window: the limit.
        later: calls back in the next turn of the loop.
        clock: seconds that only grow.

    Attributes:
        turns: decides which lane is next.
    """

    def __init__(
        self,
        window: Window,
        later: Callable[[Callable[[], None]], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window = window
        self._later = later
        self._clock = clock
        self.turns: Turns = InTurn()
        self._pending = 0
        self._lanes: OrderedDict[Hashable, deque[Calls]] = OrderedDict()
        #: The lanes of the batches that have stepped aside.
        self._aside: dict[Calls, Hashable] = {}
        self._pumping = False
        self._holds = 0
        self._spent = 0.0
        self._t_started = 0.0
        self._yielding = False

    def add(self, lane: Hashable, calls: Calls) -> None:
        """Run a batch after those of its lane that were added before."""
        if not calls.more:
            calls.finish_if_over()
            return
        self._lanes.setdefault(lane, deque()).append(calls)
        self._pump()

    def step(
        self,
        lane: Hashable,
        count: int,
        start: Callable[[int, Report], None],
    ) -> Callable[[Callable[[Calls], None]], None]:
        """Return a step (`queues.flux.steps`) that runs a batch; its result is the `Calls`.

        Args:
            lane: of the batch.
            count, start: as for `Calls`.
        """
        return lambda resume: self.add(lane, Calls(count, start, resume, stop_at_error=False))

    @property
    def waiting(self) -> int:
        """Number of calls that are still to be started."""
        batches = chain(self._aside, *self._lanes.values())
        return sum(calls.waiting for calls in batches)

    def revoke(self, lane: Hashable) -> None:
        """Start no more calls of the lane; its batches finish with `revoked` set."""
        aside = [calls for calls, its in self._aside.items() if its == lane]
        for calls in (*aside, *self._lanes.pop(lane, ())):
            calls.revoked = True
            calls.finish_if_over()

    def hold(self) -> None:
        """Start no more calls until `go_on`; holds are counted."""
        self._holds += 1

    def go_on(self) -> None:
        """End one hold."""
        self._holds -= 1
        self._pump()

    def wake(self) -> None:
        """Ask again whose turn it is."""
        self._pump()

    @property
    def on_hold(self) -> bool:
        """True while no calls are started for anyone."""
        return self._holds > 0

    def _pump(self) -> None:
        if self._pumping or self._yielding:
            return
        self._pumping = True
        try:
            while self._lanes and self._window.has_room(self._pending) and not self._holds:
                begun = self._clock()
                if begun - self._t_started > TURN_SECONDS:
                    self._spent = 0.0  # the loop has had its turn meanwhile
                if self._spent >= TURN_SECONDS:
                    self._pump_later()
                    break
                lane = self.turns.next(self._lanes)
                if lane is None:
                    break
                batches = self._lanes[lane]
                calls = batches[0]
                if calls.more and calls.alone is None:
                    self._pending += 1
                    calls.start_next(self._arrived, self._reported)
                    self._t_started = self._clock()
                    self._spent += self._t_started - begun
                if not calls.more:
                    batches.popleft()
                elif calls.alone is not None:
                    self._aside[batches.popleft()] = lane
                if self._lanes.get(lane) is not batches:
                    continue  # revoked in consequence of the call
                if batches:
                    self._lanes.move_to_end(lane)
                else:
                    del self._lanes[lane]
        finally:
            self._pumping = False

    def _pump_later(self) -> None:
        self._yielding = True
        self._later(self._next_turn)

    def _next_turn(self) -> None:
        self._yielding = False
        self._spent = 0.0
        self._pump()

    def _arrived(self, calls: Calls) -> None:
        self._pending -= 1
        self._take_back(calls)
        # Not from here: an event is being handled, and its ensemble has not received it yet.
        if self._lanes and not self._yielding:
            self._pump_later()

    def _reported(self, calls: Calls, under_way: bool) -> None:
        self._pending -= under_way
        self._take_back(calls)
        self._pump()

    def _take_back(self, calls: Calls) -> None:
        """Put a batch that stepped aside back into its lane when its `alone` call is settled."""
        if calls.alone is None and calls in self._aside:
            lane = self._aside.pop(calls)
            if calls.more:
                self._lanes.setdefault(lane, deque()).appendleft(calls)
