"""The breaker: which members are drained, and which never are."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from few_members import FewMembers

from flux_ensemble.engine.breaker import BREAKER_TIMER
from flux_ensemble.engine.commands import Command, StartTimer
from flux_ensemble.engine.events import Tag

#: What becomes of a job: the seconds that it runs, and its wait status.
GOOD, BAD = (30.0, 0), (0.1, 256)


def document(members: int, jobs: int = 800, **job: Any) -> dict[str, Any]:
    """A sweep, and before it a few long jobs that are no part of it."""
    return {
        "name": "test",
        "members": [{"name": "pool", "count": members}],
        "jobs": [
            {"name": "long", "command": "long", "count": 10},
            {"name": "sim", "command": "sim", "params": {"s": {"range": [0, jobs]}}, **job},
        ],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": name}}
            for name in ("long", "sim")
        ],
    }


#: Whether a job of a sweep of 800 is bad, by its index, whatever its member is.
Set = Callable[[Random, int], bool]
SETS: dict[str, Set] = {
    "all": lambda draw, index: True,
    "most": lambda draw, index: draw.random() < 0.9,
    "half": lambda draw, index: draw.random() < 0.5,
    "few": lambda draw, index: draw.random() < 0.1,
    "every second one": lambda draw, index: index % 2 == 0,
    "one row": lambda draw, index: 200 <= index < 230,
    "a large part": lambda draw, index: 200 <= index < 500,
    "the first ones": lambda draw, index: index < 100,
    "the last ones": lambda draw, index: index >= 700,
    "rows": lambda draw, index: index // 25 % 2 == 0,
    "rows as long as a run": lambda draw, index: index // 20 % 2 == 0,
}


@pytest.mark.parametrize(("members", "retries"), [(2, 0), (5, 2)])
@pytest.mark.parametrize("kind", SETS)
def test_a_bad_set_of_jobs_drains_no_member(kind: str, members: int, retries: int) -> None:
    draw = Random(members)
    bad = [SETS[kind](draw, index) for index in range(800)]

    def behave(member: str, tag: Tag) -> tuple[float, int]:
        if tag.group == "long":
            return 900.0, 0
        return BAD if bad[tag.index] else GOOD

    play = FewMembers(document(members, retries=retries), behave)
    play.run()
    assert play.recorded("member-draining") == []
    assert play.engine.stats.counts["sim"]["finished"] == 800


@pytest.mark.parametrize("kind", ["none", "few", "one row"])
@pytest.mark.parametrize(("members", "broken"), [(2, 1), (3, 1), (8, 3)])
def test_members_that_fail_everything_are_drained_though_some_jobs_are_bad_too(
    kind: str, members: int, broken: int
) -> None:
    draw = Random(3)
    bad = [kind != "none" and SETS[kind](draw, index) for index in range(800)]
    names = {f"pool.{number}" for number in range(broken)}

    def behave(member: str, tag: Tag) -> tuple[float, int]:
        if member in names:
            return BAD
        return GOOD if tag.group == "long" or not bad[tag.index] else BAD

    play = FewMembers(document(members), behave)
    play.run()
    assert {one["member"] for one in play.recorded("member-draining")} == names
    # Each has failed some more jobs than it takes, and not the rest of the sweep.
    assert all(len(play.ended[name]) < 200 for name in names)


def test_that_a_job_runs_well_elsewhere_is_known_before_it_ends() -> None:
    def behave(member: str, tag: Tag) -> tuple[float, int]:
        return BAD if member == "pool.0" else (300.0, 0)

    given = document(3, 300)
    given["rules"] = given["rules"][1:]
    play = FewMembers(given, behave)
    play.run()
    (drained,) = play.recorded("member-draining")
    assert drained["member"] == "pool.0"
    # What is sent to others when it is in doubt begins there when a core is free, after 300
    # seconds.
    trials = [t for t in play.ended["pool.0"] if t > 10]
    assert len(trials) == 3
    assert 305 < trials[0] < 306


def test_jobs_are_looked_at_later_only_while_no_trial_is_open() -> None:
    looks: list[float] = []

    class Members(FewMembers):
        def _perform(self, command: Command) -> None:
            if isinstance(command, StartTimer) and command.key == BREAKER_TIMER:
                looks.append(self.now)
            super()._perform(command)

    def behave(member: str, tag: Tag) -> tuple[float, int]:
        # They begin one after the other, a second apart: each time some have not run long enough.
        return BAD if member == "pool.0" else (300.0 + tag.index % 7, 0)

    given = document(3, 300)
    given["rules"] = given["rules"][1:]
    play = Members(given, behave)
    play.run()
    assert len(play.recorded("member-draining")) == 1
    # One for each of the three trials.
    assert len(looks) == 3


def test_one_job_that_fails_again_and_again_is_no_reason_for_doubt() -> None:
    given = document(2, 30, retries=10)

    def behave(member: str, tag: Tag) -> tuple[float, int]:
        return BAD if tag.index in (3, 4, 5) else GOOD

    play = FewMembers(given, behave)
    play.run()
    assert play.recorded("member-doubted") == []
    assert play.engine.stats.counts["sim"]["gave-up"] == 3
