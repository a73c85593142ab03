"""Events: the past facts that go into the engine.

Every event carries `t`, its own time in epoch seconds (virtual seconds in the
simulator). Events are frozen and round-trip through JSON (`codec`), which recording and replay
use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

from flux_ensemble.engine.fastclass import fastclass
from flux_ensemble.engine.job_keys import make

#: The events of a job that succeeds, without any others.
LIFE = ("submit", "validate", "start", "finish", "clean")

#: Keys of the context of "finish" where the queue knows what the job used: its processor time in
#: microseconds, and the peak memory of its largest process in KiB. Flux's own events have neither.
CPU, RSS = "cpu_us", "rss_kib"

#: Ticks in a second. Every time since 2004 is a whole number of ticks, as a float has no finer
#: resolution there.
TICKS = 1 << 22


class Tag(NamedTuple):
    """The identity of a job: `attributes.user.ensemble` in its jobspec."""

    group: str
    rule: str
    firing: int
    index: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Started:
    """The start of the ensemble: the member is ready."""

    t: float


@fastclass
class JobEvent:
    """An event of a job (RFC 21).

    Args:
        job: the key of the job: the job's id, an integer, if there are no members (`job_keys`).
        name: the event's name, such as "start".
        context: the event's context, {} if it has none.
        tag: for a job of this ensemble, on its "submit" event at least; None otherwise.
        foreign: the job was not submitted by this ensemble.
        job_name: for a foreign job, its name in the queue if known.
    """

    t: float
    job: int
    name: str
    context: Mapping[str, Any] = field(default_factory=dict)
    tag: Tag | None = None
    foreign: bool = False
    job_name: str | None = None


@fastclass
class JobEvents:
    """Several events of one job of the ensemble, which came at once and are handled in order.

    Args:
        t: the latest of the events' times.
        job: the key of the job.
        events: [t, name] or [t, name, context] of each event, in order, as JSON.
        tag: the tag of the job, if "submit" is among the events.
    """

    t: float
    job: int
    events: Sequence[Sequence[Any]]
    tag: Tag | None = None

    def each(self) -> Iterator[JobEvent]:
        """Yield the events one by one; only the first carries the tag."""
        tag = self.tag
        for t, name, *context in self.events:
            yield JobEvent(t, self.job, name, context[0] if context else {}, tag)
            tag = None


class Columns(NamedTuple):
    """The decoded columns of `JobsAlike`: an entry for each job in each column.

    Args:
        ids: the ids of the jobs.
        indices: the indices of the jobs; empty if there is no tag.
        times: a column for each event, in 1/TICKS of a second.
        allocs: when the jobs were given their resources, as `times`; empty if not reported.
        ranks: the ranks of these resources.
        cpu, rss: what the jobs used, see `CPU`; empty if not reported.
    """

    ids: list[int]
    indices: list[int]
    times: list[list[int]]
    allocs: list[int]
    ranks: list[str]
    cpu: Sequence[int]
    rss: Sequence[int]


@fastclass
class JobsAlike:
    """The same events of several jobs of a member, which came at once.

    The jobs are handled one after the other, each as by `JobEvents`. The events are those of a job
    that succeeds, or some of them that follow each other. All data is in columns. To keep these
    short, running numbers are stored as differences, and times are in 1/TICKS of a second.

    Args:
        t: the latest of the events' times.
        ordinal: the number of the member.
        names: the names of the events of each job.
        steps: ids of the jobs, each as the difference from the job before.
        times: a column for each event. Times of the first event are differences from the job
            before; times of each other event are differences from the event before.
        firing: [group, rule, firing], if "submit" is among the events.
        indices: indices of the jobs, each as the difference from the job before, if "submit" is
            among the events.
        submit: the context of each "submit".
        places: the resources in the contexts of "start", if there are any: a column of `t_alloc`,
            as the ticks before the time of the event, and `ranks`: one for all jobs, or a column.
        used: what the jobs used, if that is in the contexts of "finish": a column of `CPU` and one
            of `RSS`.
    """

    t: float
    ordinal: int
    names: Sequence[str]
    steps: Sequence[int]
    times: Sequence[Sequence[int]]
    firing: Sequence[Any] | None = None
    indices: Sequence[int] = ()
    submit: Mapping[str, Any] = field(default_factory=dict)
    places: Sequence[Any] | None = None
    used: Sequence[Sequence[int]] | None = None

    def columns(self) -> Columns:
        """Return the columns with the differences added up."""
        times = [list(accumulate(self.times[0]))]
        for column in self.times[1:]:
            times.append(list(map(add, times[-1], column)))
        allocs: list[int] = []
        ranks: list[str] = []
        if self.places is not None:
            starts = times[self.names.index("start")]
            allocs = [start - before for start, before in zip(starts, self.places[0], strict=True)]
            same = self.places[1]
            ranks = [same] * len(starts) if isinstance(same, str) else same
        cpu, rss = self.used or ((), ())
        return Columns(
            list(accumulate(self.steps)),
            list(accumulate(self.indices)),
            times,
            allocs,
            ranks,
            cpu,
            rss,
        )

    def job(self, columns: Columns, number: int) -> JobEvents:
        """Return the events of the job in row `number` of `columns`, which `columns()` returned."""
        events: list[list[Any]] = []
        for name, column in zip(self.names, columns.times, strict=True):
            event: list[Any] = [column[number] / TICKS, name]
            if name == "submit" and self.submit:
                event.append(self.submit)
            elif name == "finish":
                context: dict[str, Any] = {"status": 0}
                if columns.cpu:
                    context.update({CPU: columns.cpu[number], RSS: columns.rss[number]})
                event.append(context)
            elif name == "start" and columns.allocs:
                place = {"t_alloc": columns.allocs[number] / TICKS, "ranks": columns.ranks[number]}
                event.append(place)
            events.append(event)
        t = max(event[0] for event in events)
        tag = None
        if self.firing is not None:
            group, rule, firing = self.firing
            tag = Tag(group, rule, firing, columns.indices[number])
        return JobEvents(t, make(self.ordinal, columns.ids[number]), events, tag)

    def each(self) -> Iterator[JobEvents]:
        """Return an iterator over the events of each job."""
        columns = self.columns()
        return (self.job(columns, number) for number in range(len(columns.ids)))


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The expiry of a timer that a `StartTimer` command set."""

    t: float
    key: str


