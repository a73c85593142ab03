"""The write-ahead log of one ensemble: an event is sent to storage before its commands run.

    event, commands ──► WriteAheadLog.write ──► batch ──► Store.commit ──► commands performed
                                                        └──► done: the batch is durable

The engine is deterministic, so its events determine its state. They are written in batches. The
store commits in the order of sending, and before anything that is sent later: a job can be in the
queue only if the batch with its command is in the store. So the commands of an event are performed
when its batch has been sent.

That holds only while commits succeed. So the first commit is waited for. After a failure commands
wait until everything before them is durable, and jobs that have not been sent yet are held back.
Each commit has all batches that are not known to be durable, so no batch is stored without those
before it. Repeated batches are recognized by number.

A limited number of commits are in progress at once. Meanwhile the next batch fills, so under load
batches are large and commits few. Events without commands wait a short time for the next batch.

`runtime.durability.batches` has the format. Now and then a batch has a snapshot of the state after
it, so recovery has little to replay (`runtime.durability.replay`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flux_ensemble.engine.commands import Command, Record
from flux_ensemble.engine.events import Event, JobsAlike
from flux_ensemble.runtime.durability.batches import (
    Batch,
    Waiting,
    follow,
    header,
    line,
    sealed,
)
from flux_ensemble.runtime.durability.replay import Digests, Replayed, snapshot_text
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ports import Handle, Loop, Unwritten


class Store(Protocol):
    """A storage in which batches become durable."""

    def commit(self, batches: Sequence[Batch], done: Callable[[Exception | None], None]) -> None:
        """Make batches durable, all or none; several commits may be in progress at once.

        Commits happen in the order of the calls, and before anything that is sent elsewhere
        later.

        Args:
            batches: all that are not known to be durable, in order.
            done: called once, with None, or with the reason why the outcome is unknown.
        """
        ...


class Gate(Protocol):
    """A gate that holds back jobs which have not been sent yet; holds are counted."""

    def hold(self) -> None: ...

    def go_on(self) -> None: ...


class State(Protocol):
    """The state of which snapshots are taken."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return the state as JSON."""
        ...

    def take_beside(self) -> str:
        """Return, as JSON, the chunk beside the snapshot, with the data since the last call."""
        ...


#: Seconds that events without commands wait for a batch, and most such events. With many logs the
#: wait is so long, up to LAZY_LIMIT, that all of them together commit LAZY_RATE times a second.
LAZY_SECONDS = 1.0
LAZY_LIMIT = 10.0
LAZY_RATE = 10
LAZY_EVENTS = 1000

#: Seconds that entries for people wait for a batch.
SOON_SECONDS = 0.02

#: Most commits in progress at once, and the number of characters not known to be durable at which
#: no further commit is sent: each commit has all of these, so large ones have to be few.
DEPTH = 32
UNSURE_SIZE = 32 * 1024

#: Least number of events between two snapshots; or, if that is more, a snapshot's characters
#: divided by SNAPSHOT_RATIO. Snapshots are few, since reactions wait until a snapshot is durable.
SNAPSHOT_EVENTS = 20_000
SNAPSHOT_RATIO = 50

#: Number of jobs with the same events whose replay takes about as long as one event.
ALIKE_RATIO = 4

#: Seconds until a failed commit is repeated: the first pause, and the longest.
RETRY_SECONDS = 0.1
RETRY_LIMIT = 5.0


@dataclass(slots=True)
class _SentBatch:
    """A batch that is not known to be durable, and the callbacks for when it is."""

    batch: Batch
    then: list[Callable[[], None]]


