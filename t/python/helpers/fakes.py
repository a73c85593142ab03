"""Stand-ins for what surrounds an engine: `FakeHost` has all that an ensemble runs on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.engine.commands import (
    CancelJobs,
    Finish,
    Record,
    Reply,
    Scale,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.events import CommandDone, CommandFailed, Tag
from flux_ensemble.runtime.durability.batches import Batch
from flux_ensemble.runtime.durability.wal import WriteAheadLog
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.ports import Done


@dataclass
class Timer:
    after: float
    callback: Callable[[], None]
    every: float
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def now(self) -> float:
        return 1000.0

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Timer:
        self.timers.append(Timer(after, callback, every))
        return self.timers[-1]

    def reader(self, fd: int, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError


class FakeMember:
    """Accepts every job at once, or what a test puts in place of `submit`."""

    elastic = False

    def __init__(self) -> None:
        self.submitted: list[SubmitJobs] = []
        self.canceled: list[CancelJobs] = []
        self.revocations: list[None] = []
        self.known: dict[Tag, int] = {}

    def submit(self, command: SubmitJobs, done: Done) -> None:
        self.submitted.append(command)
        done(CommandDone(1000.0, command.id, {"ids": list(range(command.count))}))

    def cancel(self, command: CancelJobs, done: Done) -> None:
        self.canceled.append(command)
        done(CommandDone(1000.0, command.id))

    def update(self, command: UpdateJobs, done: Done) -> None:
        raise NotImplementedError

    def scale(self, command: Scale, done: Done) -> None:
        reason = "the instance has a fixed size"
        done(CommandFailed(1000.0, command.id, "EINVAL", reason))

    def seen(self, tag: Tag, job: int) -> None:
        pass

    def refused(self, job: int) -> None:
        pass

    def revoke(self) -> None:
        self.revocations.append(None)


@dataclass
class Result:
    ok: bool
    returned: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    detail: str = ""
    state: None = None


class FakeCaller:
    def __init__(self) -> None:
        self.calls: list[tuple[str, float, Callable[[Result], None]]] = []
        self.closed = False

    def call(
        self,
        function: str,
        kwargs: Mapping[str, Any],
        timeout: float,
        done: Callable[[Result], None],
    ) -> None:
        self.calls.append((function, timeout, done))

    def close(self) -> None:
        self.closed = True


class FakeOutput:
    """Keeps the output of a driver."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.finished: list[Finish] = []
        self.errors: list[BaseException] = []
        self.settlings: list[None] = []

    def record(self, entry: Record) -> None:
        self.records.append(entry)

    def reply(self, reply: Reply) -> None:
        self.replies.append(reply)

    def finish(self, finish: Finish) -> None:
        self.finished.append(finish)

    def settled(self) -> None:
        self.settlings.append(None)

    def broken(self, error: BaseException) -> None:
        self.errors.append(error)


class FakeGate:
    """Counts how often it is held."""

    def __init__(self) -> None:
        self.holds = 0

    def hold(self) -> None:
        self.holds += 1

    def go_on(self) -> None:
        self.holds -= 1


class MemoryStore:
    """Keeps what is committed; it answers at once, or when a test says so with `answer`.

    Attributes:
        commits: the numbers of the batches in each commit.
        batches: each batch once.
    """

    def __init__(self, at_once: bool = True) -> None:
        self.at_once = at_once
        self.commits: list[list[int]] = []
        self.batches: list[Batch] = []
        self.dones: list[Callable[[Exception | None], None]] = []

    def commit(self, batches: Sequence[Batch], done: Callable[[Exception | None], None]) -> None:
        self.commits.append([batch.number for batch in batches])
        latest = self.batches[-1].number if self.batches else 0
        self.batches += [batch for batch in batches if batch.number > latest]
        self.dones.append(done)
        if self.at_once:
            self.answer()

    def answer(self, error: Exception | None = None) -> None:
        """Answer the oldest commit that has no answer."""
        self.dones.pop(0)(error)

    @property
    def snapshot(self) -> Any:
        """The latest snapshot, or None."""
        found = [batch.snapshot for batch in self.batches if batch.snapshot is not None]
        return json.loads(found[-1]) if found else None

    @property
    def values(self) -> list[Any]:
        """The chunks of values."""
        return [json.loads(batch.values) for batch in self.batches if batch.values is not None]

    @property
    def lines(self) -> list[str]:
        """The text of the log."""
        return "".join(batch.text for batch in self.batches).splitlines(keepends=True)


@dataclass(kw_only=True)
class FakeHost(Host):
    """The host of a driver or an ensemble, where nothing is real but the log.

    Attributes:
        kept: takes the batches of the log.
        gate: of the log.
        callers: those of custom functions that were started.
        lines: what the log of the service has.
        changes: the ensembles that have changed, each time.
    """

    loop: FakeLoop = field(default_factory=FakeLoop)
    queue: FakeMember = field(default_factory=FakeMember)
    custom: Callable[[Mapping[str, Any]], FakeCaller] = field(init=False)
    kept: MemoryStore = field(default_factory=MemoryStore)
    gate: FakeGate = field(default_factory=FakeGate)
    callers: list[FakeCaller] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    changes: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.custom, self.store = self._caller, self.log_of
        self.log_error, self.changed = self.lines.append, self.changes.append

    def _caller(self, states: Mapping[str, Any]) -> FakeCaller:
        self.callers.append(FakeCaller())
        return self.callers[-1]

    def log_of(self, subject: Any, identity: str = "test") -> WriteAheadLog:
        """The log of the events of an ensemble."""
        return WriteAheadLog(
            self.kept, self.loop, subject, self.lines.append, self.gate, identity=identity
        )


class Reader:
    """Follows a log: `names` ends in "END" when the log has."""

    def __init__(self, events: bool = False) -> None:
        self.events = events
        self.names: list[str] = []
        self.entries: list[Any] = []

    def send(self, entry: Any) -> None:
        self.names.append(entry["name"])
        self.entries.append(entry)

    def end(self) -> None:
        self.names.append("END")
