"""Surplus: members beyond the least of a pool that no job needs end, and start again when one does.

    starting ──needed by no waiting job──┐
    up ──no job on it────────────────────┴──for `idle`──► drained; its pool has one more in `spared`
    spared ──jobs wait that fill another member──► started

So what a rule or a user has asked for by `grow` stays asked for; it is only not there while nothing
would run on it. A member is not needed only if nothing has changed about that for the `idle` of its
pool, so rules may submit jobs after they have asked for members. Members for which a rule on
`member-up` waits are needed: that rule may submit the jobs.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from flux_ensemble.document.members import Pool
from flux_ensemble.engine.commands import StartTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.dispatch import JobNeeds, pools_of
from flux_ensemble.engine.member import SURPLUS_TIMER, Member
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.placement import Need
from flux_ensemble.words import in_words


class Surplus:
    """Looks for members that no job needs, in one engine.

    Args:
        core: the engine's core.
        members: the members.
    """

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members
        self._needs = JobNeeds(core)
        self._groups = {
            pool.name: [
                group for group in core.spec.groups if pool.name in pools_of(core.spec, group)
            ]
            for pool in core.spec.members
            if pool.idle
        }

    def look(self) -> None:
        """Handle the timer: end members that were not needed for long, start those that are."""
        members, core = self._members, self._core
        if not core.acting:
            members.looking = False
            return
        for pool in core.spec.members:
            if pool.idle:
                self._look(pool)
        members.looking = any(map(members.beyond, core.spec.members))
        if members.looking:
            core.emit(StartTimer(SURPLUS_TIMER, members.surplus_seconds))

    def _look(self, pool: Pool) -> None:
        members, t = self._members, self._core.t
        starting = members.starting(pool.name)
        needed = self._needed(pool, len(starting))
        members.start_spared(pool, needed - len(starting))
        for member in starting[:needed]:
            member.t_unneeded = None
        for member in starting[needed:]:
            if member.t_unneeded is None:
                member.t_unneeded = t
        bound = {firing.near for firing in self._core.workload.firings if firing.bound}
        unneeded = [
            member
            # The latest first: these are the last that their site would start.
            for member in reversed(members.live(pool.name))
            if (since := _since(member, bound)) is not None and t - since >= pool.idle
        ]
        for member in unneeded[: max(0, len(members.live(pool.name)) - pool.low)]:
            what = "nothing has run on it" if member.state == "up" else "no job has needed it"
            members.spare(member, f"{what} for {in_words(pool.idle)}")

    def _needed(self, pool: Pool, starting: int) -> int:
        """Return how many more members of a pool the jobs would fill that no member has room for.

        Args:
            pool: the pool.
            starting: number of its members that are not up.
        """
        core = self._core
        for state in core.rules.plain("member-up"):
            if state.armed and state.rule.name in (None, pool.name):
                return starting
        shares = 0.0
        for firing in core.workload.firings:
            if firing.waiting and not firing.bound and firing.group in self._groups[pool.name]:
                shares += firing.waiting * self._share(
                    pool, self._needs.of(firing, firing.upcoming)
                )
        return math.ceil(shares - 1e-9)

    def _share(self, pool: Pool, need: Need) -> float:
        """Return the share of a member that a job takes; 1 if nobody knows its cores yet."""
        for place in self._members.placement.places.values():
            if place.pool == pool.name:
                return min(1.0, place.weight(need) / place.cores)
        cores = 0 if pool.exclusive else pool.nodes * pool.cores
        return min(1.0, need.cores / cores) if cores else 1.0


def _since(member: Member, bound: Collection[int]) -> float | None:
    """Return since when no job needs a member; None if one does.

    Args:
        member: the member.
        bound: the ordinals of members that waiting jobs are bound to.
    """
    if member.state == "starting":
        return member.t_unneeded
    if member.busy or member.place is None or member.up is None or member.ordinal in bound:
        return None
    return max(member.up.t, member.place.t_ended)
