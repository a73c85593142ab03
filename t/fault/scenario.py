"""What a scenario is given, and what comes of it: a line of the table. Needs no Flux."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

#: Seconds between two looks at what has no event to wait for.
TICK = 0.002

#: States that an ensemble does not leave.
FINAL = ("completed", "failed", "canceled")


@dataclass
class Row:
    """A line of the table: what came of a scenario.

    Args:
        control: duplicates are what is wanted: the negative control.
        reached: how often each named point was met, for those who aim.
    """

    scenario: str
    kills: int = 0
    duplicates: int = 0
    missing: int = 0
    violations: int = 0
    jobs: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    control: bool = False
    reached: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """It came out as it has to."""
        return not self.problems and (self.duplicates > 0 if self.control else True)


@dataclass(frozen=True)
class Context:
    """What a scenario is given.

    Args:
        row: where it notes what it finds.
        random: decides all that is left to chance.
        kills: how many kills it is to make.
        long: larger bursts and longer stops.
    """

    row: Row
    random: random.Random
    kills: int
    long: bool
