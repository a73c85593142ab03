"""What a report is made of: everything that is known of one ensemble, wherever it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Job = Mapping[str, Any]
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """An ensemble.

    Args:
        kind: what ran it: "Flux", "local queue", "simulation" or "recording".
        status: as in `ensemble.status` (docs/rpc.md).
        metrics: as in `ensemble.metrics`.
        jobs: as in `ensemble.jobs`, those that are gone in that order; read once.
        entries: its eventlog, the oldest first; read once.
        label: gives the text of a job id.
        now: the time that it is about, for what has not ended, in seconds as those of jobs.
        dropped: how many jobs are not in the record; asked for when `jobs` has been read.
        why: as in `ensemble.why`: its rules, by id.
        size: nodes, and cores of each, where that is known.
        facts: more to be said, by name.
        tail: gives the last lines that a job wrote.
        missing: gives why these cannot be read, or "".
    """

    kind: str
    status: Mapping[str, Any]
    metrics: Mapping[str, Any]
    jobs: Iterable[Job]
    entries: Iterable[Entry]
    label: Callable[[int], str]
    now: float
    dropped: Callable[[], int] = lambda: 0
    why: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    tail: Callable[[Job], list[str]] = lambda job: []
    missing: Callable[[Job], str] = lambda job: ""

    @property
    def virtual(self) -> bool:
        """Its time is not that of the world."""
        return self.kind == "simulation"


def place_of(job: Job) -> str | None:
    """Where a job ran: its ranks, after the member that these are of if it has one.

    >>> place_of({"ranks": "0-3"}), place_of({"ranks": "0-3", "member": "pool.1"})
    ('0-3', 'pool.1:0-3')
    """
    ranks: str | None = job["ranks"]
    return f"{job['member']}:{ranks}" if ranks is not None and "member" in job else ranks


@dataclass(frozen=True)
class Failure:
    """The failed jobs of a group that failed for the same reason.

    Args:
        group, reason: those.
        outcome, returncode: of the last one.
        jobs: how many they are.
        noun: what they are: "job", or where some were tried again "attempt".
        where: on which ranks, in words.
        lifts: (name, value, how many failed so, how many ended, lift) of what is over-represented.
        note: of the exception of the last one.
        example: the last one.
        tail: what it wrote at last.
        missing: why that cannot be read, or "".
        command: shows all of them.
    """

    group: str
    reason: str
    outcome: str
    returncode: int | None
    jobs: int
    noun: str
    where: str
    lifts: list[tuple[str, str, int, int, float]]
    note: str
    example: str
    tail: list[str]
    missing: str
    command: str
