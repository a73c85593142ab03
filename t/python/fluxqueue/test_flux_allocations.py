"""What the journal says with `alloc` is told with `start`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_ensemble.queues.flux.allocations import Allocations, ranks_of


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


def live(*ranks: str, context: Any = None, t: float = 2.5, **more: Any) -> bytes:
    """A message of the journal as Flux sends it when a job gets its resources."""
    event = {"timestamp": t, "name": "alloc"} | ({} if context is None else {"context": context})
    given = {"version": 1, **resources(*ranks), "scheduling": {"graph": {"rank": "9"}}}
    text = json.dumps({"id": 1, "events": [event], "R": given, **more}, separators=(",", ":"))
    return text.encode()


#: Like the end of the events, in a text.
LOOKS = {"annotations": {"x": '"}],"R":{"version":1,"execution":{"R_lite":[{"rank":"8"}'}}


@pytest.mark.parametrize("context", [None, {"annotations": {"sched": {"x": "[0-1]"}}}, LOOKS])
@pytest.mark.parametrize(
    ("given", "ranks"), [(("0-3",), "0-3"), (("0,2", "1", "5-6"), "0-2,5-6"), (("7", "7"), "7")]
)
def test_a_message_that_has_no_other_event_is_read_where_it_matters(
    given: tuple[str, ...], ranks: str, context: Any
) -> None:
    quick, whole = Allocations(), Allocations()
    text = live(*given, context=context)
    assert quick.take_text(text)
    whole.take(json.loads(text))
    for allocations in (quick, whole):
        start = message("start")
        allocations.take(start)
        assert start["events"][0]["context"] == {"t_alloc": 2.5, "ranks": ranks}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(message("start")).encode(),
        json.dumps(message("submit"), separators=(",", ":")).encode(),
        # Of a version that is not known, and without R.
        live("0").replace(b'"version":1', b'"version":2'),
        json.dumps(message("alloc"), separators=(",", ":")).encode(),
        live("0").replace(b'"name":"alloc"}', b'"name":"submit"},{"timestamp":1.0,"name":"alloc"}'),
        live(),
        live("x"),
    ],
)
def test_any_other_message_is_left_to_who_reads_all_of_it(text: bytes) -> None:
    assert not Allocations().take_text(text)


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
