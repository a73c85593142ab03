"""Open firings: each run of a rule's action that submits jobs, until its jobs are over.

A firing has the key (rule id, number), and each of its jobs has an index; together they are the
job's tag. A firing is open until each of its jobs has appeared in the queue and gone, and is then
forgotten. Numbers are not reused, so the tag of a firing that is not open was seen before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flux_ensemble.engine.compact import columns, unusual
from flux_ensemble.engine.intervals import IntervalSet

#: Prefix of the timers for which delayed jobs wait; the number of their firing follows.
DELAY = "again:"

#: Attributes with a column in a snapshot, and those that rarely differ from the usual value.
_COLUMNS = ("rule", "number", "group", "first", "next", "stop")
_UNUSUAL = {
    "each": None,
    "params": None,
    "overrides": None,
    "attempt": 0,
    "losses": 0,
    "request": None,
    "answered": False,
    "accepted": None,
    "lost": 0,
    "cancel_unseen": False,
    "delayed": False,
    "trial": None,
    "work": None,
    "near": 0,
    "bound": False,
    "avoid": (),
    "failed_on": (),
    "published": None,
    "rerun": False,
}


@dataclass(slots=True, eq=False)
class Firing:
    """A firing that submits the jobs `first` to `stop - 1` of a submission of a group."""

    #: The rule's id, and the number of its firing.
    rule: str
    number: int
    group: str
    #: The first job.
    first: int
    #: The end of the jobs, exclusive; a cancel lowers it to `next`.
    stop: int
    #: The action's arguments of `Group.submission`; `overrides` below is the third.
    each: int | None = None
    params: Mapping[str, Any] | None = None
    #: The number of the retry of a failed job; 0 for a first submission.
    attempt: int = 0
    #: The number of losses of the job so far, in attempts that may have run.
    losses: int = field(default=0, kw_only=True)
    #: The request to which the reply with the job ids belongs, or None; see `submission_results`.
    request: int | None = None
    overrides: Mapping[str, Any] | None = None
    #: The name of the trial, if a feature judges the outcome of its jobs; else None.
    trial: str | None = None
    #: For a copy, the firing of the job that is copied; see `copies`.
    work: str | None = None
    #: The number of the member on which the jobs are to run, 0 for any, and the numbers of the
    #: members to avoid; see `dispatch`.
    near: int = 0
    avoid: tuple[int, ...] = ()
    #: True if the jobs run on `near` or nowhere.
    bound: bool = False
    #: The places to keep the job off: where it failed before, the latest last, and for a copy,
    #: where the copied job runs. Each is the number of the member, 0 for the enclosing instance,
    #: and the ranks (RFC 22).
    failed_on: tuple[tuple[int, str], ...] = field(default=(), kw_only=True)
    #: For a job that runs again after an interruption: the number of values of each memo key that
    #: its interrupted attempts have published, of the one that published most; else None.
    published: Mapping[str, int] | None = field(default=None, kw_only=True)
    #: True if a user had the job, which was over, run again: see `reruns`.
    rerun: bool = field(default=False, kw_only=True)
    #: The first job that has not been sent to the member.
    next: int = field(init=False)
    #: Indices of the jobs that have appeared in the queue.
    seen: IntervalSet = field(init=False, default_factory=IntervalSet)
    #: Indices of the jobs that have been sent, if they are not sent in the order of the indices;
    #: `next` is then only a count. None if they are those before `next`.
    sent: IntervalSet | None = field(init=False, default=None)
    #: The number of jobs that were sent and have not appeared.
    unseen: int = field(init=False, default=0)
    #: The number of jobs that were sent and that the queue probably does not have.
    lost: int = field(init=False, default=0)
    #: The number of active jobs.
    live: int = field(init=False, default=0)
    #: The number of commands without an outcome.
    outstanding: int = field(init=False, default=0)
    #: The number of commands for which the reply to the request waits.
    unanswered: int = field(init=False, default=0)
    #: True if jobs that appear from now on are to be cancelled.
    cancel_unseen: bool = field(init=False, default=False)
    #: True if the jobs wait for a timer before they may be sent.
    delayed: bool = field(init=False, default=False)
    #: True if jobs sent from now on do not belong to the reply to the request.
    answered: bool = field(init=False, default=False)
    #: Keys of the jobs for the reply, or None.
    accepted: list[int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.next = self.first

    @property
    def waiting(self) -> int:
        """The number of jobs that have not been sent."""
        return self.stop - self.next

    def was_sent(self, index: int) -> bool:
        """Return whether a job has been sent."""
        if self.sent is not None:
            return index in self.sent
        return self.first <= index < self.next

    def send(self, first: int, count: int) -> None:
        """Mark waiting jobs as sent."""
        if self.sent is not None:
            for index in range(first, first + count):
                self.sent.add(index)
        self.next += count
        if self.next == self.stop:
            # All jobs are sent, so the order does not matter any more.
            self.sent = None

    def to_send(self) -> Collection[int]:
        """Return the indices of the jobs that have not been sent."""
        if self.sent is None:
            return range(self.next, self.stop)
        gaps = self.sent.gaps(self.first, self.stop) if self.waiting else ()
        return [index for gap in gaps for index in gap]

    def not_seen(self) -> list[int]:
        """Return the indices of the jobs that were sent and have not appeared."""
        sent = [(self.first, self.next)] if self.sent is None else self.sent.intervals
        return [
            index for first, stop in sent for index in range(first, stop) if index not in self.seen
        ]

    def rest(self) -> Firing:
        """Return the firing as it is once the jobs that were sent are over, for any member.

        Jobs that are lost, when no others are expected, are taken for some that were not sent.
        """
        rest = replace(self, request=None, near=0, bound=False, avoid=(), failed_on=())
        before = [(self.first, self.next)] if self.next > self.first else []
        sent = before if self.sent is None else self.sent.intervals
        rest.next, rest.seen = self.next, IntervalSet(sent)
        rest.sent = None if self.sent is None else IntervalSet(sent)
        if self.lost and not self.unseen:
            rest.seen = IntervalSet(self.seen.intervals)
            rest.forget_lost()
        return rest

    def forget_lost(self) -> None:
        """Take the jobs that were sent, and have not appeared, for some that were not."""
        self.sent, self.lost = IntervalSet(self.seen.intervals), 0
        self.next = self.first + len(self.seen)

    @property
    def upcoming(self) -> int:
        """The index of the first job that has not been sent; there is one."""
        if self.sent is None:
            return self.next
        return next(self.sent.gaps(self.first, self.stop)).start

    @property
    def timer(self) -> str:
        """Key of the timer for which a delayed firing waits."""
        return f"{DELAY}{self.number}"

    def over(self) -> bool:
        """Return whether all jobs have appeared and gone, and no command is without outcome."""
        return not (
            self.live or self.outstanding or self.unseen or self.lost or self.next < self.stop
        )


class Firings:
    """The open firings."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Firing] = {}

    def __iter__(self) -> Iterator[Firing]:
        return iter(self._open.values())

    def open(self, firing: Firing) -> None:
        """Add a firing, of which no job has been sent."""
        key = firing.rule, firing.number
        assert key not in self._open
        self._open[key] = firing

    def get(self, rule: str, number: int) -> Firing | None:
        """Return an open firing; None if it is not open."""
        return self._open.get((rule, number))

    def close(self, rule: str, number: int) -> Firing | None:
        """Forget a firing, and return it; None if it is not open."""
        return self._open.pop((rule, number), None)

    def expecting(self, rule: str, number: int, index: int) -> Firing | None:
        """Return the firing that sent job `index` and has not seen it; None if there is none."""
        firing = self._open.get((rule, number))
        if firing is None or not firing.was_sent(index) or index in firing.seen:
            return None
        return firing

    def close_if_over(self, firing: Firing) -> None:
        """Forget the firing if it is over."""
        if firing.over():
            self._open.pop((firing.rule, firing.number), None)

    def delay_over(self, rule: str, number: int) -> Firing | None:
        """End the delay of a firing, and return the firing; None if it is not open or delayed."""
        firing = self._open.get((rule, number))
        if firing is None or not firing.delayed:
            return None
        firing.delayed = False
        return firing

    # -- snapshots --------------------------------------------------------------------

    def positions(self) -> dict[Firing, int]:
        """Return the position of each open firing, by which snapshots refer to it."""
        return {firing: position for position, firing in enumerate(self)}

    def dump(self) -> dict[str, Any]:
        """Return the open firings as JSON, in columns."""
        firings = list(self)
        dumped = {
            **columns(firings, _COLUMNS),
            "seen": [firing.seen.intervals for firing in firings],
            "more": unusual(firings, _UNUSUAL),
        }
        sent = [
            [position, firing.sent.intervals]
            for position, firing in enumerate(firings)
            if firing.sent is not None
        ]
        if sent:
            dumped["sent"] = sent
        return {"firings": dumped}

    def load(self, value: Mapping[str, Any]) -> list[Firing]:
        """Set the state from the result of `dump`; return the firings in order of position.

        The active jobs and pending commands of the firings are counted when those are loaded.
        """
        columns = value["firings"]
        firings = []
        for row in zip(*(columns[name] for name in (*_COLUMNS, "seen")), strict=True):
            rule, number, group, first, next, stop, seen = row
            firing = Firing(rule, number, group, first, stop)
            firing.next = next
            firing.seen = IntervalSet(seen)
            firings.append(firing)
        for position, attributes in columns["more"]:
            for name, attribute in attributes.items():
                if name == "avoid":
                    attribute = tuple(attribute)
                elif name == "failed_on":
                    attribute = tuple((ordinal, ranks) for ordinal, ranks in attribute)
                setattr(firings[position], name, attribute)
        for position, intervals in columns.get("sent", ()):
            firings[position].sent = IntervalSet(intervals)
        for firing in firings:
            firing.unseen = firing.next - firing.first - len(firing.seen) - firing.lost
            self._open[firing.rule, firing.number] = firing
        return firings
