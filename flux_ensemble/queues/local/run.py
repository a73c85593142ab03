"""A run of an ensemble on the local queue, which drives the ensemble and keeps its files.

It combines the parts of the service (`runtime.ensemble`, `runtime.custom.caller`) with one of the
queues of `kinds.QUEUES`, a file of events instead of the KVS, and the state directory:

    RunQueue   ──job events──► Ensemble ──entries──► StateLog, Listener
               ◄──commands───     │
                                  └──events──► EventFile ──after a kill──► recover

The code that starts a run (`deploy.run_host`) gives it a loop and a `Listener`, and decides when it
has to end:

    run = LocalRun(stack, spec, cluster, loop, log, listener, environment=..., cwd=...)
    run.begin(text)  # or run.recover(text), or run.request(text, op, payload).perform(answer)
    run.listen(parse)
    run.drive(interval)
    status, metrics = run.finish()

The jobs can be those of members instead, which call this machine (`service.home`). Then a `Home` is
in the place of the queue.

Nothing may happen that cannot be written to the files. If the eventlog or the file of events cannot
be written any more, the run stops, its jobs are killed, and it can be resumed. The same applies if
the process that starts the jobs is gone. If only the status cannot be written, the run goes on.

A run that is *interrupted* (`interrupt`: SIGTERM, a hangup) ends its jobs and takes in none of
their further events. Its files are then those of a killed run, and it can be resumed, too.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from flux_ensemble import __version__, eventlog
from flux_ensemble.document.feature import objection
from flux_ensemble.document.functions import unresolved
from flux_ensemble.document.members import NOT_LOCAL
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Record
from flux_ensemble.engine.events import Absent, Interrupted, JobEvent
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.rule_reasons import why
from flux_ensemble.eventlog import Entry, Stored
from flux_ensemble.faults import ENDINGS
from flux_ensemble.feature_list import parts
from flux_ensemble.queues.local.control import Control, Handler, Parse
from flux_ensemble.queues.local.leftovers import end_leftovers, told
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.recovery import (
    EventFile,
    Recovered,
    recover,
    t_stopped,
    whole_log,
)
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.run_queue import RunQueue, RunSide, make_queue
from flux_ensemble.queues.local.state_dir import StateLog, kept_files
from flux_ensemble.queues.virtual.cluster import UnsatisfiableError, VirtualCluster
from flux_ensemble.runtime.answers import Answer
from flux_ensemble.runtime.custom.caller import FunctionCaller, FunctionResult, caller_of
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.ports import Adviser, Fleet, Handle
from flux_ensemble.runtime.recording import Recorder

#: Seconds between two snapshots of status and metrics. Those of a thousand members are large: then
#: there are so few that they take this share of a core, but one in so many seconds.
_SNAPSHOT_SECONDS = 1.0
_SNAPSHOT_SHARE, _SNAPSHOT_LIMIT = 0.01, 10.0

#: Most rules for which a snapshot explains why they fire or do not.
MAX_EXPLAINED = 200


class RunError(Exception):
    """The run cannot begin or go on; the text is one sentence."""


class FunctionsError(RunError):
    """The functions that the document names cannot be called."""


class Listener(Protocol):
    """A receiver of news of a run.

    Attributes:
        events: True if the events of jobs are wanted, too.
    """

    events: bool

    def entry(self, entry: Stored) -> None:
        """Receive an entry of the eventlog, or an event of a job."""
        ...

    def note(self, text: str) -> None:
        """Receive a message that is not in the eventlog."""
        ...

    def warn(self, text: str) -> None:
        """Receive a more important message that is not in the eventlog."""
        ...

    def progress(self, status: Mapping[str, Any]) -> None:
        """Receive the status of the ensemble, at intervals."""
        ...


@dataclass(frozen=True)
class Reopening:
    """A request that goes on with a run that has ended, and was accepted.

    Attributes:
        perform: performs it; the answer is that of the service. It raises `RunError` and
            `StateError` if the files cannot be written.
        report: which jobs run again, as the request with `dry_run` answers; empty for a request of
            a feature.
        goes_on: there is something to do.
    """

    perform: Callable[[Answer], None]
    report: Mapping[str, Any] = field(default_factory=dict)
    goes_on: bool = True


class Home(RunQueue, Protocol):
    """Members as what runs the jobs: see `service.home.Home`."""

    @property
    def run(self) -> int: ...

    @property
    def fleet(self) -> Fleet: ...

    @property
    def busy(self) -> bool: ...

    def belongs(
        self, ensemble: Ensemble, durable: Callable[[Callable[[], None]], None]
    ) -> None: ...

    def open(self) -> None: ...

    def changed(self) -> None: ...

    def output(
        self, name: str, job: int, done: Callable[[str | Exception | None], None]
    ) -> None: ...

    def places(self) -> dict[str, dict[str, Any]]: ...

    def waits(self) -> list[dict[str, Any]]: ...

    def late(self, then: Callable[[], None]) -> Handle: ...


#: Makes the home of a run: from the document, the loop, the directory, whether the run goes on, the
#: text of the document, a receiver of lines for people, and `environment` and `cwd`.
MakeHome = Callable[..., Home]


class CheckedFunctions:
    """The caller of a run's custom functions, which are checked before the run begins.

    It is started when it is needed.

    Args:
        spec: the ensemble.
        loop: of the run.
        printed: writes the output of functions to the eventlog.
        note: receives other messages about functions.
        environment, cwd: of the process.
    """

    def __init__(
        self,
        spec: Spec,
        loop: LocalLoop,
        printed: Callable[[Entry], None],
        note: Callable[[str], None],
        *,
        environment: Mapping[str, str],
        cwd: str,
    ) -> None:
        self._spec = spec
        self._loop = loop
        self._printed = printed
        self._note = note
        self._environment = environment
        self._cwd = cwd
        self._checked: FunctionCaller | None = None

    def check(self, over: Callable[[], bool]) -> None:
        """Check that the functions that the document names can be called.

        Args:
            over: returns True if the run has to end.

        Raises:
            FunctionsError: they cannot be called.
            RunError: a signal came first.
        """
        functions = unresolved(self._spec)
        if functions is None:
            return
        results: list[FunctionResult] = []
        self._checked = self._start({})
        self._checked.check(functions, results.append)
        self._loop.run(lambda: over() or bool(results))
        if not results:
            raise RunError("interrupted while its custom functions were being loaded")
        if not results[0].ok:
            raise FunctionsError(f"{results[0].reason}\n{results[0].detail}".rstrip())

    def caller(self, states: Mapping[str, Any]) -> FunctionCaller:
        """Return the caller that was checked, or a new one with the functions' states."""
        return self._checked or self._start(states)

    def close(self) -> None:
        """End the one that was checked."""
        if self._checked is not None:
            self._checked.close()

    def _start(self, states: Mapping[str, Any]) -> FunctionCaller:
        return caller_of(
            self._spec,
            self._loop,
            self._printed,
            self._said,
            environment=self._environment,
            cwd=self._cwd,
            states=states,
        )

    def _said(self, level: str, text: str) -> None:
        # Level "info" is their output, which is in the eventlog.
        if level != "info":
            self._note(text)


