"""What a scenario is given, and what comes of it: a line of the table. Needs no Flux."""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

#: Seconds between two looks at what has no event to wait for.
TICK = 0.002

#: States that an ensemble does not leave.
FINAL = ("completed", "failed", "canceled")


#: The run is to end early: what was begun is verified, and nothing more is begun.
stopping = threading.Event()


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
        wanted: how many kills it is to make.
        long: larger bursts and longer stops.
    """

    row: Row
    random: random.Random
    wanted: int
    long: bool

    @property
    def kills(self) -> int:
        """How many kills it is to make; no more when the run is to end."""
        return self.row.kills if stopping.is_set() else self.wanted

    @property
    def in_flight(self) -> int:
        """How many jobs are in flight at once when something dies; fewer in short runs."""
        return 200 if self.long else 80


def children(pid: int) -> list[int]:
    """The children of a process; none where it is gone."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return []


def parent(pid: int) -> int:
    """The parent of a process; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ends(pid: int) -> bool:
    """Wait for the end of a process that is not ours; False if it goes on for seconds."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], 10)[0])
    finally:
        os.close(fd)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those have, and so on."""
    found = children(pid)
    return found + [one for child in found for one in descendants(child)]


def words(pid: int) -> list[bytes]:
    """The command line of a process; none where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def processes_of(directory: Path, word: bytes) -> list[int]:
    """The processes with a word in their command line, and the directory in their environment.

    The directory of an instance is in the environment of all that it runs.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        if not any(word in each for each in words(pid)):
            continue
        with contextlib.suppress(OSError):
            if str(directory).encode() in (process / "environ").read_bytes():
                found.append(pid)
    return found


def hold_of(uri: str, what: str = "commits") -> Path:
    """The file that holds up what the service of an instance does (options of standby.py)."""
    return Path(urlparse(uri).path).with_name(f"hold-{what}")
