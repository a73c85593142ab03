"""Jobs bound to a member: they run there or nowhere, so they are dropped when it drains or ends."""

from __future__ import annotations

from collections.abc import Collection

from flux_ensemble import eventlog
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.member import Member


def drop_bound(core: Core, ordinal: int, groups: Collection[str]) -> int:
    """Drop the waiting jobs of groups that are bound to a member; return their number."""
    firings = [each for each in core.workload.firings if each.bound and each.near == ordinal]
    dropped = 0
    for firing in firings:
        if firing.group in groups and firing.waiting:
            core.give_up(firing)
            dropped += core.workload.drop(firing)
    return dropped


def release(core: Core, member: Member) -> None:
    """Drop the jobs that are bound to a member that takes no more jobs, and log that."""
    if not core.rules.any_of_member:
        return
    for group in core.spec.groups:
        dropped = drop_bound(core, member.ordinal, (group,))
        if dropped:
            reason = f"{dropped} were to run on {member.name} alone, which takes no more jobs"
            core.record(eventlog.JobsDropped(group=group, member=member.name, reason=reason))
