"""The encoder of what is written for each job event, against that of the standard library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble import encoding
from flux_ensemble.engine.events import Tag

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(params=["C", "Python"])
def dumps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "Python":
        monkeypatch.setattr("json.encoder.c_make_encoder", None)
        monkeypatch.setattr(encoding, "_parts", encoding._make())
    return encoding.dumps


@given(value=VALUES)
def test_text_is_that_of_the_standard_library(value: Any) -> None:
    assert encoding.dumps(value) == json.dumps(value, separators=(",", ":"))


def test_a_named_tuple_is_an_array_and_one_number_is_a_text(dumps: Any) -> None:
    assert dumps([1.5, Tag("a", "r", 1, 0), {"é": "x"}]) == '[1.5,["a","r",1,0],{"\\u00e9":"x"}]'
    assert (dumps(1.5), dumps("x")) == ("1.5", '"x"')


@pytest.mark.parametrize(
    ("value", "error"),
    [(float("nan"), ValueError), ([float("inf")], ValueError), ({"a": {1, 2}}, TypeError)],
)
def test_what_json_cannot_hold_is_refused(dumps: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        dumps(value)


def test_what_nests_without_end_is_refused(dumps: Any) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises((RecursionError, ValueError)):
        dumps(value)
