"""A loaded ensemble: its engine and driver, its log, and its open requests.

An ensemble is *live* until it has ended and none of its jobs is active any more; its log is closed
then. After a fault its engine is stopped: the ensemble is "failed" unless it had ended before, and
`errors` has the reason.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import CancelJobs, Effect, Finish, Record, Reply
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import Event, JobEvent, JobsAlike, MemberChanged, Request, Started
from flux_ensemble.engine.job_keys import ENCLOSING
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.engine.status import status
from flux_ensemble.runtime.answers import Answer, Answers
from flux_ensemble.runtime.driver import Driver
from flux_ensemble.runtime.durability.chunks import beside
from flux_ensemble.runtime.durability.records import Records
from flux_ensemble.runtime.durability.replay import Facts, Replayed
from flux_ensemble.runtime.eventlog import Log
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.intake import OfJob, is_wanted, wanted
from flux_ensemble.runtime.interruption import shown, surplus, unseen
from flux_ensemble.runtime.ports import FLEET_EVENTS, Unwritten
from flux_ensemble.runtime.recording import Recorder
from flux_ensemble.runtime.rerun import Choice
from flux_ensemble.texts import bounded


class Ensemble:
    """A loaded ensemble, and the `Output` of its driver.

    Args:
        spec: its document.
        host: what it runs on; it has a store.
        run: a number that distinguishes it from others of its name.
        cwd: the directory from which it was loaded.
        recorder: writes a recording, if given.
        replayed: the result of the replay of its log, if it goes on after a crash.

    Attributes:
        member: the queue of its jobs.
        fleet: starts and ends its members, if its document has some.
        facts: of the time outside its engine.
        absent: the seconds without an instance, as far as is known, until the engine has them.
        records: its jobs that have ended.
    """

    def __init__(
        self,
        spec: Spec,
        host: Host,
        *,
        run: int,
        cwd: str,
        recorder: Recorder | None = None,
        replayed: Replayed | None = None,
    ) -> None:
        self.name = spec.name
        self.run = run
        self.cwd = cwd
        self.member = host.queue
        self.fleet = host.fleet
        self.engine = Engine(spec) if replayed is None else replayed.engine
        self.facts = Facts() if replayed is None else replayed.facts
        self.absent = 0.0
        self.records = Records() if replayed is None else replayed.records
        self.records.follow(self.engine.records)
        self.log = Log() if replayed is None else Log(replayed.entries, replayed.total)
        self._host = host
        self._loop = host.loop
        self._was_queued = False
        self._answers = Answers(0 if replayed is None else replayed.timers.last_request)
        self._wants: tuple[object, ...] = ()
        self._wants_version: object = None
        self._recorder = recorder
        if recorder is not None:
            # Not at once: the recorder calls this from within the driver.
            recorder.failed = lambda: host.loop.timer(0.0, self._end_recording)
        assert host.store is not None
        self._ahead = host.store(self)
        self._driver = Driver(self.engine, host, self, recorder, self._ahead)
        self._live = not (self.stopped or (self.engine.ended and self.engine.idle))
        if not self._live:
            self.log.close()

    # -- state --------------------------------------------------------------------

    @property
    def state(self) -> str:
        """State in the lifecycle: running, paused, ending, completed, failed or canceled."""
        return "failed" if self._broke else self.engine.state

    @property
    def reason(self) -> str:
        """The reason of the state; empty without one."""
        return (self.stopped or "") if self._broke else self.engine.reason

    @property
    def stopped(self) -> str | None:
        """The reason why the engine is stopped, or None."""
        return self.facts.stopped

    @property
    def ended(self) -> bool:
        """True in a final state; jobs of the ensemble may still be active."""
        return self.engine.ended or self._broke

    @property
    def live(self) -> bool:
        """True while something of the ensemble may still happen."""
        return self._live

    @property
    def needs(self) -> tuple[frozenset[str], bool]:
        """The names of the job events that it needs, and whether it needs those of other jobs."""
        names = self.engine.wants_events | {"urgency"}
        return names | FLEET_EVENTS if self.fleet else names, self.engine.wants_foreign

    def wants(self, name: str) -> bool:
        """Return whether the engine, or a follower of the log, wants job events of a name."""
        return self.log.wants_events or name in self.engine.wants_events

    @property
    def needs_places(self) -> bool:
        """True if it needs the times and places of its jobs' allocations."""
        return self.engine.records.kept or self.engine.spec.keeps_off

    @property
    def t_seen(self) -> float:
        """The time of the latest job event that it took in."""
        return self._ahead.timers.t_seen

    @property
    def unwritten(self) -> Unwritten | None:
        """The reason why its log cannot be written for now; None if it can."""
        return self._ahead.unwritten

    @property
    def commands(self) -> int:
        """Number of its commands that this service has performed."""
        return self._driver.commands

    @property
    def firings(self) -> int:
        """Number of firings of its rules."""
        return self.engine.firings

    @property
    def _broke(self) -> bool:
        return self.stopped is not None and not self.engine.ended

    def status(self) -> dict[str, Any]:
        """Return the ensemble's entry in the response to `ensemble.status`."""
        report = status(self.engine)
        if self._broke:
            report.update(state=self.state, reason=self.reason, t_end=self.facts.t_stopped)
        if self.absent:
            report["away"] = report.get("away", 0.0) + self.absent
        return {
            **report,
            "directory": self.cwd,
            "errors": list(self.facts.errors),
            "violations": self.facts.violations,
        }

    def summary(self) -> dict[str, Any]:
        """Return the ensemble's entry in the response to `ensemble.list`."""
        status = self.status()
        return {
            **{key: status[key] for key in ("name", "state", "reason", "t_start", "t_end")},
            **{key: status[key] for key in ("away", "absences") if key in status},
            "active": status["jobs"]["active"],
            "waiting": status["jobs"]["waiting"],
            "finished": sum(group["finished"] for group in status["groups"].values()),
            "failed": status["failed"],
        }

    def snapshot(self) -> dict[str, Any]:
        """Return the ensemble's part of a snapshot."""
        return {"engine": dump(self.engine), "facts": self.facts.to_json()}

    def take_beside(self) -> str:
        """Return the chunk of values and ended jobs since the last call, as JSON text."""
        return beside(self.engine.stats.take_values(), self.records.take())

    # -- input --------------------------------------------------------------------

    def owe(self, loader: Answer) -> None:
        """Answer a request to load the ensemble when it has begun, and that is durable."""
        self._answers.owe_loader(loader)

    def start(self) -> None:
        """Begin; the queue has to be followed by now."""
        self._driver.post(Started(self._loop.now()))
        self._ahead.barrier(self._loaded)

    def _loaded(self) -> None:
        self._answers.loaded({"name": self.name, "state": self.state})

    def go_on(self, unfinished: Iterable[Effect], *, purged: bool) -> None:
        """Go on after a crash: perform the commands without an outcome; send only unseen jobs.

        Args:
            unfinished: the engine's pending commands at its restoration. Commands that it gave
                since are performed in their turn.
            purged: a job that was not seen may have come and gone. It is not sent again, but ends
                as failed.
        """
        now = self._loop.now()
        if self.engine.t_start is None:
            self.start()
            return
        open_ids = {command.id for command in self.engine.pending}
        pending = [command for command in unfinished if command.id in open_ids]
        if purged:
            self.post(unseen(self.engine, now, pending, ENCLOSING))
        for command in pending:
            self.member.known.update(shown(self.engine, command))
        self._driver.perform([*self._ahead.timers.due(now), *pending])

    def post(self, events: Iterable[Event]) -> None:
        """Take in events that do not come live from the queue."""
        self._driver.post(*events)

    def member_changed(self, event: MemberChanged) -> None:
        """Take in the properties of a member, if they have changed."""
        if self.engine.nodes.is_news(event):
            self._driver.post(replace(event, t=self._loop.now()))

    def suspend(self, reason: str | None = None, *, lost: bool = False) -> None:
        """Take in and perform nothing more, so that a later service or run can go on.

        Args:
            reason: the reason, as one sentence; None: the Flux instance is shutting down.
            lost: its jobs did not end in order.
        """
        self.note(eventlog.Shutdown(reason=reason, lost=lost or None), sync=True)
        self._driver.close()
        said = reason or "the Flux instance is shutting down"
        self._answers.close(RequestError(errno.EAGAIN, said))

    def choice(self, describer: Describer, payload: Mapping[str, Any]) -> Choice:
        """Return the choice of jobs of a request `rerun`, of which no step is taken.

        Raises:
            RequestError: the filter is wrong, or no record of the jobs is kept.
        """
        return Choice.asked(self.engine, self.records, describer, payload)

    def rerun(self, choice: Choice, answer: Answer, *, dry_run: bool = False) -> None:
        """Run jobs again, and go on if the ensemble has ended.

        Args:
            choice: the jobs; it is over.
            answer: receives `Choice.report`, of the jobs that do run.
            dry_run: only answer.
        """
        report, entries = choice.report(), self.log.total
        if dry_run or not report["jobs"]:
            answer({**report, "state": self.state, "entries": entries})
            return

        def replied(result: Any) -> None:
            if isinstance(result, RequestError):
                answer(result)
            else:
                answer({**report, **result, "state": self.state, "entries": entries})

        self._revive()
        asked = {"firings": choice.firings(), "unsent": choice.unsent}
        self.ask("rerun", asked, replied)

    def extend(self, op: str, args: Mapping[str, Any], answer: Answer) -> None:
        """Send a request of a feature to the engine, and go on if the ensemble has ended.

        Args:
            op, args: the request.
            answer: receives the response.

        Raises:
            RequestError: the request is refused.
        """
        entries = self.log.total

        def replied(result: Any) -> None:
            refused = isinstance(result, RequestError)
            answer(result if refused else {**result, "state": self.state, "entries": entries})

        if not self._live:
            self.engine.requests.check(op, args)
            self._revive()
        self.ask(op, args, replied)

    def _revive(self) -> None:
        """Have an ensemble that has ended receive the events of its jobs, before it goes on."""
        if not self._live and self.stopped is None:
            self._live = True
            self.log.reopen()
            self._host.changed(self)

    def job_event(self, event: JobEvent) -> None:
        """Take in an event of a job."""
        if is_wanted(self, event):
            self._driver.post(event)

    def job_events(self, events: Sequence[OfJob | JobsAlike]) -> None:
        """Take in events of jobs; each is checked when the earlier ones have been handled."""
        # Followers of the log that want job events receive each event by itself.
        together = not self.log.wants_events
        self._driver.post_several(events, partial(wanted, self), together=together)

    def violation(self, event: OfJob) -> None:
        """Cancel a job that has the tag of another job, or a tag that the ensemble never gave."""
        assert event.tag is not None
        self.note(eventlog.Violation(**self.engine.named(event.job), **event.tag._asdict()))
        self._host.log_error(f"{self.name}: {surplus(event.job, event.tag)}; it is cancelled")
        command = CancelJobs(0, (event.job,), "its tag is that of another job of the ensemble")
        self.member.cancel(command, lambda _: None)

    def ask(self, op: str, args: Mapping[str, Any], answer: Answer) -> None:
        """Send a request to the engine."""
        if self._answers.closed is not None:
            answer(self._answers.closed)
            return
        if self.stopped is not None:
            reason = f"ensemble {self.name!r} takes no requests any more: {self.stopped}"
            answer(RequestError(errno.EAGAIN, reason))
            return
        number = self._answers.open(answer)
        self._driver.post(Request(self._loop.now(), number, op, args))

    def note(
        self,
        entry: eventlog.Entry,
        then: Callable[[], None] = lambda: None,
        *,
        sync: bool = False,
    ) -> None:
        """Add an entry to the log that is not the engine's.

        Args:
            entry: the entry.
            then: called when the entry is durable.
            sync: the entry must survive a crash of the whole instance, too.
        """
        t = self._loop.now()
        stored = entry.stored(t)
        self.facts.take(stored)

        def durable() -> None:
            self.log.append(stored)
            then()

        self._ahead.note(t, entry.tag, stored["context"], durable, sync=sync)

    def recall(self, entry: eventlog.Stored) -> None:
        """Add an entry that an earlier run wrote."""
        self.facts.take(entry)
        self.log.append(entry)

    def fail(self, reason: str, detail: str = "") -> None:
        """End the ensemble as failed, for a reason outside of its engine.

        Args:
            reason: one sentence.
            detail: more text for `errors`.
        """
        reason = bounded(reason)
        text = f"{reason}\n{bounded(detail)}".rstrip()
        for line in text.splitlines():
            self._host.log_error(f"{self.name}: {line}")
        self.note(eventlog.Error(text=text))
        if self.stopped is not None:
            return
        self._driver.close()

        def durable() -> None:
            was_live = self._live
            self._retire()
            if was_live:
                self._host.changed(self)

        kind = eventlog.Stopped if self.engine.ended else eventlog.Finish
        self.note(kind(state="failed", reason=reason, stopped=True), durable)

    def close(self, number: int, reason: str) -> None:
        """Close the ensemble; open requests are answered with this error."""
        self._driver.close()
        self._ahead.close()
        self._answers.close(RequestError(number, reason))
        self._retire()

    # -- the driver's output --------------------------------------------------------

    def record(self, entry: Record) -> None:
        """Keep an entry of the eventlog."""
        self.log.append({"timestamp": entry.t, "name": entry.name, "context": entry.context})

    def reply(self, reply: Reply) -> None:
        """Answer a request."""
        self._answers.reply(reply)

    def finish(self, finish: Finish) -> None:
        """Do nothing yet: `settled` acts when the ensemble's jobs have ended."""

    def settled(self) -> None:
        """Note, after an event, that the ensemble has ended or that its needs have changed."""
        engine = self.engine
        if self._was_queued != engine.workload.queued:
            self._was_queued = not self._was_queued
            self._host.stirred(self)
        if engine.ended and engine.idle and self._live and self._driver.quiet:
            self._retire()
            self._host.changed(self)
        elif self._wants_version != (version := engine.wants_version):
            self._wants_version = version
            wants = (*self.needs, *engine.wants_of_member)
            if self._wants != wants:
                self._wants = wants
                self._host.changed(self)

    def broken(self, error: BaseException) -> None:
        """Fail because of a fault in the engine, or in the performance of its commands."""
        self.fail(f"internal error: {error!r}", "".join(traceback.format_exception(error)))

    # -- helpers ------------------------------------------------------------------

    def _retire(self) -> None:
        self._live = False
        self._end_recording()
        # An ensemble that ended before it began was loaded all the same.
        self._loaded()
        self._answers.refuse_all(RequestError(errno.EAGAIN, f"ensemble {self.name!r} has ended"))
        self.log.close()

    def _end_recording(self) -> None:
        """Close the recording, and report if it is not complete."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        recorder.close()
        if recorder.problem is not None:
            self._host.log_error(f"{self.name}: {recorder.problem}")
            self.note(eventlog.Error(text=recorder.problem))
