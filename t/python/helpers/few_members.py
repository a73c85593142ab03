"""A few members in virtual time, on which a test says what becomes of each job.

Jobs take one core each and start in the order in which they come. Nothing is lost here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from heapq import heappop, heappush
from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import (
    CancelJobs,
    Command,
    EndMember,
    Record,
    StartMember,
    StartTimer,
    SubmitJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    Event,
    JobEvent,
    MemberEnded,
    MemberUp,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make, ordinal_of

#: Seconds that a message takes.
DELAY = 0.001


class FewMembers:
    """The members, and the engine that uses them.

    Args:
        document: of the ensemble.
        behave: by the name of its member and its tag, how many seconds a job runs, and its status.
        cores: of each member.

    Attributes:
        records: entries of the log.
        most: how many jobs were on a member at once, running or not, at most.
        ended: when jobs have ended on each member.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        behave: Callable[[str, Tag], tuple[float, int]],
        cores: int = 8,
    ) -> None:
        self.engine = Engine(load_mapping(document))
        self._behave = behave
        self._cores = cores
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._names: dict[int, str] = {}
        self._waiting: dict[int, deque[tuple[int, Tag]]] = {}
        self._free: dict[int, int] = {}
        self._ids: dict[int, int] = {}
        self.records: list[Record] = []
        self.most: dict[str, int] = {}
        self.ended: dict[str, list[float]] = {}

    def run(self) -> None:
        """Run to the end."""
        self._post(Started(0.0))
        while self._heap:
            self.now, _, happening = heappop(self._heap)
            happening()
        assert self.engine.ended, "the ensemble waits for ever"

    def recorded(self, name: str) -> list[Mapping[str, Any]]:
        """The contexts of the log entries of one name."""
        return [record.context for record in self.records if record.name == name]

    def _after(self, seconds: float, happening: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now + seconds, self._sequence, happening))

    def _post(self, event: Event) -> None:
        commands = self.engine.handle(event)
        if self._sequence % 300 == 0:
            self.engine.check()
        for command in commands:
            if isinstance(command, Record):
                self.records.append(command)
            else:
                self._after(DELAY, partial(self._perform, command))

    def _perform(self, command: Command) -> None:
        result: dict[str, Any] = {}
        match command:
            case StartMember():
                self._start(command)
            case SubmitJobs():
                result["ids"] = self._submit(command)
            case CancelJobs():
                for key in command.jobs:
                    self._cancel(key)
            case EndMember():
                self._post(MemberEnded(self.now, command.member, command.ordinal, "it was ended"))
            case StartTimer():
                self._after(command.after, lambda: self._post(TimerFired(self.now, command.key)))
        if hasattr(command, "id"):
            self._post(CommandDone(self.now, command.id, result))

    def _start(self, command: StartMember) -> None:
        ordinal = command.ordinal
        self._names[ordinal] = command.member
        self._waiting[ordinal], self._free[ordinal] = deque(), self._cores
        self.most[command.member], self.ended[command.member] = 0, []
        self._post(MemberUp(self.now, command.member, ordinal, 1, self._cores))

    def _submit(self, command: SubmitJobs) -> list[int]:
        keys, ordinal = [], command.ordinal
        for index in range(command.first, command.first + command.count):
            self._ids[ordinal] = self._ids.get(ordinal, 0) + 1
            key = make(ordinal, self._ids[ordinal])
            tag = Tag(command.group, command.rule, command.firing, index)
            self._waiting[ordinal].append((key, tag))
            keys.append(key)
            self._tell(key, "submit", tag)
            self._tell(key, "validate")
        name = self._names[ordinal]
        running = self._cores - self._free[ordinal]
        self.most[name] = max(self.most[name], running + len(self._waiting[ordinal]))
        self._begin(ordinal)
        return keys

    def _begin(self, ordinal: int) -> None:
        while self._free[ordinal] and self._waiting[ordinal]:
            key, tag = self._waiting[ordinal].popleft()
            self._free[ordinal] -= 1
            seconds, status = self._behave(self._names[ordinal], tag)
            self._tell(key, "start")
            self._after(seconds, partial(self._end, key, status))

    def _end(self, key: int, status: int) -> None:
        ordinal = ordinal_of(key)
        self._free[ordinal] += 1
        self.ended[self._names[ordinal]].append(self.now)
        self._tell(key, "finish", status=status)
        self._tell(key, "clean")
        self._begin(ordinal)

    def _cancel(self, key: int) -> None:
        """Cancel a job; one that runs goes on, since nothing here cancels such."""
        waiting = self._waiting[ordinal_of(key)]
        for entry in list(waiting):
            if entry[0] == key:
                waiting.remove(entry)
                self._tell(key, "exception", type="cancel", severity=0, note="")
                self._tell(key, "clean")

    def _tell(self, key: int, name: str, tag: Tag | None = None, **context: Any) -> None:
        self._after(DELAY, partial(self._post, JobEvent(self.now, key, name, context, tag)))
