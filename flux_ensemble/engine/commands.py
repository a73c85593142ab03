"""Commands: the imperatives that come out of the engine.

A command with an `id` has exactly one outcome. The driver that performs the command returns the
outcome as `CommandDone` or `CommandFailed` with the same id. The others (`StartTimer`, `StopTimer`,
`Record`, `Reply`, `Finish`) have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.engine.fastclass import fastclass


@fastclass
class SubmitJobs:
    """Submit jobs `first` to `first + count - 1` of one firing's submission of a group.

    `each`, `params` and `overrides` are the arguments of `Group.submission`. Each job carries the
    tag (group, rule, firing, index). The commands are performed in their order. `ordinal` is the
    number of the member that receives the jobs, 0 for the enclosing instance; see `job_keys`. `off`
    holds ranks of the member, as idsets (RFC 22), where the jobs failed, the latest last: the jobs
    are kept off these if others can run them.
    """

    id: int
    group: str
    rule: str
    firing: int
    first: int
    count: int
    each: int | None = None
    params: Mapping[str, Any] | None = None
    overrides: Mapping[str, Any] | None = None
    ordinal: int = 0
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """Raise a cancel exception on each job; inactive jobs are no error."""

    id: int
    jobs: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class UpdateJobs:
    """Set the urgency (0 to 31) or the duration (seconds) of each job."""

    id: int
    jobs: tuple[int, ...]
    urgency: int | None = None
    duration: float | None = None


@dataclass(frozen=True, slots=True)
class CallCustom:
    """Call a custom function; `kwargs` holds metrics, event, rule and action as JSON."""

    id: int
    function: str
    kwargs: Mapping[str, Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Change the size of the member by `by` nodes, to `to` nodes; `by` < 0 shrinks it.

    The command is safe to repeat, because of `to`: after a crash it comes again with the same id.
    """

    id: int
    member: str
    by: int
    to: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for `count` points of a search, as its trials `first`, `first + 1`, ...

    The sampler receives the points before `first` and the outcomes of the first `ended` trials that
    have ended, no others. So after a crash the same command comes again with the same meaning.
    """

    id: int
    search: str
    first: int
    count: int
    ended: int


@dataclass(frozen=True, slots=True)
class StartMember:
    """Request a member; the event `MemberUp` reports that it is up.

    The command is safe to repeat, because of `ordinal`: after a crash it comes again with the same
    id.

    Args:
        member: the member's name, such as "pool.3".
        pool: the name of the member's pool in the document, which describes it.
        ordinal: the member's number, from 1; an ensemble never uses a number twice.
    """

    id: int
    member: str
    pool: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class DrainMember:
    """Stop the queue of a member: it starts no more jobs, and running ones continue."""

    id: int
    member: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class EndMember:
    """End a member, or withdraw its request; `MemberEnded` reports that it has ended."""

    id: int
    member: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Send `TimerFired(key)` after `after` seconds, then each `every` seconds if not 0."""

    key: str
    after: float
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Stop the timer `key`; one that is not set is no error."""

    key: str


@fastclass
class Record:
    """Append an entry (RFC 18) to the ensemble's eventlog."""

    t: float
    name: str
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer request `request`: with `result`, or with an error if `errno` is given."""

    request: int
    result: Mapping[str, Any] = field(default_factory=dict)
    errno: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Report the end of the ensemble: `state` is completed, failed or canceled."""

    state: str
    reason: str


#: The commands that have an outcome.
Effect = (
    SubmitJobs
    | CancelJobs
    | UpdateJobs
    | CallCustom
    | Scale
    | Ask
    | StartMember
    | DrainMember
    | EndMember
)

#: The commands on members.
MEMBER_COMMANDS = (StartMember, DrainMember, EndMember)

Command = Effect | StartTimer | StopTimer | Record | Reply | Finish
