"""A member whose service calls: the counterparts of `instance` and `member` without a handle.

    FleetMember ──► AttachedMember ──ask──► AttachedInstance ──► Channel ──► service in the member
    MemberJob ◄──Heard── AttachedInstance ◄──items────────────────┘

That service follows the jobs there and submits them (`service.child`). It reports what an
`Instance` finds out by itself, so the two are used alike. The items, in each direction, are lists
of a kind and its values:

    down: load, follow, hold, submit, cancel, update, revoke, stop, look, eventlog, end,
          output, kept (to workers)
    up: facts, past, caught-up, up, refused, outcome, ending, dead, warn, mark (from workers)

Nearly all items up are events of jobs, so these are shorter: [t, id, name, context, tag], without
empty values at the end. `tag` comes with the first event of a job, as a list. Several events of a
job that are reported at once are [t, id, [[t, name, context], ...], tag], with the latest `t`
first. Jobs with the same events are ["alike", ...], with the fields of `JobsAlike` except the
number of the member. Events that are caused by the end of the member, and not by the job, are not
reported.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.document.model import REQUEST_RULE
from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.commands import CancelJobs, Scale, SubmitJobs, UpdateJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.steps import Steps
from flux_ensemble.queues.nested.commits import Commits, Durable
from flux_ensemble.queues.nested.interruptions import Interruptions
from flux_ensemble.queues.nested.job_columns import ALIKE
from flux_ensemble.queues.nested.listener import Facts, Heard
from flux_ensemble.queues.nested.refusals import RefusedError
from flux_ensemble.runtime.ports import Done

if TYPE_CHECKING:
    from flux_ensemble.queues.nested.instance import Instance
    from flux_ensemble.queues.nested.member import NestedMember


class Channel(Protocol):
    """The connection to a service that has called, for as long as both live."""

    def open(self, taken: Callable[[list[Any]], None], lost: Callable[[], None]) -> None:
        """Open the connection.

        Args:
            taken: receives the items of the service, in order, each once.
            lost: called once when the connection is lost; not after `close`.
        """
        ...

    def put(self, item: list[Any]) -> None:
        """Send an item."""
        ...

    def close(self) -> None:
        """Send and take in nothing more."""
        ...


class AttachedInstance:
    """A Flux instance that its own service follows.

    Args:
        channel: the connection to that service.
        load: what that service needs to know of the ensemble: see `service.child`.
        heard: the callbacks.
        warn: receives sentences about problems there.

    Attributes:
        ends, facts, newest, closed: as for `Instance`.
        dead: its broker is gone.
        marked: receives the number of each mark, behind all reports before it.
    """

    def __init__(
        self,
        channel: Channel,
        load: Mapping[str, Any],
        heard: Heard,
        warn: Callable[[str], None],
    ) -> None:
        self._channel = channel
        self._load = load
        self._heard = heard
        self._warn = warn
        self._done: Report = lambda error: None
        self._wanted: tuple[frozenset[str], bool] = frozenset(), False
        self._hold: float | None = None
        self._asked: dict[int, Callable[[Mapping[str, Any]], None]] = {}
        self._numbers = count(1)
        #: Requests that are answered in any case.
        self._reads: set[int] = set()
        self.closed = False
        self.dead = False
        self.ends = Interruptions()
        self.facts: Facts | None = None
        self.newest = 0
        self.marked: Callable[[int], None] = lambda number: None
        self._takes: dict[str, Callable[..., None]] = {
            "facts": self._on_facts,
            "past": self._on_past,
            "caught-up": heard.caught_up,
            "up": self._on_up,
            "refused": self._on_refused,
            "outcome": self._on_outcome,
            "ending": self._on_ending,
            "dead": self._on_dead,
            "warn": warn,
            "mark": lambda number: self.marked(number),
        }

    # -- requests ------------------------------------------------------------------------

    def attach(
        self,
        version: str,
        done: Report,
        *,
        names: frozenset[str] = frozenset(),
        places: bool = False,
    ) -> None:
        """Begin: see `Instance.attach`. The service there checks the version itself."""
        self._done, self._wanted = done, (names, places)
        self._channel.open(self._take, self._lost)
        self.tell("load", self._load, sorted(names), places)

    def follow(self, names: frozenset[str], places: bool) -> None:
        """Follow more job events from now on."""
        if (names, places) != self._wanted:
            self._wanted = names, places
            self.tell("follow", sorted(names), places)

    def hold(self, seconds: float) -> None:
        """Have events of jobs wait for this long at most, to be reported together."""
        if seconds != self._hold:
            self._hold = seconds
            self.tell("hold", seconds)

    def stop_queue(self, reason: str, done: Report) -> None:
        """Stop its queue: see `Instance.stop_queue`."""
        self.ask("stop", partial(_answer, done), reason)

    def look(self) -> Steps:
        """Request its resources and the expiration of its allocation; these arrive later."""
        self.tell("look")
        yield from ()

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None:
        """Read the eventlog of a job from its KVS: see `FluxQueue.eventlog`."""
        self.ask("eventlog", partial(_answer, done), job)

    def output(self, job: int, done: Callable[[str | Exception | None], None]) -> None:
        """Read the end of what a job of a worker wrote; None if nothing of it is kept."""
        number = self.ask("output", partial(_answer, done), job)
        self._reads.add(number)

    def publish(self, topic: str, done: Report) -> None:
        """Have the instance end."""
        self.tell("end")
        done(None)

    def ask(self, kind: str, answered: Callable[[Mapping[str, Any]], None], *args: Any) -> int:
        """Send a request that has an outcome; there is none if the connection is lost.

        Returns:
            The number of the request.
        """
        number = next(self._numbers)
        self._asked[number] = answered
        self.tell(kind, number, *args)
        return number

    def tell(self, kind: str, *args: Any) -> None:
        """Send a request that has no outcome, unless the connection is closed."""
        if not self.closed:
            self._channel.put([kind, *args])

    def finish(self, then: Callable[[], None]) -> None:
        """Call back at once: there are never unhandled items."""
        then()

    def close(self) -> None:
        """Take in nothing more, and send nothing more; its jobs go on."""
        if not self.closed:
            self.closed = True
            self._channel.close()
            for number in sorted(self._reads & self._asked.keys()):
                self._asked.pop(number)({"reason": "the connection to the member was lost"})

    # -- its items ------------------------------------------------------------------------

    def _take(self, items: list[Any]) -> None:
        events: list[list[Any]] = []
        for item in items:
            kind = item[0]
            if type(kind) is not str or kind == ALIKE:
                events.append(item)
                continue
            if events and not self.closed:
                self._heard.events(events)
                events = []
            if self.closed:
                return
            self._takes[kind](*item[1:])
        if events and not self.closed:
            self._heard.events(events)

    def _lost(self) -> None:
        if not self.closed:
            self._heard.lost()

    def _on_facts(self, nodes: int, cores: int, gpus: int, t_expires: float | None) -> None:
        self.facts = Facts(nodes, cores, gpus, t_expires)
        self.ends.t_expires = t_expires

    def _on_past(
        self, job: int, tag: Mapping[str, Any] | None, entries: list[Mapping[str, Any]]
    ) -> None:
        self._heard.past(job, _jobspec(tag), entries)

    def _on_up(self, newest: int) -> None:
        self.newest = newest
        self._done(None)

    def _on_refused(self, reason: str, for_good: bool) -> None:
        self._done(RefusedError(reason) if for_good else OSError(errno.EIO, reason))

    def _on_outcome(self, number: int, outcome: Mapping[str, Any]) -> None:
        self._reads.discard(number)
        self._asked.pop(number)(outcome)

    def _on_ending(self) -> None:
        self.ends.begun = True
        self._heard.ending()

    def _on_dead(self) -> None:
        self.dead = True
        self._heard.lost()


def _answer(done: Callable[[Any], None], outcome: Mapping[str, Any]) -> None:
    """Pass an outcome on: entries, None, or an error."""
    reason = outcome.get("reason")
    done(outcome.get("entries") if reason is None else OSError(errno.EIO, reason))


def brief(command: SubmitJobs, outcome: CommandDone) -> CommandDone:
    """Return the outcome of a submission, with ids only if a request is answered with them."""
    if command.rule == REQUEST_RULE:
        return outcome
    return CommandDone(outcome.t, outcome.command, {"ids": []})


def _jobspec(tag: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a jobspec with the part that is used: the tag."""
    return {"attributes": {"user": {} if tag is None else {TAG_KEY: tag}}}


