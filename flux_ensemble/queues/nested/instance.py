"""What the service does in a member: its own handle, queue and journal.

    connect ──► attach ──► journal in full ──► fence ──► up
                  └── refused: another owner, another Flux

Nothing here waits for the member: requests have a limit of time, and go on when their response
comes. That it says nothing does not mean that it is lost; see `site`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from flux.core.handle import Flux

from flux_ensemble.engine.intervals import ids
from flux_ensemble.queues.flux.broker import Broker, check
from flux_ensemble.queues.flux.journal import Journal
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.shutdown import Shutdown
from flux_ensemble.queues.flux.steps import Resume, Step, Steps, run
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.queues.nested.attempts import Attempts
from flux_ensemble.queues.nested.interruptions import Interruptions
from flux_ensemble.queues.nested.outbox import NestedQueue
from flux_ensemble.queues.nested.pump import Pump
from flux_ensemble.queues.nested.refusals import RefusedError, refuse_others

#: Seconds that an instance may take from its first answer until it runs its initial program.
START_SECONDS = 300.0

#: Seconds until a journal that has ended is opened again.
AGAIN_SECONDS = 1.0

#: The events of jobs that are always followed.
EVENTS = frozenset(("submit", "validate", "invalidate", "start", "exception", "finish", "clean"))

#: The attribute of its first broker by which an instance is told from all others.
IDENTITY = "broker.uuid"


@dataclass(frozen=True, slots=True)
class Facts:
    """What an instance says of itself.

    Args:
        nodes, cores, gpus: that it has.
        t_expires: when its allocation expires, in epoch seconds; None where it has no limit.
    """

    nodes: int
    cores: int
    gpus: int
    t_expires: float | None


#: Gets an event of a job of a member: its id there, the entry, the jobspec with `submit`, and
#: whether the member's end is all that this and what follows of the job says.
JobEvent = Callable[[int, Mapping[str, Any], Mapping[str, Any] | None, bool], None]

#: Gets events of jobs that came at once, as `queues.nested.service_handle` has them.
JobEvents = Callable[[list[list[Any]]], None]

#: Gets a job that was there when the journal was opened, its jobspec, and its entries in order.
Past = Callable[[int, Mapping[str, Any], list[Mapping[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class Heard:
    """Who is told what of an instance.

    Args:
        event: gets the events of its jobs.
        past: gets jobs that were there before.
        caught_up: called when it has got all of them.
        ending: called once, when it begins to shut down.
        lost: called once, when the connection is lost; nothing comes after that.
        objection: says why an instance cannot be a member, by its IDENTITY; None if it can.
        events: gets the events of its jobs instead, where a service of its own has sorted out which
            are the ensemble's.
    """

    event: JobEvent
    past: Past
    caught_up: Callable[[], None]
    ending: Callable[[], None]
    lost: Callable[[], None]
    objection: Callable[[str], str | None]
    events: JobEvents = lambda events: None


class Instance:
    """A Flux instance that the service is connected to.

    Args:
        handle: of it, from `connection.connect`; nobody else uses it.
        main: the service's own handle, whose reactor has the timers.
        heard: is told what happens.
        attempts: what was sent to it, also by earlier connections.
        report: gets unexpected exceptions.
        log_error: writes a line to the service's log.

    Attributes:
        broker, queue: of it, for `queues.flux.member.FluxMember`.
        ends: what is known of its end.
        facts: what it says of itself, None before it has.
        newest: the greatest id of a job that it has had when it was attached.
        closed: nothing more is sent to it, and nothing taken in.
    """

    def __init__(
        self,
        handle: Flux,
        main: Flux,
        heard: Heard,
        attempts: Attempts,
        report: Callable[[BaseException], None],
        log_error: Callable[[str], None],
    ) -> None:
        self._heard = heard
        self._attempts = attempts
        self._log_error = log_error
        self.closed = False
        self.ends = Interruptions()
        self.facts: Facts | None = None
        self.newest = 0
        # The pump needs a loop before there is a broker, and the broker a pump.
        self.broker = Broker(handle, report, main=main, more=lambda: self.pump.more())
        self.pump = Pump(handle, self.broker.loop, self._lost, report)
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
        """Begin.

        Args:
            version: of the service's own Flux.
            done: gets None when it can be sent jobs and `facts` is known, or why not, which is a
                `RefusedError` where it never can.
            names: of job events that are followed besides EVENTS.
            places: `start` says when and where a job got its resources.
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
        # It runs: whatever state follows is one of its end. The exceptions of its jobs come before
        # the name of that state, if they have waited here together.
        self._shutdown = Shutdown(
            handle, self.broker.guard, self.broker.inbox, self._ending, self._moves_on
        )
        yield from self.look()
        yield self._catch_up
        # What an earlier connection sent has shown when this is back.
        yield self.queue.fence
        self.newest = yield self.queue.newest

    def _attribute(self, name: str) -> Generator[Step, Any, str]:
        response = yield self.broker.response(self.broker.handle.rpc("attr.get", {"name": name}, 0))
        return str(response["value"])

    def look(self) -> Steps:
        """Ask what it has, and when its allocation expires."""
        future = self.broker.handle.rpc("resource.status", {}, nodeid=0)
        response = yield self.broker.response(future)
        self.facts = facts(response["R"])
        self.ends.t_expires = self.facts.t_expires

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
        """Read what a broker that is gone has sent, and call back when that was handled."""
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

    # -- what happens ------------------------------------------------------------------

    def _past(self, job: int, jobspec: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> None:
        for entry in entries:
            self._attempts.event(job, entry, jobspec if entry["name"] == "submit" else None)
        self._heard.past(job, jobspec, entries)

    def _event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        if self.ends.interrupts(entry):
            self._interrupted.add(job)
        interrupted = job in self._interrupted
        if not interrupted:
            # Its outcome is none, and its attempt is lost with the member.
            self._attempts.event(job, entry, jobspec)
        self._heard.event(job, entry, jobspec, interrupted)

    def _lost_journal(self, reason: str) -> None:
        """Its job manager is loaded anew, or it ends."""
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
            # What waits in the inbox was told before.
            self.broker.inbox.put(self._heard.lost)

    # -- what is done in it ---------------------------------------------------------------

    def stop_queue(self, reason: str, done: Report) -> None:
        """Start no more jobs: when an allocation expires, Flux would start and end all that wait.

        Args:
            reason: for `flux queue status`.
            done: gets the outcome.
        """
        attempt(partial(self.broker.start_queues, False, reason), done)

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None:
        """Read the eventlog of a job from its KVS: see `FluxQueue.eventlog`."""
        try:
            self.queue.eventlog(job, done)
        except OSError as error:
            done(error)

    def publish(self, topic: str, done: Report) -> None:
        """Send an event to whoever waits for it there."""
        attempt(partial(self._publish, topic), done)

    def _publish(self, topic: str, report: Report) -> None:
        future = self.broker.handle.rpc("event.publish", {"topic": topic, "flags": 0})
        self.broker.call(future, report, check)


def attempt(call: Callable[[Report], None], report: Report) -> None:
    """Make a call; that its request cannot be sent is what is reported of it."""
    try:
        call(report)
    except OSError as error:
        report(error)


def _nothing(_: Any) -> None:
    """Nobody waits any more."""


def facts(resources: Mapping[str, Any]) -> Facts:
    """What R (RFC 20) says.

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
    return Facts(nodes, cores, gpus, execution.get("expiration") or None)


def _count(idset: str | None) -> int:
    return len(list(ids(idset))) if idset else 0
