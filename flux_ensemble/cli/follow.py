"""Following one ensemble on the Flux reactor, from its load to its end.

The log of the ensemble streams in and is announced as it comes; a timer asks for the
counts that the bars show. Nothing blocks, so a signal is acted on at once. The end is the
log's "finish" entry.

`run` owns its ensemble: a signal or `--timeout` ends it and cancels its jobs, and the
reactor goes on until they have ended; a second signal leaves at once. `watch` does not:
the first signal leaves.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from flux_ensemble.cli.common import (
    EXIT_CODES,
    INTERRUPTED,
    TIMED_OUT,
    Failure,
    job_id,
    run_reactor,
)
from flux_ensemble.cli.views import View, summarize
from flux_ensemble.cli.words import Line, Span, announce, job_event
from flux_ensemble.client import Client, failure


class Follower:
    """Follows one ensemble and prints it to a view.

    Args:
        client: a client whose handle nothing else runs a reactor on.
        view: where to print.
        owner: the ensemble is to end with this command.
        events: print every job event too.
        timeout: end after so many seconds; 0 is no limit.
    """

    def __init__(
        self,
        client: Client,
        view: View,
        *,
        owner: bool,
        events: bool = False,
        timeout: float = 0.0,
    ) -> None:
        self._client = client
        self._handle = client.handle
        self._view = view
        self._owner = owner
        self._events = events
        self._timeout = timeout
        self._name: str | None = None
        self._state: str | None = None
        self._done = False
        self._forced: int | None = None
        self._asking = False

    def load(self, request: Mapping[str, Any]) -> int:
        """Loads a document by the request's payload and follows the ensemble to its end.

        Returns:
            The exit code.

        Raises:
            EnsembleError: the service refused the document.
            Failure: the service went away.
        """
        # Not `Client.load`: a signal between the request and its answer would leave the
        # ensemble behind with nobody to end it.
        self._then("load", request, self._on_loaded)
        return self._run()

    def follow(self, name: str) -> int:
        """Follows an ensemble that is loaded already, from its first entry to its end."""
        self._begin(name)
        return self._run()

    def _begin(self, name: str) -> None:
        self._name = name
        request = {"name": name, "follow": True, "events": self._events}
        self._then("log", request, self._on_entry, stream=True)

    def _run(self) -> int:
        with ExitStack() as stack:
            stack.callback(self._view.close)
            stack.enter_context(
                self._handle.timer_watcher_create(
                    self._view.interval, self._ask, self._view.interval
                )
            )
            if self._timeout:
                stack.enter_context(
                    self._handle.timer_watcher_create(self._timeout, self._on_timeout)
                )
            self._watch_signals(stack)
            while not self._done:
                try:
                    run_reactor(self._handle)
                except KeyboardInterrupt:
                    self._on_signal()
        return self._close()

    def _watch_signals(self, stack: ExitStack) -> None:
        """Calls `_on_signal` from the reactor.

        Through a pipe, and not with Flux's signal watchers: those block a signal in this
        thread only, and a document with statistics brings in numpy, which has threads that
        would get it. SIGINT reaches us either this way or as a KeyboardInterrupt.
        """
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write))

        def drain(*_: Any) -> None:
            os.read(read, 64)
            self._on_signal()

        stack.enter_context(self._handle.fd_watcher_create(read, drain))

    def _close(self) -> int:
        if self._name is not None and self._state is not None:
            status = self._client.status(self._name)["ensembles"][0]
            metrics = self._client.metrics(self._name)
            try:
                summarize(self._view, status, metrics)
            except OSError:
                _drop_output()
        if self._forced is not None:
            return self._forced
        return EXIT_CODES[self._state or "failed"]

    def _then(
        self,
        op: str,
        request: Mapping[str, Any],
        callback: Callable[[Any], None],
        *,
        stream: bool = False,
    ) -> None:
        self._client.send(op, request, stream=stream).then(callback)

    def _line(self, line: Line) -> None:
        self._output(self._view.line, line)

    def _output(self, show: Callable[..., None], *args: Any) -> None:
        """Prints; an output that nobody reads any more is as good as a hangup."""
        try:
            show(*args)
        except OSError:
            _drop_output()
            self._on_signal()

    def _stop(self) -> None:
        self._done = True
        self._handle.reactor_stop()

    def _on_loaded(self, future: Any) -> None:
        try:
            name = future.get()["name"]
        except OSError as exc:
            raise failure(exc, "load") from exc
        self._begin(name)
        if self._forced is not None:
            self._cancel()

    def _on_entry(self, future: Any) -> None:
        try:
            entry = future.get()
        except OSError as exc:
            self._on_log_end(exc)
            return
        future.reset()
        if entry["name"] == "job-event":
            self._line(job_event(entry, job_id))
        elif not (entry["name"] == "request" and self._forced is not None):
            for line in announce(entry):
                self._line(line)
        if entry["name"] == "finish":
            self._state = entry["context"]["state"]
            self._stop()

    def _on_log_end(self, exc: OSError) -> None:
        if exc.errno == errno.ENODATA:
            raise Failure(f"ensemble {self._name!r} was unloaded before it ended") from exc
        error = failure(exc, "log")
        if error.errno in (errno.EHOSTUNREACH, errno.ESHUTDOWN):
            raise Failure(f"{error}, and ensemble {self._name!r} had not ended") from exc
        raise error from exc

    def _ask(self, *_: Any) -> None:
        # One question at a time: a service that is busy is not asked faster than it answers.
        if self._asking or self._name is None:
            return
        self._asking = True
        self._then("status", {"name": self._name}, self._on_status)

    def _on_status(self, future: Any) -> None:
        self._asking = False
        try:
            status = future.get()
        except OSError:
            return  # the log says what happened
        if not self._done:
            self._output(self._view.progress, status["ensembles"][0])

    def _on_timeout(self, *_: Any) -> None:
        if self._forced is None:
            self._end(TIMED_OUT, "the time is up: cancelling its jobs")

    def _on_signal(self, *_: Any) -> None:
        if not self._owner or self._forced is not None:
            if self._name is not None:
                self._line((Span(f"   left {self._name!r} to the service", "warn"),))
            self._forced = INTERRUPTED
            self._stop()
        else:
            self._end(INTERRUPTED, "interrupted: cancelling its jobs (again to leave at once)")

    def _end(self, code: int, text: str) -> None:
        self._forced = code
        self._line((Span(f"   {text}", "warn"),))
        if self._name is not None:
            self._cancel()

    def _cancel(self) -> None:
        self._then("cancel", {"name": self._name}, self._on_canceled)

    def _on_canceled(self, future: Any) -> None:
        try:
            future.get()
        except OSError as exc:
            raise failure(exc, "cancel") from exc


def _drop_output() -> None:
    """Nobody reads standard output any more, so nothing printed from now on is an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
