"""All that an ensemble runs on, as one object: loop, queue, store, listener.

service.assembly, queues.local.run, queues.simulation ──Host──► Ensemble, Driver
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.ports import (
    Adviser,
    Caller,
    Fleet,
    Loop,
    Marker,
    Queue,
    Unwritten,
    WriteAhead,
)


class LogPort(WriteAhead, Protocol):
    """A log of the events of an ensemble, and of entries of its host.

    Attributes:
        timers: the state of timers after the events that were written.
        unwritten: why the log cannot be written for now; None if it can.
    """

    timers: Timers
    unwritten: Unwritten | None

    def note(
        self,
        t: float,
        name: str,
        context: Mapping[str, Any],
        then: Callable[[], None],
        *,
        sync: bool = False,
    ) -> None:
        """Write an entry for people; `then` is called when it is durable."""
        ...

    def barrier(self, then: Callable[[], None]) -> None:
        """Call back when everything written so far is durable."""
        ...

    def close(self) -> None:
        """Stop writing."""
        ...


@dataclass(kw_only=True)
class Host:
    """All that an ensemble runs on: the service, a local run and a simulation make one each.

    Attributes:
        loop: for timers and the time.
        queue: of its jobs.
        custom: starts the caller of custom functions, given their states; called when the first
            function is due.
        caller: the caller of custom functions, if it has been started.
        adviser: starts the source of points for searches; called with the first request.
        fleet: starts and ends members, for documents with `members`.
        store: makes the log of the events of an `Ensemble`; None if nothing is kept.
        marker: notes each event while the engine handles it, if given.
        log_error: receives a line for people.
        changed: receives an `Ensemble` that may have ended, or whose needs may have changed.
        stirred: receives an `Ensemble` when its `Workload.queued` has changed.
    """

    loop: Loop
    queue: Queue
    custom: Callable[[Mapping[str, Any]], Caller]
    caller: Caller | None = None
    adviser: Callable[[], Adviser] | None = None
    fleet: Fleet | None = None
    store: Callable[[Any], LogPort] | None = None
    marker: Marker | None = None
    log_error: Callable[[str], None] = lambda text: None
    changed: Callable[[Any], None] = lambda ensemble: None
    stirred: Callable[[Any], None] = lambda ensemble: None
