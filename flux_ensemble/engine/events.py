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

#: The events of a job that succeeds, and of which nothing is to be said besides.
LIFE = ("submit", "validate", "start", "finish", "clean")

#: Parts of a second in which all times since 2004 are whole numbers: a float has no finer ones.
TICKS = 1 << 22


class Tag(NamedTuple):
    """The identity of a job: `attributes.user.ensemble` in its jobspec."""

    group: str
    rule: str
    firing: int
    index: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Started:
    """The member is ready and the ensemble begins."""

    t: float


@fastclass
class JobEvent:
    """A job posted an event (RFC 21).

    Args:
        job: the key of the job: its id, an integer, where there are no members (`job_keys`).
        name: the event's name, such as "start".
        context: the event's context, {} where it has none.
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
    """A job of the ensemble posted several events, which came at once; they are handled in order.

    Args:
        t: the latest of their times.
        job: the key of the job.
        events: [t, name] or [t, name, context] of each, in order, as JSON has them.
        tag: of the job, if "submit" is among them.
    """

    t: float
    job: int
    events: Sequence[Sequence[Any]]
    tag: Tag | None = None

    def each(self) -> Iterator[JobEvent]:
        """They as single events, of which the first has the tag."""
        tag = self.tag
        for t, name, *context in self.events:
            yield JobEvent(t, self.job, name, context[0] if context else {}, tag)
            tag = None


class Columns(NamedTuple):
    """What `JobsAlike` has, without differences: an entry for each job in each column.

    Args:
        ids: of the jobs.
        indices: of the jobs; empty where there is no tag.
        times: a column for each event, in 1/TICKS of a second.
        allocs: when they were given their resources, as `times`; empty where that is not said.
        ranks: of these resources.
    """

    ids: list[int]
    indices: list[int]
    times: list[list[int]]
    allocs: list[int]
    ranks: list[str]


@fastclass
class JobsAlike:
    """Jobs of a member went through the same events, which came at once.

    They are handled one job after the other, each as by `JobEvents`. The events are those of a job
    that succeeds, or some of them that follow each other. All is in columns, which are short: of
    running numbers there is the difference to the one before, and times are in 1/TICKS of a second.

    Args:
        t: the latest of their times.
        ordinal: the number of the member.
        names: of the events of each job.
        steps: ids of the jobs, each after the one before.
        times: a column for each event: the times of the first one after that of the job before,
            those of each other one after the event before.
        firing: [group, rule, firing], if "submit" is among the events.
        indices: of the jobs, each after the one before, then.
        submit: the context of each "submit".
        places: what the context of each "start" has, if it has something: a column of `t_alloc`,
            before the time of the event, and `ranks`: one for all, or a column.
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

    def columns(self) -> Columns:
        """The columns, without differences."""
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
        return Columns(
            list(accumulate(self.steps)), list(accumulate(self.indices)), times, allocs, ranks
        )

    def job(self, columns: Columns, number: int) -> JobEvents:
        """What one of the jobs did; `columns` are its own."""
        events: list[list[Any]] = []
        for name, column in zip(self.names, columns.times, strict=True):
            event: list[Any] = [column[number] / TICKS, name]
            if name == "submit" and self.submit:
                event.append(self.submit)
            elif name == "finish":
                event.append({"status": 0})
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
        """What each job did."""
        columns = self.columns()
        return (self.job(columns, number) for number in range(len(columns.ids)))


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that a `StartTimer` command set has expired."""

    t: float
    key: str


@fastclass
class CommandDone:
    """A command succeeded.

    Args:
        command: the command's id.
        result: `{"ids": [int]}` for SubmitJobs; `{"returned": [{"kind": "action" |
            "rule", "value": {...}}], "state": {...}}` for CallCustom, where `state` is what the
            function keeps, if that has changed; `{"nodes": size after, "by": granted}` for
            Scale; `{"points": [{"params": {...}, "attributes": {...}?}], "seconds": x}` for Ask,
            where `attributes` is what the sampler needs to go on; {} otherwise.
    """

    t: float
    command: int
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """A command failed.

    Args:
        command: the command's id.
        errno: an errno name such as "EINVAL".
        reason: one sentence.
        detail: a traceback or other text that status shows.
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
    """A user asks for something; the engine answers with one `Reply`.

    Args:
        request: a number that the reply repeats.
        op: "submit" {group, count?, params?, overrides?}, "cancel" {group?, reason?},
            "terminate" {cancel?}, "pause" {}, "resume" {}, "rules" {id, enabled}, or
            "action" {action}.
        args: the arguments of `op` as above.
    """

    t: float
    request: int
    op: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """What jobs ran on ends in order, and ends them: the instance, the allocation or a local run.

    Comes before the events by which the jobs end. The end of such a job is no doing of its own: see
    `engine.retries`.

    Args:
        jobs: ids; those that are not active jobs of the ensemble are ignored.
    """

    t: float
    jobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A member reports its nodes, when they change; the first time before `Started`.

    Args:
        member: its name.
        size: nodes that it has, up or not.
        up: nodes that are up.
        free: nodes that are up and that no job has.
        low, high: its bounds; where both are its size, it has a fixed size.
    """

    t: float
    member: str
    size: int
    up: int
    free: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class AllocationChanged:
    """The member says until when its allocation lasts.

    Args:
        t_expires: when it expires; None where it has no limit.
    """

    t: float
    t_expires: float | None


@dataclass(frozen=True, slots=True)
class AllocationEnding:
    """The allocation of the member is about to expire: its queue starts no more jobs.

    From now on nothing is submitted, until an `AllocationChanged` says that there is another time
    limit. A job that the end of the allocation hits is interrupted: see `Interrupted`. It runs
    again when there is time again, whether its group has retries or not.

    Args:
        t_expires: when the allocation expires.
    """

    t: float
    t_expires: float


@dataclass(frozen=True, slots=True)
class MemberUp:
    """A member is up; jobs can be submitted to it.

    Args:
        member, ordinal: as in `StartMember`.
        nodes, cores, gpus: what it has in all.
        t_expires: when its time is up; None where it has no limit.
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
    """The time limit of a member that is up was changed: `t_expires` is as in `MemberUp`."""

    t: float
    member: str
    ordinal: int
    t_expires: float | None


@dataclass(frozen=True, slots=True)
class MemberDraining:
    """A member is to get no more jobs.

    Args:
        ends: its instance has begun to end; where nobody asked for that, it is lost.
    """

    t: float
    member: str
    ordinal: int
    reason: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class MemberLost:
    """A member does not answer any more, and will not. Its jobs may still run."""

    t: float
    member: str
    ordinal: int
    reason: str


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """Nothing of a member runs any more, and all that is known of its jobs has been told.

    What this comes after is the *kill-fence*: the enclosing instance says that the member's nodes
    are clean. It is decided now what becomes of the jobs whose end was not told.

    Args:
        outage: it ended with the enclosing instance, or while no service was there.
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
    | AllocationChanged
    | AllocationEnding
    | MemberUp
    | MemberExpires
    | MemberDraining
    | MemberLost
    | MemberEnded
)
