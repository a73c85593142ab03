"""Many asynchronous calls, a bounded number of them under way, fair to their askers.

A `Batch` is the calls of one command. Batches of one lane (one ensemble) are started in
order; lanes take turns call by call, so that a burst of 5,000 does not keep others
waiting. Nor does it stop the loop: after some milliseconds of starting calls the loop gets
its turn.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

#: Seconds of starting calls after which the loop gets its turn.
TURN_SECONDS = 0.002

#: Takes the result of a call: None, or why it failed.
Report = Callable[[Exception | None], None]


class Batch:
    """The calls of one command.

    Args:
        count: how many calls there are.
        start: starts call `i` and has its report called once, now or later; an exception
            that it raises counts as the report.
        finish: called once, when all started calls have reported.
        stop_at_error: start no more calls after the first that fails.

    Attributes:
        started: how many calls have been started.
        errors: (call, exception) in the order of the reports.
        revoked: its remaining calls were dropped.
    """

    def __init__(
        self,
        count: int,
        start: Callable[[int, Report], None],
        finish: Callable[[Batch], None],
        *,
        stop_at_error: bool,
    ) -> None:
        self._count = count
        self._start = start
        self._finish = finish
        self._stop_at_error = stop_at_error
        self.started = 0
        self.errors: list[tuple[int, Exception]] = []
        self.revoked = False
        self._pending = 0

    @property
    def waiting(self) -> int:
        """How many calls are still to be started."""
        return self._count - self.started if self.more else 0

    @property
    def more(self) -> bool:
        """There is a call to start."""
        return (
            self.started < self._count
            and not self.revoked
            and not (self._stop_at_error and self.errors)
        )

    def start_next(self, released: Callable[[], None]) -> None:
        """Start the next call; `released` is called when it has reported."""
        call = self.started
        self.started += 1
        self._pending += 1

        def report(error: Exception | None) -> None:
            self._pending -= 1
            if error is not None:
                self.errors.append((call, error))
            released()
            self.finish_if_over()

        try:
            self._start(call, report)
        except Exception as error:  # of whatever kind: it belongs to this batch alone
            report(error)

    def finish_if_over(self) -> None:
        """Call `finish` if nothing is under way and nothing is left to start."""
        if not self._pending and not self.more:
            finish, self._finish = self._finish, _ignore
            finish(self)


def _ignore(batch: Batch) -> None:
    pass


class Pipeline:
    """Runs batches with at most `limit` calls under way in all.

    Args:
        limit: how many.
        later: calls back in the next turn of the loop.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        limit: int,
        later: Callable[[Callable[[], None]], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._later = later
        self._clock = clock
        self._pending = 0
        self._lanes: OrderedDict[Hashable, deque[Batch]] = OrderedDict()
        self._pumping = False
        self._holds = 0
        self._spent = 0.0
        self._yielding = False

    def add(self, lane: Hashable, batch: Batch) -> None:
        """Run a batch after those of its lane that were added before."""
        if not batch.more:
            batch.finish_if_over()
            return
        self._lanes.setdefault(lane, deque()).append(batch)
        self._pump()

    @property
    def waiting(self) -> int:
        """How many calls are still to be started."""
        return sum(batch.waiting for lane in self._lanes.values() for batch in lane)

    def revoke(self, lane: Hashable) -> None:
        """Start no more calls of the lane; its batches finish with `revoked` set."""
        for batch in self._lanes.pop(lane, ()):
            batch.revoked = True
            batch.finish_if_over()

    def hold(self) -> None:
        """Start no more calls until `go_on`; holds are counted."""
        self._holds += 1

    def go_on(self) -> None:
        """End one hold."""
        self._holds -= 1
        self._pump()

    def _pump(self) -> None:
        if self._pumping or self._yielding:
            return
        self._pumping = True
        try:
            while self._lanes and self._pending < self._limit and not self._holds:
                if self._spent >= TURN_SECONDS:
                    self._yielding = True
                    self._later(self._next_turn)
                    break
                lane, batches = next(iter(self._lanes.items()))
                batch = batches[0]
                if batch.more:
                    self._pending += 1
                    begun = self._clock()
                    batch.start_next(self._release)
                    self._spent += self._clock() - begun
                if not batch.more:
                    batches.popleft()
                if self._lanes.get(lane) is not batches:
                    continue  # revoked by what the call brought about
                if batches:
                    self._lanes.move_to_end(lane)
                else:
                    del self._lanes[lane]
        finally:
            self._pumping = False

    def _next_turn(self) -> None:
        self._yielding = False
        self._spent = 0.0
        self._pump()

    def _release(self) -> None:
        self._pending -= 1
        self._pump()
