"""Members in virtual time: each job that was asked for has one outcome, whatever happens."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from simulations import outcomes, predict
from watcher import Watcher

from flux_ensemble.engine.events import JobEvent, MemberLost, MemberUp
from flux_ensemble.engine.job_keys import split

AGAIN = {"label": "pool", "repetitions": "unlimited"}


def document(**more: Any) -> dict[str, Any]:
    """A sweep over members that last for ten minutes, and are replaced."""
    return {
        "name": "test",
        "members": [
            {
                "name": "pool",
                "count": {"min": 2, "max": 6},
                "nodes": 2,
                "duration": "5m",
                "drain": "1m",
                **more,
            }
        ],
        "jobs": [{"name": "sim", "command": "sim {s}", "params": {"s": {"range": [0, 120]}}}],
        "rules": [
            {"trigger": "start", "action": {"name": "submit", "label": "sim"}},
            {"trigger": "member-draining", "action": {"name": "grow", **AGAIN}},
            {"trigger": "member-lost", "action": {"name": "grow", **AGAIN}},
        ],
        "simulate": {"sim": {"duration": {"uniform": {"min": 10, "max": 50}}}},
        # Members are lost every few minutes.
        "limits": {"losses": 1000},
    }


@pytest.mark.parametrize(("seed", "service"), [(0, "parent"), (1, "child"), (2, "parent")])
def test_members_that_end_and_are_lost_cost_no_job_and_none_counts_twice(
    seed: int, service: str
) -> None:
    given = document(simulate={"loss": {"exponential": {"mean": "3m"}}}, service=service)
    watcher = Watcher(given)
    found = predict(given, nodes=1, seed=seed, tap=watcher)
    counts = found.status["groups"]["sim"]
    assert (counts["finished"], counts["success"]) == (120, 120)
    lost = [event for event in watcher.events if isinstance(event, MemberLost)]
    assert lost
    # Each attempt is there once, has a tag of its own, and is counted.
    tags = Counter(event.tag for event in watcher.jobs)
    assert set(tags.values()) == {1}
    assert counts["attempts"] == counts["submitted"]
    assert counts["attempts"] - 120 == counts["interrupted"] == found.status["retries"]
    # All members number their jobs alike.
    ids = Counter(split(event.job)[1] for event in watcher.jobs)
    assert max(ids.values()) > 1
    assert len({event.job for event in watcher.jobs}) == len(watcher.jobs)


@pytest.mark.parametrize("on_lost", ["fail", "resubmit"])
@pytest.mark.parametrize("service", ["parent", "child"])
def test_all_trials_of_a_search_are_complete_though_members_with_24_of_them_are_lost(
    on_lost: str, service: str
) -> None:
    given = document(simulate={"loss": 200}, service=service, **{"on-lost": on_lost})
    given["members"][0]["count"] = {"min": 3, "max": 9}
    del given["members"][0]["duration"], given["members"][0]["drain"]
    given["jobs"] = [{"name": "sim", "command": "sim {x}"}]
    given["search"] = [
        {
            "id": "best",
            "group": "sim",
            "variables": {"x": {"low": 0, "high": 1}},
            "minimize": "loss",
            "sampler": "random",
            "trials": 96,
            "parallel": 24,
            "failures": 1,
        }
    ]
    given["rules"][0] = {"trigger": "start", "action": {"name": "search", "label": "best"}}
    memo = {"loss": {"expression": "x"}}
    given["simulate"] = {"sim": {"duration": 90, "memo": memo}}
    found = predict(given, nodes=1, cores=8, seed=1)
    (search,) = found.status["searches"]
    assert (search["complete"], search["failed"], search["canceled"]) == (96, 0, 0)
    assert search["reason"] == "trials"
    counts = found.status["groups"]["sim"]
    assert counts["interrupted"] >= 24
    assert (counts["success"], counts["failed"], counts["finished"]) == (96, 0, 96)
    assert found.status["state"] == "completed"


def test_what_is_on_each_pool_is_counted_and_what_is_pinned_stays_there() -> None:
    given = document(count=1, duration=0)
    given["members"][0].pop("drain")
    given["members"].append({"name": "big", "nodes": 4, "labels": ["gpu"]})
    given["jobs"].append({"name": "train", "command": "train", "count": 10, "member": "gpu"})
    given["rules"] = [
        {"trigger": "start", "action": {"name": "submit", "label": "train"}},
        {"trigger": "start", "action": {"name": "submit", "label": "sim"}},
        {
            "trigger": "metric",
            "name": "count.sim.success@big",
            "when": ">= 5",
            "action": {"name": "cancel", "label": "sim"},
        },
    ]
    found = predict(given, nodes=1)
    groups = found.status["groups"]
    assert groups["train"]["success@big"] == groups["train"]["success"] == 10
    assert groups["train"]["submitted@pool"] == 0
    assert groups["sim"]["success@big"] == 5
    for counter in ("success", "submitted", "attempts", "finished", "interrupted"):
        on_pools = groups["sim"][f"{counter}@big"] + groups["sim"][f"{counter}@pool"]
        waiting = groups["sim"]["finished"] - groups["sim"]["attempts"]
        assert groups["sim"][counter] == on_pools + (waiting if counter == "finished" else 0)


def test_what_waits_on_a_draining_member_moves_and_what_runs_goes_on() -> None:
    given = document()
    watcher = Watcher(given, 7)
    found = predict(given, nodes=1, tap=watcher)
    # No job takes as long as a member drains: none is cut off, and those that moved had not begun.
    begun = {
        event.job
        for event in watcher.events
        if isinstance(event, JobEvent) and event.name == "start"
    }
    ended = {
        event.job
        for event in watcher.events
        if isinstance(event, JobEvent) and event.name == "exception"
    }
    assert ended
    assert not begun & ended
    assert outcomes(found, "sim")[0] == 120


def test_a_job_goes_only_where_there_is_time_for_it() -> None:
    given = document(drain=1)
    given["jobs"][0]["duration"] = "2m"
    watcher = Watcher(given)
    predict(given, nodes=1, tap=watcher)
    expires = {
        event.ordinal: event.t_expires
        for event in watcher.events
        if isinstance(event, MemberUp) and event.t_expires is not None
    }
    for job in watcher.jobs:
        assert expires[split(job.job)[0]] - job.t >= 1.1 * 120


@pytest.mark.parametrize("on_lost", ["resubmit", "fail", "hold"])
def test_what_becomes_of_the_jobs_of_a_lost_member_is_what_the_document_says(on_lost: str) -> None:
    # It is lost when two jobs have ended and two run; the other one is up a while later.
    lost = {"name": "lost", "nodes": 2, "on-lost": on_lost}
    lost["simulate"] = {"startup": 0, "loss": 25}
    given = document()
    given["members"] = [lost, {"name": "later", "nodes": 2, "simulate": {"startup": 60}}]
    given["jobs"] = [
        {"name": "sim", "command": "sim", "count": 4},
        {"name": "late", "command": "late"},
    ]
    given["rules"][1:] = [{"trigger": "job-fail", "action": {"name": "submit", "label": "late"}}]
    given["simulate"] = {"sim": {"duration": 20}, "late": {"duration": 1}}
    watcher = Watcher(given, 1)
    found = predict(given, nodes=1, cores=1, tap=watcher, until=1000)
    # It keeps its two nodes until they are clean, 25 seconds after its loss.
    assert found.node_seconds["lost"] == 2 * (25 + 25)
    sim, late = found.status["groups"]["sim"], found.status["groups"]["late"]
    seen = sim["success"], sim["failed"], sim["interrupted"], sim["finished"], late["success"]
    if on_lost == "fail":
        assert seen == (2, 2, 0, 4, 1)
    elif on_lost == "resubmit":
        assert seen == (4, 0, 2, 4, 0)
    else:
        assert seen == (2, 0, 2, 2, 0)
        assert sim["pending"] == 2
        assert any("wait for ever" in warning for warning in found.warnings)


def test_where_no_member_is_left_the_log_says_so_and_a_rule_can_start_one() -> None:
    given = document(count={"min": 1, "max": 1}, simulate={"loss": 30})
    given["rules"] = given["rules"][:1]
    found = predict(given, nodes=1)
    said = [entry for entry in found.first if entry["name"] == "not-placed"]
    assert len(said) == 1
    assert said[0]["context"]["reason"] == "no member of pool is up or starting; 'grow' starts one"
    assert found.status["state"] == "running"
    assert "jobs of group 'sim' wait for ever: no member can run them" in found.warnings


def test_that_no_member_is_large_enough_for_a_job_is_said_when_all_are_up() -> None:
    given = document(duration=0, count=2)
    given["members"][0].pop("drain")
    given["members"].append({"name": "late", "nodes": 2, "simulate": {"startup": 60}})
    given["jobs"].append({"name": "wide", "command": "wide", "cores": 9, "gpus": 1, "count": 2})
    given["rules"][1:] = [{"trigger": "start", "action": {"name": "submit", "label": "wide"}}]
    found = predict(given, nodes=1, cores=4)
    said = [entry for entry in found.first if entry["name"] == "not-placed"]
    assert [(entry["timestamp"], entry["context"]["group"]) for entry in said] == [(60, "wide")]
    reason = "no member of pool, late is large enough for a job of 1 node, 9 cores, 1 GPU"
    assert said[0]["context"]["reason"] == reason
    assert outcomes(found, "sim")[0] == 120
    assert "jobs of group 'wide' wait for ever: no member can run them" in found.warnings


def test_a_pool_grows_and_shrinks_between_its_bounds() -> None:
    given = document(duration=0)
    given["members"][0].pop("drain")
    given["rules"] = [
        {"trigger": "start", "action": {"name": "submit", "label": "sim"}},
        {"trigger": "timer", "after": 20, "action": {"name": "grow", "label": "pool", "value": 9}},
        {
            "trigger": "timer",
            "after": 60,
            "action": {"name": "shrink", "label": "pool", "value": 9},
        },
        {"trigger": "timer", "after": 61, "action": {"name": "shrink", "label": "pool"}},
        {
            "trigger": "scale-denied",
            "action": {"name": "submit", "label": "sim", "params": {"s": [0]}},
        },
    ]
    watcher = Watcher(given)
    found = predict(given, nodes=1, tap=watcher)
    pool = found.status["pools"]["pool"]
    assert pool["ended"] == 4
    assert [member["name"] for member in pool["members"]] == ["pool.0", "pool.1"]
    assert outcomes(found, "sim") == (121, 0, found.status["groups"]["sim"]["canceled"], 0)


def test_jobs_that_take_whole_nodes_are_shared_out_by_what_they_take() -> None:
    given = document(duration=0, count=4)
    given["members"][0].pop("drain")
    given["jobs"][0]["nodes"] = 2
    given["jobs"][0]["exclusive"] = True
    watcher = Watcher(given)
    predict(given, nodes=1, cores=8, tap=watcher)
    first = list(itertools.islice(watcher.sent, 4))
    # Each gets one that it can run, and no other one before that has ended.
    assert [one.count for one in first] == [1] * 4
    assert sorted(one.ordinal for one in first) == [1, 2, 3, 4]


def came_up(given: dict[str, Any]) -> tuple[Any, list[float]]:
    """What a simulation predicts, and when its members came up."""
    watcher = Watcher(given)
    found = predict(given, nodes=1, tap=watcher)
    return found, [event.t for event in watcher.events if isinstance(event, MemberUp)]


def in_queue(count: int, limits: dict[str, Any], **simulate: Any) -> dict[str, Any]:
    """Members in Slurm, for as long as all need to come up."""
    more = {"from": "slurm", "limits": limits, "simulate": simulate, "duration": 0}
    given = document(count=count, **more)
    del given["members"][0]["drain"]
    given["simulate"] = {"sim": {"duration": 600}}
    return given


@pytest.mark.parametrize(
    ("limits", "times"),
    [
        ({}, [107, 107, 107]),
        ({"queued": 1}, [107, 207, 307]),
        ({"queued": 2}, [107, 107, 207]),
        ({"spacing": 30}, [107, 137, 167]),
        ({"spacing": 30, "queued": 1}, [107, 207, 307]),
    ],
)
def test_members_wait_in_line_for_the_limits_and_then_in_the_queue(
    limits: dict[str, Any], times: list[float]
) -> None:
    found, up = came_up(in_queue(3, limits, wait=100, startup=7))
    assert up == times
    waited = [t - 7 for t in times]
    assert found.queue_seconds == {
        "pool": {"members": 3, "mean": pytest.approx(sum(waited) / 3), "max": max(waited)}
    }
    # They have their nodes from when they are up.
    assert found.node_seconds["pool"] == 2 * sum(found.makespan - t for t in times)


def test_without_a_wait_the_spacing_holds_too_and_without_both_nobody_has_waited() -> None:
    assert came_up(in_queue(3, {"spacing": 30}))[1] == [2, 32, 62]
    found, up = came_up(in_queue(3, {}))
    assert (up, found.queue_seconds) == ([2, 2, 2], {})


def test_waits_are_drawn_and_change_nothing_else_that_is() -> None:
    wait = {"lognormal": {"median": "20m", "sigma": 0.8}}
    with_wait = came_up(in_queue(5, {}, wait=wait, startup={"uniform": {"min": 0, "max": 9}}))
    without = came_up(in_queue(5, {}, startup={"uniform": {"min": 0, "max": 9}}))
    waits = with_wait[0].queue_seconds["pool"]
    assert 0 < waits["mean"] < waits["max"]
    assert len(set(with_wait[1])) == 5
    assert max(with_wait[1]) >= waits["max"] > max(without[1])


def test_a_member_that_ends_while_it_waits_leaves_its_place_to_the_next() -> None:
    given = in_queue(1, {"queued": 1}, wait=100, startup=0)
    given["members"][0]["count"] = {"min": 0, "max": 4}
    given["rules"] = [
        {"trigger": "start", "action": {"name": "submit", "label": "sim"}},
        {"trigger": "start", "action": {"name": "grow", "label": "pool", "value": 2}},
        {"trigger": "timer", "after": "30s", "action": {"name": "shrink", "label": "pool"}},
        {"trigger": "timer", "after": "40s", "action": {"name": "grow", "label": "pool"}},
    ]
    found, up = came_up(given)
    # The latest one is ended: it waits in line, and the one that follows takes its turn.
    assert up == [100, 200]
    assert found.queue_seconds["pool"] == {"members": 2, "mean": 130.0, "max": 160.0}


def test_the_limits_and_waits_of_one_pool_are_not_those_of_another() -> None:
    given = in_queue(2, {"queued": 1}, wait=100, startup=0)
    given["members"].append({"name": "here", "count": 2})
    found, up = came_up(given)
    assert up == [2, 2, 100, 200]
    assert set(found.queue_seconds) == {"pool"}
