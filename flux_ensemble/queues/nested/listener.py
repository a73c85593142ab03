"""News of a member: what it has, and the events of its jobs. Flux is not needed for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: The events of jobs that are always followed.
EVENTS = frozenset(("submit", "validate", "invalidate", "start", "exception", "finish", "clean"))

#: The attribute of an instance's first broker that identifies the instance.
IDENTITY = "broker.uuid"


@dataclass(frozen=True, slots=True)
class Facts:
    """The properties that an instance reports of itself.

    Args:
        nodes, cores, gpus: numbers of its resources.
        t_expires: when its allocation expires, in epoch seconds; None without a limit.
    """

    nodes: int
    cores: int
    gpus: int
    t_expires: float | None


#: Receives an event of a job of a member: its id there, the entry, the jobspec with `submit`, and
#: whether this event and the later ones of the job result from the member's end alone.
JobEvent = Callable[[int, Mapping[str, Any], Mapping[str, Any] | None, bool], None]

#: Receives events of jobs that came together, in the form of `queues.nested.service_handle`.
JobEvents = Callable[[list[list[Any]]], None]

#: Receives a job that was there when the journal was opened, its jobspec, and its entries in order.
Past = Callable[[int, Mapping[str, Any], list[Mapping[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class Heard:
    """Callbacks for news of an instance.

    Args:
        event: receives the events of its jobs.
        past: receives jobs that were there before.
        caught_up: called when `past` has received all of them.
        ending: called once, when it begins to shut down.
        lost: called once, when the connection is lost; no other call follows.
        objection: takes an instance's IDENTITY; returns the reason why it cannot be a member,
            or None.
        events: receives, instead of `event`, the events of its jobs, if a service of its own has
            selected those of the ensemble.
    """

    event: JobEvent
    past: Past
    caught_up: Callable[[], None]
    ending: Callable[[], None]
    lost: Callable[[], None]
    objection: Callable[[str], str | None]
    events: JobEvents = lambda events: None
