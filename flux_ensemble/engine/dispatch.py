"""Dispatch: the choice of a member for the jobs of a firing, by the firing's wishes.

`placement` makes the choice between the members that remain. A firing may prefer one member
(`near`), or avoid some (`avoid`). Both wishes hold as long as a member that meets them is feasible,
full or not; if none is, the jobs are sent like others. Members in doubt (`breaker`) are avoided in
the same way. The jobs of a firing that is `bound` run on that member or nowhere, in doubt or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.placement import Need, Place


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


def pools_of(spec: Spec, group: str) -> tuple[str, ...]:
    """Return the names of the pools on which jobs of a group run."""
    sets = spec.groups[group].sets
    wanted = sets[0].member if sets else None
    return tuple(pool.name for pool in spec.members if wanted is None or pool.has(wanted))


class Dispatch:
    """Places the jobs of one engine.

    Args:
        core: the engine's core.
        members: the members.
    """

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self.members = members
        self._placement = members.placement
        self._breaker = members.breaker
        self._needs = JobNeeds(core)
        self._allowed: dict[str, tuple[str, ...]] = {}
        for name in core.spec.groups:
            self._allowed[name] = pools_of(core.spec, name)

    def fits(self, firing: Firing, index: int) -> int:
        """Return how many jobs of a firing, from `index` on, can be sent to one member now."""
        need = self._needs.of(firing, index)
        place = self._choose(firing, need)
        if place is None:
            if not firing.bound:
                self.members.none_for(firing.group, self._allowed[firing.group], need)
            return 0
        if self._needs.differ(firing) or self._breaker.on_trial(place.ordinal):
            return 1
        pools = self._allowed[firing.group]
        others = self._placement.number(pools)
        if place.ordinal == firing.near:
            others = 1
        return place.slice(need, self._core.t, firing.waiting, others)

    def bars(self, firing: Firing) -> str | None:
        """Return why a job of a firing cannot run on the member it is bound to; None if all can."""
        name = self.members.name_of(firing.near)
        place = self._placement.places.get(firing.near)
        if place is None or not place.open:
            member = self.members.known.get(firing.near)
            return f"member {name} {'has ended' if member is None else f'is {member.state}'}"
        if place.pool not in self._allowed[firing.group]:
            return f"jobs of group {firing.group!r} do not run on member {name}"
        stop = firing.stop if self._needs.differ(firing) else firing.first + 1
        for index in range(firing.first, stop):
            if not place.feasible(self._needs.of(firing, index), self._core.t):
                return f"member {name} is too small for the job, or does not last long enough"
        return None

    def place(self, firing: Firing, first: int, count: int) -> int:
        """Place jobs of a firing on the member that `fits` found; return the member's number."""
        need = self._needs.of(firing, first)
        place = self._choose(firing, need)
        assert place is not None
        member, cores = self.members.known[place.ordinal], place.weight(need)
        for index in range(first, first + count):
            member.flying[firing.rule, firing.number, index] = cores
        self._placement.take(place, cores * count)
        if self._breaker.on_trial(place.ordinal):
            self._breaker.placed(place.ordinal, firing, first)
        return place.ordinal

    def _choose(self, firing: Firing, need: Need) -> Place | None:
        placement, t = self._placement, self._core.t
        pools = self._allowed[firing.group]
        closed = self._breaker.closed
        if firing.bound:
            place = placement.places.get(firing.near)
            fits = place is not None and place.feasible(need, t) and place.room(need, t)
            return place if fits else None
        if firing.near and firing.near not in closed and firing.near not in firing.avoid:
            place = placement.places.get(firing.near)
            if place is not None and place.pool in pools and place.feasible(need, t):
                return place if place.room(need, t) else None
        place = placement.choose(pools, need, t)
        if place is None:
            return None
        for avoided in self._avoided(firing):
            if place.ordinal not in avoided:
                return place
            other = placement.choose(pools, need, t, avoided)
            if other is not None or placement.feasible(pools, need, t, avoided):
                return other
        return place

    def _avoided(self, firing: Firing) -> Iterator[Collection[int]]:
        """Yield the sets of members to avoid while others are feasible, the strictest set first."""
        closed = self._breaker.closed
        if firing.avoid:
            yield closed.union(firing.avoid)
        if closed:
            yield closed
