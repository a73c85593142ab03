"""The algorithm workload-demand: the order of jobs, what it grows for, and what it gives back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from play import Finish, Play, Scale, Started, SubmitJobs

from flux_ensemble.document.loading import DocumentError, load_mapping

JOBS = [
    {"name": "small", "command": "a", "count": 3, "nodes": 1},
    {"name": "large", "command": "b", "count": 2, "nodes": 4},
    {"name": "medium", "command": "c", "count": 2, "nodes": 2},
]


def document(*jobs: dict[str, Any], given: dict[str, Any] | None = None, **use: Any) -> Any:
    """A document with the algorithm, and a heartbeat."""
    return {
        "name": "study",
        "logging": {"heartbeat": 1},
        "scaling": {"min-nodes": 1, "max-nodes": 8},
        "jobs": list(jobs or JOBS),
        "use": [{"algorithm": "workload-demand", **use}],
        **(given or {}),
    }


def order(**use: Any) -> list[tuple[str, int]]:
    """What is submitted at the start, one command after the other."""
    play = Play(document(**use), start=True)
    return [(one.group, one.count) for one in play.of(SubmitJobs)]


def test_jobs_come_in_the_order_of_the_document_or_by_nodes() -> None:
    given = [("small", 3), ("large", 2), ("medium", 2)]
    assert order() == order(order="given") == given
    assert order(order="ascending") == [("small", 3), ("medium", 2), ("large", 2)]
    assert order(order="descending") == [("large", 2), ("medium", 2), ("small", 3)]
    assert order(groups=["medium", "small"]) == [("medium", 2), ("small", 3)]


def test_at_random_all_jobs_are_there_in_an_order_of_the_seed() -> None:
    mixed = order(order="random")
    total: Counter[str] = Counter()
    for group, count in mixed:
        total[group] += count
    assert total == {"small": 3, "large": 2, "medium": 2}
    assert order(order="random") == mixed
    others = {
        tuple(
            (one.group, one.count)
            for one in Play(document(order="random", given={"seed": seed})).of(SubmitJobs)
        )
        for seed in range(10)
    }
    assert len(others) > 5


def test_a_million_jobs_are_mixed_by_a_thousand_submissions() -> None:
    jobs = [{**JOBS[0], "count": 600_000}, {**JOBS[1], "count": 400_000}]
    (start,) = (
        rule
        for rule in load_mapping(document(*jobs, order="random")).rules
        if rule.id.endswith("start")
    )
    assert 300 < len(start.actions) <= 1001


#: A queue: how long one job of each group has waited, in seconds; and the job it grows for.
WAITING: dict[str, tuple[dict[str, int], dict[str, str]]] = {
    "one waits": ({"large": 60}, dict.fromkeys(("next", "smallest", "largest"), "large")),
    "two wait": (
        {"small": 70, "large": 60},
        {"next": "small", "smallest": "small", "largest": "large"},
    ),
    "all wait": (
        {"medium": 70, "small": 60, "large": 65},
        {"next": "medium", "smallest": "small", "largest": "large"},
    ),
}


@pytest.mark.parametrize("strategy", ["next", "smallest", "largest"])
@pytest.mark.parametrize("queue", WAITING)
def test_the_instance_grows_for_one_job_by_the_nodes_that_are_missing(
    queue: str, strategy: str
) -> None:
    waiting, expected = WAITING[queue]
    play = Play(document(given={"scaling": {}}, **{"scale-up": f"{strategy}-job"}), start=False)
    play.member(2, free=0, high=16)
    play.post(Started(play.t))
    play.heartbeat()
    began = play.t
    ids = {tag.group: id for id, tag in reversed(play.queued.items())}
    for group in sorted(waiting, key=lambda group: -waiting[group]):
        play.t = began + 100 - waiting[group]
        for name in ("submit", "validate"):
            play.event(ids[group], name)
    assert not play.of(Scale)
    play.t = began + 100
    play.heartbeat()
    (scale,) = play.of(Scale)
    nodes = {job["name"]: job["nodes"] for job in JOBS}
    assert scale.by == nodes[expected[strategy]]


def running(**given: Any) -> Play:
    """An ensemble of one group of two jobs, of which one runs on one of two nodes."""
    play = Play(document({**JOBS[0], "count": 2}, given=given), start=False)
    play.member(3, free=0)
    play.post(Started(play.t))
    for job in (1, 2):
        play.begin(job)
    return play


def test_free_nodes_go_when_no_job_waits_and_not_before() -> None:
    play = running()
    play.heartbeat()
    assert not play.of(Scale)
    play.end(1)
    play.member(3, free=2)
    (scale,) = play.of(Scale)
    assert (scale.by, scale.to) == (-2, 1)


def test_an_ensemble_ends_with_its_last_job_and_gives_nothing_back_first() -> None:
    play = running()
    play.end(1)
    play.end(2)
    play.member(3, free=3)
    play.heartbeat()
    (finish,) = play.of(Finish)
    assert finish.state == "completed"
    assert not play.of(Scale)


def test_an_ensemble_that_does_not_end_shrinks_to_its_least() -> None:
    play = running(finish="never")
    play.end(1)
    play.end(2)
    play.member(3, free=3)
    (scale,) = play.of(Scale)
    assert scale.to == 1
    assert not play.of(Finish)


def test_nothing_is_given_back_where_that_is_said() -> None:
    kept: dict[str, Any] = {"scale-down": "never"}
    rules = load_mapping(document(**kept)).rules
    assert not any(rule.id.endswith("down") for rule in rules)


@pytest.mark.parametrize(
    ("jobs", "use", "told"),
    [
        (JOBS, {"order": "fastest"}, "use[0].order: expected an order, not 'fastest'"),
        (JOBS, {"groups": ["smal"]}, "use[0].groups[0]: no job group named 'smal' (did you mean"),
        (JOBS, {"patience": "soon"}, "use[0].patience: expected a duration"),
        (JOBS, {"scale-up": "randomJob"}, "use[0].scale-up: expected a job, not 'randomJob'"),
        (
            [{**JOBS[0], "nodes": "{n}", "params": {"n": [1, 2]}}],
            {},
            "use[0].groups: expected groups with a number of nodes, not 'small'",
        ),
        (
            [{"name": f"g{at}", "command": "a"} for at in range(33)],
            {},
            "use[0].groups: expected 1 to 32 job groups, not 33",
        ),
    ],
    ids=["order", "group", "patience", "strategy", "nodes", "groups"],
)
def test_what_cannot_be_is_refused(
    jobs: list[dict[str, Any]], use: dict[str, Any], told: str
) -> None:
    with pytest.raises(DocumentError) as raised:
        load_mapping(document(*jobs, **use))
    assert str(raised.value).startswith(f"document: {told}")
