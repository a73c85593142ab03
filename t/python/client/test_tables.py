"""Which rows of interrupted attempts a table of jobs has, and which numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from flux_ensemble.client.tables import JobTable


def row(id: int, rule: str = "start", firing: int = 0, **more: Any) -> Any:
    return {"id": id, "rule": rule, "firing": firing, **more}


#: Of job 1 the second attempt ran; of job 2 two attempts were interrupted, and the third was
#: dropped before it was sent; that of job 3 was dropped at once.
ROWS = (
    row(1, replaced="retry:0"),
    row(2, firing=1, replaced="retry:1"),
    row(3, firing=2, replaced="retry:2"),
    row(4, firing=3),
    row(5, "retry", 1, replaced="retry:3"),
    row(6, "retry", 0),
)


def ids(rows: Iterable[Any], more: Callable[[], Iterable[Any]] | None = None) -> list[int]:
    table = JobTable(lambda: rows, more, interrupted=False)
    found = [each["id"] for each in table]
    assert len(found) + table.left_out == len(list(rows))
    return found


def test_an_attempt_is_left_out_only_if_another_one_came_after_it() -> None:
    assert ids(ROWS) == [4, 6, 3, 5]


def test_what_came_after_may_not_be_among_those_that_were_chosen() -> None:
    assert ids(ROWS[:4], lambda: ROWS) == [4, 3]


def test_guests_who_do_not_see_rules_see_no_attempt_that_was_interrupted() -> None:
    rows = [{key: each[key] for key in ("id", "replaced") if key in each} for each in ROWS]
    assert ids(rows) == [4, 6]


def test_all_are_there_if_they_are_asked_for_in_their_order() -> None:
    assert [each["id"] for each in JobTable(lambda: ROWS)] == [1, 2, 3, 4, 5, 6]


def test_jobs_have_a_length_and_positions() -> None:
    table = JobTable(lambda: ROWS, interrupted=False)
    assert (len(table), table[0]["id"], table[-1]["id"]) == (4, 4, 5)
    assert [each["id"] for each in table[1:3]] == [6, 3]
    assert (bool(table), bool(JobTable(lambda: ()))) == (True, False)
    with pytest.raises(IndexError, match=r"there is no job 7: jobs\(\) has 4 jobs"):
        table[7]
    with pytest.raises(TypeError, match=r"a job, not 'x': to_pandas\(\) is a table with columns"):
        table["x"]  # type: ignore[call-overload]


def test_a_list_of_jobs_is_one_request_and_each_length_is_of_now() -> None:
    requests: list[int] = []

    def requested() -> Any:
        requests.append(1)
        return [*ROWS, *ROWS][: len(requests)]

    table = JobTable(requested)
    assert len(list(table)) == len(requests) == 1
    assert [len(table), len(table), len(list(table))] == [2, 3, 4]
    for _ in table:
        assert len(table) == len(requests)


def test_what_jobs_published_stands_in_one_place() -> None:
    pytest.importorskip("pandas")
    rows = [row(1, memo=memo, output=None) for memo in ({}, {"a": 1, "b": 2}, {"c": 3})]
    columns = list(JobTable(lambda: rows).to_pandas().columns)
    assert columns[columns.index("memo.a") :][:3] == ["memo.a", "memo.b", "memo.c"]
    assert columns.index("memo.a") < columns.index("output")


def test_nan_and_infinity_are_numbers_in_a_column_of_numbers() -> None:
    memos = [{"loss": 0.5, "note": "a"}, {"loss": "nan", "note": "inf"}, {"loss": "-inf"}, {}]
    table = JobTable(lambda: [row(1, params={"x": "nan"}, memo=memo) for memo in memos])
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert frame["memo.loss"].dtype == "float64"
    assert frame["memo.loss"].min() == -math.inf
    assert pandas.isna(frame["memo.loss"]).tolist() == [False, True, False, True]
    assert frame["memo.note"][1] == "inf"
    assert frame["params.x"][0] == "nan"
    polars = pytest.importorskip("polars")
    column = table.to_polars()["memo.loss"]
    assert column.dtype == polars.Float64
    assert math.isnan(column[1])
    assert column[3] is None
