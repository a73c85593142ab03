"""Looks at a simulation from outside, event by event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import encode, event_from_json
from flux_ensemble.engine.commands import Command, Record, SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event, JobEvent, MemberUp
from flux_ensemble.engine.snapshot import dump, restore


class Watcher:
    """Sees each event, with its commands; checks the engine's invariants by a second one.

    Every so many events the second engine is made anew from a snapshot of itself.
    """

    def __init__(self, given: dict[str, Any], every: int = 25) -> None:
        self.spec = load_mapping(given)
        self.engine = Engine(self.spec)
        self._every = every
        self.events: list[Event] = []
        self.sent: list[SubmitJobs] = []
        self.records: list[Record] = []
        self._values: list[Any] = []
        self.engine.stats.keep_values()

    def __call__(self, event: Event, commands: list[Command]) -> None:
        assert event_from_json(json.loads(encode(event))) == event
        own = self.engine.handle(event)
        assert list(map(encode, own)) == list(map(encode, commands))
        self.engine.check()
        self.events.append(event)
        self.sent += [one for one in commands if isinstance(one, SubmitJobs)]
        self.records += [one for one in commands if isinstance(one, Record)]
        if len(self.events) % self._every == 0:
            self._values.append(self.engine.stats.take_values())
            snapshot = json.loads(json.dumps(dump(self.engine)))
            self.engine = restore(self.spec, snapshot, self._values)
            assert json.loads(json.dumps(dump(self.engine))) == snapshot
            self.engine.stats.keep_values()

    @property
    def jobs(self) -> list[JobEvent]:
        """What the members said first of each job."""
        return [
            event for event in self.events if isinstance(event, JobEvent) and event.name == "submit"
        ]

    def recorded(self, name: str) -> list[Mapping[str, Any]]:
        """The contexts of the log entries of one name."""
        return [record.context for record in self.records if record.name == name]

    @property
    def names(self) -> dict[int, str]:
        """The names of the members that were up, by their numbers."""
        return {event.ordinal: event.member for event in self.events if isinstance(event, MemberUp)}
