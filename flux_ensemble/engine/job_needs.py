"""The needs of jobs, by their groups: nodes, cores, GPUs and time; see `placement`."""

from __future__ import annotations

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.placement import Need


class JobNeeds:
    """Computes the needs of one engine's jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: Group -> the needs of its jobs; None if they differ.
        self._of_group: dict[str, Need | None] = {}

    def differ(self, firing: Firing) -> bool:
        """Return whether the jobs of a firing may have different needs."""
        return firing.overrides is not None or self._group(firing.group) is None

    def of(self, firing: Firing, index: int) -> Need:
        """Return the needs of a job; if the group's jobs are alike, the maximum of its job sets."""
        need = self._group(firing.group)
        if need is not None and firing.overrides is None:
            return need
        job_set, _ = self._core.job_at(firing, index)
        return _need_of(job_set)

    def _group(self, group: str) -> Need | None:
        if group not in self._of_group:
            sets = self._core.spec.groups[group].sets
            alike = not any(job_set.variable for job_set in sets)
            self._of_group[group] = (
                Need(*map(max, zip(*map(_need_of, sets), strict=True))) if alike else None
            )
        return self._of_group[group]


def _need_of(job_set: JobSet) -> Need:
    return Need(
        nodes=job_set.nodes,
        cores=max(1, job_set.tasks * job_set.cores),
        gpus=job_set.tasks * job_set.gpus,
        seconds=job_set.duration,
        exclusive=job_set.exclusive,
    )
