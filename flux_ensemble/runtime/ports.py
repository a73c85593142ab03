"""The contracts of an ensemble with its surroundings: what is in its `host.Host`.

The `driver` needs a `Loop` for timers and a `Queue` that performs the commands which concern the
queue. The engine's output for people (log entries, replies, the end) goes to its `Output`. With a
`WriteAhead`, the commands of an event are performed when the event is written down, and meanwhile
the engine takes in further events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

Outcome = CommandDone | CommandFailed

#: The job events of the enclosing instance by which a `Fleet` follows its members.
FLEET_EVENTS = frozenset(
    ("submit", "start", "memo", "exception", "resource-update", "clean", "invalidate")
)

#: Receives an event and its commands.
Tap = Callable[[Event, list[Command]], None]

#: Receives the outcome of a command; called once for each command.
Done = Callable[[Outcome], None]

#: Numbers of nodes, or of jobs, by name; None where they are unknown.
Numbers = Mapping[str, int | None]

#: Receives the size that a member has reached, or the error.
Resized = Callable[[int | Exception], None]

#: Receives the size of a member, and the numbers of its nodes that are up and free.
SizeSeen = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A log that cannot be written: until it can, nothing new begins.

    Args:
        t: since when, in epoch seconds.
        reason: why not, in words.
    """

    t: float
    reason: str


class WriteAhead(Protocol):
    """A log of events, from which an ensemble can go on after a crash."""

    def write(self, event: Event, commands: list[Command], then: Callable[[], None]) -> bool:
        """Write an event down before its commands are performed.

        Args:
            event: the event.
            commands: its commands.
            then: called when the commands may be performed, in the order of the events; it
                need not be called without commands.

        Returns:
            True if they may be performed at once; `then` is not called in this case.
        """
        ...

    def hold(self) -> None:
        """Note that several events follow, which can be written down together."""
        ...

    def release(self) -> None:
        """Note that these events have been written: they need not wait for more."""
        ...


class Marker(Protocol):
    """A note of the event that an engine handles, to find the cause of a process's death."""

    def begin(self, event: Event) -> None:
        """Note that an engine begins to handle an event."""
        ...

    def end(self) -> None:
        """Note that the engine has handled the event."""
        ...


class Handle(Protocol):
    """A timer or reader of a loop; `cancel` may be called at any time, also twice."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """An event loop. Callbacks take no arguments and are called from the loop, never nested."""

    def now(self) -> float:
        """Return the time in epoch seconds (virtual seconds in the simulator)."""
        ...

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Handle:
        """Call back after `after` seconds, then each `every` seconds if that is not 0."""
        ...

    def reader(self, fd: int, callback: Callable[[], None]) -> Handle:
        """Call back whenever file descriptor `fd` can be read."""
        ...


class Queue(Protocol):
    """A queue as one ensemble sees it.

    Each method starts performing a command and returns at once; `done` receives the outcome,
    possibly before the method returns.

    Attributes:
        elastic: its size can change (actions `grow` and `shrink`).
        known: jobs that the queue has already, by tag: `submit` does not send them, but counts
            them as accepted and removes them here.
    """

    known: dict[Tag, int]

    @property
    def elastic(self) -> bool: ...

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs. `CommandFailed` has the ids of those that were accepted."""
        ...

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Cancel jobs."""
        ...

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Change the urgency or the duration of jobs."""
        ...

    def scale(self, command: Scale, done: Done) -> None:
        """Change the size of the member, to `command.to` nodes if possible.

        `CommandDone` has `{"nodes": size after, "by": granted}`; `CommandFailed` is a refusal,
        and its reason is for people. After a crash the same command comes again.
        """
        ...

    def seen(self, tag: Tag, job: int) -> None:
        """Note that a job of the ensemble is in the queue, even if its response is lost."""
        ...

    def refused(self, job: int) -> None:
        """Note that the queue refused a job that `seen` reported (event `invalidate`)."""
        ...

    def revoke(self) -> None:
        """Send no more jobs of submissions in progress; these fail with ECANCELED."""
        ...


class Fleet(Protocol):
    """A starter of an ensemble's members.

    Each method starts performing a command and returns at once; `done` receives the outcome.
    Events report the life of a member: `MemberUp`, `MemberDraining`, `MemberLost`, and at last
    `MemberEnded`, when nothing of it runs any more and every known event of its jobs was posted.
    When the ensemble has ended, members that were started end when they have no job. Commands for
    a lost member need no outcome, and commands for jobs that a member does not have are no error.
    """

    def start(self, command: StartMember, done: Done) -> None:
        """Start a member. `CommandFailed` means that there is none, and will be none."""
        ...

    def drain(self, command: DrainMember, done: Done) -> None:
        """Have the queue of a member start no more jobs."""
        ...

    def end(self, command: EndMember, done: Done) -> None:
        """End a member, whatever its state."""
        ...


class CallResult(Protocol):
    """The result of a custom function: see `runtime.custom.caller.FunctionResult`."""

    ok: bool
    returned: list[dict[str, Any]]
    reason: str
    detail: str
    state: Mapping[str, Any] | None


class Caller(Protocol):
    """A caller of custom functions: see `runtime.custom.caller.FunctionCaller`."""

    def call(
        self,
        function: str,
        kwargs: Mapping[str, Any],
        timeout: float,
        done: Callable[[Any], None],
    ) -> None: ...

    def close(self) -> None: ...


class Advice(Protocol):
    """The result of a request for points: see `features.search.advisers.Advice`."""

    ok: bool
    points: list[dict[str, Any]]
    seconds: float
    reason: str
    detail: str


class Adviser(Protocol):
    """A source of points for searches: see `features.search.advisers.Advisers`."""

    def ask(self, command: Ask, trials: Any, done: Callable[[Any], None]) -> None:
        """Request points.

        Args:
            command: the search, and which of its trials may be known.
            trials: what the feature that asks has of them; they are read before this returns.
            done: called once with an `Advice`, but never after `close`. It is not called from
                within this call if further requests could follow without end.
        """
        ...

    def close(self) -> None: ...


class Output(Protocol):
    """The receiver of the output of a driver's engine; it is informed of faults, too."""

    def record(self, entry: Record) -> None:
        """Keep an entry of the eventlog."""
        ...

    def reply(self, reply: Reply) -> None:
        """Answer a request."""
        ...

    def finish(self, finish: Finish) -> None:
        """Note that the ensemble has ended; its jobs may still be active."""
        ...

    def settled(self) -> None:
        """Note that posted events have been handled, with all their consequences."""
        ...

    def broken(self, error: BaseException) -> None:
        """Note that the driver has closed because of a fault; it takes in no more events."""
        ...


class Scaler(Protocol):
    """A way to change the size of a Flux instance.

    Attributes:
        low, high: bounds of the size.
    """

    low: int
    high: int

    def scale(self, to: int, done: Resized) -> None:
        """Change the size.

        Args:
            to: the size to reach; a repeated request for the same size is safe.
            done: called once, with the size or the error.
        """
        ...

    def watch(self, changed: SizeSeen) -> None:
        """Report the size, and the numbers of its nodes that are up and free.

        Args:
            changed: called when the numbers are known, and when they or the bounds have changed.
        """
        ...

    def report(self) -> dict[str, Any]:
        """Return the scaler's part of `ensemble.status`, as JSON."""
        ...

    def close(self) -> None:
        """Abandon the change in progress."""
        ...
