"""`run` on the local queue: the ensemble in this process, its jobs on this machine.

The counterpart of `cli.session.follow`, which follows an ensemble in the service: it prints to the
same views, and ends on the same signals with the same exit codes. The parts that it puts
together are the service's (`runtime.ensemble`, `runtime.custom.worker`), on another queue.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flux_ensemble.cli.common import (
    EXIT_CODES,
    INTERRUPTED,
    TIMED_OUT,
    USAGE,
    Failure,
    print_error,
    recorded,
)
from flux_ensemble.cli.display.messages import Line, Span, announce, job_event
from flux_ensemble.cli.display.views import View, summarize
from flux_ensemble.client import user_context
from flux_ensemble.engine.commands import Record
from flux_ensemble.engine.events import JobEvent
from flux_ensemble.faults import ENDINGS
from flux_ensemble.members.local.directory import StateError
from flux_ensemble.members.local.loop import LocalLoop
from flux_ensemble.members.local.queue import LocalQueue
from flux_ensemble.members.local.recovery import EventFile, recover
from flux_ensemble.members.local.state_dir import StateLog, default_root
from flux_ensemble.members.virtual.cluster import Cluster, UnsatisfiableError
from flux_ensemble.runtime.custom.worker import Worker
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.recording import Recorder

if TYPE_CHECKING:
    from flux_ensemble.client.responses import Entry
    from flux_ensemble.document.model import Spec

#: Seconds between two snapshots of status and metrics.
_SNAPSHOT_SECONDS = 1.0


def run_locally(
    spec: Spec,
    text: str,
    cluster: Cluster,
    view: View,
    *,
    events: bool,
    timeout: float,
    state_dir: Path | None,
    record: str | None,
    resume: bool | None,
) -> int:
    """Runs an ensemble to its end, and prints it to a view.

    Args:
        spec: the ensemble.
        text: its document.
        cluster: what the local queue offers.
        view: where to print.
        events: print every job event too.
        timeout: end after so many seconds; 0 is no limit.
        state_dir: where its directory is made; None is the default.
        record: a file for a recording.
        resume: as for `members.local.state_dir.StateLog`.

    Returns:
        The exit code.

    Raises:
        Failure: it cannot run here.
    """
    with ExitStack() as stack:
        stack.callback(view.close)
        try:
            log = StateLog(state_dir or default_root(), spec.name, text, resume)
        except StateError as error:
            raise Failure(str(error)) from None
        stack.callback(log.close)
        try:
            recorder = None if record is None else Recorder(record, spec, text)
        except OSError as error:
            raise Failure(f"cannot write {record}: {error.strerror}", USAGE) from None
        try:
            run = LocalRun(stack, spec, cluster, view, log, recorder, events=events)
        except UnsatisfiableError as error:
            raise Failure(str(error), USAGE) from None
        except StateError as error:
            raise Failure(str(error)) from None
        except OSError as error:
            raise Failure(f"cannot start the local queue: {error}") from None
        if resume:
            run.recover(text)
        else:
            run.begin(text)
        return recorded(run.follow(timeout), recorder)


class LocalRun:
    """One run; the parameters are those of `run_locally`.

    Args:
        stack: closes what this opens.
        log: its files.
        recorder: takes down all that it does, if given.
    """

    def __init__(
        self,
        stack: ExitStack,
        spec: Spec,
        cluster: Cluster,
        view: View,
        log: StateLog,
        recorder: Recorder | None,
        *,
        events: bool,
    ) -> None:
        self.events = events
        self._spec = spec
        self._view = view
        self._log = log
        self._forced: int | None = None
        self._left = False
        self._stopped: str | None = None
        self._events = EventFile(log.directory, Timers(), self._stop)
        stack.callback(self._events.close)
        self._waiting = False
        self._hushed = False
        self._snapshot_due = 0.0
        self._metrics: dict[str, Any] = {}
        self._unwritten = ""
        self._loop = LocalLoop()
        stack.callback(self._loop.close)
        context = user_context()
        self._queue = LocalQueue(
            spec,
            cluster,
            self._loop,
            **context,
            output=log.output,
            hold=log.jobs_lock,
            post=self._take,
            lost=lambda reason: self._ensemble.fail(reason),
            warn=self._print_error,
            full=self._stop,
        )
        stack.callback(self._queue.close)
        self._ensemble = Ensemble(
            spec,
            run=int(time.time() * 1e6),
            cwd=context["cwd"],
            member=self._queue.member,
            loop=self._loop,
            custom=lambda _: self._start_worker(context),
            log_error=self._print_error,
            changed=lambda _: None,
            ahead=lambda _: self._events,
            recorder=recorder,
        )
        self._watch_signals(stack)

    def begin(self, text: str) -> None:
        """Starts the ensemble, whose document is `text`.

        Raises:
            Failure: its files cannot be written.
        """
        self._ensemble.log.read(self, follow=True)
        self._ensemble.note("load", {"document": text})
        self._publish()
        self._ensemble.start()

    def recover(self, text: str) -> None:
        """Goes on where a run was killed; the files then say what they would have said.

        Raises:
            Failure: the events of that run cannot be read, or the files not be written.
        """
        ensemble, records = self._ensemble, list[Record]()
        try:
            events = self._events.read(self._log.events)
            recovered = recover(ensemble.engine, self._events.timers, events, records.append)
        except ValueError as error:
            raise Failure(f"{error}: --no-resume begins anew") from None
        if ensemble.engine.t_start is None:
            self.begin(text)
            return
        self._hushed = True
        ensemble.log.read(self, follow=True)
        for one in (Record(ensemble.engine.t_start, "load", {"document": text}), *records):
            ensemble.record(one)
        self._hushed = False
        self._publish()
        self._line((Span(f"   going on after {ensemble.engine.firings} firings", "warn"),))
        self._queue.adopt(recovered, ensemble.engine)
        ensemble.go_on(ensemble.engine.pending, purged=False)
        for event in recovered.events(ensemble.engine, self._loop.now()):
            ensemble.job_event(event)

    def _publish(self) -> None:
        """Puts what there is in the place of the files of the run before."""
        self._snapshot()
        if self._stopped or self._unwritten:
            raise Failure(self._stopped or self._unwritten)
        try:
            self._log.publish()
        except OSError as error:
            path = self._log.directory.path
            raise Failure(f"cannot write to {path}: {error.strerror}") from None
        except StateError as error:
            raise Failure(str(error)) from None

    def follow(self, timeout: float) -> int:
        """Runs to the end; the exit code.

        Raises:
            Failure: its files cannot be written any more.
        """
        ensemble = self._ensemble
        timers = [self._loop.timer(self._view.interval, self._look, self._view.interval)]
        if timeout:
            timers.append(self._loop.timer(timeout, self._on_timeout))
        self._loop.run(lambda: self._over or not ensemble.live)
        for timer in timers:
            timer.cancel()
        if ensemble.live and self._stopped is None:
            ensemble.fail("left while its jobs were running")
        elif self._stopped is None:
            # What custom functions leave behind is reaped by a timer.
            self._loop.run(lambda: self._over or not self._loop.timers)
        if self._stopped is not None:
            ensemble.close(errno.EIO, self._stopped)
            raise Failure(
                f"{self._stopped}: its jobs are killed; when it can be written, --resume goes on"
            )
        status, metrics = self._snapshot()
        with self._quietly():
            summarize(self._view, status, metrics)
        if self._unwritten:
            raise Failure(f"{self._unwritten}: how {self._spec.name!r} ended is not kept")
        if self._forced is not None:
            return self._forced
        return EXIT_CODES[ensemble.state]

    @property
    def _over(self) -> bool:
        """It is not to go on, whatever becomes of its jobs."""
        return self._left or self._stopped is not None

    def send(self, entry: Mapping[str, Any]) -> None:
        """Keep and print an entry of the log, as a `runtime.eventlog.Follower`."""
        if entry["name"] != "job-event" and self._stopped is None:
            # Kept before it is shown, and before it is acted on.
            try:
                self._log.append(entry)
            except OSError as error:
                path = self._log.directory.path / "eventlog"
                self._stop(f"cannot write {path}: {error.strerror}")
        if self._hushed:
            return
        if entry["name"] == "job-event":
            self._line(job_event(cast("Entry", entry), str))
        elif not (entry["name"] == "request" and self._forced is not None):
            for line in announce(cast("Entry", entry)):
                self._line(line)

    def end(self) -> None:
        """There will be no more entries."""

    def _take(self, event: JobEvent) -> None:
        if event.name == "alloc" and event.name not in self._ensemble.engine.wants_events:
            # Written before the job starts, so that no later run starts it again.
            self._events.take_down(event)
        self._ensemble.job_event(event)

    def _stop(self, reason: str) -> None:
        """Goes no further: what cannot be taken down must not happen."""
        if self._stopped is None:
            self._stopped = reason
            self._queue.halt()

    def _start_worker(self, context: Mapping[str, Any]) -> Worker:
        spec = self._spec
        return Worker(
            self._loop,
            source=spec.custom,
            plugins=spec.plugins,
            **context,
            info={"name": spec.name, "directory": spec.directory},
            log=lambda _, text: self._print_error(text),
        )

    def _print_error(self, text: str) -> None:
        self._line((Span(f"   {text}", "detail"),))

    def _look(self) -> None:
        ensemble = self._ensemble
        with self._quietly():
            self._view.progress(ensemble.status())  # type: ignore[arg-type]
        if time.monotonic() >= self._snapshot_due:
            before = self._unwritten
            self._snapshot()
            if self._unwritten and not before:
                self._print_error(f"{self._unwritten}; the ensemble goes on")
        if ensemble.ended and not self._waiting:
            self._waiting = True
            self._line((Span(f"   waiting for {self._queue.active} active jobs", "detail"),))

    def _snapshot(self) -> tuple[Any, dict[str, Any]]:
        self._snapshot_due = time.monotonic() + _SNAPSHOT_SECONDS
        try:
            self._metrics = self._ensemble.engine.metrics(self._loop.now())
        except ENDINGS:
            raise
        except BaseException as error:
            self._ensemble.broken(error)
        status = self._ensemble.status()
        self._unwritten = ""
        try:
            self._log.snapshot(status, self._metrics, self._events.count)
        except OSError as error:
            path = self._log.directory.path / "status.json"
            self._unwritten = f"cannot write {path}: {error.strerror}"
        except StateError as error:
            self._unwritten = str(error)
        return status, self._metrics

    def _watch_signals(self, stack: ExitStack) -> None:
        """Calls `_on_signal` from the loop, through a pipe."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(write))

        def drain() -> None:
            for _ in os.read(read, 64):
                self._on_signal()

        stack.callback(self._loop.reader(read, drain).cancel)

    def _on_signal(self) -> None:
        if self._forced is None:
            self._end(INTERRUPTED, "interrupted: cancelling its jobs (again to kill them)")
        else:
            self._left = True

    def _on_timeout(self) -> None:
        if self._forced is None:
            self._end(TIMED_OUT, "the time is up: cancelling its jobs")

    def _end(self, code: int, text: str) -> None:
        self._forced = code
        self._line((Span(f"   {text}", "warn"),))
        self._ensemble.ask("cancel", {}, lambda _: None)

    def _line(self, line: Line) -> None:
        with self._quietly():
            self._view.line(line)

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """An output that nobody reads any more is as good as a hangup; one that is full is not."""
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                print_error(
                    f"cannot print any more: {error.strerror}; 'flux-ensemble log "
                    f"{self._spec.name}' has it all"
                )
            else:
                # Not from here: this may be within the engine.
                self._loop.timer(0.0, self._on_signal)
