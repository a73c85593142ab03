"""Members: the instances on which jobs are placed, and the jobs on each.

    StartMember ──► starting ──MemberUp──► up ──► draining ──MemberEnded──► (gone)
                                            └──MemberLost──► lost ──┘

The engine numbers its members. It chooses the member of a job when it sends the job (`dispatch`),
and the command carries the choice. It starts and drains members by the document and by `grow` and
`shrink`, and drains each some time before its allocation ends. Jobs that are bound to a member
run there or nowhere, so they are dropped when it drains or ends. `member_events` handles the
jobs of members that end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.keys.members import TASKS
from flux_ensemble.document.members import Pool
from flux_ensemble.document.model import Action
from flux_ensemble.engine.breaker import Breaker
from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.commands import (
    DrainMember,
    EndMember,
    StartMember,
    StartTimer,
    StopTimer,
)
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.events import MemberUp, Tag
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.jobs import ActiveJob, Phase
from flux_ensemble.engine.member import (
    LIVE,
    MEMBER_RULE,
    MOVED,
    SURPLUS_TIMER,
    Member,
)
from flux_ensemble.engine.pending import Answer, Origin, Pending
from flux_ensemble.engine.placement import Need, Place, Placement

#: Most seconds between two looks for members that no job needs.
SURPLUS_LIMIT = 15.0

#: Prefix of the key of the timer by which a member is drained; its number follows.
DRAIN_TIMER = "drain:"


class Members:
    """The members of one engine.

    Attributes:
        known: the members that are not gone, by their numbers, in ascending order.
        gone: pool -> the number of members that have ended.
        lost: pool -> the number of members that were lost.
        spared: pool -> the number of members that were asked for and ended because no job needed
            them, and that start when jobs do; see `surplus`. Pools without are left out.
        looking: True if the timer of `surplus` is set.
        surplus_seconds: between two looks of it.
        placement: chooses between the members that are up.
        breaker: finds the members on which everything fails.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = core.pending_table
        self._pools = {pool.name: pool for pool in core.spec.members}
        self.known: dict[int, Member] = {}
        self.gone = dict.fromkeys(self._pools, 0)
        self.lost = dict.fromkeys(self._pools, 0)
        self.spared: dict[str, int] = {}
        self.looking = False
        shortest = min([pool.idle for pool in core.spec.members if pool.idle], default=0.0)
        self.surplus_seconds = min(max(0.5, shortest / 4), SURPLUS_LIMIT)
        #: Pool -> the node seconds that members which have ended were up, where they are limited.
        self.used: dict[str, float] = {}
        self.placement = Placement()
        self.breaker = Breaker(core, self.known, self.placement)
        self._last_ordinal = 0
        self._numbers = dict.fromkeys(self._pools, 0)
        #: The pools of the members in the order of the start, run-length encoded: names of pools,
        #: each with the number of members that were started in a row.
        self._started: list[tuple[str, int]] = []
        #: Pool -> the number of its members in a state of LIVE.
        self._live = dict.fromkeys(self._pools, 0)
        self._firings = 0
        #: Groups for which the entry `not-placed` was logged -> the reason.
        self.not_placed: dict[str, str] = {}

    def _origin(self, member: str) -> Origin:
        """Return a new origin for a command on a member that the engine sends by itself."""
        self._firings += 1
        return Origin(f"{MEMBER_RULE}{member}", self._firings)

    def pool_of(self, key: int) -> str:
        """Return the name of the pool of an active job's member."""
        return self.known[ordinal_of(key)].pool.name

    def on_lost(self, key: int) -> str:
        """Return the `on-lost` of the pool of an active job's member."""
        return self.known[ordinal_of(key)].pool.on_lost

    def name_of_job(self, key: int) -> str:
        """Return the name of an active job's member."""
        return self.known[ordinal_of(key)].name

    def name_of(self, ordinal: int) -> str:
        """Return the name of a member, also of one that has ended."""
        if ordinal in self.known:
            return self.known[ordinal].name
        before = dict.fromkeys(self._pools, 0)
        for pool, number in self._started:
            if ordinal <= number:
                return f"{pool}.{before[pool] + ordinal - 1}"
            ordinal -= number
            before[pool] += number
        raise ValueError(f"there was no such member: {ordinal}")

    # -- starting and ending members ------------------------------------------------

    def begin(self) -> None:
        """Start the least number of members of each pool, at the start of the ensemble."""
        for pool in self._pools.values():
            for _ in range(pool.low):
                self._start(pool)

    def reopen(self, needed: Collection[str]) -> None:
        """Start other members, since the ensemble goes on after its end; those that it had end.

        Args:
            needed: the pools on which there are jobs to run. Each gets a member, also one with
                `min: 0`, because no rule on `start` fires that would start it.
        """
        self.spared.clear()
        for member in self.known.values():
            if member.state in LIVE:
                self.drain(member, "the ensemble had ended")
        for pool in self._pools.values():
            number = max(pool.low, pool.name in needed)
            for _ in range(min(number, self._affords(pool))):
                self._start(pool)

    def refill(self, pool: Pool) -> None:
        """Start another member of a pool if it has too few, and nobody has asked for that.

        An instance that was started by others (`uri`) is not started anew.
        """
        few = self._live[pool.name] < pool.low
        if pool.uri is None and self._core.acting and few and self._affords(pool):
            self._start(pool)

    def of(self, pool: str) -> list[Member]:
        """Return the members of a pool that have not ended."""
        return [member for member in self.known.values() if member.pool.name == pool]

    def live(self, pool: str) -> list[Member]:
        """Return the members of a pool on which jobs may be placed, now or soon."""
        return [member for member in self.of(pool) if member.state in LIVE]

    def starting(self, pool: str | None) -> list[Member]:
        """Return the members of a pool, or of all, that were requested and are not up yet."""
        return [
            member
            for member in self.known.values()
            if member.state == "starting" and pool in (None, member.pool.name)
        ]

    def objection(self, action: Action) -> str | None:
        """Return why a `grow` or `shrink` of a pool would change nothing; None if it would."""
        pool = self._pools[action.label or ""]
        number, spared = len(self.live(pool.name)), self.spared.get(pool.name, 0)
        if action.name == "grow" and number + spared >= pool.high:
            more = f", {spared} more that start when jobs need them" if spared else ""
            return f"pool {pool.name!r} has {number} members{more}, and at most {pool.high}"
        if action.name == "grow" and (spent := self.spent(pool)) is not None:
            return spent
        if action.name == "grow" or number + spared > pool.low:
            return None
        return f"pool {pool.name!r} has {number} members, and at least {pool.low}"

    def node_hours(self, pool: Pool) -> float:
        """Return the node hours that a pool has used, and that its members may use."""
        seconds = self.used.get(pool.name, 0.0)
        return (seconds + len(self.of(pool.name)) * pool.nodes * pool.duration) / 3600

    def spent(self, pool: Pool) -> str | None:
        """Return why the node hours of a pool allow no more members; None if they do."""
        if self._affords(pool):
            return None
        hours, most = self.node_hours(pool), pool.limits.node_hours
        another = pool.nodes * pool.duration / 3600
        return (
            f"no more members of {pool.name}: {hours:.4g} of {most:g} node hours are used or asked "
            f"for, and another one takes {another:.4g}"
        )

    def _affords(self, pool: Pool) -> int:
        """Return how many more members the node hours of a pool allow."""
        most = pool.limits.node_hours
        if most == math.inf:
            return pool.high
        another = pool.nodes * pool.duration / 3600
        # A sum of floats can be a little more than its parts.
        return max(0, int((most - self.node_hours(pool)) / another + 1e-9))

    def resize(self, action: Action, origin: Origin) -> None:
        """Perform a `grow` or `shrink` of a pool: start or drain members, or deny it."""
        pool = self._pools[action.label or ""]
        reason = self.objection(action)
        if reason is not None:
            return self._tell("scale-denied", origin, pool, ok=False, reason=reason)
        live = self.live(pool.name)
        if action.name == "grow":
            room = pool.high - len(live) - self.spared.get(pool.name, 0)
            number = min(action.value, room, self._affords(pool))
            names = [self._start(pool).name for _ in range(number)]
        else:
            # First those that are not there.
            number = action.value - self._forget_spared(pool, action.value)
            number = max(0, min(number, len(live) - pool.low))
            # First the member of the firing's rule, then those with the fewest jobs, and among
            # equal ones the latest.
            own = origin.member
            idlest = sorted(live, key=lambda each: (each.ordinal != own, each.busy, -each.ordinal))
            del idlest[number:]
            names = [member.name for member in idlest]
            for member in idlest:
                self.drain(member, "the pool shrinks")
        return self._tell("scale-done", origin, pool, ok=True, members=names)

    def _tell(self, trigger: str, origin: Origin, pool: Pool, **context: Any) -> None:
        core = self._core
        outcome = eventlog.Outcome(
            rule=origin.rule, firing=origin.number, pool=pool.name, **context
        )
        core.record(outcome)
        if core.acting:
            where = {"rule": origin.rule, "firing": origin.number, "pool": pool.name}
            event = {"trigger": trigger, **where, "timestamp": core.t, **context}
            core.answers.append(Answer(trigger, origin, event))

    def _start(self, pool: Pool) -> Member:
        self._last_ordinal += 1
        number = self._numbers[pool.name]
        self._numbers[pool.name] = number + 1
        if self._started and self._started[-1][0] == pool.name:
            self._started[-1] = pool.name, self._started[-1][1] + 1
        else:
            self._started.append((pool.name, 1))
        member = Member(f"{pool.name}.{number}", self._last_ordinal, pool)
        self.known[member.ordinal] = member
        self._core.member_names[member.ordinal] = member.name
        self._live[pool.name] += 1
        self.not_placed.clear()
        if not self.looking and self.beyond(pool):
            self.looking = True
            self._core.emit(StartTimer(SURPLUS_TIMER, self.surplus_seconds))
        self._core.record(eventlog.MemberStart(member=member.name))
        command = StartMember(self._table.next_id(), member.name, pool.name, member.ordinal)
        self._core.send(Pending(self._origin(member.name), command))
        return member

    def beyond(self, pool: Pool) -> bool:
        """Return whether a pool has members beyond its least that end if no job needs them."""
        spared = self.spared.get(pool.name, 0)
        return bool(pool.idle) and self._live[pool.name] + spared > pool.low

    def spare(self, member: Member, reason: str) -> None:
        """End a member that no job needs, until one does."""
        pool = member.pool.name
        self.spared[pool] = self.spared.get(pool, 0) + 1
        self.drain(member, f"{reason}, and the pool has more than 'min'")

    def start_spared(self, pool: Pool, needed: int) -> None:
        """Start as many of the members of a pool that were not needed as are now."""
        for _ in range(self._forget_spared(pool, min(needed, self._affords(pool)))):
            self._start(pool)

    def _forget_spared(self, pool: Pool, most: int) -> int:
        """Take members from `spared`; return how many."""
        number = max(0, min(most, self.spared.get(pool.name, 0)))
        if number:
            left = self.spared.pop(pool.name) - number
            if left:
                self.spared[pool.name] = left
        return number

    def started(self, ordinal: int, job: str | None) -> None:
        """Note the id of a member's job, if its provider has that written down."""
        if ordinal in self.known:
            self.known[ordinal].job = job

    def _enter(self, member: Member, state: str) -> None:
        if member.state in LIVE and state not in LIVE:
            self._live[member.pool.name] -= 1
        member.enter(state)

    def opened(self, member: Member, event: MemberUp) -> None:
        """Open a member that has come up for jobs, and set its drain timer."""
        self._enter(member, "up")
        self._open(member, event)
        time_drain(self._core, member)

    def _open(self, member: Member, event: MemberUp) -> None:
        member.up = event
        t_expires = math.inf if event.t_expires is None else event.t_expires
        member.place = Place(
            member.ordinal,
            member.pool.name,
            max(1, event.nodes),
            max(1, event.cores),
            event.gpus,
            t_expires,
            member.pool.calls,
            member.pool.runs == TASKS,
        )
        self.placement.add(member.place)

    def drain(self, member: Member, reason: str) -> None:
        """Drain a member: it gets no more jobs, and those that have not started move to others."""
        core, up = self._core, member.state == "up"
        self._enter(member, "draining")
        member.reason = reason
        self._close(member)
        active = len(member.jobs)
        core.record(eventlog.MemberDraining(member=member.name, reason=reason, active=active))
        if not up:
            self._end(member)
            return
        command = DrainMember(self._table.next_id(), member.name, member.ordinal)
        core.send(Pending(self._origin(member.name), command))
        jobs = [core.workload.jobs[key] for key in member.jobs]
        waiting = [job for job in jobs if job.phase < Phase.RUNNING and not job.canceling]
        self.move(member, waiting)
        self._end_if_over(member)

    def _close(self, member: Member) -> None:
        if member.place is not None and member.place.open:
            self.placement.close(member.place)
            self.breaker.forget(member.ordinal)
            stop_timer(self._core, member)
            release(self._core, member)

    def move(self, member: Member, jobs: list[ActiveJob]) -> None:
        """Cancel jobs that have not started, so that they run elsewhere."""
        for job in jobs:
            job.evict()
        if jobs:
            origin = self._origin(member.name)
            self._core.cancel(tuple(job.id for job in jobs), MOVED, origin)

    def _end(self, member: Member) -> None:
        member.ending = True
        command = EndMember(self._table.next_id(), member.name, member.ordinal)
        self._core.send(Pending(self._origin(member.name), command))

    def _end_if_over(self, member: Member) -> None:
        if member.state == "draining" and not member.ending and not member.busy:
            self._end(member)

    def lose(self, member: Member, reason: str) -> None:
        """Mark a member as lost."""
        self._enter(member, "lost")
        member.reason = reason
        self._close(member)
        self.lost[member.pool.name] += 1

    def end(self, member: Member) -> None:
        """Mark a member as ended; the caller ends its jobs, and then calls `forget`."""
        self._enter(member, "ended")
        self._close(member)

    def forget(self, member: Member) -> list[int]:
        """Forget a member that has ended with its jobs; return the ids of its open commands."""
        if member.place is not None:
            self.placement.remove(member.place)
        self.gone[member.pool.name] += 1
        if member.up is not None and member.pool.limits.node_hours < math.inf:
            used = max(0.0, self._core.t - member.up.t) * member.pool.nodes
            self.used[member.pool.name] = self.used.get(member.pool.name, 0.0) + used
        del self.known[member.ordinal], self._core.member_names[member.ordinal]
        return [
            id
            for id, pending in self._table.commands.items()
            if getattr(pending.command, "ordinal", 0) == member.ordinal
        ]

    # -- the jobs of each member ------------------------------------------------------

    def none_for(self, group: str, pools: tuple[str, ...], need: Need) -> None:
        """Log, once for a group, that no member could ever have room for a job of the group.

        A member that starts when jobs need it is started.
        """
        if self.spared and not any(self._live[pool] for pool in pools):
            for pool in pools:
                self.start_spared(self._pools[pool], 1)
        if group in self.not_placed:
            return
        live = sum(self._live[pool] for pool in pools)
        up = self.placement.number(pools)
        if live > up or (live and self.placement.holds(pools, need)):
            return
        fault = f"is large enough for a job of {need}"
        what = fault if live else "is up or starting; 'grow' starts one"
        self.not_placed[group] = reason = f"no member of {', '.join(pools)} {what}"
        self._core.record(eventlog.NotPlaced(group=group, reason=reason))

    def takes_jobs(self, ordinal: int) -> bool:
        """Return whether a member is up; if it is not, its refusals are no fault of the jobs."""
        member = self.known.get(ordinal)
        return member is not None and member.state == "up"

    def expects(self, key: int, tag: Tag) -> bool:
        """Return whether a job was sent to the member on which it appeared."""
        member = self.known.get(ordinal_of(key))
        return member is not None and (tag.rule, tag.firing, tag.index) in member.flying

    def admitted(self, job: ActiveJob) -> Member:
        """Note that a job has appeared on its member; return the member."""
        member = self.known[ordinal_of(job.id)]
        assert job.firing is not None
        cores = member.flying.pop((job.firing.rule, job.firing.number, job.index))
        member.jobs[job.id] = cores
        return member

    def t_expires(self, key: int) -> float | None:
        """Return when the time of an active job's member is up; None if it has no limit."""
        up = self.known[ordinal_of(key)].up
        return None if up is None else up.t_expires

    def left(self, job: ActiveJob) -> None:
        """Note that a job is gone from its member, and end the member if it is drained."""
        member = self.known[ordinal_of(job.id)]
        cores = member.jobs.pop(job.id)
        if member.place is not None:
            self.placement.give(member.place, cores, self._core.t)
        self._end_if_over(member)

    # -- invariants ---------------------------------------------------------------------

    def check(self) -> None:
        """Check the invariants.

        Raises:
            AssertionError: an invariant is broken.
        """
        workload = self._core.workload
        assert all(number == len(self.live(pool)) for pool, number in self._live.items())
        keys = [key for member in self.known.values() for key in member.jobs]
        assert sorted(keys) == sorted(workload.jobs)
        for member in self.known.values():
            assert all(ordinal_of(key) == member.ordinal for key in member.jobs)
            for rule, number, index in member.flying:
                assert workload.firings.expecting(rule, number, index) is not None
            taken = sum(member.jobs.values()) + sum(member.flying.values())
            if member.place is None:
                assert not taken
            else:
                assert (member.place.taken, member.place.open) == (taken, member.state == "up")
        assert all(self.known[ordinal].state == "up" for ordinal in self.breaker.closed)
        flying = sum(len(member.flying) for member in self.known.values())
        assert flying == sum(firing.unseen + firing.lost for firing in workload.firings)

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the members as JSON; the members of active jobs follow from the jobs' keys."""
        more: dict[str, Any] = {} if self.breaker.idle else {"breaker": self.breaker.dump()}
        unwanted = [
            [member.ordinal, *tag]
            for member in self.known.values()
            for tag in sorted(member.unwanted)
        ]
        if unwanted:
            more["unwanted"] = unwanted
        jobs = [[member.ordinal, member.job] for member in self.known.values() if member.job]
        if jobs:
            more["jobs"] = jobs
        if self.used:
            more["used"] = self.used
        if self.looking:
            unneeded = [
                [member.ordinal, member.t_unneeded]
                for member in self.known.values()
                if member.t_unneeded is not None
            ]
            more["surplus"] = [dict(self.spared), unneeded]
        return {
            **more,
            "last": self._last_ordinal,
            "numbers": self._numbers,
            "started": self._started,
            "firings": self._firings,
            "gone": self.gone,
            "lost": self.lost,
            "not_placed": list(self.not_placed.items()),
            "members": [
                [
                    member.name,
                    member.ordinal,
                    member.pool.name,
                    member.state,
                    member.reason,
                    member.ending,
                    None if member.up is None else to_json(member.up),
                    None if member.place is None else list(member.place.rate),
                    [[*tag, cores] for tag, cores in member.flying.items()],
                    list(member.jobs.values()),
                ]
                for member in self.known.values()
            ],
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`; the active jobs must be loaded before."""
        self._last_ordinal, self._firings = value["last"], value["firings"]
        self._numbers = dict(value["numbers"])
        self._started = [(pool, number) for pool, number in value["started"]]
        self.gone, self.lost = dict(value["gone"]), dict(value["lost"])
        self.not_placed = dict(value["not_placed"])
        keys: dict[int, list[int]] = {}
        for key in self._core.workload.jobs:
            keys.setdefault(ordinal_of(key), []).append(key)
        for name, ordinal, pool, state, reason, ending, up, rate, flying, jobs in value["members"]:
            member = self.known[ordinal] = Member(name, ordinal, self._pools[pool])
            member.state, member.reason = state, reason
            member.ending = ending
            self._live[pool] += state in LIVE
            self._core.member_names[ordinal] = name
            for rule, number, index, cores in flying:
                member.flying[rule, number, index] = cores
            member.jobs = dict(zip(keys.get(ordinal, ()), jobs, strict=True))
            if up is not None:
                event = event_from_json(up)
                assert isinstance(event, MemberUp)
                self._open(member, event)
                assert member.place is not None
                member.place.rate = list(rate)
                taken = sum(member.jobs.values()) + sum(member.flying.values())
                self.placement.take(member.place, taken)
                if state != "up":
                    self.placement.close(member.place)
        self.used = dict(value.get("used", {}))
        if "breaker" in value:
            self.breaker.load(value["breaker"])
        for ordinal, rule, number, index in value.get("unwanted", ()):
            self.known[ordinal].unwanted.add((rule, number, index))
        if "surplus" in value:
            self.looking = True
            spared, unneeded = value["surplus"]
            self.spared.update(spared)
            for ordinal, t in unneeded:
                self.known[ordinal].t_unneeded = t
        for ordinal, job in value.get("jobs", ()):
            self.known[ordinal].job = job


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