class WriteAheadLog:
    """The log of one ensemble: a `runtime.ports.WriteAhead`.

    Args:
        store: commits batches.
        loop: has the clock and timers.
        state: gives the snapshots.
        log_error: receives a sentence when commits start to fail, and when they succeed again; not
            if they are only late.
        gate: holds back jobs while commits fail.
        identity: the ensemble, and the run of its name.
        replayed: the result of replaying the log, if there is one.
        late: called at each commit whose outcome is not there in time.

    Attributes:
        timers: timers and marks of the written events.
        lazy_seconds: that events without commands wait (`pace`).
        unwritten: why commits fail for now; None if they succeed.
    """

    def __init__(
        self,
        store: Store,
        loop: Loop,
        state: State,
        log_error: Callable[[str], None],
        gate: Gate,
        identity: str,
        replayed: Replayed | None = None,
        late: Callable[[], None] = lambda: None,
    ) -> None:
        self._late = late
        self._store = store
        self._loop = loop
        self._state = state
        self._log_error = log_error
        self._gate = gate
        self._identity = identity
        self.timers = Timers() if replayed is None else replayed.timers
        self.lazy_seconds = LAZY_SECONDS
        self._number = 0 if replayed is None else replayed.number
        self._entries = 0 if replayed is None else replayed.total
        self._digests = Digests.of(identity) if replayed is None else replayed.digests
        self._events = Waiting()
        self._lines: list[str] = []
        #: Callbacks for when the next batch has been sent, and for when it is durable.
        self._when_sent: list[Callable[[], None]] = []
        self._when_durable: list[Callable[[], None]] = []
        self._sync = False
        #: Something in the next batch must not wait for more.
        self._urgent = False
        #: Several events come together, and go into one batch.
        self._several = False
        #: The latest time to send what waits, if anything does. The timer fires then, or before: it
        #: is not replaced for each batch, since that takes longer than letting it fire.
        self._t_due: float | None = None
        self._timer: Handle | None = None
        self._t_timer = 0.0
        self._since_snapshot = 0
        self._snapshot_due = SNAPSHOT_EVENTS
        self._unsure: deque[_SentBatch] = deque()
        self._under_way = 0
        #: Commits succeed, so it is enough to have sent them.
        self._steady = False
        self._failures = 0
        #: The log says that commits fail.
        self._said = False
        self.unwritten: Unwritten | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._calling = False
        self._closed = False

    def write(self, event: Event, commands: list[Command], then: Callable[[], None]) -> bool:
        """Write an event.

        Args:
            event: the event.
            commands: its commands.
            then: called when the commands may be performed, in the order of the events; not
                called without commands.

        Returns:
            False: the commands have to wait for `then`.
        """
        self.timers.take(event, commands)
        self._since_snapshot += 1
        if isinstance(event, JobsAlike):
            self._since_snapshot += len(event.steps) // ALIKE_RATIO
        soon = True
        if commands:
            for command in commands:
                if type(command) is Record:
                    self._lines.append(line(command.t, command.name, command.context))
                else:
                    soon = False
            self._when_sent.append(then)
        if self._several:
            self._events.add_several(event)
            self._urgent = self._urgent or not soon
            return False
        self._events.add(event)
        if not soon or self._events.count >= LAZY_EVENTS:
            self._advance()
        else:
            self._wait(SOON_SECONDS if commands else self.lazy_seconds)
        return False

    def hold(self) -> None:
        """Collect the following events, so that `release` can send them together."""
        self._several = True

    def release(self) -> None:
        """Send the events since `hold`, now or when it is time."""
        self._several = False
        self._events.encode()
        self._go_on()

    def note(
        self,
        t: float,
        name: str,
        context: Mapping[str, Any],
        then: Callable[[], None] = lambda: None,
        *,
        sync: bool = False,
    ) -> None:
        """Write an entry for people that does not come from the engine.

        Args:
            t, name, context: of the entry.
            then: called as for `write`; with `sync` when the entry is durable.
            sync: the entry must survive a crash of the whole instance.
        """
        self._lines.append(line(t, name, context))
        (self._when_durable if sync else self._when_sent).append(then)
        self._sync = self._sync or sync
        self._advance()

    def barrier(self, then: Callable[[], None]) -> None:
        """Call back when everything written so far is durable."""
        if self._unsure and not (self._events.count or self._lines or self._when_sent):
            self._unsure[-1].then.append(then)
        else:
            self._when_durable.append(then)
            self._advance()

    def checkpoint(self) -> None:
        """Commit a snapshot, if there is anything new; nothing waits for it."""
        if self._since_snapshot and not self._closed:
            self._snapshot_due = 0
            self._send()

    def close(self) -> None:
        """Stop writing, and drop all callbacks."""
        self._closed = True
        self._calls.clear()
        self._t_due = None
        self._cancel_timer()
        self._works()

    # -- when to send -----------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Send what waits after this many seconds at most."""
        t_due = self._loop.now() + seconds
        if self._closed or (self._t_due is not None and self._t_due <= t_due):
            return
        self._t_due = t_due
        if self._timer is None or self._t_timer > t_due:
            self._set_timer(t_due, seconds)

    def _set_timer(self, t: float, seconds: float) -> None:
        self._cancel_timer()
        self._t_timer = t
        self._timer = self._loop.timer(seconds, self._waited)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _waited(self) -> None:
        self._timer = None
        if self._t_due is None:
            return
        # The timer was for what has been sent since, or for what waits now.
        if self._t_due > self._t_timer:
            seconds = self._t_due - self._loop.now()
            self._set_timer(self._t_due, min(max(seconds, 0.0), self.lazy_seconds))
        else:
            self._t_due = None
            self._advance()

    def _go_on(self) -> None:
        """Send what waits, now or when it is time."""
        if self._urgent or self._events.count >= LAZY_EVENTS:
            self._advance()
        elif self._events.count or self._when_sent:
            self._wait(SOON_SECONDS if self._when_sent else self.lazy_seconds)

    def _advance(self) -> None:
        """Send a batch now, or when the commits that have to be waited for have succeeded."""
        self._urgent = True
        if self._closed or self._several:
            return
        if not self._unsure or (self._steady and self._has_room):
            self._send()

    @property
    def _has_room(self) -> bool:
        """True if a further commit may be sent while others are in progress."""
        unsure = sum(len(sent.batch.text) for sent in self._unsure)
        return self._under_way < DEPTH and unsure < UNSURE_SIZE

    # -- sending ----------------------------------------------------------------------

    def _send(self) -> None:
        self._t_due = None
        self._urgent = False
        batch = self._make()
        then, self._when_durable = self._when_durable, []
        if batch.snapshot is not None:
            # A snapshot is large, so it must not be in the following commits, too.
            self._steady = False
        if not self._steady:
            then = [*self._when_sent, *then]
            self._when_sent = []
        self._unsure.append(_SentBatch(batch, then))
        self._commit()
        ready, self._when_sent = self._when_sent, []
        self._call(ready)

    def _make(self) -> Batch:
        """Make the next batch of all that waits."""
        self._number += 1
        begin = header(self._loop.now(), self._number, self._events.take())
        plain = "".join((begin, *self._lines))
        digests = self._digests
        digests.log = follow(digests.log, plain)
        text = sealed(plain, digests.log)
        self._entries += len(self._lines)
        snapshot = values = None
        if self._since_snapshot >= self._snapshot_due:
            self._since_snapshot = 0
            values = self._state.take_beside()
            digests.values = follow(digests.values, values)
            state = {
                "ensemble": self._identity,
                "number": self._number,
                "entries": self._entries,
                "log": digests.log,
                "values": digests.values,
                "agenda": self.timers.to_json(),
                **self._state.snapshot(),
            }
            snapshot = snapshot_text(state)
            self._snapshot_due = max(SNAPSHOT_EVENTS, len(snapshot) // SNAPSHOT_RATIO)
        batch = Batch(self._number, text, len(self._lines), snapshot, values, self._sync)
        self._lines, self._sync = [], False
        return batch

    def _commit(self) -> None:
        batches = [sent.batch for sent in self._unsure]
        self._under_way += 1
        self._store.commit(batches, lambda error: self._answered(batches[-1].number, error))

    def _answered(self, number: int, error: Exception | None) -> None:
        """Handle the outcome of the commit of all batches up to a number."""
        if self._closed:
            return
        self._under_way -= 1
        if error is not None:
            self._steady = False
            if self.unwritten is None:
                self.unwritten = Unwritten(self._loop.now(), str(error))
            if not self._failures:
                self._gate.hold()
            if isinstance(error, TimeoutError):
                self._late()
            elif not self._said:
                self._said = True
                self._log_error(f"cannot write its log: {error}; it waits, and tries again")
            self._failures = min(self._failures + 1, 16)
        while error is None and self._unsure and self._unsure[0].batch.number <= number:
            self._calls.extend(self._unsure.popleft().then)
        if not self._unsure:
            self._steady = True
            self._works()
            if self._said:
                self._said = False
                self._log_error("its log can be written again")
        if self._unsure and not self._under_way:
            delay = min(RETRY_SECONDS * 2 ** (self._failures - 1), RETRY_LIMIT)
            self._loop.timer(delay, self._again)
        else:
            self._go_on()
        self._call(())

    def _works(self) -> None:
        """Note that commits succeed."""
        failures, self._failures = self._failures, 0
        self.unwritten = None
        if failures:
            self._gate.go_on()

    def _again(self) -> None:
        """Send all batches again that are not known to be durable."""
        if not self._closed:
            self._commit()

    def _call(self, calls: Iterable[Callable[[], None]]) -> None:
        """Call back in order, including the callbacks that are added meanwhile."""
        self._calls.extend(calls)
        if self._calling:
            return
        self._calling = True
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            self._calling = False


def pace(logs: Collection[WriteAheadLog]) -> None:
    """Limit the rate of commits of the logs of one service, which share a store."""
    seconds = min(max(LAZY_SECONDS, len(logs) / LAZY_RATE), LAZY_LIMIT)
    for wal in logs:
        wal.lazy_seconds = seconds
