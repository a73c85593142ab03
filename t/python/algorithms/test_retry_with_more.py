"""The algorithm retry-with-more: what a job gets each time, and how often it is tried."""

from __future__ import annotations

from typing import Any

import pytest
from play import Play, SubmitJobs

from flux_ensemble.document.loading import DocumentError, load_mapping


def expanded(group: dict[str, Any], **use: Any) -> dict[str, Any]:
    """The group as it is with what is made."""
    value = {
        "name": "study",
        "jobs": [{"name": "a", "command": "x", **group}],
        "use": [{"algorithm": "retry-with-more", "group": "a", **use}],
    }
    spec = load_mapping(value)
    assert spec.expansion is not None
    made: dict[str, Any] = spec.expansion["jobs"][0]
    return made


def attempts(group: dict[str, Any], **use: Any) -> list[dict[str, Any]]:
    """What each attempt of a job has in place of what its group says, until it gives up."""
    start = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    play = Play({"name": "study", "jobs": [expanded(group, **use)], "rules": [start]})
    for job in range(1, 20):
        if len(play.of(SubmitJobs)) < job:
            break
        play.run(job, 256)
    return [dict(command.overrides or {}) for command in play.of(SubmitJobs)]


@pytest.mark.parametrize(
    ("first", "factor", "most"), [(4, 2, 64), (3, 2, 50), (1, 3, 100), (5, 10, 7)]
)
def test_memory_is_multiplied_until_it_is_the_most(first: int, factor: int, most: int) -> None:
    memory = {"variable": "GB", "first": first, "factor": factor, "most": most}
    given = [one["environment"]["GB"] for one in attempts({}, memory=memory, on="failed")[1:]]
    expected: list[int] = []
    while not expected or expected[-1] < most:
        expected.append(min(most, first * factor ** (len(expected) + 1)))
    assert given == [str(one) for one in expected]
    assert expanded({}, memory=memory)["environment"] == {"GB": first}


def test_time_and_nodes_and_cores_are_multiplied_up_to_their_bounds() -> None:
    use = {
        "duration": {"factor": 3, "most": "1h"},
        "nodes": {"factor": 1.5, "most": 5},
        "cores": 2,
    }
    made = attempts({"duration": "10m", "nodes": 2}, **use)
    assert [one["duration"] for one in made[1:]] == [1800.0, 3600.0, 3600.0]
    assert [one["nodes"] for one in made[1:]] == [3, 5, 5]
    assert [one["cores"] for one in made[1:]] == [2, 4, 8]


@pytest.mark.parametrize(
    ("use", "times"),
    [
        ({"nodes": 2}, 3),
        ({"nodes": {"factor": 2, "most": 16}}, 4),
        ({"nodes": {"factor": 2, "most": 17}}, 5),
        ({"nodes": {"factor": 10, "most": 2}}, 1),
        ({"nodes": {"factor": 2, "most": 16}, "times": 2}, 2),
        ({"cores": {"factor": 2, "most": 2}, "nodes": {"factor": 2, "most": 4}}, 2),
    ],
)
def test_a_job_is_tried_as_often_as_it_takes(use: dict[str, Any], times: int) -> None:
    assert expanded({}, **use)["retries"]["times"] == times


def test_jobs_that_failed_for_another_reason_do_not_get_more_time() -> None:
    assert expanded({"duration": 60}, duration=2)["retries"]["on"] == "timeout"
    assert expanded({"duration": 60}, duration=2, nodes=2)["retries"]["on"] == ["failed", "timeout"]
    own = ["job.returncode == 137"]
    assert expanded({}, nodes=2, on=own)["retries"]["on"] == own


def test_the_wait_is_handed_on() -> None:
    assert expanded({}, nodes=2, after="1m")["retries"]["after"] == 60


@pytest.mark.parametrize(
    ("group", "use", "told"),
    [
        ({}, {}, "use[0].algorithm: give what is to be more: duration, nodes, cores, memory"),
        ({}, {"duration": 2}, "use[0].duration: group 'a' has no 'duration', so there is no time"),
        (
            {"nodes": 8},
            {"nodes": {"factor": 2, "most": 8}},
            "use[0].nodes: expected 'most' above what group 'a' has, 8 nodes, not 8",
        ),
        (
            {},
            {"memory": {"first": 8, "most": 4}},
            "use[0].memory: expected 'most' above 'first', 8, not 4",
        ),
        (
            {"environment": {"MEMORY": 1}},
            {"memory": {"first": 8}},
            "use[0]: it gives group 'a' 'environment.MEMORY', and that has 'environment.MEMORY'",
        ),
    ],
)
def test_what_cannot_be_is_refused(group: dict[str, Any], use: dict[str, Any], told: str) -> None:
    with pytest.raises(DocumentError) as raised:
        expanded(group, **use)
    assert str(raised.value).startswith(f"document: {told}")