@fastclass
class CommandDone:
    """The success of a command.

    Args:
        command: the command's id.
        result: `{"ids": [int]}` for SubmitJobs; `{"returned": [{"kind": "action" |
            "rule", "value": {...}}], "state": {...}}` for CallCustom, where `state` is the
            function's state, if that has changed; `{"nodes": size after, "by": granted}` for
            Scale; `{"points": [{"params": {...}, "attributes": {...}?}], "seconds": x}` for Ask,
            where `attributes` holds the data that the sampler needs to continue; {} otherwise.
    """

    t: float
    command: int
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """The failure of a command.

    Args:
        command: the command's id.
        errno: an errno name such as "EINVAL".
        reason: one sentence.
        detail: a traceback or other text for the status.
        ids: for SubmitJobs, the ids of the jobs that were accepted all the same.
    """

    t: float
    command: int
    errno: str
    reason: str
    detail: str = ""
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A user's request; the engine answers with one `Reply`.

    Args:
        request: a number that the reply repeats.
        op: "submit" {group, count?, params?, overrides?}, "cancel" {group?, reason?},
            "terminate" {cancel?}, "pause" {}, "resume" {}, "rules" {id, enabled},
            "action" {action}, "rerun" {firings} (`reruns`), or one of a feature
            (`Feature.requests`).
        args: the arguments of `op` as above.
    """

    t: float
    request: int
    op: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The orderly end of the instance, the allocation or the local run, which ends its jobs.

    It comes before the events by which the jobs end. The end of such a job is not the job's own
    doing: see `engine.retries`.

    Args:
        jobs: ids; those that are not active jobs of the ensemble are ignored.
    """

    t: float
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member's report of its nodes, sent when they change; the first time before `Started`.

    Args:
        member: the member's name.
        size: nodes of the member, up or not.
        up: nodes that are up.
        free: nodes that are up and allocated to no job.
        low, high: bounds of the size; if both equal the size, the size is fixed.
    """

    t: float
    member: str
    size: int
    up: int
    free: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The end of a span without a Flux instance, or without a local run.

    Args:
        since: when the ensemble is last known to have gone on, but for what was undone.
        undone: how many jobs ended after that whose results a crash of the instance undid.
        ended: when that crash was; None if nothing is known to be undone.
    """

    t: float
    since: float
    undone: int = 0
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class ShareChanged:
    """Jobs of other ensembles began to compete with those of this one, or ended to.

    Args:
        share: the part of the cores that is the ensemble's; 1 if no other competes.
    """

    t: float
    share: float


@dataclass(frozen=True, slots=True)
class AllocationChanged:
    """A member's report of the end of its allocation.

    Args:
        t_expires: when the allocation expires; None if it has no limit.
    """

    t: float
    t_expires: float | None


@dataclass(frozen=True, slots=True)
class AllocationEnding:
    """The member's allocation is about to expire: its queue starts no more jobs.

    From now on nothing is submitted, until an `AllocationChanged` brings another time limit. A job
    that the end of the allocation ends is interrupted: see `Interrupted`. It runs again when the
    allocation is extended, whether its group has retries or not.

    Args:
        t_expires: when the allocation expires.
    """

    t: float
    t_expires: float


@dataclass(frozen=True, slots=True)
class MemberUp:
    """A member came up: jobs can be submitted to it.

    Args:
        member, ordinal: as in `StartMember`.
        nodes, cores, gpus: the member's totals.
        t_expires: when the member's time is up; None if it has no limit.
    """

    t: float
    member: str
    ordinal: int
    nodes: int
    cores: int
    gpus: int = 0
    t_expires: float | None = None


@dataclass(frozen=True, slots=True)
class MemberExpires:
    """A change of the time limit of a member that is up; `t_expires` is as in `MemberUp`."""

    t: float
    member: str
    ordinal: int
    t_expires: float | None


@dataclass(frozen=True, slots=True)
class MemberDraining:
    """The drain of a member, which gets no more jobs.

    Args:
        ends: the member's instance has begun to end; if nobody requested that, the member is lost.
    """

    t: float
    member: str
    ordinal: int
    reason: str
    ends: bool


@dataclass(frozen=True, slots=True)
class MemberLost:
    """The loss of a member: it will never answer again, but its jobs may still run."""

    t: float
    member: str
    ordinal: int
    reason: str


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """The end of a member: nothing of it runs any more, and all known events were reported.

    The event follows the *kill-fence*: the enclosing instance reports the member's nodes as clean.
    The engine now decides about the member's jobs whose end was not reported.

    Args:
        outage: the member ended with the enclosing instance, or while no service ran.
    """

    t: float
    member: str
    ordinal: int
    reason: str
    outage: bool = False


Event = (
    Started
    | JobEvent
    | JobEvents
    | JobsAlike
    | TimerFired
    | CommandDone
    | CommandFailed
    | Request
    | Interrupted
    | MemberChanged
    | Absent
    | ShareChanged
    | AllocationChanged
    | AllocationEnding
    | MemberUp
    | MemberExpires
    | MemberDraining
    | MemberLost
    | MemberEnded
)
