"""Timers and other marks that recovery needs besides the engine's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble.engine.commands import Command, Finish, StartTimer, StopTimer, SubmitJobs
from flux_ensemble.engine.events import Event, JobEvent, JobEvents, JobsAlike, Request, TimerFired


class Timers:
    """Timers, and marks in the events of an engine.

    Attributes:
        timers: the running timers, each with the time at which it is due.
        last_request: the highest number of a request.
        t_seen: the time of the latest job event.
    """

    def __init__(self) -> None:
        self.timers: dict[str, tuple[float, StartTimer]] = {}
        self.last_request = 0
        self.t_seen = 0.0

    def take(self, event: Event, commands: Iterable[Command]) -> None:
        """Apply an event and its commands."""
        if isinstance(event, (JobEvent, JobEvents, JobsAlike)):
            if event.t > self.t_seen:
                self.t_seen = event.t
        elif isinstance(event, Request):
            self.last_request = max(self.last_request, event.request)
        elif isinstance(event, TimerFired) and event.key in self.timers:
            _, timer = self.timers.pop(event.key)
            if timer.every:
                self.timers[event.key] = (event.t + timer.every, timer)
        for command in commands:
            if type(command) is SubmitJobs:
                continue
            if isinstance(command, StartTimer):
                self.timers[command.key] = (event.t + command.after, command)
            elif isinstance(command, StopTimer):
                self.timers.pop(command.key, None)
            elif isinstance(command, Finish):
                self.timers.clear()

    def due(self, now: float) -> Iterator[StartTimer]:
        """Yield the timers to start at time `now`; overdue ones fire at once.

        No timer waits longer than it was set for, even if the clock was set back.
        """
        for t, timer in self.timers.values():
            longest = max(timer.after, timer.every)
            yield StartTimer(timer.key, min(max(0.0, t - now), longest), timer.every)

    def to_json(self) -> dict[str, Any]:
        """Return the timers and marks as JSON."""
        timers = [[t, timer.key, timer.after, timer.every] for t, timer in self.timers.values()]
        return {"timers": timers, "last_request": self.last_request, "t_seen": self.t_seen}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Timers:
        """Return the timers of a snapshot."""
        loaded = cls()
        loaded.timers = {
            key: (t, StartTimer(key, after, every)) for t, key, after, every in value["timers"]
        }
        loaded.last_request = value["last_request"]
        loaded.t_seen = value["t_seen"]
        return loaded
