"""Reading the eventlog of an ensemble, even if the service goes away and returns meanwhile."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux_ensemble.client.connection import keeping_interrupts
from flux_ensemble.client.errors import EnsembleError, failure, given_up, log_failure
from flux_ensemble.client.reconnect import AWAY, LOOK_INTERVAL, LOOK_TIMEOUT, Outage, Received

if TYPE_CHECKING:
    from flux_ensemble.client.connection import Connection
    from flux_ensemble.client.responses import Entry


class EnsembleLog:
    """The eventlog of an ensemble, as the service sends it.

    Args:
        connection: to the service.
        name: the ensemble.
        follow: continue with new entries until the ensemble and its jobs have ended.
        events: also return job events.
        deadline: when to give up, by the monotonic clock; None waits without a limit.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        follow: bool = False,
        events: bool = False,
        deadline: float | None = None,
    ) -> None:
        self._connection = connection
        self._name = name
        self._follow = follow
        self._events = events
        self._deadline = deadline

    def read(self) -> Iterator[Entry]:
        """Yield the entries, oldest first, each once.

        Raises:
            TimeoutError: the ensemble has not ended by the deadline.
            EnsembleError: there is no such ensemble, or the service stays away.
        """
        received = Received()
        while True:
            try:
                stream = self._stream(received.count)
                while True:
                    with keeping_interrupts():
                        entry = next(stream, None)
                    if entry is None:
                        return
                    if received.take(entry):
                        yield entry
            except EnsembleError as exc:
                if not (self._follow and received.waits_after(exc)):
                    raise log_failure(exc, self._name, received) from exc
            with keeping_interrupts():
                self._wait_for_service()
            received.begin_again()

    def _stream(self, skip: int) -> Iterator[Entry]:
        payload = {
            "name": self._name,
            "follow": self._follow,
            "events": self._events,
            "skip": skip or None,
        }
        t_sent = time.monotonic()
        # Requested before the log: if the log request gets no response, a later service is not
        # mistaken for the one that received it.
        asked = self._ask_status() if self._follow else None
        future = self._connection.send("log", payload, stream=True)
        t_start = None if asked is None else self._same_service(asked, None)
        while True:
            try:
                while asked is not None and not self._comes(future):
                    t_start = self._same_service(self._ask_status(), t_start)
                entry: Entry = self._connection.response(future, t_sent)
            except (EnsembleError, TimeoutError):
                raise
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    return
                raise failure(exc, "log") from exc
            yield entry
            future.reset()

    def _comes(self, future: Any) -> bool:
        """Wait a short time for a response; return True if there is one."""
        left = math.inf if self._deadline is None else self._deadline - time.monotonic()
        try:
            future.wait_for(max(0.0, min(left, LOOK_INTERVAL)))
        except OSError as exc:
            if exc.errno != errno.ETIMEDOUT:
                raise
            if left <= LOOK_INTERVAL:
                raise self._too_late() from exc
            return False
        return True

    def _ask_status(self) -> Any:
        return self._connection.send("status", {"name": self._name})

    def _same_service(self, future: Any, before: float | None) -> float | None:
        """Check that the service is the one that started at `before`; return when it started.

        Args:
            future: that of a request for the status.
            before: None if it is not known yet.

        Raises:
            EnsembleError: EHOSTUNREACH, it is another one, which does not know earlier requests.
        """
        try:
            future.wait_for(LOOK_TIMEOUT)
            t_start: float | None = future.get()["service"].get("t_start")
        except OSError as exc:
            raise failure(exc, "status") from exc
        if before not in (None, t_start):
            raise failure(OSError(errno.EHOSTUNREACH, ""), "log")
        return t_start

    def _wait_for_service(self) -> None:
        outage = Outage()
        while True:
            pause = outage.next_pause()
            if pause is None:
                raise given_up(self._name)
            if self._deadline is not None and time.monotonic() + pause >= self._deadline:
                raise self._too_late()
            time.sleep(pause)
            future = self._connection.send("list", {})
            try:
                future.wait_for(LOOK_TIMEOUT)
                future.get()
                return
            except OSError as exc:
                if exc.errno not in AWAY:
                    raise failure(exc, "list") from exc

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"ensemble {self._name!r} has not ended in time")
