"""Reading the logs of several ensembles at once, through absences of the service."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.common import naming, run_reactor
from flux_ensemble.cli.session.reconnect import ServiceAbsence, ask, ask_whether_died
from flux_ensemble.cli.session.signals import signals
from flux_ensemble.client import connection
from flux_ensemble.client.errors import (
    EnsembleError,
    given_up,
    is_unloaded,
    log_failure,
    silence,
)
from flux_ensemble.client.reconnect import AWAY, LOOK_INTERVAL, Received

if TYPE_CHECKING:
    from flux_ensemble.client import Client
    from flux_ensemble.client.responses import Entry


class LogReader:
    """Reads the logs of several ensembles at the same time.

    Args:
        client: a client whose handle nothing else runs a reactor on.
        names: the ensembles.
        on_entry: called with a name and an entry; True if no more of that log is wanted.
        follow: continue with new entries until an ensemble's end.
    """

    def __init__(
        self,
        client: Client,
        names: Collection[str],
        on_entry: Callable[[str, Entry], bool],
        *,
        follow: bool,
    ) -> None:
        self._client = client
        self._on_entry = on_entry
        self._follow = follow
        #: Names of the logs that are still being read, in order.
        self._reading = dict.fromkeys(names)
        self._received = {name: Received() for name in names}
        #: Number of requests for each log: responses to earlier requests are ignored.
        self._requests = dict.fromkeys(names, 0)
        self._refused: list[tuple[str, OSError]] = []
        self._t_sent = self._t_heard = 0.0
        self._looking = False
        self._interrupted = False
        self._absence = ServiceAbsence(client, back=self._begin_again, given_up=self._give_up)

    def read(self, timeout: float = 0.0) -> bool:
        """Read to the end of every log, or as far as wanted.

        Args:
            timeout: longest time in seconds; 0 is no limit.

        Returns:
            True if that was reached in time.

        Raises:
            EnsembleError: a request failed.
            KeyboardInterrupt: the user does not want to wait any longer.
        """
        handle = self._client.handle
        with ExitStack() as stack:
            stack.enter_context(signals(handle, (signal.SIGINT,), self._interrupt))
            stack.callback(self._absence.end)
            if timeout:
                stack.enter_context(
                    handle.timer_watcher_create(timeout, lambda *_: handle.reactor_stop())
                )
            stack.enter_context(
                handle.timer_watcher_create(LOOK_INTERVAL, self._look, LOOK_INTERVAL)
            )
            self._begin_all()
            run_reactor(handle)
        if self._interrupted:
            raise KeyboardInterrupt
        self._raise_refusal()
        return not self._reading

    def _raise_refusal(self) -> None:
        """Raise the first error that a request ended with, if one did."""
        for name, refusal in self._refused:
            error = log_failure(refusal, name, self._received[name])
            if self._received[name].count:
                raise error from refusal
            with naming(self._client, name):
                raise error from refusal

    # -- requests and responses ------------------------------------------------------

    def _begin_all(self) -> None:
        self._t_sent = self._t_heard = time.monotonic()
        if self._follow:
            self._look()
        for name in self._reading:
            self._begin(name)

    def _begin(self, name: str) -> None:
        self._requests[name] += 1
        request = {
            "name": name,
            "follow": self._follow,
            "skip": self._received[name].count or None,
        }
        future = self._client.send("log", request, stream=True)
        future.then(self._take, name, self._requests[name])

    def _take(self, future: Any, name: str, request: int) -> None:
        if request != self._requests[name]:
            return
        received = self._received[name]
        self._t_heard = time.monotonic()
        try:
            entry = future.get()
        except OSError as exc:
            if self._follow and name in self._reading and received.waits_after(exc):
                self._absence.begin()
                return
            if is_unloaded(exc) and not received.count and self._client.comes_back():
                self._absence.end()
                self._begin_all()
                return
            if exc.errno != errno.ENODATA:
                self._refused.append((name, exc))
            self._reading.pop(name, None)
        else:
            # Needed even if no more of the log is wanted: otherwise the entry would arrive again.
            future.reset()
            if name in self._reading and received.take(entry) and self._on_entry(name, entry):
                del self._reading[name]
        self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self._refused or not self._reading:
            self._client.handle.reactor_stop()

    def _interrupt(self, _: int) -> None:
        self._interrupted = True
        self._client.handle.reactor_stop()

    # -- is the service there? ---------------------------------------------------------

    def _look(self, *_: Any) -> None:
        """Request a status from time to time, since a service that hangs does not report that."""
        if self._looking or self._absence.lasts:
            return
        self._looking = True
        if not self._follow:
            ask_whether_died(self._client, self._t_sent, self._on_died)
        else:
            ask(self._client, "status", {"name": next(iter(self._reading))}, self._looked)

    def _on_died(self, died: bool | None) -> None:
        self._looking = False
        now = time.monotonic()
        if died:
            self._refuse(OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)))
        elif died is not None:
            self._t_heard = now
        elif now - self._t_heard > connection.SILENT_SECONDS:
            self._refuse(EnsembleError(errno.ETIMEDOUT, silence(connection.SILENT_SECONDS)))

    def _refuse(self, error: OSError) -> None:
        self._refused += [(name, error) for name in self._reading]
        self._stop_if_done()

    def _looked(self, future: Any) -> None:
        self._looking = False
        try:
            service = future.get()["service"]
        except OSError as exc:
            waits = [self._received[name].waits_after(exc) for name in self._reading]
            if waits and all(waits):
                self._absence.begin()
            elif exc.errno in AWAY:
                self._absence.missed()
        else:
            self._absence.heard(service)

    def _begin_again(self) -> None:
        for name in self._reading:
            self._received[name].begin_again()
        self._begin_all()

    def _give_up(self, error: EnsembleError | None) -> None:
        self._refused.append((next(iter(self._reading)), error or given_up(*self._reading)))
        self._stop_if_done()
