"""`run` on the local queue: the parts of the command line on top of `queues.local.run`.

The counterpart of `cli.session.follow`, which follows an ensemble in the service: it prints to the
same views, and ends on the same signals with the same exit codes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flux_ensemble import eventlog
from flux_ensemble.cli.common import (
    INTERRUPTED,
    OK,
    TIMED_OUT,
    USAGE,
    Failure,
    drop_output,
    print_error,
    recorded,
    say,
    understood,
)
from flux_ensemble.cli.display.messages import not_over, time_is_up
from flux_ensemble.cli.display.troubles import exit_code
from flux_ensemble.cli.display.views import EnsembleView, summarize
from flux_ensemble.deploy.run_host import RunHost
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.local.continuation import Continuation
from flux_ensemble.queues.local.kinds import QueueName
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.root import StateError, advised, default_root
from flux_ensemble.queues.local.run import FunctionsError, LocalRun, RunError
from flux_ensemble.queues.local.state_dir import StateLog, made_of
from flux_ensemble.queues.virtual.cluster import UnsatisfiableError, VirtualCluster
from flux_ensemble.run_names import named_otherwise, way_on
from flux_ensemble.runtime.recording import Recorder
from flux_ensemble.runtime.signals import signal_pipe
from flux_ensemble.words import Line, Span

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus
    from flux_ensemble.document.model import Spec

#: Number of kept runs from which a hint is printed.
MANY = 100

#: Signals that end the command.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Signals that end the run so that it can be resumed, with the message for each.
_INTERRUPTS: Mapping[int, str] = {
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "the terminal is gone (SIGHUP)",
}


#: After what an interrupt means: how to end a run that is to be resumed.
INSTEAD = "for a run that --resume can continue, close its terminal or send it SIGTERM instead"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run on this machine.

    Attributes:
        events: print every job event, too.
        timeout: end after so many seconds; 0 is no limit.
        state_dir: the parent of the run's directory; None is the default.
        record: a file for a recording.
        resume: as for `queues.local.state_dir.StateLog`.
        fail_on: kinds of troubles with which to exit 1: see `display.troubles`.
        again: the command that continues the run if it is interrupted.
        queue: the user chose it with `--queue`.
    """

    events: bool = False
    timeout: float = 0.0
    state_dir: Path | None = None
    record: str | None = None
    resume: bool | None = None
    fail_on: frozenset[str] = frozenset()
    again: str = "flux-ensemble run --resume"
    queue: QueueName | None = None


def run_locally(
    spec: Spec,
    written: str,
    cluster: VirtualCluster,
    view: EnsembleView,
    options: Options,
    ended: Callable[[EnsembleStatus], None] = lambda status: None,
) -> int:
    """Run an ensemble to its end, and print it to a view.

    Args:
        spec: the ensemble.
        written: the text of its document, maybe with `use`.
        cluster: resources of the local queue.
        view: to print to; it is closed.
        options: of the run.
        ended: called with the status of the ensemble when it has ended.

    Returns:
        The exit code.

    Raises:
        Failure: it cannot run here.
    """
    text = understood(spec, written)
    with _failures(), closing(view):
        root = options.state_dir or default_root()
        with RunHost(
            root,
            spec,
            text,
            source=None if text is written else written,
            resume=options.resume,
            queue=options.queue,
        ) as host:
            if options.again.endswith(" -"):
                # Standard input cannot be read again, but its document is kept.
                kept = shlex.quote(str(host.log.directory.path / "document"))
                options = replace(options, again=f"{options.again} < {kept}")
            advice = partial(advised, root, queue=options.queue)
            _tell(spec.name, host.log, root, advice)
            recorder = _recorder(options.record, host.spec, text)
            printer = Printer(view, host, advice, events=options.events)
            with printer.printing(cluster, recorder):
                if options.resume and not host.log.resumed:
                    say(f"there is no run of {host.spec.name!r} to go on with: it begins")
                host.begin(Continuation(options.again))
                return recorded(printer.follow(options, ended), recorder)


