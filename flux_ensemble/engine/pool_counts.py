"""The counters of a group by the pool on which the jobs are: `success@pool`.

If rules with `scope: member` read counters, the jobs are counted by the member, too.
"""

from __future__ import annotations

from flux_ensemble.engine.job_changes import Change
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.members import Members
from flux_ensemble.metrics.names import COUNTERS
from flux_ensemble.metrics.paths import COUNT
from flux_ensemble.metrics.streams import Metrics


class PoolCounts:
    """Counts jobs for the pools and members of one engine."""

    def __init__(self, stats: Metrics, members: Members) -> None:
        self._counts = stats.counts
        self._of_members = stats.of_members
        self._members = members
        self._names = {
            pool: tuple((counter, f"{counter}@{pool}") for counter in COUNTERS)
            for pool in members.gone
        }
        for counts in self._counts.values():
            for pool in members.gone:
                counts.update({f"{counter}@{pool}": 0 for counter in COUNTERS})

    def validated(self, job: ActiveJob, group: str) -> tuple[Change, ...]:
        """Count a submitted job for its pool; return the change."""
        counter = f"submitted@{self._members.pool_of(job.id)}"
        self._counts[group][counter] += 1
        if self._of_members.active:
            self._of_members.count(self._members.name_of_job(job.id), group, "submitted", 1)
        return ((COUNT, counter),)

    def before(self, group: str) -> list[int]:
        """Return the counters of a group, for `concluded`, before a job is counted."""
        counts = self._counts[group]
        return [counts[counter] for counter in COUNTERS]

    def concluded(self, job: ActiveJob, group: str, before: list[int]) -> tuple[Change, ...]:
        """Add the growth of a group's counters since `before` to those of the job's pool.

        Returns:
            The changes of the pool's counters.
        """
        counts, pool = self._counts[group], self._members.pool_of(job.id)
        changed: list[Change] = []
        for (counter, of_pool), number in zip(self._names[pool], before, strict=True):
            if counts[counter] != number:
                counts[of_pool] += counts[counter] - number
                if self._of_members.active:
                    name = self._members.name_of_job(job.id)
                    self._of_members.count(name, group, counter, counts[counter] - number)
                changed.append((COUNT, of_pool))
        return tuple(changed)