class LocalRun:
    """A run; also a `Follower` of its eventlog that keeps the entries in files.

    Args:
        stack: closes the resources of this run.
        spec: the ensemble.
        cluster: the virtual cluster of its queue.
        loop: of the run.
        log: its files.
        listener: receives its news.
        environment, cwd: of its jobs and its custom functions.
        recorder: writes a recording, if given.
        home: makes the home of members, if the document has some.
        text: the document, for members.

    Raises:
        UnsatisfiableError: a job group requests resources that the cluster does not have, or the
            document has members and there is no `home`.
        StateError: the name of one of its files is taken by something else.
        OSError: the files cannot be opened, or no process can be started.
    """

    def __init__(
        self,
        stack: ExitStack,
        spec: Spec,
        cluster: VirtualCluster,
        loop: LocalLoop,
        log: StateLog,
        listener: Listener,
        *,
        environment: Mapping[str, str],
        cwd: str,
        recorder: Recorder | None = None,
        home: MakeHome | None = None,
        text: str = "",
    ) -> None:
        if spec.members and home is None:
            raise UnsatisfiableError(NOT_LOCAL)
        self.events = listener.events
        self._stack = stack
        self._spec = spec
        self._loop = loop
        self._log = log
        self._listener = listener
        self._left = False
        self._stopped: str | None = None
        self._interrupted = False
        self._control: Control | None = None
        self._waiting = False
        self._hushed = False
        self._snapshot_due = 0.0
        #: For how many seconds the ensemble was interrupted before this run.
        self._metrics: dict[str, Any] = {}
        self._unwritten = ""
        self._events = EventFile(log.directory, Timers(), self._stop)
        stack.callback(self._events.close)
        loop.before_wait = self._events.flush
        self._where: dict[str, Any] = {"environment": environment, "cwd": cwd}
        if killed := end_leftovers(log.directory):
            listener.note(told(killed))
        self._home: Home | None = None
        if spec.members and home is not None:
            self._home = home(
                spec,
                loop,
                log.directory,
                resumed=log.resumed,
                text=text,
                log=listener.note,
                **self._where,
            )
        self._queue: RunQueue = self._home or self._make_queue(cluster)
        stack.callback(self._queue.close)
        self._ensemble = self._make_ensemble(cwd, recorder)
        engine = self._ensemble.engine
        self._describer = Describer(
            spec,
            cwd,
            str,
            str if engine.members is None else engine.members.name_of,
            # Members keep what their jobs write themselves.
            kept=kept_files(log.directory.path) if self._home is None else None,
            rerun=engine.rerun,
            absences=engine.workload.absences,
        )
        note = self._ensemble.note
        self._functions = CheckedFunctions(spec, loop, note, listener.note, **self._where)
        stack.callback(self._functions.close)

    def _make_queue(self, cluster: VirtualCluster) -> RunQueue:
        side = RunSide(
            spec=self._spec,
            cluster=cluster,
            loop=self._loop,
            log=self._log,
            stack=self._stack,
            **self._where,
            post=self._take,
            flush=self._events.flush,
            full=self._stop,
            lost=self._lost,
            warn=self._listener.note,
        )
        return make_queue(self._log.queue, side)

    def _make_ensemble(self, cwd: str, recorder: Recorder | None) -> Ensemble:
        home = self._home
        host = Host(
            loop=self._loop,
            queue=self._queue.member,
            custom=lambda states: self._functions.caller(states),
            adviser=self._start_adviser,
            fleet=None if home is None else home.fleet,
            store=lambda _: self._events,
            log_error=self._listener.note,
            changed=lambda _: self._changed(),
        )
        run = int(time.time() * 1e6) if home is None else home.run
        ensemble = Ensemble(self._spec, host, run=run, cwd=cwd, recorder=recorder)
        if home is not None:
            home.belongs(ensemble, self._events.barrier)
        return ensemble

    def _changed(self) -> None:
        # Not from within the ensemble's driver.
        if self._home is not None and not self._interrupted:
            self._loop.timer(0.0, self._home.changed)

    def _start_adviser(self) -> Adviser:
        # The feature that asks for points brings them.
        (advisers,) = parts("advisers")
        adviser: Adviser = advisers.processes(
            self._spec, self._loop, **self._where, log=lambda _, text: self._listener.note(text)
        )
        return adviser

    @property
    def state(self) -> str:
        """The state of the ensemble in its lifecycle."""
        return self._ensemble.state

    # -- begin ----------------------------------------------------------------------

    def begin(self, text: str) -> None:
        """Start the ensemble.

        Args:
            text: its document.

        Raises:
            FunctionsError: its custom functions cannot be called, or a sampler is not installed.
            RunError, StateError: its files cannot be written.
        """
        uninstalled = objection(self._spec, None)
        if uninstalled is not None:
            raise FunctionsError(uninstalled)
        self._functions.check(lambda: self._over)
        self._ensemble.log.read(self, follow=True)
        self._ensemble.note(eventlog.Load(document=text))
        self._publish()
        if self._home is not None:
            self._home.open()
        self._ensemble.start()
        self._loop.timer(0.0, _load_statistics)

    def recover(self, text: str) -> None:
        """Go on where an earlier run ended too early; the new files include all of the old ones.

        Args:
            text: its document.

        Raises:
            RunError: the events of that run cannot be read, or the files cannot be written.
            StateError: the files cannot be written.
        """
        ensemble, records = self._ensemble, list[Record]()
        recovered = self._replay(records)
        if ensemble.engine.t_start is None:
            self.begin(text)
            return
        before = self._recall(text, records)
        self._publish()
        # Not later than now: the clock may have been set back.
        now = self._loop.now()
        t_known = min(now, max(self._log.t_known, ensemble.engine.t))
        absent = Absent(now, t_known)
        firings, away = ensemble.engine.firings, absent.t - absent.since
        ensemble.note(eventlog.Epoch(version=__version__, firings=firings, away=away))
        if self._home is not None:
            # The jobs went on, and the members call.
            unfinished = list(ensemble.engine.pending)
            self._home.open()
            ensemble.go_on(unfinished, purged=False)
            return
        self._queue.adopt(recovered, ensemble.engine)
        ensemble.go_on(ensemble.engine.pending, purged=False)
        t_end = t_stopped(before)
        if t_end is not None:
            ensemble.post([Interrupted(t_end, recovered.started(ensemble.engine))])
        ensemble.post([absent])
        for event in recovered.events(ensemble.engine, now, t_end, t_known):
            ensemble.job_event(event)

    def request(self, text: str, op: str, payload: Mapping[str, Any]) -> Reopening:
        """Read an earlier run that has ended, and check a request that goes on with it.

        Args:
            text: its document.
            op: the request: "rerun", or one of a feature.
            payload: that of the request, without the name.

        Raises:
            RunError: the events of that run cannot be read, or it cannot go on.
            RequestError: the request is refused.
        """
        self._revive(text)
        ensemble = self._ensemble
        if op != "rerun":
            ensemble.engine.requests.check(op, payload)
            return Reopening(
                lambda answer: self._reopen(partial(ensemble.extend, op, payload, answer))
            )
        choice = ensemble.choice(self._describer, payload)
        choice.all(self._loop.now())
        report: dict[str, Any] = {}
        ensemble.rerun(choice, lambda told: report.update(cast(dict[str, Any], told)), dry_run=True)
        return Reopening(
            lambda answer: self._reopen(partial(ensemble.rerun, choice, answer)),
            report,
            goes_on=report["jobs"] > 0 and not payload.get("dry_run", False),
        )

    def _revive(self, text: str) -> None:
        ensemble, records = self._ensemble, list[Record]()
        recovered = self._replay(records)
        if ensemble.engine.t_start is not None:
            self._recall(text, records)
        if ensemble.stopped is not None or not ensemble.engine.ended:
            reason = ensemble.stopped or "it ended before it had begun"
            raise RunError(f"the run of {ensemble.name!r} cannot go on: {reason}")
        self._queue.adopt(recovered, ensemble.engine)

    def _reopen(self, go_on: Callable[[], None]) -> None:
        # Whatever happens from now on, the run has not ended.
        status = {**self._ensemble.status(), "state": "running", "t_end": None}
        self._log.snapshot(status, self._ensemble.engine.metrics(self._loop.now()), 0)
        if self._home is not None:
            self._home.open()
        go_on()
        self._publish()

    def _replay(self, records: list[Record]) -> Recovered:
        """Feed the events of the earlier run to the engine; add the entries of its log."""
        try:
            events = self._events.read(self._log.events)
            return recover(self._ensemble.engine, self._events.timers, events, records.append)
        except ValueError as error:
            raise RunError(f"{error}: --no-resume begins anew") from None

    def _recall(self, text: str, records: list[Record]) -> list[Stored]:
        """Write the log of the earlier run again, and return what was left of it."""
        ensemble = self._ensemble
        assert ensemble.engine.t_start is not None
        self._hushed = True
        ensemble.log.read(self, follow=True)
        before: list[Stored] = list(self._log.entries_before())
        if not before:
            load = eventlog.Load(document=text)
            records.insert(0, Record(ensemble.engine.t_start, load.tag, load.to_json()))
        for entry in whole_log(before, records):
            ensemble.recall(entry)
        self._hushed = False
        return before

    def _publish(self) -> None:
        """Replace the files of the earlier run.

        Raises:
            RunError, StateError: the files cannot be written.
        """
        self._snapshot()
        if self._stopped or self._unwritten:
            raise RunError(self._stopped or self._unwritten)
        try:
            self._log.publish()
        except OSError as error:
            path = self._log.directory.path
            raise RunError(f"cannot write to {path}: {error.strerror}") from None

    # -- course and end -------------------------------------------------------------

    def listen(self, parse: Parse) -> None:
        """Accept requests of other processes from now on.

        Args:
            parse: checks their payloads.
        """
        now = self._loop.now
        handler = Handler(
            self._ensemble,
            self._describer,
            self.write,
            self._rewrite,
            now,
            parse,
            None if self._home is None else self._home.output,
        )
        try:
            self._control = Control(self._log.directory, self._loop, handler)
        except (StateError, OSError) as error:
            self._listener.note(f"other commands cannot steer this run: {error}")
        else:
            self._stack.callback(self._control.close)

    def drive(self, interval: float) -> None:
        """Run until the ensemble has ended and its jobs are gone, or until it must stop.

        Args:
            interval: seconds between two reports of progress.
        """
        look = self._loop.timer(interval, self._look, interval)
        self._loop.run(lambda: self._over or not self._ensemble.live)
        if self._home is not None and not self._over:
            self._end_members(self._home)
        look.cancel()

    def _end_members(self, home: Home) -> None:
        """End the members of an ensemble that is over, and wait for that for a while."""
        late: list[bool] = []
        home.changed()
        limit = home.late(lambda: late.append(True))
        self._loop.run(lambda: self._over or not home.busy or bool(late))
        limit.cancel()
        if home.busy and not self._over:
            self._listener.warn("some members have not ended yet; they end by themselves")
        if not self._over:
            home.close()

    def cancel(self, reason: str | None = None) -> None:
        """End the ensemble with a reason and cancel its jobs, or do not begin it."""
        if self._ensemble.engine.t_start is None:
            self._left = True
        else:
            self.ask("cancel", {"reason": reason} if reason else {}, lambda _: None)

    def ask(self, op: str, args: Mapping[str, Any], answer: Answer) -> None:
        """Send a request to the ensemble, as `ensemble.OP` without a name does (docs/rpc.md)."""
        self._ensemble.ask(op, args, answer)

    def write(self) -> None:
        """Write status and metrics to their file now, and the jobs that have ended to theirs."""
        self._snapshot()

    def interrupt(self, reason: str) -> None:
        """End the jobs, but not the ensemble: a later run goes on with it.

        Members go on without this run.

        Args:
            reason: the reason, as a clause.
        """
        if self._interrupted or self._stopped is not None:
            return
        self._interrupted = True
        if self._home is not None:
            # Nothing more is taken in, so members keep it for the next run.
            self._home.close()
        then = "its jobs are ended" if self._home is None else "its members go on, and call again"
        self._ensemble.suspend(f"{reason}: {then}")
        self._queue.stop()

    @property
    def interrupted(self) -> bool:
        """True if the run was interrupted, and can be resumed."""
        return self._interrupted

    def leave(self) -> None:
        """Do not wait for the jobs any more: `finish` kills them."""
        self._left = True

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """End the run after `drive`.

        Returns:
            The status of the ensemble, and its metrics.

        Raises:
            RunError: the run had to stop, because its files could not be written or the process
                that starts its jobs was gone.
        """
        ensemble = self._ensemble
        if self._interrupted:
            self._queue.close()
        elif ensemble.live and self._stopped is None:
            self._queue.abandon("killed as its run was left")
            if ensemble.live:
                ensemble.fail("left before it had begun, or while one of its functions ran")
        elif self._stopped is None:
            if self._control is not None:
                self._control.close()
            # Processes that custom functions left behind are reaped by a timer.
            self._loop.run(lambda: self._over or not self._loop.timers)
        if self._stopped is not None:
            ensemble.close(errno.EIO, self._stopped)
            raise RunError(self._stopped)
        return self._snapshot()

    def check_kept(self) -> None:
        """Check, after `finish`, that the end of the ensemble is in the files.

        Raises:
            RunError: it is not.
        """
        if self._unwritten:
            raise RunError(f"{self._unwritten}: how {self._spec.name!r} ended is not kept")

    @property
    def _over(self) -> bool:
        """True if the run has to end now, even if the ensemble has not."""
        ended = self._interrupted and not self._queue.running
        return self._left or ended or self._stopped is not None

    def _stop(self, reason: str) -> None:
        """Stop the run: nothing may happen that cannot be written down."""
        if self._stopped is None:
            jobs = "its jobs are killed" if self._home is None else "its members go on"
            self._stopped = f"{reason}: {jobs}; when it can be written, --resume goes on"
            self._queue.halt()

    def _lost(self, reason: str) -> None:
        """Stop the run: the process that starts jobs and waits for them is gone."""
        if self._interrupted:
            self._left = True  # the running jobs were to end anyway
        elif self._stopped is None:
            self._queue.halt()
            self._ensemble.suspend(reason, lost=True)
            self._snapshot()
            self._stopped = f"{reason}: its jobs are killed; --resume goes on"

    # -- events ---------------------------------------------------------------------

    def send(self, entry: eventlog.Stored) -> None:
        """Write an entry of the eventlog, and pass it on."""
        if entry["name"] != eventlog.JobEvent.tag and self._stopped is None:
            # Written before it is shown, and before its commands are performed.
            try:
                self._log.append(entry)
            except OSError as error:
                path = self._log.directory.path / "eventlog"
                self._stop(f"cannot write {path}: {error.strerror}")
        if not self._hushed:
            self._listener.entry(entry)

    def end(self) -> None:
        """Do nothing at the end of the entries."""

    def _take(self, event: JobEvent) -> None:
        if self._interrupted:
            return  # the jobs are being ended; a later run starts them again
        if event.name == "alloc" and event.name not in self._ensemble.engine.wants_events:
            # Written before the job starts, so that no later run starts it again.
            self._events.take_down(event)
        self._ensemble.job_event(event)

    def _look(self) -> None:
        ensemble = self._ensemble
        self._listener.progress(self._ensemble.status())
        if time.monotonic() >= self._snapshot_due:
            before = self._unwritten
            self._snapshot()
            if self._unwritten and not before:
                self._listener.note(f"{self._unwritten}; the ensemble goes on")
        active = self._queue.active
        if ensemble.ended and active and not self._waiting:
            self._waiting = True
            self._listener.note(f"waiting for {active} active job{'s'[: active != 1]}")

    def _record(self) -> None:
        """Write the jobs that have ended to their file."""
        now, records = self._loop.now(), self._ensemble.records
        jobs = [self._describer.describe(job, now) for job in records.waiting]
        records.take()
        try:
            self._log.append_jobs(jobs)
        except OSError as error:
            self._stop(f"cannot write {self._log.directory.path / 'jobs'}: {error.strerror}")

    def _rewrite(self) -> None:
        """Write all jobs that have ended to their file again: some have been run again."""
        self._record()
        now, records = self._loop.now(), self._ensemble.records
        try:
            self._log.replace_jobs(self._describer.describe(job, now) for job in records.every())
        except OSError as error:
            self._stop(f"cannot write {self._log.directory.path / 'jobs'}: {error.strerror}")
        except StateError as error:
            self._stop(str(error))

    def _why(self) -> dict[str, Any]:
        """Return the explanations of the rules, for readers of the files."""
        now, engine = self._loop.now(), self._ensemble.engine
        few = len(engine.rules.states) <= MAX_EXPLAINED
        return {"t": now, "rules": why(engine, now) if few else []}

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write status and metrics to their file; `_unwritten` has the reason of a failure."""
        self._events.flush()
        self._record()
        spent = time.thread_time()
        try:
            self._metrics = self._ensemble.engine.metrics(self._loop.now())
        except ENDINGS:
            raise
        except BaseException as error:
            self._ensemble.broken(error)
        status = self._ensemble.status()
        if self._home is not None:
            places, waits = self._home.places(), self._home.waits()
            if waits:
                status["waits"] = waits
                # Nobody can predict when they end.
                status.pop("t_predicted", None)
            for pool in status["pools"].values():
                for member in pool["members"]:
                    member.update(places.get(member["name"], {"job": None, "uri": None}))
        self._unwritten = ""
        try:
            kept = {**status, "why": self._why()}
            self._log.snapshot(kept, self._metrics, self._events.count)
        except OSError as error:
            path = self._log.directory.path / "status.json"
            self._unwritten = f"cannot write {path}: {error.strerror}"
        except StateError as error:
            self._unwritten = str(error)
        spent = time.thread_time() - spent
        pause = min(spent / _SNAPSHOT_SHARE, _SNAPSHOT_LIMIT)
        self._snapshot_due = time.monotonic() + max(_SNAPSHOT_SECONDS, pause)
        return status, self._metrics


def _load_statistics() -> None:
    # It takes 0.2 s, during which the first jobs run.
    import flux_ensemble.metrics.univariate  # noqa: F401
