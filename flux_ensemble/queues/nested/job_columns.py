"""Jobs with the same events, reported as one item by the service of a member.

Nearly all jobs have the same few events, with the same contexts. So only what differs is kept, in
columns (`engine.events.JobsAlike`), which take a tenth of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_ensemble.engine.events import CPU, LIFE, RSS, TICKS

#: First element of such an item.
ALIKE = "alike"

#: The last events of the parts of a life that can be reported so: no event follows them at once.
_LAST = ("validate", "start", "clean")

#: The parts of a life, as tuples of event names.
_PARTS = frozenset(
    LIFE[first : last + 1]
    for last, name in enumerate(LIFE)
    for first in range(last + 1)
    if name in _LAST
)

#: Contexts of events, as texts: equal dictionaries can have values of different types.
_CONTEXTS = {"validate": "None", "finish": repr({"status": 0}), "clean": "None"}
_PLACE = {"t_alloc", "ranks"}
_USED = {"status", CPU, RSS}


def kind(events: Sequence[Sequence[Any]], tag: Sequence[Any] | None) -> Any:
    """Return what has to be equal for jobs to share an item; None for an unusual job.

    Args:
        events: [t, name, context] of each event, without an empty context.
        tag: of the job, with its first event.
    """
    names = tuple([event[1] for event in events])
    if names not in _PARTS or (names[0] == "submit") != (tag is not None):
        return None
    submit, placed, used = None, False, False
    for event in events:
        name, context = event[1], event[2] if len(event) > 2 else None
        t = event[0]
        if type(t) is not float or not (t * TICKS).is_integer():
            return None
        if name == "submit":
            submit = repr(context)
        elif name == "start":
            if context is not None:
                if context.keys() != _PLACE or not _is_place(context):
                    return None
                placed = True
        elif name == "finish" and context is not None and context.keys() == _USED:
            if not all(type(value) is int for value in context.values()) or context["status"]:
                return None
            used = True
        elif repr(context) != _CONTEXTS[name]:
            return None
    return names, None if tag is None else tuple(tag[:3]), submit, placed, used


def _is_place(context: dict[str, Any]) -> bool:
    t, ranks = context["t_alloc"], context["ranks"]
    return type(ranks) is str and type(t) is float and (t * TICKS).is_integer()


class JobColumns:
    """Jobs with the same events.

    Args:
        events, tag: of the first of them, which has to be added by `add`, too.
    """

    def __init__(self, events: Sequence[Sequence[Any]], tag: Sequence[Any] | None) -> None:
        self._names = [event[1] for event in events]
        self._firing = None if tag is None else list(tag[:3])
        first = events[0]
        self._submit = first[2] if first[1] == "submit" and len(first) > 2 else {}
        self._t = first[0]
        self._steps: list[int] = []
        self._indices: list[int] = []
        self._times: list[list[int]] = [[] for _ in events]
        self._allocs: list[int] = []
        self._ranks: list[str] = []
        self._cpu: list[int] = []
        self._rss: list[int] = []
        self._last = (0, 0, 0)

    def add(self, job: int, events: Sequence[Sequence[Any]], tag: Sequence[Any] | None) -> None:
        """Add a job; for the arguments see `kind`."""
        before, index_before, t_before = self._last
        index = 0 if tag is None else tag[3]
        self._steps.append(job - before)
        if tag is not None:
            self._indices.append(index - index_before)
        first = last = int(events[0][0] * TICKS)
        self._last = job, index, first
        for event, column in zip(events, self._times, strict=True):
            t, name, *context = event
            ticks = int(t * TICKS)
            column.append(ticks - (t_before if column is self._times[0] else last))
            last = ticks
            self._t = max(self._t, t)
            if name == "start" and context:
                self._allocs.append(ticks - int(context[0]["t_alloc"] * TICKS))
                self._ranks.append(context[0]["ranks"])
            elif name == "finish" and CPU in context[0]:
                self._cpu.append(context[0][CPU])
                self._rss.append(context[0][RSS])

    def item(self) -> list[Any]:
        """Return the item: see `queues.nested.service_handle`."""
        places = None
        if self._ranks:
            same = len(set(self._ranks)) == 1
            places = [self._allocs, self._ranks[0] if same else self._ranks]
        return [
            ALIKE,
            self._t,
            self._names,
            self._steps,
            self._times,
            self._firing,
            self._indices,
            self._submit,
            places,
            *([[self._cpu, self._rss]] if self._cpu else []),
        ]
