"""What became of a call whose response was lost: fence, look, and send again.

A queue's response can be lost for good, and an error such as ENOSYS does not say whether a job
got through. The outcome of such a call is *unknown*, and stays so until a *fence* has been
raised that began after the call was sent: when a fence is back, all that was sent before it has
shown in the journal, or never will. Then each call is asked again:

    sent ──► accepted or refused                            the response came
      │
      └────► unknown ──► fence ──► the journal shows it     accepted, with the id it shows
                                └─ it does not              sent again

A call is given up only where it is its own fault (`refusals`) or nobody needs it any more: while
job-ingest is away, or a disk is full, what became of it is unknown, and to give it up could leave a
job that nobody follows.

`Outcomes` does this for calls, `Fences` serves one fence to all who wait for one, and
`Attempts` tries again, with pauses that grow, what may be done twice. None of them knows Flux:
what they need is given as callables, so that a simulation can drive them.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import Callable
from functools import partial

from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.refusals import is_lost, refusal
from flux_ensemble.runtime.ports import Handle

#: Seconds after which what cannot be found out is given up.
PATIENCE = 60.0

#: Seconds after which a call without a response counts as unknown; up to half as much again
#: goes by until that is noticed.
RESPONSE_SECONDS = 10.0

#: How often a call is sent before it is given up, where the fault can be its own.
ROUNDS = 10

#: Pauses between attempts in seconds: the first, and the longest.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

#: How many calls are settled in one turn of the loop.
SLICE = 64

#: Calls back after so many seconds.
Timer = Callable[[float, Callable[[], None]], Handle]

#: Takes what came of a call: the id of the job, or why there is none.
Answer = Callable[[int | Exception], None]


def ignore(error: Exception) -> None:
    """Nobody wants to know of an error."""


def _never() -> bool:
    return False


class Attempts:
    """Tries again while the outcome is unknown, and ends after a while at the latest.

    Args:
        attempt: does it, and reports once; an exception that it raises counts as its report.
        timer: for the pauses.
        patience: seconds after which it is given up; may be infinite.
        done: gets None, or a definite error, or the last one where it was given up.
        trouble: gets the error of each attempt that is followed by another one.
    """

    def __init__(
        self,
        attempt: Callable[[Report], None],
        timer: Timer,
        patience: float,
        done: Report,
        trouble: Callable[[Exception], None] = ignore,
    ) -> None:
        self._attempt = attempt
        self._timer = timer
        self._done = done
        self._trouble = trouble
        self._pause = FIRST_PAUSE
        self._over = False
        self._number = 0
        self._last: Exception = OSError(errno.ETIMEDOUT, "no response")
        self._deadline = (
            None if patience == math.inf else timer(patience, lambda: self._end(self._last))
        )
        self._begin()

    def _begin(self) -> None:
        if self._over:
            return
        self._number += 1
        report = partial(self._report, self._number)
        try:
            self._attempt(report)
        except Exception as error:
            report(error)

    def _report(self, number: int, error: Exception | None) -> None:
        if self._over or number != self._number:
            return
        self._number += 1
        if error is None or not is_lost(error):
            self._end(error)
            return
        self._last = error
        self._trouble(error)
        self._timer(self._pause, self._begin)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _end(self, error: Exception | None) -> None:
        if not self._over:
            self._over = True
            if self._deadline is not None:
                self._deadline.cancel()
            self._done(error)


class Fences:
    """Raises fences, one at a time, each for all who were waiting when it began.

    Args:
        attempt: raises a fence, and reports once whether it is back; it takes care of its
            own time limits.
        timer: for the pauses between attempts.
        patience: seconds after which a fence that does not succeed is given up.
    """

    def __init__(
        self, attempt: Callable[[Report], None], timer: Timer, patience: float = PATIENCE
    ) -> None:
        self._attempt = attempt
        self._timer = timer
        self._patience = patience
        self._waiting: list[Report] = []
        self._served: list[Report] = []
        self._under_way = False
        self._blind = False
        self._holds = 0
        self._period = 0

    def wait(self, done: Report) -> None:
        """Call back when a fence is back that began after this.

        Args:
            done: gets None, or why there was no such fence.
        """
        self._waiting.append(done)
        self._begin()

    def suspend(self) -> None:
        """The journal has ended: fences say nothing until `resume`."""
        self._blind = True
        self._period += 1

    def resume(self) -> None:
        """The journal has shown what it would have shown meanwhile, and goes on."""
        self._blind = False

    def hold(self) -> None:
        """Nothing may be sent again: fences say nothing until `go_on`; holds are counted."""
        self._holds += 1

    def go_on(self) -> None:
        """End one hold."""
        self._holds -= 1

    def _begin(self) -> None:
        if self._waiting and not self._under_way:
            self._under_way = True
            Attempts(self._raise, self._timer, self._patience, self._back)

    def _raise(self, report: Report) -> None:
        self._served += self._waiting
        self._waiting.clear()
        period = self._period

        def back(error: Exception | None) -> None:
            if error is None and (self._blind or period != self._period):
                error = OSError(errno.ETIMEDOUT, "the journal of job events has ended")
            elif error is None and self._holds:
                error = OSError(errno.ETIMEDOUT, "the log of an ensemble cannot be written")
            report(error)

        if self._blind:
            back(None)
        else:
            self._attempt(back)

    def _back(self, error: Exception | None) -> None:
        self._under_way = False
        served, self._served = self._served, []
        for done in served:
            # In a turn of its own, so that an exception of one is nobody else's.
            self._timer(0.0, partial(done, error))
        self._begin()


class _Call:
    """A call that has no outcome yet.

    Attributes:
        number: of its last sending; they count up over all calls.
        rounds: how often it was sent.
        error: why its outcome is unknown, or None while its response may still come.
    """

    __slots__ = ("error", "number", "over", "report", "rounds", "send", "shown", "trouble")

    def __init__(
        self,
        send: Callable[[Answer], None],
        shown: Callable[[], int | Exception | None],
        report: Answer,
        trouble: Callable[[Exception], None],
        over: Callable[[], bool],
    ) -> None:
        self.send = send
        self.shown = shown
        self.report = report
        self.trouble = trouble
        self.over = over
        self.number = 0
        self.rounds = 0
        self.error: Exception | None = None

    @property
    def hopeless(self) -> bool:
        """It was sent often enough, and nothing but itself seems to be the cause."""
        return self.error is not None and refusal(self.error).own and self.rounds >= ROUNDS

    @property
    def pause(self) -> float:
        """Seconds until it is sent again: at once the first time."""
        if self.rounds < 2:
            return 0.0
        return float(min(FIRST_PAUSE * 2 ** min(self.rounds - 2, 10), LONGEST_PAUSE))


class Outcomes:
    """Finds out what becomes of calls.

    Args:
        fence: calls back when a fence that began after this call of it is back, or with an
            error when there was none: see `Fences.wait`.
        timer: to notice calls without a response.
    """

    def __init__(self, fence: Callable[[Report], None], timer: Timer) -> None:
        self._fence = fence
        self._timer = timer
        self._sent = 0
        self._open: dict[int, _Call] = {}
        self._asking = False
        self._due: deque[tuple[int, Exception | None]] = deque()
        self._settling = False
        self._watching = False
        self._old = self._older = 0

    def begin(
        self,
        send: Callable[[Answer], None],
        shown: Callable[[], int | Exception | None],
        report: Answer,
        *,
        trouble: Callable[[Exception], None] = ignore,
        over: Callable[[], bool] = _never,
    ) -> None:
        """Begin a call.

        Args:
            send: sends it, perhaps several times; what it is given takes the response of this
                sending, once, late or never. An exception that it raises is a response.
            shown: what the journal has shown of it: the id of the job, why it was refused, or
                None.
            report: gets the outcome, once: the id of the job, or an error.
            trouble: gets the error for which it is not known what became of a sending.
            over: nobody needs it any more: it is given up where no fence can be raised.
        """
        self._send(_Call(send, shown, report, trouble, over))

    def _send(self, call: _Call) -> None:
        self._sent += 1
        call.number = self._sent
        call.rounds += 1
        call.error = None
        self._open[call.number] = call
        self._watch()
        answer = partial(self._answer, call.number)
        try:
            call.send(answer)
        except Exception as error:
            answer(error)

    def _answer(self, number: int, answer: int | Exception) -> None:
        call = self._open.get(number)
        if call is None:
            return  # it came too late
        if isinstance(answer, Exception) and is_lost(answer):
            call.error = answer
            call.trouble(answer)
            self._ask()
        else:
            del self._open[number]
            call.report(answer)

    # -- no response ----------------------------------------------------------------

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._older, self._old = 0, self._sent
            self._timer(RESPONSE_SECONDS / 2, self._tick)

    def _tick(self) -> None:
        """What was sent before the last tick but one, and is still under way, is late."""
        late = [call for number, call in self._open.items() if number <= self._older]
        for call in late:
            if call.error is None:
                call.error = OSError(errno.ETIMEDOUT, f"no response within {RESPONSE_SECONDS:g} s")
                call.trouble(call.error)
        self._older, self._old = self._old, self._sent
        self._watching = bool(self._open)
        if self._watching:
            self._timer(RESPONSE_SECONDS / 2, self._tick)
        if late:
            self._ask()

    # -- the fence ------------------------------------------------------------------

    def _ask(self) -> None:
        """Have a fence raised, for all that has been sent until now."""
        if not self._asking:
            self._asking = True
            self._fence(partial(self._back, self._sent))

    def _back(self, last: int, error: Exception | None) -> None:
        """A fence is back, or was given up, for what was sent up to number `last`.

        A call that only waits for its response is asked too: responses come in the order of
        the fence, so that its own is lost. Where no fence could be raised for now, what became of
        a call stays unknown, and the next fence will tell.
        """
        self._asking = False
        missed = False
        later = error is not None and is_lost(error)
        for number, call in self._open.items():
            if number > last:
                missed = missed or call.error is not None
            elif error is None or call.error is not None:
                if later and call.shown() is None and not call.over():
                    missed = True
                else:
                    self._due.append((number, error))
        self._settle()
        if missed:
            self._ask()

    def _settle(self) -> None:
        """Settle the calls that are due, some at a time."""
        if self._settling:
            return
        self._settling = True
        try:
            for _ in range(min(SLICE, len(self._due))):
                number, error = self._due.popleft()
                call = self._open.pop(number, None)
                if call is not None:
                    self._end_or_repeat(call, error)
        finally:
            self._settling = bool(self._due)
            if self._settling:
                self._timer(0.0, self._go_on)

    def _go_on(self) -> None:
        self._settling = False
        self._settle()

    def _end_or_repeat(self, call: _Call, error: Exception | None) -> None:
        outcome = call.shown()
        if outcome is not None:
            call.report(outcome)
        elif error is not None:
            call.report(error)
        elif call.hopeless:
            assert call.error is not None
            call.report(call.error)
        elif not call.pause:
            self._send(call)
        else:
            self._timer(call.pause, partial(self._send_again, call))

    def _send_again(self, call: _Call) -> None:
        """Send a call after its pause, unless it has shown meanwhile."""
        outcome = call.shown()
        if outcome is not None:
            call.report(outcome)
        else:
            self._send(call)
