"""The counters of a group by the pool of the members that its jobs are on: `success@pool`.

And by the member, where rules with `scope: member` name them.
"""

from __future__ import annotations

from flux_ensemble.engine.job_changes import Change
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.members import Members
from flux_ensemble.metrics.names import COUNTERS
from flux_ensemble.metrics.paths import COUNT
from flux_ensemble.metrics.streams import Metrics


class PoolCounts:
    """Counts for the pools of one engine."""

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
        """A job was counted as submitted."""
        counter = f"submitted@{self._members.pool_of(job.id)}"
        self._counts[group][counter] += 1
        if self._of_members.active:
            self._of_members.count(self._members.name_of_job(job.id), group, "submitted", 1)
        return ((COUNT, counter),)

    def before(self, group: str) -> list[int]:
        """The counters of a group, before a job is counted."""
        counts = self._counts[group]
        return [counts[counter] for counter in COUNTERS]

    def concluded(self, job: ActiveJob, group: str, before: list[int]) -> tuple[Change, ...]:
        """A job was counted: count it for its pool; what changed by that."""
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
