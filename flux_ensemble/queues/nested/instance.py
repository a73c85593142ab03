"""The service's access to a member: its own handle, queue and journal.

    connect ──► attach ──► journal in full ──► fence ──► up
                  └── refused: another owner, another Flux

Nothing here blocks on the member: requests have a time limit, and work goes on when their response
comes. A silent member is not necessarily lost; see `site`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from flux.core.handle import Flux

from flux_ensemble.engine.intervals import ids
from flux_ensemble.metrics.signals import signal_of
from flux_ensemble.queues.flux.allocations import expires_at
from flux_ensemble.queues.flux.broker import Broker, check
from flux_ensemble.queues.flux.journal import Journal
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.shutdown import Shutdown
from flux_ensemble.queues.flux.steps import Resume, Step, Steps, run
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.queues.nested.attempts import Attempts
from flux_ensemble.queues.nested.interruptions import Interruptions
from flux_ensemble.queues.nested.listener import EVENTS, IDENTITY, Facts, Heard
from flux_ensemble.queues.nested.outbox import NestedQueue
from flux_ensemble.queues.nested.pump import Pump
from flux_ensemble.queues.nested.refusals import RefusedError, refuse_others

#: Seconds that an instance may take from its first answer until it runs its initial program.
START_SECONDS = 300.0

#: Seconds until a journal that has ended is opened again.
AGAIN_SECONDS = 1.0

#: Seconds that the end of a job by SIGTERM is kept, where it may be that of the instance.
DOUBT_SECONDS = 5.0


class Instance:
    """A Flux instance to which the service is connected.

    Args:
        handle: of it, from `connection.connect`; used by this object alone.
        parent: the broker of the enclosing instance, whose reactor has the timers.
        heard: the callbacks.
        attempts: those sent to it, also by earlier connections.
        log_error: writes a line to the service's log.
        doubts: what ends it may kill its jobs before it knows; see `_event`.

    Attributes:
        broker, queue: of it, for `queues.flux.member.FluxMember`.
        ends: the state of its end.
        facts: its properties; None until it has reported them.
        newest: the greatest id of a job that it had had when it was attached.
        closed: nothing more is sent to it, or taken in from it.
    """

    def __init__(
        self,
        handle: Flux,
        parent: Broker,
        heard: Heard,
        attempts: Attempts,
        log_error: Callable[[str], None],
        *,
        doubts: bool = False,
    ) -> None:
        self._heard = heard
        self.attempts = attempts
        self._log_error = log_error
        self.closed = False
        self.ends = Interruptions()
        self.facts: Facts | None = None
        self.newest = 0
        # The pump needs a loop and the broker needs a pump, so the broker looks its pump up late.
        self.broker = Broker(
            handle, parent.report, main=parent.handle, more=lambda: self.pump.more()
        )
        self.pump = Pump(handle, self.broker.loop, self._lost, parent.report)
        self.queue = NestedQueue(self.broker, self.pump)
        self._journal = Journal(
            partial(StreamingRequest, handle, self.broker.inbox),
            event=self._event,
            backlog=lambda job, jobspec: None,
            lost=self._lost_journal,
        )
        self._names = EVENTS
        self._places = False
        self._resume: Resume = _nothing
        self._interrupted: set[int] = set()
        self._doubts = doubts
        #: Jobs that have an exception, which explains their end.
        self._explained: set[int] = set()
        #: The events of jobs that SIGTERM ended, until it is known whether the instance ends, too.
        self._doubtful: dict[int, list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]] = {}
        self._shutdown: Shutdown | None = None

    # -- begin and end ----------------------------------------------------------------

    def attach(
        self,
        version: str,
        done: Report,
        *,
        names: frozenset[str] = frozenset(),
        places: bool = False,
    ) -> None:
        """Begin to use the instance.

        Args:
            version: of the service's own Flux.
            done: receives None when it can be sent jobs and `facts` is known, or the error: a
                `RefusedError` if it can never be a member.
            names: of job events that are followed besides EVENTS.
            places: `start` has the time and place of a job's allocation.
        """
        self._names, self._places = EVENTS | names, places
        run(self._attach(version), done)

    def _attach(self, version: str) -> Steps:
        owner = yield from self._attribute("security.owner")
        theirs = yield from self._attribute("version")
        refuse_others(int(owner), os.getuid(), theirs, version)
        objection = self._heard.objection((yield from self._attribute(IDENTITY)))
        if objection is not None:
            raise RefusedError(objection)
        handle = self.broker.handle
        yield self.broker.response(handle.rpc("state-machine.wait"), seconds=START_SECONDS)
        # It runs, so any state that follows belongs to its end. If exceptions of its jobs and the
        # name of that state have waited here together, the exceptions come first.
        self._shutdown = Shutdown(
            handle, self.broker.guard, self.broker.inbox, self._ending, self._moves_on
        )
        yield from self.look()
        yield self._catch_up
        # When this is back, the journal has shown what an earlier connection sent.
        yield self.queue.fence
        self.newest = yield self.queue.newest

    def _attribute(self, name: str) -> Generator[Step, Any, str]:
        response = yield self.broker.response(self.broker.handle.rpc("attr.get", {"name": name}, 0))
        return str(response["value"])

    def look(self) -> Steps:
        """Find out its resources, and when its allocation expires."""
        future = self.broker.handle.rpc("resource.status", {}, nodeid=0)
        response = yield self.broker.response(future)
        self.facts = facts(response["R"])
        self.ends.t_expires = self.facts.t_expires

    def ping(self, seconds: float) -> Steps:
        """Ask for an answer of its first broker.

        Args:
            seconds: the time limit.

        Raises:
            OSError: ETIMEDOUT if there is none in time.
        """
        future = self.broker.handle.rpc("attr.get", {"name": IDENTITY}, 0)
        yield self.broker.response(future, seconds=seconds)

    def _catch_up(self, resume: Resume) -> None:
        self.queue.suspend()
        self._resume = resume
        self._journal.catch_up(self._names, False, self._past, self._caught_up, places=self._places)

    def follow(self, names: frozenset[str], places: bool) -> None:
        """Follow more job events from now on: see `attach`."""
        if names <= self._names and places <= self._places:
            return
        self._names, self._places = self._names | names, self._places or places
        if self._journal.is_open:
            self._journal.require(self._names, False, lambda: None, places=self._places)

    def _caught_up(self) -> None:
        self._heard.caught_up()
        self.queue.resume()
        resume, self._resume = self._resume, _nothing
        resume(None)

    def finish(self, then: Callable[[], None]) -> None:
        """Read what a dead broker has sent, and call back when that was handled."""
        self.pump.finish()
        self.broker.inbox.put(then)

    def close(self) -> None:
        """Take in nothing more, and send nothing more; its jobs go on."""
        if self.closed:
            return
        self.closed = True
        self.queue.close()
        self.pump.close()
        self.broker.inbox.close()

    # -- events ------------------------------------------------------------------------

    def _past(self, job: int, jobspec: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> None:
        for entry in entries:
            self.attempts.event(job, entry, jobspec if entry["name"] == "submit" else None)
        self._heard.past(job, jobspec, entries)

    def _event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        """Take in an event.

        A batch system ends a job with SIGTERM for all its processes at once: jobs of the instance
        in it may end before the instance does. So the end of a job by SIGTERM that nothing
        explains is kept for a while: if the instance ends meanwhile, the job was interrupted.
        """
        if not self._doubts:
            self._take(job, entry, jobspec)
        elif job in self._doubtful:
            self._doubtful[job].append((entry, jobspec))
        elif entry["name"] == "finish" and job not in self._explained and _terminated(entry):
            self._doubtful[job] = [(entry, jobspec)]
            self.broker.loop.timer(DOUBT_SECONDS, partial(self._settle, job))
        else:
            if entry["name"] == "exception":
                self._explained.add(job)
            elif entry["name"] == "clean":
                self._explained.discard(job)
            self._take(job, entry, jobspec)

    def _settle(self, job: int) -> None:
        events = self._doubtful.pop(job)
        if self.closed:
            # What is not known of the job by now is lost with the connection.
            return
        if self.ends.begun:
            self._interrupted.add(job)
        for entry, jobspec in events:
            self._take(job, entry, jobspec)

    def _take(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        if self.ends.interrupts(entry):
            self._interrupted.add(job)
        interrupted = job in self._interrupted
        if not interrupted:
            # An interrupted job has no outcome, and its attempt is lost with the member.
            self.attempts.event(job, entry, jobspec)
        self._heard.event(job, entry, jobspec, interrupted)

    def _lost_journal(self, reason: str) -> None:
        """Open the journal again, unless the instance ends: its job manager was reloaded."""
        self.queue.suspend()
        if self.closed or self.pump.over or self.ends.begun:
            return
        self._log_error(reason)
        self.broker.loop.timer(AGAIN_SECONDS, self._read_again)

    def _read_again(self) -> None:
        if not self.pump.over:
            self._catch_up(self._resume)

    def _moves_on(self) -> None:
        self.ends.begun = True

    def _ending(self) -> None:
        self.ends.begun = True
        self._heard.ending()

    def _lost(self) -> None:
        if not self.closed:
            # After the messages that wait in the inbox: they came before.
            self.broker.inbox.put(self._heard.lost)

    # -- requests -------------------------------------------------------------------------

    def stop_queue(self, reason: str, done: Report) -> None:
        """Stop the queue: when an allocation expires, Flux would start and end all waiting jobs.

        Args:
            reason: for `flux queue status`.
            done: receives the outcome.
        """
        attempt(partial(self.broker.start_queues, False, reason), done)

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None:
        """Read the eventlog of a job from its KVS: see `FluxQueue.eventlog`."""
        try:
            self.queue.eventlog(job, done)
        except OSError as error:
            done(error)

    def publish(self, topic: str, done: Report) -> None:
        """Publish an event in the instance."""
        attempt(partial(self._publish, topic), done)

    def _publish(self, topic: str, report: Report) -> None:
        future = self.broker.handle.rpc("event.publish", {"topic": topic, "flags": 0})
        self.broker.call(future, report, check)


def attempt(call: Callable[[Report], None], report: Report) -> None:
    """Make a call; if its request cannot be sent, report the error."""
    try:
        call(report)
    except OSError as error:
        report(error)


def _terminated(finish: Mapping[str, Any]) -> bool:
    """Return True if SIGTERM ended the job of a `finish`."""
    return signal_of((finish.get("context") or {}).get("status", 0)) == signal.SIGTERM


def _nothing(_: Any) -> None:
    """Ignore a result that is awaited no more."""


def facts(resources: Mapping[str, Any]) -> Facts:
    """Read R (RFC 20).

    >>> facts({"execution": {"expiration": 0.0, "R_lite": [
    ...     {"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}},
    ...     {"rank": "2", "children": {"core": "0"}}]}})
    Facts(nodes=3, cores=9, gpus=2, t_expires=None)
    """
    execution = resources["execution"]
    nodes = cores = gpus = 0
    for part in execution["R_lite"]:
        ranks = _count(part["rank"])
        nodes += ranks
        cores += ranks * _count(part["children"].get("core"))
        gpus += ranks * _count(part["children"].get("gpu"))
    return Facts(nodes, cores, gpus, expires_at(execution.get("expiration")))


def _count(idset: str | None) -> int:
    return len(list(ids(idset))) if idset else 0
