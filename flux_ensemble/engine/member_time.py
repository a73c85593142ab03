"""The time limits of members, and the timers by which they are drained before these."""

from __future__ import annotations

import math
from dataclasses import replace

from flux_ensemble.engine.commands import StartTimer, StopTimer
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.member import Member
from flux_ensemble.engine.placement import Placement

#: Prefix of the timer's key; the member's number follows.
DRAIN_TIMER = "drain:"


def time_drain(core: Core, member: Member) -> None:
    """Set the drain timer of a member that is up; it replaces an earlier one."""
    assert member.up is not None
    if member.up.t_expires is not None:
        after = max(0.0, member.up.t_expires - member.pool.drain - core.t)
        core.emit(StartTimer(f"{DRAIN_TIMER}{member.ordinal}", after))


def stop_timer(core: Core, member: Member) -> None:
    """Stop the drain timer of a member, if it has one."""
    if member.up is not None and member.up.t_expires is not None:
        core.emit(StopTimer(f"{DRAIN_TIMER}{member.ordinal}"))


def change_limit(core: Core, placement: Placement, member: Member, t_expires: float | None) -> None:
    """Change the time limit of a member that is or was up; `t_expires` None is no limit."""
    assert member.up is not None
    assert member.place is not None
    if member.state == "up":
        stop_timer(core, member)
    member.up = replace(member.up, t_expires=t_expires)
    placement.limit(member.place, math.inf if t_expires is None else t_expires)
    if member.state == "up":
        time_drain(core, member)
