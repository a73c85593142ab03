"""Members that no job needs end, and start again when one does."""

from __future__ import annotations

from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.commands import Command, EndMember, StartMember, StartTimer
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    JobEvent,
    MemberEnded,
    MemberUp,
    Request,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make
from flux_ensemble.engine.member import SURPLUS_TIMER
from flux_ensemble.engine.members import SURPLUS_LIMIT
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.engine.status import status


class Bench:
    """An engine with a pool in Slurm, of which each look restores a snapshot first."""

    def __init__(self, rules: Any = (), jobs: int = 4, **pool: Any) -> None:
        members = [
            {"name": "pool", "from": "slurm", "count": {"min": 0, "max": 9}, "idle": "1m", **pool}
        ]
        document = {
            "name": "test",
            "finish": "never",
            "members": members,
            "jobs": [{"name": "a", "command": "a", "count": jobs}],
            "rules": list(rules),
        }
        self.one = Engine(load_mapping(document))
        self.one.stats.keep_values()
        self.t = 0.0
        self.request = 0
        self.looks = 0
        self.values: list[Any] = []
        self.told: list[StartMember | EndMember] = []
        self.take(Started(0.0))

    def take(self, event: Any) -> list[Command]:
        """Handle an event; what the members are told is in `told`."""
        commands = self.one.handle(event)
        self.one.check()
        self.looks += sum(
            isinstance(each, StartTimer) and each.key == SURPLUS_TIMER for each in commands
        )
        assert self.looks <= 1
        self.told += [each for each in commands if isinstance(each, (StartMember, EndMember))]
        return commands

    def ask(self, **action: Any) -> list[Command]:
        self.request += 1
        return self.take(Request(self.t, self.request, "action", {"action": action}))

    def wait(self, seconds: float) -> None:
        """Let time pass, and let the engine look each time that it wants to."""
        for _ in range(round(seconds / SURPLUS_LIMIT)):
            self.t += SURPLUS_LIMIT
            if self.looks:
                self.looks = 0
                self.values.append(self.one.stats.take_values())
                self.one = restore(self.one.spec, dump(self.one), self.values)
                self.one.stats.keep_values()
                self.take(TimerFired(self.t, SURPLUS_TIMER))

    def up(self, ordinal: int, cores: int = 2) -> None:
        self.take(MemberUp(self.t, f"pool.{ordinal - 1}", ordinal, 1, cores, 0, None))

    def gone(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            self.take(MemberEnded(self.t, f"pool.{ordinal - 1}", ordinal, "it was ended"))

    def runs(self, ordinal: int, index: int, number: int = 0, *, ends: bool = True) -> None:
        """Have a job start that was sent to a member, and perhaps end."""
        key = make(ordinal, index + 1 + 100 * number)
        tag = Tag("a", "request", number, index)
        for name in ("submit", "validate", "alloc", "start", "finish", "clean")[: 6 if ends else 4]:
            context = {"status": 0} if name == "finish" else {}
            self.take(JobEvent(self.t, key, name, context, tag if name == "submit" else None))

    @property
    def names(self) -> list[str]:
        """What was started (+) and ended (-) since the last question."""
        told = [
            f"{'+' if isinstance(each, StartMember) else '-'}{each.ordinal}" for each in self.told
        ]
        self.told.clear()
        return told

    @property
    def spared(self) -> int:
        return status(self.one)["pools"]["pool"].get("spared", 0)


def test_those_in_a_queue_that_no_job_needs_any_more_are_cancelled_and_start_when_needed() -> None:
    bench = Bench()
    bench.ask(name="submit", label="a")
    bench.ask(name="grow", label="pool", value=4)
    assert bench.names == ["+1", "+2", "+3", "+4"]
    bench.wait(300)
    assert bench.names == [], "each may be needed for one of the four jobs"
    bench.up(1)
    # Two of the jobs wait for a second member of two cores.
    bench.wait(90)
    assert bench.names == ["-4", "-3"]
    assert bench.spared == 2
    bench.gone(3, 4)
    for index in (0, 1):
        bench.runs(1, index)
    for index in (2, 3):
        bench.runs(1, index)
    bench.wait(90)
    assert sorted(bench.names) == ["-1", "-2"], "one has been idle, and nothing waits for the other"
    bench.gone(1, 2)
    bench.wait(600)
    assert bench.names == []
    assert bench.spared == 4
    bench.ask(name="submit", label="a")
    assert bench.names == ["+5"], "at once, since no other is there"
    bench.wait(15)
    assert bench.names == ["+6", "+7", "+8"], "none is up that would say how many cores they have"
    assert bench.spared == 0


def test_none_is_cancelled_that_was_not_needed_for_a_short_time_only() -> None:
    bench = Bench()
    bench.ask(name="grow", label="pool", value=2)
    bench.wait(45)
    bench.ask(name="submit", label="a")
    bench.wait(300)
    assert bench.names == ["+1", "+2"]


def test_the_least_stays() -> None:
    bench = Bench(count={"min": 1, "max": 9})
    bench.ask(name="grow", label="pool", value=2)
    bench.wait(600)
    assert bench.names == ["+1", "+2", "+3", "-3", "-2"]


def test_one_on_which_a_job_runs_stays_and_so_does_one_that_a_rule_waits_for() -> None:
    bench = Bench(jobs=1)
    bench.ask(name="submit", label="a")
    bench.ask(name="grow", label="pool", value=1)
    bench.up(1)
    bench.runs(1, 0, ends=False)
    bench.wait(600)
    assert bench.names == ["+1"]
    rule = {"trigger": "member-up", "action": {"name": "submit", "label": "a"}}
    bench = Bench(rules=[rule])
    bench.ask(name="grow", label="pool", value=1)
    bench.wait(600)
    assert bench.names == ["+1"]


def test_zero_is_never_and_flux_members_stay_by_default() -> None:
    for pool in ({"idle": 0}, {"from": "flux", "idle": 0}):
        bench = Bench(**pool)
        bench.ask(name="grow", label="pool", value=2)
        bench.wait(6000)
        assert bench.names == ["+1", "+2"]
    document = {"members": [{"name": "pool"}, {"name": "hpc", "from": "slurm"}]}
    jobs = [{"name": "a", "command": "a"}]
    rules = [{"trigger": "start", "action": {"name": "submit", "label": "a"}}]
    spec = load_mapping({"name": "test", "jobs": jobs, "rules": list(rules), **document})
    assert [pool.idle for pool in spec.members] == [0.0, 300.0]


def test_those_that_were_spared_count_for_the_most_and_shrink_takes_them_first() -> None:
    bench = Bench()
    bench.ask(name="grow", label="pool", value=9)
    bench.wait(90)
    bench.gone(*range(1, 10))
    denied = repr(bench.ask(name="grow", label="pool", value=1))
    assert "has 0 members, 9 more that start when jobs need them, and at most 9" in denied
    bench.ask(name="shrink", label="pool", value=7)
    assert bench.spared == 2
    bench.ask(name="grow", label="pool", value=9)
    assert bench.spared == 2
    assert len(bench.names) == 9 + 9 + 7
