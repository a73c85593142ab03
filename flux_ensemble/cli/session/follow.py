"""Following one ensemble on the Flux reactor, from its load to its end.

The log of the ensemble streams in and is announced entry by entry; a timer requests the counts for
the bars. Nothing blocks, so signals are handled at once. The log's "finish" entry is the end.

`run` owns its ensemble: a signal or `--timeout` ends the ensemble and cancels its jobs, and the
reactor continues until they have ended; a second signal leaves at once. A closed terminal does not
end the ensemble: SIGHUP leaves it to the service, unless it is being cancelled already. `watch`
does not own it: the first signal leaves.
Both leave shortly before the allocation of the instance expires, so that a script has time to end
in order, and print what is left. They cancel nothing, since a later instance with the same statedir
continues the ensemble. From then on, SIGALRM and SIGTERM are not the user's: Flux and Slurm use
them to end what still runs. In a job of a batch system SIGTERM never is, since the end of the
allocation may be unknown, and jobs are cancelled and preempted with it.

When the service goes away, the command waits for its return, and continues with entries that it has
not printed yet. If the service had not answered the load before, the ensemble may exist or not:
`run` looks for it, and loads it once more if it is missing.
"""

from __future__ import annotations

import errno
import shlex
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from flux_ensemble import eventlog
from flux_ensemble.cli.common import (
    FAILED,
    INTERRUPTED,
    TIMED_OUT,
    Failure,
    drop_output,
    print_error,
    run_reactor,
    say,
)
from flux_ensemble.cli.display.messages import time_is_up
from flux_ensemble.cli.display.troubles import exit_code
from flux_ensemble.cli.display.views import EnsembleView, Quiet, Terminal, summarize
from flux_ensemble.cli.session.load import Known, Load
from flux_ensemble.cli.session.reconnect import ServiceAbsence, ask
from flux_ensemble.cli.session.results import Results, ends_with_us, is_job
from flux_ensemble.cli.session.signals import signals
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.errors import failure, given_up, given_up_loading, log_failure
from flux_ensemble.client.reconnect import AWAY, Received
from flux_ensemble.deploy.launch import batch_system
from flux_ensemble.own_command import own_command
from flux_ensemble.run_names import named_otherwise, way_on
from flux_ensemble.service.settings import kept_directory
from flux_ensemble.words import Line, Span, in_words

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Signals that end the command, and the ensemble if the command owns it.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)

#: Seconds before the end of the allocation at which the command leaves; at most half of the time
#: left when the service stops starting jobs.
LEAVE_SECONDS = 5.0


#: Kinds of waits in `status` of jobs that are in the queue.
_TOLD = frozenset(("stopped", "nodes", "held"))

#: After what an interrupt means: how to leave a run to the service.
INSTEAD = "if its terminal is closed instead, the ensemble continues, and --resume follows it"

#: Hint if the instance cannot be queried later.
FORGETS = (
    "this instance ends with this command, and its record of the jobs is lost then: --report FILE "
    "and --export FILE keep it"
)

#: Hint if the instance can still be queried, and forgets the jobs when it ends.
ENDS = "this instance has no statedir, and forgets its jobs when it ends: '{}' keeps them"

#: The rate at which jobs end is measured over so many seconds, and over at least so many jobs.
WINDOW_SECONDS = 300.0
FEWEST_JOBS = 10

#: Share of the remaining jobs that will not run from which there is a warning. It is repeated when
#: their number has doubled, or halved.
SHARE = 0.05


class Outlook:
    """Estimates, from the rate at which jobs end, how many will not run in time."""

    def __init__(self) -> None:
        #: Times, with the numbers of jobs that were over.
        self._seen: deque[tuple[float, int]] = deque()
        self._said = 0.0

    def take(self, now: float, over: int, left: int, t_expires: float | None) -> str | None:
        """Process a status.

        Args:
            now: epoch seconds.
            over: number of jobs that are over.
            left: number of jobs that are requested and not over.
            t_expires: when the allocation expires, or None.

        Returns:
            A warning, the first time or after a large change; else None.
        """
        self._seen.append((now, over))
        while now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        t, before = self._seen[0]
        if t_expires is None or now <= t or over - before < FEWEST_JOBS:
            return None
        time_left = t_expires - now
        missed = left - time_left * (over - before) / (now - t)
        if missed < max(1.0, SHARE * left) or self._said / 2 < missed < self._said * 2:
            return None
        self._said = missed
        jobs = f"about {_about(missed)} jobs will not run"
        return f"the allocation ends in {in_words(time_left)}, {jobs}"


