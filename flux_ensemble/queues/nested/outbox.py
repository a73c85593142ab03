"""A member's queue that never blocks on its broker.

Flux sends at once, and blocks if the socket is full (flux-core `src/common/librouter/usock.c`): for
ever, if the broker behind it is stopped. So submissions wait here until there is room. A fence
waits with them, since it has to follow all that was sent before it.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import partial

from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.delivery import Answer
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.nested.pump import Pump

#: Seconds that a fence may take: without limit. A silent member is not necessarily lost, and if it
#: is, it is closed.
PATIENCE = 10.0 * 365 * 86400


class NestedQueue(FluxQueue):
    """The queue of a member.

    Args:
        broker: of the member.
        pump: of its handle.

    Attributes:
        waiting: number of requests that wait for room.
    """

    def __init__(self, broker: Broker, pump: Pump) -> None:
        super().__init__(broker, patience=PATIENCE)
        self._pump = pump
        self._waiting: deque[Callable[[], None]] = deque()
        self._closed = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        """Submit a job when there is room: see `FluxQueue.send`."""
        self._put(partial(self._send, text, urgency, answer, validate))

    def close(self) -> None:
        """Send nothing more; requests without an outcome get none."""
        self._waiting.clear()
        self._closed = True

    def raise_fence(self, report: Report) -> None:
        """Begin a fence when all that waits before it has been sent."""
        if self._closed:
            report(OSError(errno.ECANCELED, "the member is gone"))
            return
        self._put(partial(super().raise_fence, report))

    def _send(self, text: str, urgency: int, answer: Answer, validate: bool) -> None:
        try:
            super().send(text, urgency, answer, validate=validate)
        except OSError as error:
            answer(error)

    def _put(self, work: Callable[[], None]) -> None:
        if self._closed:
            return
        if not self._waiting and self._pump.has_room(self._flush):
            work()
        else:
            self._waiting.append(work)

    def _flush(self) -> None:
        while self._waiting and self._pump.has_room(self._flush):
            self._waiting.popleft()()
