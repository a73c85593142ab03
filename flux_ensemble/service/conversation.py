"""Messages of a member's service to the service of the ensemble: how and when they are sent.

    say, event, outcome ──► held back ──► Link ──send──► service of the ensemble
                              take ◄── Link ◄── answers, and other messages ◄──┘

One report is under way at a time. The time of the next one depends on what it has to carry
(`queues.nested.send_buffer`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.nested.link import Link, LinkError
from flux_ensemble.queues.nested.send_buffer import OWED_SECONDS, PACE_SECONDS, Held
from flux_ensemble.runtime.ports import Handle, Loop

#: Seconds without a message after which the latest report is repeated through Flux: a service that
#: was killed does not say so, and its successor refuses the unknown contact.
QUIET_SECONDS = 5.0

#: Number of items with which a report is sent at once: to process more would block the receiver.
FULL = 1000

#: Seconds after which an unanswered report counts as failed.
ANSWER_SECONDS = 60.0

#: Sends a message, and calls back with the answer to it, or with the error.
Send = Callable[[Mapping[str, Any], Callable[[Mapping[str, Any] | Exception], None]], None]


class Conversation:
    """The conversation of one contact.

    Args:
        loop: for timers.
        send: sends a report.
        taken: receives each item from the service of the ensemble, once, in order.
        active: returns how many jobs have not ended.
        end: ends this process, with a code and a reason.
        quiet: seconds without a message after which the latest report is repeated.

    Attributes:
        held: the events of jobs that are held back for others.
        dead: the broker of the member is gone: this process ends when everything is reported.
    """

    def __init__(
        self,
        loop: Loop,
        send: Send,
        taken: Callable[[list[Any]], None],
        active: Callable[[], int],
        end: Callable[[int, str], None],
        quiet: float = QUIET_SECONDS,
    ) -> None:
        self._loop = loop
        self._to = send
        self._seconds_quiet = quiet
        self._taken = taken
        self._active = active
        self._end = end
        self._link = Link()
        self._closed = False
        self._reporting = False
        self._quiet: Handle | None = None
        #: When the latest report was sent, and when the first of the events held back arrived.
        self._t_sent = self._t_first = -math.inf
        self._t_due = math.inf
        self._soon: Handle | None = None
        self.held = Held()
        self.dead = False

    def take(self, message: Mapping[str, Any]) -> None:
        """Process a message of the service."""
        try:
            items = self._link.take(message)
        except LinkError as error:
            self._end(1, str(error))
            return
        if items and not self.held:
            # Answers to these items may be sent together with the acknowledgement.
            self._t_first = time.monotonic()
        for item in items:
            if not self._closed:
                self._taken(item)
        self._report()

    def close(self) -> None:
        """Send and process nothing more."""
        self._closed = True

    def say(self, *item: Any) -> None:
        """Send an item, after everything that is held back."""
        self._put_held()
        self._link.put(list(item))
        self._report()

    def event(
        self, job: int, t: float, name: str, context: Any = None, tag: Sequence[Any] | None = None
    ) -> None:
        """Send an event of a job, in time: see `Held.add`."""
        if not self.held:
            self._t_first = time.monotonic()
        self.held.add(job, t, name, context, tag)
        self._report()

    def outcome(self, item: list[Any]) -> None:
        """Send an item that may precede the events that are held back."""
        self.held.add_outcome(item)
        self._report()

    def _put_held(self) -> None:
        for item in self.held.take():
            self._link.put(item)

    def _report(self) -> None:
        """Send what is due, once the previous report is answered and the time has come."""
        if self._reporting or self._closed or not self._has_news:
            return
        now = time.monotonic()
        patience = self._patience
        t_due = max(self._t_sent + patience, self._t_first + patience * self.held.share)
        if t_due <= now or self._link.waiting + len(self.held) >= FULL:
            self._put_held()
            message = self._link.again() or self._link.next()
            if message is not None:
                self._send(message)
        elif t_due < self._t_due:
            if self._soon is not None:
                self._soon.cancel()
            self._t_due = t_due
            self._soon = self._loop.timer(t_due - now, self._report_now)

    @property
    def _has_news(self) -> bool:
        return bool(self.held) or not self._link.silent

    @property
    def _patience(self) -> float:
        """Seconds between the latest report and the next one, by what the next one has to carry."""
        if self._link.waiting or self._link.unanswered:
            return PACE_SECONDS
        patience = self.held.patience(self._active())
        return patience if self._link.silent else min(patience, OWED_SECONDS)

    def _report_now(self) -> None:
        self._soon = None
        self._t_due = math.inf
        self._report()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._reporting = True
        self._t_sent = time.monotonic()
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = self._loop.timer(self._seconds_quiet, self._again)
        self._to(message, self._answered)

    def _answered(self, answer: Mapping[str, Any] | Exception) -> None:
        self._reporting = False
        if self._closed:
            return
        if isinstance(answer, Exception):
            # Whatever the error is: the next contact begins by reporting everything that is known.
            self._end(1, f"a report was not taken: {sentence(answer)}")
        elif answer:
            self.take(answer)
        else:
            self._report()
        if self.dead and not self._has_news:
            self._end(1, "the broker of the member is gone")

    def _again(self) -> None:
        """Repeat the latest message after a while of silence; repetitions do no harm."""
        self._quiet = None
        if not self._closed:
            self._send(self._link.again() or self._link.acknowledgement())
