"""Where jobs run, in virtual time: near others, off members, longest first, and copies."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from simulations import outcomes, predict
from watcher import Watcher

from flux_ensemble.engine.events import JobEvent
from flux_ensemble.engine.job_keys import split

#: A job: rule id, number of the firing, index.
Tag = tuple[str, int, int]


def document(*rules: Any, members: Any = None, **sim: Any) -> dict[str, Any]:
    """A sweep over three members of two nodes."""
    return {
        "name": "test",
        "members": members or [{"name": "pool", "count": 3, "nodes": 2}],
        "jobs": [
            {"name": "sim", "command": "sim {s}", "params": {"s": {"range": [0, 60]}}, **sim},
            {"name": "post", "command": "post {s}", "params": {"s": 0}},
        ],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}, *rules],
        "simulate": {
            "sim": {"duration": {"uniform": {"min": 10, "max": 50}}},
            "post": {"duration": {"uniform": {"min": 5, "max": 90}}},
        },
    }


def near(trigger: str, **more: Any) -> dict[str, Any]:
    """The rule that submits a job where one of `sim` ran."""
    action = {"name": "submit", "label": "post", "near": "trigger", "repetitions": "unlimited"}
    return {"id": "near", "trigger": trigger, "group": "sim", "action": {**action, **more}}


def places(watcher: Watcher) -> dict[Tag, str]:
    """The member that each job was sent to, by its tag."""
    return {
        (one.rule, one.firing, index): watcher.names[one.ordinal]
        for one in watcher.sent
        for index in range(one.first, one.first + one.count)
    }


def test_a_job_runs_near_the_one_that_triggered_it_though_others_have_more_room() -> None:
    given = document(near("job-success", params="trigger"))
    watcher = Watcher(given)
    found = predict(given, nodes=1, cores=1, tap=watcher)
    assert outcomes(found, "post") == (60, 0, 0, 0)
    fired = [one for one in watcher.recorded("fire") if one["rule"] == "near"]
    assert len({one["cause"]["member"] for one in fired}) == 3
    where = places(watcher)
    assert all(where["near", one["firing"], 0] == one["cause"]["member"] for one in fired)


def test_where_the_member_is_gone_a_job_that_is_to_run_near_runs_elsewhere() -> None:
    lost = {"name": "lost", "nodes": 2, "on-lost": "fail", "simulate": {"startup": 0, "loss": 5}}
    given = document(near("job-fail"), members=[lost, {"name": "pool", "nodes": 2}])
    watcher = Watcher(given, 1)
    found = predict(given, nodes=1, cores=1, tap=watcher)
    failed = outcomes(found, "sim")[1]
    assert failed
    assert outcomes(found, "post")[0] == failed
    where = places(watcher)
    assert {where["near", number, 0] for number in range(failed)} == {"pool.0"}


def test_a_job_that_runs_again_runs_on_none_of_the_members_that_it_failed_on() -> None:
    given = document(retries={"times": 2, "spread": "node"})
    given["simulate"]["sim"]["failure-rate"] = 0.5
    watcher = Watcher(given)
    predict(given, nodes=1, cores=1, tap=watcher)
    where = places(watcher)
    tried: defaultdict[Tag, list[str]] = defaultdict(list)
    first: dict[Tag, Tag] = {}
    for one in watcher.recorded("retry"):
        before = one["rule"], one["firing"], one["index"]
        again = "retry", one["retry"], one["index"]
        first[again] = first.get(before, before)
        tried[first[again]] += [where[again]] if before in first else [where[before], where[again]]
    assert max(map(len, tried.values())) == 3
    assert all(len(set(members)) == len(members) for members in tried.values())


def test_a_job_that_failed_near_another_one_runs_again_elsewhere_if_it_is_to_be_spread() -> None:
    given = document(near("job-success", params="trigger"))
    given["jobs"][1]["retries"] = {"times": 1, "spread": "node"}
    given["simulate"]["post"]["failure-rate"] = 1
    watcher = Watcher(given)
    found = predict(given, nodes=1, cores=1, tap=watcher)
    assert outcomes(found, "post") == (0, 120, 0, 0)
    where = places(watcher)
    again = watcher.recorded("retry")
    assert len(again) == 60
    assert all(where["retry", one["retry"], 0] != where["near", one["firing"], 0] for one in again)


def test_a_job_runs_again_where_it_failed_if_there_is_no_other_member_for_it() -> None:
    small = {"name": "small", "nodes": 1}
    sim = {"retries": {"times": 1, "spread": "node"}, "nodes": 2, "params": {"s": [1]}}
    given = document(members=[{"name": "pool", "nodes": 2}, small], **sim)
    given["simulate"]["sim"] = {"failure-rate": 1}
    found = predict(given, nodes=1, cores=1)
    assert outcomes(found, "sim") == (0, 2, 0, 0)
    assert found.status["state"] == "completed"


@pytest.mark.parametrize("members", [1, 2])
def test_a_copy_runs_on_another_member_if_there_is_one(members: int) -> None:
    copy = {
        "id": "copy",
        "trigger": "job-running",
        "group": "sim",
        "every": 5,
        "when": "not job.copied and job.runtime > 30",
        "action": {"name": "copy", "repetitions": "unlimited"},
    }
    # All run at once, and there is room for the copies.
    given = document(copy, members=[{"name": "pool", "count": members, "nodes": 90 // members}])
    watcher = Watcher(given, 10)
    found = predict(given, nodes=1, cores=1, tap=watcher)
    sim = found.status["groups"]["sim"]
    assert (sim["success"], sim["finished"]) == (60, 60)
    assert sim["canceled"] > 10
    assert sim["submitted"] == 60 + sim["canceled"]
    where = places(watcher)
    jobs = {event.job: event.tag for event in watcher.jobs}
    numbers = {name: number for number, name in watcher.names.items()}
    copied = 0
    for one in watcher.recorded("fire"):
        if one["rule"] == "copy":
            (other,) = [
                tag
                for job, tag in jobs.items()
                if split(job) == (numbers[one["cause"]["member"]], one["cause"]["job"])
            ]
            assert other is not None
            mine = where.get(("copy", one["firing"], other.index))
            if mine is not None:
                copied += 1
                assert (mine != one["cause"]["member"]) == (members > 1)
    assert copied > 10


def test_what_takes_longest_is_sent_first_to_whichever_member_has_room() -> None:
    lengths = [1, 2, 3] + 20 * [1, 2, 3, 4] + 2 * [40]

    def makespan(**order: Any) -> float:
        given = document(params={"n": lengths}, command="sim {n}", predict=["n"], **order)
        given["simulate"]["sim"] = {"duration": {"param": "n"}}
        watcher = Watcher(given)
        found = predict(given, nodes=1, cores=1, tap=watcher)
        assert outcomes(found, "sim")[0] == len(lengths)
        if order:
            first = [
                event.tag.index
                for event in watcher.events
                if isinstance(event, JobEvent) and event.tag is not None
            ]
            # Three members of two cores, each with a window of four jobs; what is known after six
            # jobs have ended is enough.
            assert all(index in first[:30] for index in (len(lengths) - 2, len(lengths) - 1))
        return found.makespan

    assert makespan(order="longest-first") < 0.8 * makespan()
