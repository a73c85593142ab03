"""A queue for engine tests: answers commands, and lets a test say what jobs do.

Nothing here keeps real time: `Play.t` advances by a millisecond with each event, or to
where a test sets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.loading import load_mapping, load_text
from flux_ensemble.engine.commands import (
    Ask,
    CallCustom,
    CancelJobs,
    Command,
    Finish,
    Record,
    Reply,
    Scale,
    StartTimer,
    StopTimer,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    CommandFailed,
    Event,
    JobEvent,
    MemberChanged,
    Request,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.status import status


def document(**given: Any) -> dict[str, Any]:
    """A small document: groups a and b, and the rules given."""
    return {
        "name": "test",
        "jobs": [{"name": "a", "command": "true", "count": 2}, {"name": "b", "command": "true"}],
        "rules": [],
        **given,
    }


def on_start(label: str = "a", **action: Any) -> dict[str, Any]:
    """The rule that submits a group at the start."""
    return {"trigger": "start", "action": {"name": "submit", "label": label, **action}}


def submit(label: str, **action: Any) -> dict[str, Any]:
    """A submit action."""
    return {"name": "submit", "label": label, **action}


class Play:
    """An engine and a queue that accepts what it is sent.

    Attributes:
        handle: has the engine handle an event; a test may put something around it.
        commands: every command so far but for records.
        records: every record so far.
        queued: ids of the jobs that the queue has, with their tags, in order.
    """

    def __init__(
        self, given: Mapping[str, Any] | str, start: bool = True, accept: bool = True
    ) -> None:
        self.engine = Engine(load_text(given) if isinstance(given, str) else load_mapping(given))
        self.handle = self.engine.handle
        self.t = 1000.0
        self.accept = accept
        self.commands: list[Command] = []
        self.records: list[Record] = []
        self.queued: dict[int, Tag] = {}
        self._next_job = 1
        self._needs: dict[object, object] = {}
        if start:
            self.post(Started(self.t))

    def post(self, event: Event) -> list[Command]:
        """Handle one event, check the invariants, and have the queue answer.

        Returns:
            The commands of this event, without records.
        """
        before = {group: dict(counts) for group, counts in self.engine.stats.counts.items()}
        commands = self.handle(event)
        engine = self.engine
        engine.check()
        needs = engine.wants_events, engine.wants_foreign, engine.wants_of_member
        version = engine, engine.wants_version
        assert self._needs.setdefault(version, needs) == needs, "another need, of the same version"
        for group, counts in before.items():
            # What was counted once does not go back, but for jobs that are run again.
            after = self.engine.stats.counts[group]
            back = isinstance(event, Request) and event.op == "rerun"
            kept = {name for name in counts if not (back and name in ("finished", "gave-up"))}
            assert all(after[name] >= counts[name] for name in kept), (event, after)
        self.records += [one for one in commands if isinstance(one, Record)]
        commands = [one for one in commands if not isinstance(one, Record)]
        self.commands += commands
        for one in commands:
            if isinstance(one, SubmitJobs) and self.accept:
                self.done(one, ids=self.enqueue(one))
            elif isinstance(one, (CancelJobs, UpdateJobs)) and self.accept:
                self.done(one)
        return commands

    def tick(self) -> float:
        self.t += 0.001
        return self.t

    def enqueue(self, command: SubmitJobs) -> list[int]:
        """The queue takes the jobs of a command; their events are up to the test."""
        ids = []
        for index in range(command.first, command.first + command.count):
            self.queued[self._next_job] = Tag(command.group, command.rule, command.firing, index)
            ids.append(self._next_job)
            self._next_job += 1
        return ids

    def done(self, command: Any, **result: Any) -> list[Command]:
        return self.post(CommandDone(self.tick(), command.id, result))

    def failed(self, command: Any, reason: str = "no", errno: str = "EINVAL") -> list[Command]:
        return self.post(CommandFailed(self.tick(), command.id, errno, reason))

    def event(self, job: int, name: str, **context: Any) -> list[Command]:
        tag = self.queued[job] if name == "submit" else None
        return self.post(JobEvent(self.tick(), job, name, context, tag))

    def foreign(self, job: int, name: str, job_name: str = "x", **context: Any) -> list[Command]:
        return self.post(JobEvent(self.tick(), job, name, context, foreign=True, job_name=job_name))

    def begin(self, job: int) -> None:
        """The job is submitted, valid and started."""
        for name in ("submit", "validate", "start"):
            self.event(job, name)

    def end(self, job: int, status: int = 0) -> None:
        """The started job finishes and is clean."""
        self.event(job, "finish", status=status)
        self.event(job, "clean")

    def run(self, job: int, status: int = 0) -> None:
        """The job goes through its whole life."""
        self.begin(job)
        self.end(job, status)

    def heartbeat(self) -> list[Command]:
        return self.timer("heartbeat")

    def timer(self, key: str) -> list[Command]:
        return self.post(TimerFired(self.tick(), key))

    def member(self, size: int, free: int = 0, *, low: int = 1, high: int = 4) -> list[Command]:
        """The member has so many nodes, all of them up."""
        return self.post(MemberChanged(self.tick(), "default", size, size, free, low, high))

    def request(self, op: str, **args: Any) -> Reply:
        """Ask for something; the reply."""
        before = len(self.commands)
        self.post(Request(self.tick(), before, op, args))
        return next(one for one in self.commands[before:] if isinstance(one, Reply))

    def of(self, kind: type) -> list[Any]:
        """The commands of one class, in order."""
        return [one for one in self.commands if isinstance(one, kind)]

    def submitted(self, group: str) -> int:
        """How many jobs of a group were sent."""
        return sum(one.count for one in self.of(SubmitJobs) if one.group == group)

    def status(self) -> dict[str, Any]:
        """What `ensemble.status` says of the engine."""
        return status(self.engine)

    def recorded(self, name: str) -> list[Mapping[str, Any]]:
        """The contexts of the log entries of one name."""
        return [one.context for one in self.records if one.name == name]


__all__ = [
    "CallCustom",
    "CancelJobs",
    "CommandDone",
    "CommandFailed",
    "Finish",
    "JobEvent",
    "Play",
    "Reply",
    "Request",
    "Scale",
    "StartTimer",
    "Started",
    "StopTimer",
    "SubmitJobs",
    "Tag",
    "TimerFired",
    "UpdateJobs",
    "document",
    "on_start",
    "submit",
]


def search_state(engine: Engine, id: str) -> Any:
    """The state of a search in an engine: its `trials`, `state` and `reason`."""
    searches: Any = engine.hooks.commands[Ask].done
    return searches.__self__.states[id]
