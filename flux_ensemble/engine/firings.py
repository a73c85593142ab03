"""Firings: each run of a rule's action that submits jobs, while it is open.

A firing has the key (rule id, number), and each job of it an index; together they are
the job's tag. A firing is open until each of its jobs has come and gone, and then nothing
of it stays behind: numbers are not used twice, so a tag of a firing that is not open is
one that was seen before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from flux_ensemble.engine.compact import columns, unusual
from flux_ensemble.engine.intervals import IntervalSet

#: Attributes that have a column in a snapshot, and those that few firings have otherwise.
_COLUMNS = ("rule", "number", "group", "first", "next", "stop")
_UNUSUAL = {
    "each": None,
    "params": None,
    "attempt": 0,
    "request": None,
    "lost": 0,
    "cancel_unseen": False,
}


class Firing:
    """One open firing that submits jobs `next` to `stop - 1` of a group's submission.

    Attributes:
        next: the first job that has not been sent to the member.
        stop: the end of the jobs, exclusive; a cancel lowers it to `next`.
        seen: indices whose jobs have shown in the queue.
        unseen: jobs that were sent and have not shown.
        lost: jobs that were sent and that the queue is believed not to have.
        live: jobs in the queue that are active.
        outstanding: commands without an outcome.
        cancel_unseen: jobs that show from now on are to be cancelled.
        attempt: which retry of a failed job this is; 0 for a first submission.
        request: the request that is answered with the job ids, or None.
    """

    __slots__ = (
        "attempt",
        "cancel_unseen",
        "each",
        "first",
        "group",
        "live",
        "lost",
        "next",
        "number",
        "outstanding",
        "params",
        "request",
        "rule",
        "seen",
        "stop",
        "unseen",
    )

    def __init__(
        self,
        rule: str,
        number: int,
        group: str,
        indices: range,
        each: int | None,
        params: Mapping[str, Any] | None,
        attempt: int = 0,
        request: int | None = None,
    ) -> None:
        self.rule = rule
        self.number = number
        self.group = group
        self.first = self.next = indices.start
        self.stop = indices.stop
        self.each = each
        self.params = params
        self.attempt = attempt
        self.request = request
        self.seen = IntervalSet()
        self.unseen = 0
        self.lost = 0
        self.live = 0
        self.outstanding = 0
        self.cancel_unseen = False

    @property
    def waiting(self) -> int:
        """Jobs that have not been sent."""
        return self.stop - self.next

    def over(self) -> bool:
        """Each of its jobs has come and gone."""
        return not (
            self.live or self.outstanding or self.unseen or self.lost or self.next < self.stop
        )


class Firings:
    """The open firings.

    `backlog` holds the firings with jobs to send, in order.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Firing] = {}
        self.backlog: deque[Firing] = deque()

    def __iter__(self) -> Iterator[Firing]:
        return iter(self._open.values())

    def open(self, firing: Firing) -> None:
        """Add a firing whose jobs are all to be sent."""
        key = firing.rule, firing.number
        assert key not in self._open
        self._open[key] = firing
        self.backlog.append(firing)

    def expecting(self, rule: str, number: int, index: int) -> Firing | None:
        """The firing that sent job `index` and has not seen it; None if there is none."""
        firing = self._open.get((rule, number))
        if firing is None or not firing.first <= index < firing.next or index in firing.seen:
            return None
        return firing

    def close_if_over(self, firing: Firing) -> None:
        """Forget the firing if each of its jobs has come and gone."""
        if firing.over():
            self._open.pop((firing.rule, firing.number), None)

    def drop_waiting(self, firing: Firing) -> int:
        """Forget the jobs that have not been sent.

        Returns:
            How many they were.
        """
        dropped = firing.waiting
        if dropped:
            firing.stop = firing.next
            self.backlog.remove(firing)
        return dropped

    # -- snapshots --------------------------------------------------------------------

    def positions(self) -> dict[Firing, int]:
        """The place of each open firing, by which snapshots refer to it."""
        return {firing: position for position, firing in enumerate(self)}

    def dump(self) -> dict[str, Any]:
        """The open firings as JSON, in columns."""
        firings, positions = list(self), self.positions()
        return {
            "firings": {
                **columns(firings, _COLUMNS),
                "seen": [firing.seen.intervals for firing in firings],
                "more": unusual(firings, _UNUSUAL),
            },
            "backlog": [positions[firing] for firing in self.backlog],
        }

    def load(self, value: Mapping[str, Any]) -> list[Firing]:
        """Take over what `dump` gave; the firings, in the order of their positions.

        The jobs and commands of a firing are counted when they are loaded.
        """
        columns = value["firings"]
        firings = []
        for row in zip(*(columns[name] for name in (*_COLUMNS, "seen")), strict=True):
            rule, number, group, first, next, stop, seen = row
            firing = Firing(rule, number, group, range(first, stop), None, None)
            firing.next = next
            firing.seen = IntervalSet(seen)
            firings.append(firing)
        for position, attributes in columns["more"]:
            for name, attribute in attributes.items():
                setattr(firings[position], name, attribute)
        for firing in firings:
            firing.unseen = firing.next - firing.first - len(firing.seen) - firing.lost
            self._open[firing.rule, firing.number] = firing
        self.backlog.extend(firings[position] for position in value["backlog"])
        return firings
