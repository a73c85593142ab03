"""What jobs need of a member, by their groups; see `placement`."""

from __future__ import annotations

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.placement import Need


class JobNeeds:
    """What the jobs of one engine need."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: None for groups whose jobs differ.
        self._of_group: dict[str, Need | None] = {}

    def differ(self, firing: Firing) -> bool:
        """Whether the jobs of a firing may need different things."""
        return firing.overrides is not None or self._group(firing.group) is None

    def of(self, firing: Firing, index: int) -> Need:
        """What a job needs; where the jobs of its group are alike, the most that one does."""
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
