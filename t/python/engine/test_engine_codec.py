"""Events as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flux_ensemble.engine import codec
from flux_ensemble.engine.codec import command_from_json, encode, event_from_json, to_json
from flux_ensemble.engine.events import JobEvent, Tag


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"status": 0},
        {"note": 'a "quoted"\nline', "b": [1.5]},
        {"t_alloc": 1795478109.25, "ranks": "0-3"},
        {"small": 1e-300, "whole": 2.0, "large": 2**70, "minus": -0.0},
        {"final": True, "none": None, "ä": "\u2028"},
        {"long": "ab" * 200, "empty": ""},
        {f"key{number}": number for number in range(20)},
    ],
)
@pytest.mark.parametrize("tag", [None, Tag("g", 'search:"s"', 3, 4)])
@pytest.mark.parametrize(
    "more", [{}, {"foreign": True}, {"foreign": True, "job_name": "x"}, {"job_name": "x"}]
)
def test_the_event_of_a_job_is_the_canonical_text_of_its_fields(
    context: Mapping[str, Any], tag: Tag | None, more: Mapping[str, Any]
) -> None:
    event = JobEvent(1795478109.5889263, 7, "memo", context, tag, **more)
    text = encode(event)
    assert text == json.dumps(to_json(event), sort_keys=True, separators=(",", ":"))
    assert event_from_json(json.loads(text)) == event


@pytest.mark.parametrize("t", [float("nan"), float("inf")])
def test_numbers_of_an_event_of_a_job_are_numbers_of_json(t: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(JobEvent(t, 1, "start"))
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(JobEvent(1.0, 1, "memo", {"loss": t}))


def test_texts_that_never_come_again_are_not_kept() -> None:
    for number in range(3000):
        memo = JobEvent(1.0, 1, "memo", {"a": f"text {number}"})
        assert f'"text {number}"' in encode(memo)
        assert encode(JobEvent(1.0, 1, "start")).count('"start"') == 1
    assert len(codec._TEXTS) <= 1000


@pytest.mark.parametrize("read", [event_from_json, command_from_json])
def test_what_has_a_type_that_there_is_not_is_refused_with_its_name(
    read: Callable[[Mapping[str, Any]], Any],
) -> None:
    with pytest.raises(ValueError, match=r"^no event or command of type 'Nothing'$"):
        read({"type": "Nothing", "t": 1.0})