def _about(number: float) -> str:
    """Return a number rounded to two digits."""
    digits = len(str(int(number))) - 2
    return f"{round(int(number), -max(digits, 0)):,}"


class Follower:
    """Follows one ensemble and prints it to a view.

    Args:
        client: a client whose handle nothing else runs a reactor on.
        view: to print to.
        owner: the ensemble has to end with this command.
        events: print every job event, too.
        timeout: end after so many seconds; 0 is no limit.
        fail_on: kinds of troubles with which to exit 1: see `display.troubles`.
        ended: called with the status of the ensemble when it has ended.
        results: the files that are written then.
    """

    def __init__(
        self,
        client: Client,
        view: EnsembleView,
        *,
        owner: bool,
        events: bool = False,
        timeout: float = 0.0,
        fail_on: frozenset[str] = frozenset(),
        ended: Callable[[EnsembleStatus], None] = lambda status: None,
        results: Results | None = None,
    ) -> None:
        self._fail_on = fail_on
        self._results = results
        self._last = ends_with_us(client.handle.attr_get)
        self._is_job = is_job(client.handle.attr_get)
        self._ended = ended
        self._status: EnsembleStatus | None = None
        self._client = client
        self._handle = client.handle
        self._view = view
        self._owner = owner
        self._events = events
        self._timeout = timeout
        self._called = ""
        self._name: str | None = None
        self._search = False
        self._state: str | None = None
        self._done = False
        self._forced: int | None = None
        self._record: str | None = None
        self._unrecorded: str | None = None
        self._loading: Load | None = None
        self._asking = False
        self._outlook = Outlook()
        self._waits = frozenset[tuple[str, str]]()
        self._ending = False
        self._expired = False
        #: SIGTERM of the batch system has come.
        self._terminated = False
        #: When the command leaves by itself, because the allocation is about to expire.
        self._t_leave: float | None = None
        # Read now: the broker does not answer any more when the allocation has expired.
        self._batch_system = batch_system(client.handle.attr_get)
        self._kept = kept_directory(client.handle.attr_get)
        self._log = 0
        self._received = Received(known=True)
        self._absence = ServiceAbsence(client, back=self._on_back, given_up=self._on_given_up)

    def load(self, request: Mapping[str, Any], name: str, others: Collection[Known]) -> int:
        """Load a document and follow the ensemble to its end.

        Args:
            request: the payload.
            name: of the ensemble.
            others: the ensembles that exist already.

        Returns:
            The exit code.

        Raises:
            EnsembleError: the service refused the document, or went away.
            Failure: the ensemble was unloaded.
        """
        # Not `Client.load`: a signal between the request and its response would leave the ensemble
        # behind with nobody to end it.
        self._loading = Load(
            self._client,
            request,
            name,
            others,
            loaded=self._on_loaded,
            absent=self._on_absent,
            away=self._absence.begin,
        )
        self._loading.send()
        self._record = request.get("record")
        self._called = name
        return self._run()

    def follow(self, name: str, skip: int = 0) -> int:
        """Follow an ensemble that is loaded already to its end, without its first entries."""
        self._received.count = skip
        self._begin(name)
        return self._run()

    def _begin(self, name: str) -> None:
        self._name = name
        request = {
            "name": name,
            "follow": True,
            "events": self._events,
            "skip": self._received.count or None,
        }
        self._log += 1
        number = self._log
        self._ask()  # first, so that it is known which service this is
        self._then("log", request, lambda future: self._on_entry(future, number), stream=True)

    def _run(self) -> int:
        with ExitStack() as stack:
            stack.callback(self._view.close)
            stack.callback(self._absence.end)
            stack.enter_context(
                self._handle.timer_watcher_create(
                    self._view.interval, self._ask, self._view.interval
                )
            )
            if self._timeout:
                stack.enter_context(
                    self._handle.timer_watcher_create(self._timeout, self._on_timeout)
                )
            stack.enter_context(signals(self._handle, SIGNALS, self._on_signal))
            while not self._done:
                try:
                    run_reactor(self._handle)
                except KeyboardInterrupt:
                    self._on_signal()
            if self._expired:
                # More signals follow at once, and must not end this before everything is printed.
                return self._close()
        return self._close()

    def _close(self) -> int:
        if self._name is not None and (self._state is not None or self._expired):
            self._summarize(self._name)
        state = self._state or "failed"
        code = exit_code(state, self._status, self._fail_on, self._forced)
        if self._unrecorded is None:
            return code
        print_error(self._unrecorded)
        return code or FAILED

    def _summarize(self, name: str) -> None:
        try:
            status = self._client.status(name)["ensembles"][0]
            metrics = self._client.metrics(name)
        except EnsembleError as exc:
            # The ensemble has ended, so the result stays valid without this.
            if exc.errno not in AWAY:
                raise
            if self._expired:
                self._line((Span(self._left(None), "warn"),))
                return
            print_error(f"{exc}: there is no table of the jobs of {name!r}")
            return
        self._status = status
        self._ended(status)
        if self._record is not None:
            about = f"the recording {self._record} "
            errors = (one for one in status["errors"] if one.startswith(about))
            self._unrecorded = next(errors, None)
        try:
            summarize(self._view, status, metrics, self._command)
            if not self._results and not self._expired:
                for advice in self._later(name):
                    self._line((Span(advice, "detail"),))
            if self._expired:
                self._line((Span(self._left(status), "warn"),))
        except OSError:
            drop_output()

    def _command(self, *words: str) -> str:
        """Return a command about the ensemble; "" if the instance cannot be queried any more."""
        return "" if self._last else own_command(*words, flux=True)

    def _later(self, name: str) -> Iterator[str]:
        """Yield the advice about results that end with the instance.

        A script in an instance that is no job may be followed by others in it, so only those who
        look at a terminal get it.
        """
        if self._last:
            if self._kept is None:
                yield FORGETS
                return
            asks = f"flux ensemble supervise && flux ensemble failures {name}"
            words = ["flux", "start", "-S", f"statedir={self._kept}", "sh", "-c", asks]
            yield f'later, "{shlex.join(words)}" asks this instance'
        elif (
            self._owner
            and self._kept is None
            and (
                isinstance(self._view, Terminal)
                or (self._is_job and not isinstance(self._view, Quiet))
            )
        ):
            yield ENDS.format(own_command("export", name, f"{name}.csv", flux=True))

    def _left(self, status: Mapping[str, Any] | None) -> str:
        """Return what is left to do when the allocation ends, and how it can continue.

        Args:
            status: of the ensemble; None if the service does not answer any more.
        """
        when = "ends" if self._terminated else "has expired"
        if self._t_leave is not None:
            when = "is about to expire"
        what = "and jobs are left"
        if status is not None:
            jobs = status["jobs"]
            what = f"{jobs['waiting'] + jobs['active']} of {jobs['total']} jobs are left"
        then = (
            f"an instance with the statedir {self._kept} goes on with them"
            if self._kept is not None
            else "a later instance would go on with them, had this one a statedir of its own: see "
            "'flux ensemble doctor'"
        )
        return f"the allocation {when}, {what}: {then}"

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
        """Print; where nobody reads that any more, leave."""
        try:
            show(*args)
        except OSError:
            drop_output()
            if self._ending:
                self._expire()
            else:
                self._leave()

    def _stop(self) -> None:
        self._done = True
        self._handle.reactor_stop()

    def _on_loaded(self, name: str) -> None:
        if name != self._called:
            say(named_otherwise(self._called, name, own_command("rm", self._called, flux=True)))
        self._begin(name)
        if self._forced is not None:
            self._cancel()

    def _on_absent(self) -> None:
        assert self._loading is not None
        if self._forced is None:
            self._loading.send()
        else:
            self._stop()

    def _on_entry(self, future: Any, number: int) -> None:
        if number != self._log:
            return  # of a log that has been asked for once more
        try:
            entry = future.get()
        except OSError as exc:
            self._on_log_end(exc)
            return
        future.reset()
        if not self._received.take(entry):
            return
        read = eventlog.read(entry)
        match read:
            case eventlog.JobEvent():
                self._line(read.line(self._client.label))
            case eventlog.Request() if self._forced is not None:
                pass
            case _:
                for line in read.announced(entry["timestamp"]):
                    self._line(line)
        match read:
            case eventlog.Walltime():
                self._ending, self._t_leave = True, self._leaves(read.t_expires)
            case eventlog.Allocation():
                self._ending, self._t_leave = False, None
            case eventlog.Finish() if not read.reopened:
                self._state = read.state
                self._stop()

    def _leaves(self, t_expires: float) -> float | None:
        """Return when to leave before the allocation expires; None if that was an earlier one."""
        left = t_expires - time.time()
        return t_expires - min(LEAVE_SECONDS, left / 2) if left > 0.0 else None

    def _on_log_end(self, exc: OSError) -> None:
        if exc.errno == errno.ENODATA:
            raise Failure(f"ensemble {self._name!r} was unloaded before it ended") from exc
        if self._received.waits_after(exc):
            self._absence.begin()
            return
        assert self._name is not None
        raise log_failure(exc, self._name, self._received) from exc

    def _on_back(self) -> None:
        if self._name is None:
            return  # `_ask` looks what became of the load
        self._received.begin_again()
        self._begin(self._name)
        if self._forced is not None:
            self._cancel()

    def _on_given_up(self, error: EnsembleError | None) -> None:
        error = error or (given_up_loading() if self._name is None else given_up(self._name))
        if self._forced is None:
            raise error
        print_error(f"{error}; its jobs are not cancelled")
        self._stop()

    def _ask(self, *_: Any) -> None:
        if self._t_leave is not None and time.time() >= self._t_leave:
            self._expire()
        elif self._name is None:
            assert self._loading is not None
            self._loading.look()
        elif not self._asking:
            # One request at a time: a busy service is not asked faster than it answers.
            self._asking = True
            ask(self._client, "status", {"name": self._name}, self._on_status)

    def _on_status(self, future: Any) -> None:
        self._asking = False
        try:
            status = future.get()
        except OSError as exc:
            if self._received.waits_after(exc) and not self._done:
                self._absence.begin()
            return  # for anything else the log says what happened
        if not self._done:
            self._absence.heard(status["service"])
            self._look_out(status)
            self._search = bool(status["ensembles"][0].get("searches"))
            self._output(self._view.progress, status["ensembles"][0])

    def _look_out(self, status: Mapping[str, Any]) -> None:
        """Warn if jobs will not run in this allocation, or wait for more than other jobs."""
        self._say_waits(status["ensembles"][0].get("waits", ()))
        jobs = status["ensembles"][0]["jobs"]
        left = jobs["waiting"] + jobs["active"]
        t_expires = status.get("instance", {}).get("t_expires")
        words = self._outlook.take(time.time(), jobs["total"] - left, left, t_expires)
        if words is not None:
            self._line((Span(f"   {words}", "warn"),))

    def _say_waits(self, waits: Sequence[Mapping[str, Any]]) -> None:
        """Print once what jobs in the queue wait for; the log has that of jobs not in the queue."""
        told = {
            (wait["group"], wait["reason"]): wait["text"] for wait in waits if wait["kind"] in _TOLD
        }
        for cause in told.keys() - self._waits:
            self._line((Span(f"   {told[cause]}", "warn"),))
        self._waits = frozenset(told)

    def _on_timeout(self, *_: Any) -> None:
        if self._forced is None:
            self._end(TIMED_OUT, "the time is up", "")

    def _on_signal(self, number: int = signal.SIGINT) -> None:
        if number == signal.SIGALRM or (self._ending and number != signal.SIGINT):
            self._expire()
        elif self._batch_system and number == signal.SIGTERM and self._forced is None:
            how = f"SIGTERM, with which {self._batch_system} ends a job: nothing is cancelled"
            self._line((Span(f"   {how}", "warn"),))
            self._terminated = True
            self._expire()
        elif self._forced is not None and number == signal.SIGHUP:
            # The broker of `flux start` sends one for each Ctrl-C, after that of the terminal.
            return
        elif not self._owner or self._forced is not None or number == signal.SIGHUP:
            self._leave()
        else:
            self._end(INTERRUPTED, "interrupted", " (again to leave at once)")
            if self._name is not None:
                again = way_on(self._name, search=self._search)
                self._line((Span(f"   {again} later; {INSTEAD}", "detail"),))

    def _leave(self) -> None:
        """End the command, and leave the ensemble to the service."""
        if self._name is not None:
            lost = self._last and self._kept is None
            to = ": its instance ends with this command, and so do its jobs"
            what = f"   left {self._name!r}{to if lost else ' to the service'}"
            self._line((Span(what, "warn"),))
        self._forced = INTERRUPTED
        self._stop()

    def _expire(self) -> None:
        """Leave the remaining jobs to the next allocation."""
        self._expired = True
        self._forced = self._forced or FAILED
        self._stop()

    def _end(self, code: int, why: str, hint: str) -> None:
        self._forced = code
        when = "its jobs are cancelled when the service is back"
        what = when if self._absence.lasts else "cancelling its jobs"
        self._line((Span(f"   {why}: {what}{hint}", "warn"),))
        if self._name is not None and not self._absence.lasts:
            self._cancel()

    def _cancel(self) -> None:
        request = {"name": self._name}
        if self._forced == TIMED_OUT:
            request["reason"] = time_is_up(self._timeout)
        self._then("cancel", request, self._on_canceled)

    def _on_canceled(self, future: Any) -> None:
        try:
            future.get()
        except OSError as exc:
            if not self._received.waits_after(exc):
                raise failure(exc, "cancel") from exc
            # Its log ends, too, and it is cancelled when the service is back.
