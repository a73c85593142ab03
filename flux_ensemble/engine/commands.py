"""Commands: the imperatives that come out of the engine.

A command with an `id` gets exactly one outcome from whoever performs it, and that
outcome comes back as `CommandDone` or `CommandFailed` with the same id. The others
(`StartTimer`, `StopTimer`, `Record`, `Reply`, `Finish`) have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.engine.fastclass import fastclass


@fastclass
class SubmitJobs:
    """Submit jobs `first` to `first + count - 1` of one firing's submission of a group.

    `each`, `params` and `overrides` are what to give to `Group.submission`. Each job carries the
    tag (group, rule, firing, index). Performed in the order of the commands. `ordinal` is the
    number of the member that they go to, 0 for the enclosing instance; see `job_keys`. `off` has
    the ranks there, as idsets (RFC 22), that they are kept off if others can run them: those where
    they failed, the latest last.
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

    Safe to repeat, because of `to`: after a crash it comes again with the same id.
    """

    id: int
    member: str
    by: int
    to: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for `count` points of a search, as its trials `first`, `first + 1`, ...

    Whoever suggests them sees the points before `first`, and of the trials that have ended the
    first `ended`. So after a crash the same command comes again with the same meaning.
    """

    id: int
    search: str
    first: int
    count: int
    ended: int


@dataclass(frozen=True, slots=True)
class StartMember:
    """Ask for a member; the event `MemberUp` says when there is one.

    Safe to repeat, because of `ordinal`: after a crash it comes again with the same id.

    Args:
        member: its name, such as "pool.3".
        pool: the name of its pool in the document, which says what it is.
        ordinal: its number, from 1; no other member of the ensemble has it, before or after.
    """

    id: int
    member: str
    pool: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class DrainMember:
    """The queue of a member is to start no more jobs; those that run go on."""

    id: int
    member: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class EndMember:
    """End a member, or take back that it was asked for; `MemberEnded` says when it has ended."""

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
    """Answer request `request`: with `result`, or with an error where `errno` is given."""

    request: int
    result: Mapping[str, Any] = field(default_factory=dict)
    errno: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """The ensemble has ended: `state` is completed, failed or canceled."""

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

#: Those on members.
MEMBER_COMMANDS = (StartMember, DrainMember, EndMember)

Command = Effect | StartTimer | StopTimer | Record | Reply | Finish
