"""Events as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from flux_ensemble.engine.codec import encode, event_from_json, to_json
from flux_ensemble.engine.events import JobEvent, Tag


@pytest.mark.parametrize("context", [{}, {"status": 0}, {"note": 'a "quoted"\nline', "b": [1.5]}])
@pytest.mark.parametrize("tag", [None, Tag("g", 'search:"s"', 3, 4)])
@pytest.mark.parametrize("more", [{}, {"foreign": True, "job_name": "x"}, {"job_name": "x"}])
def test_the_event_of_a_job_is_the_canonical_text_of_its_fields(
    context: Mapping[str, Any], tag: Tag | None, more: Mapping[str, Any]
) -> None:
    event = JobEvent(1795478109.5889263, 7, "memo", context, tag, **more)
    text = encode(event)
    assert text == json.dumps(to_json(event), sort_keys=True, separators=(",", ":"))
    assert event_from_json(json.loads(text)) == event


@pytest.mark.parametrize("t", [float("nan"), float("inf")])
def test_the_time_of_an_event_of_a_job_is_a_number_of_json(t: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(JobEvent(t, 1, "start"))