def reopen_locally(
    spec: Spec,
    text: str,
    cwd: str,
    cluster: VirtualCluster,
    view: EnsembleView,
    options: Options,
    op: str,
    asked: Mapping[str, Any],
    told: Callable[[Mapping[str, Any]], object],
    ended: Callable[[EnsembleStatus], None] = lambda status: None,
) -> int:
    """Go on with a run that has ended, by a request, or with one that was interrupted meanwhile.

    Args:
        spec: the ensemble, of the document that the run has kept.
        text: that document.
        cwd: the directory of the run.
        cluster, view, ended: as for `run_locally`.
        options: of the run; with `resume` it was interrupted.
        op, asked, told: as for `RunHost.reopen`.

    Returns:
        The exit code.

    Raises:
        Failure: it cannot go on here.
    """
    with _failures(), closing(view):
        root = options.state_dir or default_root()
        with RunHost(root, spec, text, resume=options.resume, kept=cwd) as host:
            advice = partial(advised, root, queue=options.queue)
            printer = Printer(view, host, advice, events=options.events)
            again = Continuation(options.again)
            with printer.printing(cluster, None):
                if options.resume:
                    host.begin(again)
                elif "reopened" not in host.reopen(op, asked, again, told):
                    return OK
                return printer.follow(options, ended)


def _tell(asked: str, log: StateLog, root: Path, advice: Callable[..., str]) -> None:
    """Print the name of the run, if it is not the requested one, and a hint about many runs."""
    if log.name != asked:
        told = f"going on with {log.name!r}"
        remove = advice("rm", asked)
        say(told if log.resumed else named_otherwise(asked, log.name, remove, log.of_asked))
    if log.kept >= MANY:
        say(f"{log.kept} runs are kept in {root}: '{advice('rm', 'NAME')}' removes one")


