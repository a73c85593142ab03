"""What the journal says with `alloc` is told with `start`."""

from __future__ import annotations

from typing import Any

import pytest

from flux_ensemble.members.flux.allocations import Allocations, ranks_of


def resources(*ranks: str) -> dict[str, Any]:
    return {"execution": {"R_lite": [{"rank": rank, "children": {}} for rank in ranks]}}


def message(name: str, t: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"id": 1, "events": [{"name": name, "timestamp": t}], **more}


def test_the_start_of_a_job_says_when_and_where_it_got_its_resources() -> None:
    allocations = Allocations()
    allocations.take(message("alloc", 2.5, R=resources("0-3")))
    start = message("start")
    allocations.take(start)
    assert start["events"][0]["context"] == {"t_alloc": 2.5, "ranks": "0-3"}


def test_so_does_one_in_a_backlog() -> None:
    past: dict[str, Any] = {
        "id": 1,
        "events": [{"name": name, "timestamp": 1.0} for name in ("submit", "alloc", "start")],
        "R": resources("7"),
    }
    Allocations().take(past)
    assert past["events"][2]["context"] == {"t_alloc": 1.0, "ranks": "7"}


def test_a_job_that_is_gone_is_forgotten() -> None:
    allocations = Allocations()
    for name in ("alloc", "clean", "start"):
        last = message(name)
        allocations.take(last)
    assert "context" not in last["events"][0]


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        (resources("0"), "0"),
        (resources("0,2", "1", "5-6"), "0-2,5-6"),
        (None, None),
        ({}, None),
        ({"execution": {"R_lite": None}}, None),
    ],
)
def test_ranks_are_one_idset(given: Any, ranks: str | None) -> None:
    assert ranks_of(given) == ranks
