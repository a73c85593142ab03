"""Jobs are sent to members late: no more than a member's window, and the rest waits."""

from __future__ import annotations

from typing import Any

from few_members import FewMembers

CORES = 8


def document(jobs: int, *rules: dict[str, Any], count: Any = 2) -> dict[str, Any]:
    return {
        "name": "test",
        "members": [{"name": "pool", "count": count}],
        "jobs": [{"name": "sim", "command": "sim", "count": jobs}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}, *rules],
    }


def most(jobs: int, seconds: float) -> set[int]:
    """How many jobs each of two members had at most, where each takes so long."""
    play = FewMembers(document(jobs), lambda member, tag: (seconds, 0), CORES)
    play.run()
    assert sum(map(len, play.ended.values())) == jobs
    assert play.recorded("retry") == []
    return set(play.most.values())


def test_of_long_jobs_a_member_has_twice_as_many_as_cores() -> None:
    assert most(200, 60.0) == {2 * CORES}
    # One a second and core is not more than that.
    assert most(200, 1.0) == {2 * CORES}


def test_of_short_jobs_a_member_has_as_many_as_it_ran_in_a_second() -> None:
    (quick,) = most(3000, 0.05)
    rate = CORES / 0.05
    assert 0.8 * rate <= quick <= 1.2 * rate
    (quicker,) = most(4000, 0.02)
    assert quicker > 1.5 * quick


def test_a_member_that_is_up_later_gets_what_waits_and_nothing_has_to_move() -> None:
    grow = {"trigger": "timer", "after": 45, "action": {"name": "grow", "label": "pool"}}
    given = document(200, grow, count={"min": 1, "max": 2})
    play = FewMembers(given, lambda member, tag: (60.0, 0), CORES)
    play.run()
    assert play.recorded("retry") == []
    first, second = (play.ended[name] for name in ("pool.0", "pool.1"))
    # From then on both end as many, to the last one.
    assert abs(len(second) - len([t for t in first if t > 61])) <= CORES
    assert abs(first[-1] - second[-1]) <= 60
