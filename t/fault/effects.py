"""Tasks that write down that they run, and what is read from that.

Tasks are no jobs of Flux, so no journal tells what became of them: their side effects do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Runs a task, by its number: a second one at the same time finds the lock taken. What it says last
#: is that it ended. A worker is known by its job in Slurm, or by its pod, where POD names that.
TASK = """#!/bin/sh
cd "${{0%/*}}"
exec 9>"lock.$1"
flock -n 9 || echo "$1" >>overlap
echo "$1,${{SLURM_JOB_ID-}}${{POD-}}" >>began
sleep {seconds:g}
echo "$1" >>done
"""


def lines(path: Path) -> list[str]:
    """The lines of a file; none if there is no file."""
    return path.read_text().split() if path.exists() else []


@dataclass(frozen=True)
class Effects:
    """What the tasks of an ensemble have written.

    Args:
        directory: in which they do.
    """

    directory: Path

    def prepare(self, seconds: float) -> Path:
        """Write the program of the tasks, which take so long; return its path."""
        path = self.directory / "task.sh"
        path.write_text(TASK.format(seconds=seconds))
        return path

    @property
    def began(self) -> list[tuple[str, str]]:
        """The tasks that began, with their workers, in this order; "" if that is not known."""
        rows = (line.partition(",") for line in lines(self.directory / "began"))
        return [(task, worker) for task, _, worker in rows]

    @property
    def done(self) -> set[str]:
        """The tasks that ended."""
        return set(lines(self.directory / "done"))

    @property
    def overlap(self) -> set[str]:
        """The tasks that began while an earlier attempt ran."""
        return set(lines(self.directory / "overlap"))

    def twice(self, interrupted: Mapping[str, int]) -> dict[str, str]:
        """Return the tasks that ran twice though nothing interrupted them, and how.

        Args:
            interrupted: how many attempts of each task the record calls interrupted.
        """
        found = dict.fromkeys(self.overlap, "two attempts at the same time")
        for task, starts in Counter(task for task, _ in self.began).items():
            allowed = 1 + interrupted.get(task, 0)
            if starts > allowed:
                found[task] = f"{starts} starts, and {allowed} are explained"
        # A task is interrupted only where its worker is gone, so no worker has it again.
        for (task, worker), starts in Counter(self.began).items():
            if worker and starts > 1:
                found[task] = f"{starts} starts by {worker}"
        return found
