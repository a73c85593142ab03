"""The outcome of a call whose response was lost: fence, look, and send again.

A queue's response can be lost for good, and an error such as ENOSYS does not say whether a job
got through. The outcome of such a call is *unknown*, and stays so until a *fence* has been
raised that began after the call was sent. When a fence is back, the journal has shown all that was
sent before it, or never will. Then the state of each call is checked:

    sent ──► accepted or refused                            the response came
      │
      └────► unknown ──► fence ──► the journal shows it        accepted, with the id shown
                                └─ the journal shows nothing   sent again

A call is given up only if the error can be its own fault (`refusals`), or if it is needed no more.
While job-ingest is away, or a disk is full, the outcome of a call is unknown, and giving it up
could leave a job without an owner.

`Outcomes` does this for calls, `Fences` serves one fence to all that wait for one, and `Attempts`
repeats, with growing pauses, an action that may be done twice. None of them uses Flux: they are
given callables, so that a simulation can drive them.
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

#: Seconds after which an attempt to find out an outcome is given up.
PATIENCE = 60.0

#: Seconds after which a call without a response counts as unknown. This is noticed up to half as
#: much time later.
RESPONSE_SECONDS = 10.0

#: Number of times that a call is sent before it is given up, if the error can be its own fault.
ROUNDS = 10

#: Pauses between attempts in seconds: the first, and the longest.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

#: Number of calls that are settled in one turn of the loop.
SLICE = 64

#: Calls back after some seconds.
Timer = Callable[[float, Callable[[], None]], Handle]

#: Receives the outcome of a call: the id of the job, or the error.
Answer = Callable[[int | Exception], None]


def ignore(error: Exception) -> None:
    """Ignore an error that concerns nobody."""


def _never() -> bool:
    return False


class Attempts:
    """An action that is repeated while its outcome is unknown, for a limited time.

    Args:
        attempt: begins the action, and reports once; an exception that it raises counts as its
            report.
        timer: for the pauses.
        patience: seconds after which the action is given up; may be infinite.
        done: receives None, or a definite error, or the last error if the action was given up.
        trouble: receives the error of each attempt that is followed by another one.
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
    """Raiser of fences, one at a time; each serves all that were waiting when it began.

    Args:
        attempt: raises a fence, and reports once whether it is back; it has its own time
            limits.
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
        """Call back when a fence that began after this call is back.

        Args:
            done: receives None, or the error if there was no such fence.
        """
        self._waiting.append(done)
        self._begin()

    def suspend(self) -> None:
        """Note that the journal has ended: fences prove nothing until `resume`."""
        self._blind = True
        self._period += 1

    def resume(self) -> None:
        """Note that the journal goes on, and has shown what happened meanwhile."""
        self._blind = False

    def hold(self) -> None:
        """Let nothing be sent again: all fences fail until `go_on`; holds are counted."""
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
            # In turns of their own, so that an exception of one callback does not affect others.
            self._timer(0.0, partial(done, error))
        self._begin()


class _Call:
    """A call that has no outcome yet.

    Attributes:
        number: of its last sending; these numbers grow over all calls.
        rounds: number of times that it was sent.
        error: the reason why its outcome is unknown; None while its response may still come.
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
        """True if it was sent often enough, and nothing but itself seems to be the cause."""
        return self.error is not None and refusal(self.error).own and self.rounds >= ROUNDS

    @property
    def pause(self) -> float:
        """Seconds until it is sent again; 0 for the first repetition."""
        if self.rounds < 2:
            return 0.0
        return float(min(FIRST_PAUSE * 2 ** min(self.rounds - 2, 10), LONGEST_PAUSE))


class Outcomes:
    """Calls whose outcomes are to be found out.

    Args:
        fence: calls back when a fence is back that began after the request for it, or with an
            error if there was none: see `Fences.wait`.
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
            send: sends it, perhaps several times; its argument receives the response of this
                sending, once, late or never. An exception that it raises counts as a response.
            shown: returns what the journal has shown of the call: the id of the job, the reason of
                a refusal, or None.
            report: receives the outcome, once: the id of the job, or an error.
            trouble: receives each error that leaves the outcome of a sending unknown.
            over: returns True if the call is needed no more: it is given up if no fence can be
                raised.
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
            return  # too late
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
        """Mark calls as late that were sent before the last tick but one and have no response."""
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
        """Request a fence for all that has been sent so far."""
        if not self._asking:
            self._asking = True
            self._fence(partial(self._back, self._sent))

    def _back(self, last: int, error: Exception | None) -> None:
        """Settle what was sent up to number `last`: its fence is back, or was given up.

        This includes calls that only wait for their response: responses come in the order of the
        fence, so theirs are lost. If no fence could be raised for now, the outcome of a call stays
        unknown until the next fence.
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
        """Send a call after its pause, unless the journal has shown its outcome meanwhile."""
        outcome = call.shown()
        if outcome is not None:
            call.report(outcome)
        else:
            self._send(call)
