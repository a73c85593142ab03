"""The contracts between an ensemble and the world: loop, member, log, worker, host, scaler.

The `driver` needs a `Loop` for timers and a `Queue` that performs the commands which touch the
queue. What the engine says to people (log entries, replies, the end) goes to its `Host`. With a
`WriteAhead`, the commands of an event are performed when the event is put down, and meanwhile
the engine takes in further events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from flux_ensemble.engine.commands import (
    Ask,
    CancelJobs,
    Command,
    DrainMember,
    EndMember,
    Finish,
    Record,
    Reply,
    Scale,
    StartMember,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.events import CommandDone, CommandFailed, Event, Tag
from flux_ensemble.engine.trials import Trials

Outcome = CommandDone | CommandFailed

#: The job events of the enclosing instance by which a `Fleet` follows its members.
FLEET_EVENTS = frozenset(("submit", "memo", "exception", "resource-update", "clean", "invalidate"))

#: Is shown an event and its commands.
Tap = Callable[[Event, list[Command]], None]

#: Takes the outcome of a command; called once for each command.
Done = Callable[[Outcome], None]

#: Numbers of nodes, or of jobs, by name; None where they are unknown.
Numbers = Mapping[str, int | None]

#: Takes the size that a member has reached, or why it has not.
Resized = Callable[[int | Exception], None]

#: Takes the size of a member, and how many of its nodes are up and free.
SizeSeen = Callable[[int, int, int], None]


class WriteAhead(Protocol):
    """Puts down events, so that an ensemble can go on after a crash."""

    def write(self, event: Event, commands: list[Command], then: Callable[[], None]) -> bool:
        """Put down an event before its commands are performed.

        Args:
            event: the event.
            commands: what it brings about.
            then: called when the commands may be performed, in the order of the events; it
                need not be called where there are no commands.

        Returns:
            True if they may be performed already; `then` is not called.
        """
        ...

    def hold(self) -> None:
        """Several events come at once, and can be put down together."""
        ...

    def release(self) -> None:
        """They have come; what they bring about waits no longer for others."""
        ...


class Marker(Protocol):
    """Notes which event an engine handles, so that it is known what a process died of."""

    def begin(self, event: Event) -> None:
        """An engine begins to handle an event."""
        ...

    def end(self) -> None:
        """It has handled it."""
        ...


class Handle(Protocol):
    """Something that a loop watches; `cancel` may be called at any time, also twice."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """An event loop. Callbacks take no arguments and are called from the loop, never nested."""

    def now(self) -> float:
        """The time in epoch seconds (virtual seconds in the simulator)."""
        ...

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Handle:
        """Call back after `after` seconds, then each `every` seconds if that is not 0."""
        ...

    def reader(self, fd: int, callback: Callable[[], None]) -> Handle:
        """Call back whenever file descriptor `fd` can be read."""
        ...


class Queue(Protocol):
    """A queue as one ensemble sees it.

    Each method starts performing a command and returns at once; `done` gets the outcome,
    possibly before the method returns.

    Attributes:
        elastic: its size can change (actions `grow` and `shrink`).
        known: jobs that the queue has already, by tag: `submit` does not send them, but takes
            them for accepted and forgets them here.
    """

    known: dict[Tag, int]

    @property
    def elastic(self) -> bool: ...

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs. `CommandFailed` carries the ids of those that were accepted."""
        ...

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Cancel jobs."""
        ...

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Change urgency or duration of jobs."""
        ...

    def scale(self, command: Scale, done: Done) -> None:
        """Change the size of the member, to `command.to` nodes if it can.

        `CommandDone` has `{"nodes": size after, "by": granted}`; `CommandFailed` is a refusal,
        and its reason is for people. After a crash the same command comes again.
        """
        ...

    def seen(self, tag: Tag, job: int) -> None:
        """A job of the ensemble has shown in the queue, whatever becomes of the response."""
        ...

    def refused(self, job: int) -> None:
        """A job that has shown was refused by the queue (event `invalidate`)."""
        ...

    def revoke(self) -> None:
        """Send no more jobs of the submissions under way; these fail with ECANCELED."""
        ...


class Fleet(Protocol):
    """Starts and ends the members of an ensemble.

    Each method starts performing a command and returns at once; `done` gets the outcome. What
    becomes of a member is told by events: `MemberUp`, `MemberDraining`, `MemberLost`, and at last
    `MemberEnded`, when nothing of it runs any more and every event that is known of its jobs was
    posted. When the ensemble has ended, members that were started end when they have no job.
    Commands for a member that is lost need no outcome, and those for jobs that a member does not
    have are no error.
    """

    def start(self, command: StartMember, done: Done) -> None:
        """Ask for a member. `CommandFailed` means that there is none, and will be none."""
        ...

    def drain(self, command: DrainMember, done: Done) -> None:
        """Have the queue of a member start no more jobs."""
        ...

    def end(self, command: EndMember, done: Done) -> None:
        """End a member, whatever it is doing."""
        ...


class CallResult(Protocol):
    """What a custom function came to: see `runtime.custom.worker.WorkerResult`."""

    ok: bool
    returned: list[dict[str, Any]]
    reason: str
    detail: str
    state: Mapping[str, Any] | None


class Caller(Protocol):
    """Runs custom functions: see `runtime.custom.worker.Worker`."""

    def call(
        self,
        function: str,
        kwargs: Mapping[str, Any],
        timeout: float,
        done: Callable[[Any], None],
    ) -> None: ...

    def close(self) -> None: ...


class Advice(Protocol):
    """What asking for points came to: see `runtime.asks.asker.Advice`."""

    ok: bool
    points: list[dict[str, Any]]
    seconds: float
    reason: str
    detail: str


class Adviser(Protocol):
    """Gives the points of searches: see `runtime.asks.advisers.Advisers`."""

    def ask(self, command: Ask, trials: Trials, done: Callable[[Any], None]) -> None:
        """Ask for points.

        Args:
            command: which, and what is to be known of the trials before.
            trials: of the search; they are read before this returns.
            done: called once with an `Advice`, not from within this call if it can go on for
                ever; not any more once this is closed.
        """
        ...

    def close(self) -> None: ...


class Host(Protocol):
    """Whoever runs a driver: gets what the engine says, and is told when it breaks."""

    def record(self, entry: Record) -> None:
        """Keep an entry of the eventlog."""
        ...

    def reply(self, reply: Reply) -> None:
        """Answer a request."""
        ...

    def finish(self, finish: Finish) -> None:
        """The ensemble has ended; its jobs may still be active."""
        ...

    def settled(self) -> None:
        """A posted event has been handled, with all that it brought about."""
        ...

    def broken(self, error: BaseException) -> None:
        """The driver has closed because of a fault; it takes no more events."""
        ...


class Scaler(Protocol):
    """What a Flux member grows and shrinks by.

    Attributes:
        low, high: bounds of the size.
    """

    low: int
    high: int

    def scale(self, to: int, done: Resized) -> None:
        """Change the size.

        Args:
            to: the size to reach; asking for the same one again is safe.
            done: called once, with the size or why it was not reached.
        """
        ...

    def watch(self, changed: SizeSeen) -> None:
        """Tell of the size, and of how many of it are up and free.

        Args:
            changed: called when they are known, and when they or the bounds have changed.
        """
        ...

    def report(self) -> dict[str, Any]:
        """What `ensemble.status` says of it, as JSON."""
        ...

    def close(self) -> None:
        """Give up what is under way."""
        ...
