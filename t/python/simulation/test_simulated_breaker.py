"""Members that fail everything, and jobs that fail everywhere, in virtual time."""

from __future__ import annotations

from typing import Any

from simulations import outcomes, predict
from watcher import Watcher


def document(*members: dict[str, Any], jobs: int = 600, **sim: Any) -> dict[str, Any]:
    """A sweep over some members."""
    return {
        "name": "test",
        "members": [{"nodes": 4, **member} for member in members],
        "jobs": [
            {"name": "sim", "command": "sim {s}", "params": {"s": {"range": [0, jobs]}}, **sim}
        ],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}],
        "simulate": {"sim": {"duration": {"uniform": {"min": 20, "max": 60}}}},
    }


BAD: dict[str, Any] = {"name": "bad", "simulate": {"broken": 1}}
GOOD: dict[str, Any] = {"name": "good", "count": 3}


def test_a_member_that_fails_everything_is_drained_after_few_jobs_and_that_is_said() -> None:
    given = document(BAD, GOOD)
    watcher = Watcher(given)
    found = predict(given, nodes=1, cores=4, tap=watcher)
    sim = found.status["groups"]["sim"]
    # Those that it had when it was in doubt, and three trials.
    assert 20 <= sim["failed@bad"] <= 20 + 2 * 16 + 3
    assert sim["success@good"] == sim["finished"] - sim["failed"] == 600 - sim["failed@bad"]
    (doubted,) = watcher.recorded("member-doubted")
    assert (doubted["member"], doubted["jobs"], doubted["groups"]) == ("bad.0", 20, ["sim"])
    (draining,) = watcher.recorded("member-draining")
    assert draining["member"] == "bad.0"
    assert "and 3 more after others had run well elsewhere" in draining["reason"]
    assert not watcher.recorded("member-trusted")


def test_with_the_breaker_off_it_gets_all_the_jobs_that_others_have_no_room_for() -> None:
    given = document({**BAD, "breaker": 0}, GOOD)
    found = predict(given, nodes=1, cores=4)
    assert found.status["groups"]["sim"]["failed@bad"] > 400
    assert found.status["pools"]["bad"]["members"][0]["state"] == "up"


def test_with_retries_nothing_is_lost_to_it() -> None:
    given = document(BAD, GOOD, retries={"times": 1, "spread": "node"})
    found = predict(given, nodes=1, cores=4)
    assert found.status["groups"]["sim"]["success"] == 600


def test_of_many_members_several_can_be_broken() -> None:
    given = document({"name": "pool", "count": 20, "simulate": {"broken": 0.2}}, jobs=4000)
    found = predict(given, nodes=1, cores=4)
    drained, doubted = (
        {one["context"]["member"] for one in found.first + found.last if one["name"] == name}
        for name in ("member-draining", "member-doubted")
    )
    assert 2 <= len(drained) <= 6
    assert drained == doubted
    assert outcomes(found, "sim")[1] <= len(drained) * (20 + 2 * 16 + 3)


def test_a_member_that_is_alone_gets_its_jobs_whatever_becomes_of_them() -> None:
    given = document(BAD, jobs=200)
    watcher = Watcher(given)
    found = predict(given, nodes=1, cores=4, tap=watcher)
    assert outcomes(found, "sim") == (0, 200, 0, 0)
    assert not watcher.recorded("member-doubted")
