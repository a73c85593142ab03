"""The input of a report: everything known about one ensemble, independent of where it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flux_ensemble.eventlog import Stored
from flux_ensemble.report.texts import plural

Job = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """An ensemble.

    Args:
        kind: where it ran: "Flux", "local queue", "simulation" or "recording".
        status: as in `ensemble.status` (docs/rpc.md).
        metrics: as in `ensemble.metrics`.
        jobs: as in `ensemble.jobs`, ended ones in the order of their ends; read once.
        entries: its eventlog, the oldest first; read once.
        label: returns the text of a job id.
        now: the time of the report, for what has not ended, in seconds like those of jobs.
        dropped: returns the number of jobs that are not in the record, once `jobs` has been read.
        why: as in `ensemble.why`: its rules, by id.
        size: nodes, and cores of each, if known.
        facts: further facts, by name.
        tail: returns the last lines that a job wrote.
        missing: returns why these cannot be read, or "".
        command: returns a command about it, from its words; None if there is nobody to query.
    """

    kind: str
    status: Mapping[str, Any]
    metrics: Mapping[str, Any]
    jobs: Iterable[Job]
    entries: Iterable[Stored]
    label: Callable[[int], str]
    now: float
    dropped: Callable[[], int] = lambda: 0
    why: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    tail: Callable[[Job], list[str]] = lambda job: []
    missing: Callable[[Job], str] = lambda job: ""
    command: Callable[..., str] | None = None

    @property
    def virtual(self) -> bool:
        """The ensemble ran in virtual time."""
        return self.kind == "simulation"


def place_of(job: Job) -> str | None:
    """Return the place where a job ran: its ranks, preceded by its member if it has one.

    >>> place_of({"ranks": "0-3"}), place_of({"ranks": "0-3", "member": "pool.1"})
    ('0-3', 'pool.1:0-3')
    """
    ranks: str | None = job["ranks"]
    return f"{job['member']}:{ranks}" if ranks is not None and "member" in job else ranks


class Lift(NamedTuple):
    """A value, or a pair of values, that is over-represented among jobs that failed for a reason.

    Attributes:
        condition: names and values, such as `params.t` and `300`.
        failed: number of these jobs with the value.
        ended: number of all jobs of the group with the value that have ended.
        lift: its share among these jobs, divided by its share among all that have ended.
    """

    condition: tuple[tuple[str, str], ...]
    failed: int
    ended: int
    lift: float

    @property
    def words(self) -> str:
        """The condition in words.

        >>> Lift((("params.t", "4"), ("params.k", "1")), 3, 3, 2.0).words
        'params.t = 4 and params.k = 1'
        """
        return " and ".join(f"{name} = {value}" for name, value in self.condition)


class Written(NamedTuple):
    """The last lines of some jobs that failed for a reason.

    Attributes:
        example: the last of them.
        tail: the last lines that it wrote.
        jobs: number of those that were read and wrote the same, but for numbers and names.
        file: with the output of the example; None if it has none.
        where: their points, or what they have in common, in words; "" if that is unknown, or all
            jobs that failed for the reason wrote the same.
    """

    example: str
    tail: list[str]
    jobs: int
    file: str | None
    where: str = ""


@dataclass(frozen=True)
class Failure:
    """The failed jobs of a group that failed for the same reason.

    Args:
        group, reason: common to the jobs.
        outcome, returncode: of the last one.
        jobs: number of jobs.
        noun: "job", or "attempt" if some were tried again.
        where: their ranks, in words.
        lifts: the values that are over-represented, the most important first.
        points: of the jobs, if these are few: parameters, in words.
        note: of the exception of the last one.
        example: one of them: that of `tail`, or else the last one.
        written: what they wrote at last, the most frequent first.
        read: number of jobs of which that was read.
        missing: why these cannot be read, or "".
        file: with the output of the last one; None if it has none.
        filter: chooses the jobs among those of the group.
        command: lists all of the jobs.
    """

    group: str
    reason: str
    outcome: str
    returncode: int | None
    jobs: int
    noun: str
    where: str
    lifts: list[Lift]
    points: list[str]
    note: str
    example: str
    written: list[Written]
    read: int
    missing: str
    file: str | None
    filter: str
    command: str

    @property
    def tail(self) -> list[str]:
        """The last lines that the example wrote."""
        return self.written[0].tail if self.written else []

    def wrote(self) -> Iterator[tuple[Written, str]]:
        """Yield what jobs wrote at last, each with its sentence."""
        for one in self.written:
            alike = "" if one.jobs == self.read else f" ({self.share(one)})"
            yield one, f"job {one.example} wrote at last{alike}:"

    def share(self, one: Written) -> str:
        """The number of the jobs that wrote that, and which they are, in words."""
        where = f": {one.where}" if one.where else ""
        return f"{self._share(one.jobs)}{where}"

    @property
    def others(self) -> str:
        """A sentence about jobs without an example of what they wrote; "" if there are none."""
        others = self.read - sum(one.jobs for one in self.written)
        return (
            f"something else, or nothing: {self._share(others)}" if self.written and others else ""
        )

    def _share(self, jobs: int) -> str:
        read = " read" if self.read < self.jobs else ""
        return f"{jobs:,} of {plural(self.read, self.noun)}{read}"