class AttachedMember:
    """The jobs of one ensemble in a member whose service submits them: a `runtime.ports.Queue`.

    Args:
        instance: the member.
        durable: waits for commits, as for `NestedMember`.
    """

    elastic = False

    def __init__(self, instance: AttachedInstance, durable: Durable) -> None:
        self._instance = instance
        self._commits = Commits(durable)
        self.known: dict[Tag, int] = {}
        instance.marked = self._marked

    def _marked(self, number: int) -> None:
        """Tell a worker when all that it reported before a mark is durable."""
        self._commits.then(lambda: self._instance.tell("kept", number))

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Have jobs submitted when the command is durable."""
        known = [[*tag, job] for tag, job in self.known.items()]
        self.known.clear()
        self._commits.then(lambda: self._ask("submit", command, done, known))

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Have jobs cancelled."""
        self._ask("cancel", command, done)

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Have the urgency or the duration of jobs changed."""
        self._ask("update", command, done)

    def _ask(
        self, kind: str, command: SubmitJobs | CancelJobs | UpdateJobs, done: Done, *more: Any
    ) -> None:
        def answered(outcome: Mapping[str, Any]) -> None:
            event = event_from_json(outcome)
            assert isinstance(event, (CommandDone, CommandFailed))
            done(event)

        self._instance.ask(kind, answered, to_json(command), *more)

    def scale(self, command: Scale, done: Done) -> None:
        """Raise: `Fleet.scale` never passes this on to a member."""
        raise AssertionError(command)

    def seen(self, tag: Tag, job: int) -> None:
        """Do nothing: the service there takes note of it."""

    def refused(self, job: int) -> None:
        """Do nothing: the service there takes note of it."""

    def revoke(self) -> None:
        """Send no more jobs of submissions in progress."""
        self._instance.tell("revoke")


#: A member that is followed, in either way.
Followed: TypeAlias = "Instance | AttachedInstance"

#: The jobs of one ensemble in a member.
Submitting: TypeAlias = "NestedMember | AttachedMember"
