"""Nothing lost, nothing twice, over several members: services are killed and members die.

All instances number their jobs from 1, so an id alone says nothing. The checks are the same after
each run; the controls take away what they depend on, and have to be found out.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import Any

import pytest
from member_world import CLEAN, Service, World

from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.events import MemberLost

UNLIMITED = {"repetitions": "unlimited"}

DOCUMENT: dict[str, Any] = {
    "name": "test",
    "members": [
        {"name": "pool", "count": {"min": 3, "max": 6}, "duration": "12s", "drain": "3s"},
    ],
    "jobs": [
        {"name": "a", "command": "a {p}", "params": {"p": {"range": [0, 30]}}},
        {"name": "b", "command": "b", "duration": "4s"},
    ],
    "rules": [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {
            "trigger": "job-success",
            "group": "a",
            "action": {"name": "submit", "label": "b", **UNLIMITED},
        },
        {
            "trigger": "member-draining",
            "action": {"name": "grow", "label": "pool", **UNLIMITED},
        },
        {"trigger": "member-lost", "action": {"name": "grow", "label": "pool", **UNLIMITED}},
    ],
    # Members are lost all the time.
    "limits": {"losses": 1000},
}

#: How many runs; `make chaos` has more.
RUNS = max(3, int(os.environ.get("CRASHES", "20")) // 4)


def lived(seed: int, **world: Any) -> World:
    """A world that has come to its end."""
    one = World(DOCUMENT, seed, **world)
    one.run(crashes=6, mean=2.0)
    return one


def faults(world: World) -> list[str]:
    """What is wrong with what has been."""
    found = list(world.faults)
    tags = Counter(job.tag for job in world.jobs)
    found += [f"{tag} is there {number} times" for tag, number in tags.items() if number > 1]
    assert world.service is not None
    engine = world.service.engine
    if engine.state != "completed":
        found.append(f"{engine.state}: {engine.reason}")
    for group in ("a", "b"):
        counts = engine.stats.counts[group]
        if (counts["success"], counts["finished"]) != (30, 30):
            found.append(f"{group}: {counts}")
        # Each attempt that showed was counted, but for those of which nobody heard.
        if counts["attempts"] != counts["submitted"]:
            found.append(f"{group}: {counts}")
        intents = {world.intent(job.tag) for job in world.jobs if job.tag.group == group}
        if len(intents) != 30:
            found.append(f"{len(intents)} intents of {group}")
    return found


@pytest.mark.parametrize("block", range(3))
def test_each_job_counts_once_though_services_are_killed_and_members_die(block: int) -> None:
    crashes = losses = again = 0
    for seed in range(RUNS * block, RUNS * block + RUNS):
        world = lived(seed)
        assert faults(world) == [], f"seed {seed}"
        crashes += world.crashes
        losses += world.losses
        # Every id is there on several members, and no two jobs have the same key.
        assert max(Counter(job.id for job in world.jobs).values()) > 1
        again += len(world.jobs) - len({world.intent(job.tag) for job in world.jobs})
    assert crashes
    assert losses
    assert again, "no job ran again"


def found_out(**world: Any) -> list[str]:
    """What the checks see in the first of many runs in which they see something."""
    for seed in itertools.count():
        assert seed < 200, "the control passes"
        found = faults(lived(seed, **world))
        if found:
            return found
    raise AssertionError


def test_without_the_fence_the_checks_see_two_attempts_run_at_once() -> None:
    """The control: the end of a lost member is told while its jobs run on."""
    assert any("run at once" in fault for fault in found_out(fence=False, mean_life=5.0))


def test_where_a_placement_is_not_awaited_the_checks_see_that_too() -> None:
    """The control: jobs are sent before it is durable where to."""
    assert found_out(awaited=False)


class Struck(World):
    """A world whose service dies when it is durable that a member was lost, and no later."""

    struck: frozenset[int] = frozenset()

    def begin_service(self) -> None:
        self.service = Mortal(self)
        self.service.begin()


class Mortal(Service):
    """A service that dies so."""

    world: Struck

    def _commit(self) -> None:
        lost = {event.ordinal for event, _ in self.buffer if isinstance(event, MemberLost)}
        if not self.alive or lost <= self.world.struck:
            return super()._commit()
        world, batch = self.world, self.buffer
        world.struck |= lost
        world.wal += [encode(event) for event, _ in batch]
        world.service = None
        world.crashes += 1
        # The nodes of the member are clean by the time of the next one, or they are not.
        return world.after(world.random.uniform(0.1, 2 * CLEAN), world.begin_service)


def test_a_member_that_is_lost_in_the_log_is_fenced_by_the_next_service() -> None:
    for seed in range(2 * RUNS):
        world = Struck(DOCUMENT, seed, mean_life=10.0)
        world.run(crashes=0, mean=2.0)
        assert faults(world) == [], f"seed {seed}"
        assert 0 < world.crashes <= world.losses


def test_without_the_fence_the_checks_see_that_of_services_that_die_so_too() -> None:
    """The control: the next service takes a member for ended that is lost in the log."""
    for seed in itertools.count():
        assert seed < 200, "the control passes"
        world = Struck(DOCUMENT, seed, mean_life=5.0, fence=False)
        world.run(crashes=0, mean=2.0)
        if any("run at once" in fault for fault in faults(world)):
            return
