"""Columns: what is packed comes out as it went in, or what is left out is counted."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import columns

from flux_ensemble.report import columns as module
from flux_ensemble.report.columns import Codes, Counts, Ids, Times, Values, pack
from flux_ensemble.report.gather import Log

NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


def unpacked(column: Any, rows: int) -> list[Any]:
    return columns(pack({"t": (rows, {"c": column.encode()})}, {}))["t"]["c"]


@given(st.lists(st.none() | NUMBERS | st.text(alphabet="abc<&é", max_size=5)))
def test_values_come_again_as_they_were(values: list[Any]) -> None:
    column = Values()
    for value in values:
        column.add(value)
    assert unpacked(column, len(values)) == values
    assert column.left_out == 0


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_ids_have_all_their_bits(ids: list[int]) -> None:
    column = Ids()
    for one in ids:
        column.add(one)
    assert unpacked(column, len(ids)) == ids


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_counts_go_up_and_down(numbers: list[int]) -> None:
    column = Counts()
    for number in numbers:
        column.add(number)
    assert unpacked(column, len(numbers)) == numbers


def test_times_leave_out_the_gaps_before_them() -> None:
    column = Times("t")
    for t in (0.0, 5.0, 12.0, 20.0, 31.0):
        column.add("t", 100.0 + t)
    gaps = [(110.0, 120.0), (130.0, 131.0)]
    assert columns(pack({"t": (5, column.encode(100.0, gaps))}, {}))["t"]["t"] == [0, 5, 10, 10, 20]


@given(st.lists(st.none() | st.floats(0, 1e7)), st.sampled_from([0.0, 1.79e9]))
def test_times_are_as_exact_as_their_span_allows(times: list[float | None], begin: float) -> None:
    column = Times("t")
    for t in times:
        column.add("t", None if t is None else begin + t)
    found = columns(pack({"t": (len(times), column.encode(begin))}, {}))["t"]["t"]
    span = max((t for t in times if t is not None), default=0.0)
    exact = 2e-6 if span < 4000 else 2e-3 if span < 4e6 else 1.0
    for t, one in zip(times, found, strict=True):
        assert (t is None) == (one is None)
        assert t is None or one is None or abs(t - one) <= exact


def test_many_different_numbers_are_a_column_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_VALUES", 10)
    column = Values()
    for value in [*range(20), None, "text", 0.5]:
        column.add(value)
    found = unpacked(column, 23)
    assert found[:20] == list(range(20))
    assert all(math.isnan(one) for one in found[20:22])
    assert found[22] == 0.5
    assert column.left_out == 1


def test_texts_that_are_too_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 3)
    column = Codes()
    for value in "abcdea":
        column.add(value)
    assert unpacked(column, 6) == ["a", "b", "c", module.OTHER, module.OTHER, "a"]
    assert column.left_out == 2


def test_values_that_json_has_not_are_texts() -> None:
    column = Codes()
    for value in (math.nan, math.inf, 2**70, True, [1], "\x1b\ud800"):
        column.add(value)
    assert unpacked(column, 6) == ["nan", "inf", str(2**70), "true", "[1]", "\\x1b\\ud800"]


def test_a_column_that_begins_late_has_no_values_before() -> None:
    column = Values()
    column.fill(2)
    column.add(5)
    column.fill(4)
    assert unpacked(column, 4) == [None, None, 5, None]


def test_the_log_leaves_out_the_spans_in_which_the_ensemble_did_not_run() -> None:
    log = Log(
        lambda entry, begin: f"{entry['timestamp'] - begin:g}",
        environment=False,
        gaps=[(105.0, 155.0)],
    )
    for t, name, context in (
        (100.0, "start", {}),
        (105.0, "start", {}),
        (157.0, "start", {}),  # by jobs of the next instance, which ran before there was a service
        (165.0, "epoch", {"version": "1", "firings": 1, "away": 50.0, "ago": 10.0}),
        (167.0, "start", {}),
    ):
        log.add({"timestamp": t, "name": name, "context": context})
    assert log.head == ["0", "5", "7", "15", "17"]
    assert log.away == 50.0