def _recorder(file: str | None, spec: Spec, text: str) -> Recorder | None:
    try:
        return None if file is None else Recorder(file, spec, text)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}", USAGE) from None


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Convert errors that keep a run from beginning or continuing to failures of the command."""
    try:
        yield
    except (FunctionsError, UnsatisfiableError) as error:
        raise Failure(str(error), USAGE) from None
    except (RunError, StateError, RequestError) as error:
        raise Failure(str(error)) from None


def begun_with(text: str, file: str | None, name: str | None, state_dir: Path | None) -> str:
    """Return the document that a run to be resumed was begun with, `use` already expanded.

    Args:
        text: the current document.
        file: its name.
        name: the ensemble's name, if it is not the document's.
        state_dir: the parent of the run's directory; None is the default.
    """
    from flux_ensemble.document.loading import DocumentError
    from flux_ensemble.document.yaml_reader import read_yaml

    try:
        value = read_yaml(text, file)[0].value
        own = value["name"] if "name" in value else Path(file or "").stem
        root = state_dir or default_root()
    except (DocumentError, StateError, TypeError):
        return text  # what is wrong is told by who reads it for use
    return made_of(root, str(name or own), text) or text


class Printer:
    """Prints a run to a view, and ends it on signals; a `queues.local.run.Listener`.

    Args:
        view: to print to.
        host: of the run.
        advice: returns a command about the run, from its words.
        events: print every job event, too.
    """

    def __init__(
        self, view: EnsembleView, host: RunHost, advice: Callable[..., str], *, events: bool
    ) -> None:
        self.events = events
        self._view = view
        self._host = host
        self._loop = host.loop
        self._name = host.spec.name
        self._search = bool(host.spec.features)
        self._advice = advice
        self._forced: int | None = None
        self._timeout = 0.0
        #: The loop makes no callbacks before this is set.
        self._run: LocalRun

    @contextlib.contextmanager
    def printing(self, cluster: VirtualCluster, recorder: Recorder | None) -> Iterator[None]:
        """Make the run, print it, and end it on signals.

        Args:
            cluster, recorder: as for `RunHost.make`.

        Raises:
            Failure: the queue cannot be started.
        """
        with ExitStack() as stack:
            try:
                self._run = self._host.make(cluster, self, recorder)
                stack.enter_context(_signals(self._loop, self.on_signal))
            except OSError as error:
                raise Failure(f"cannot start the local queue: {error}") from None
            yield

    def follow(self, options: Options, told: Callable[[EnsembleStatus], None]) -> int:
        """Follow a run that has begun to its end.

        Args:
            options: its end, and the troubles to fail on.
            told: receives the final status.

        Returns:
            The exit code.

        Raises:
            RunError: its files cannot be written any more.
        """
        run = self._run
        self._timeout = options.timeout
        limit = self._loop.timer(self._timeout, self._on_timeout) if self._timeout else None
        run.drive(self._view.interval)
        if limit is not None:
            limit.cancel()
        status, metrics = run.finish()
        if run.interrupted:
            run.check_kept()
            self.warn(not_over(status, options.again))
            return INTERRUPTED
        ended = cast("EnsembleStatus", status)
        with self._quietly():
            summarize(self._view, ended, metrics, self._advice)
        told(ended)
        run.check_kept()
        return exit_code(run.state, ended, options.fail_on, self._forced)

    def entry(self, entry: eventlog.Stored) -> None:
        """Print an entry of the eventlog, or an event of a job."""
        match read := eventlog.read(entry):
            case eventlog.JobEvent():
                self._line(read.line(str))
            case eventlog.Request() if self._forced is not None:
                pass
            case _:
                for line in read.announced(entry["timestamp"]):
                    self._line(line)

    def note(self, text: str) -> None:
        """Print a detail."""
        self._line((Span(f"   {text}", "detail"),))

    def warn(self, text: str) -> None:
        """Print a warning."""
        self._line((Span(f"   {text}", "warn"),))

    def progress(self, status: Mapping[str, Any]) -> None:
        """Display the progress of the groups."""
        with self._quietly():
            self._view.progress(cast("EnsembleStatus", status))

    def on_signal(self, number: int = signal.SIGINT) -> None:
        """End the run.

        Ctrl-C cancels the ensemble; SIGTERM and a hangup end its jobs so that the run can be
        resumed. A second signal kills the jobs, except for a hangup: shells and the kernel both
        send one.
        """
        run = self._run
        if self._forced is not None or run.interrupted:
            if number != signal.SIGHUP:
                run.leave()
        elif number in _INTERRUPTS:
            self._interrupt(_INTERRUPTS[number])
        else:
            self._cancel(INTERRUPTED, "interrupted: cancelling its jobs (again to kill them)")
            self.note(f"{way_on(self._name, search=self._search)} later; {INSTEAD}")

    def _interrupt(self, why: str) -> None:
        if self._forced is None:
            self._run.interrupt(why)

    def _on_timeout(self) -> None:
        if self._forced is None:
            reason = time_is_up(self._timeout)
            self._cancel(TIMED_OUT, "the time is up: cancelling its jobs", reason)

    def _cancel(self, code: int, text: str, reason: str | None = None) -> None:
        self._forced = code
        self.warn(text)
        self._run.cancel(reason)

    def _line(self, line: Line) -> None:
        with self._quietly():
            self._view.line(line)

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """Treat an output that nobody reads any more as a hangup, but not a full one.

        A terminal that is gone is no hangup either: SIGHUP is sent if it has to end the run.
        """
        try:
            yield
        except OSError as error:
            drop_output()
            if error.errno == errno.EIO:
                return
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                print_error(
                    f"cannot print any more: {error.strerror}; "
                    f"'{self._advice('log', self._name)}' has it all"
                )
            else:
                # Deferred, because this may run within the engine.
                self._loop.timer(0.0, partial(self._interrupt, "nobody reads what it prints"))


@contextlib.contextmanager
def _signals(loop: LocalLoop, callback: Callable[[int], None]) -> Iterator[None]:
    """Call back from the loop for each signal that has to end the run.

    A hangup that is ignored, as with nohup(1), stays ignored.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with signal_pipe(SIGNALS[:-1] if ignored else SIGNALS) as read:

        def drain() -> None:
            for number in os.read(read, 64):
                callback(number)

        reader = loop.reader(read, drain)
        try:
            yield
        finally:
            reader.cancel()
