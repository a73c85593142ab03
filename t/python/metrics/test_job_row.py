"""The row of a job: one table, from which follows what all others know of its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import goldens
import pytest

from flux_ensemble.cli.display.jobs_table import jobs_table
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.job_filter import FIELDS, compile_filter
from flux_ensemble.metrics.job_row import COLUMNS, GUESTS, IN_RULES, fitted
from flux_ensemble.queues.local import state_forms

#: Recordings of jobs on members, in searches, and with copies, exceptions and memos.
RECORDINGS = (
    "flux-job-memo",
    "history-1",
    "simulated-failures",
    "simulated-members",
    "simulated-stragglers",
    "simulated-tune",
)


def rows_of(name: str) -> list[Mapping[str, Any]]:
    """The rows of a recorded ensemble after half of its events, and at the end."""
    recording = goldens.recordings().get(name)
    if recording is None:
        pytest.skip(f"there is no recording {name}")
    with goldens.same_everywhere():
        return [row for _, source in goldens.moments(recording) for row in source.jobs]


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row by the names of the table."""
    exception = {f"exception.{key}": value for key, value in row["exception"].items()}
    return {**{name: value for name, value in row.items() if name != "exception"}, **exception}


@pytest.mark.parametrize("name", RECORDINGS)
def test_rows_that_the_engine_makes_have_the_fields_of_the_table_with_its_types(name: str) -> None:
    rows = rows_of(name)
    assert rows
    required = {field.name for field in COLUMNS.values() if field.required}
    for row in rows:
        values = flat(row)
        assert required <= values.keys() <= COLUMNS.keys()
        for key, value in values.items():
            field = COLUMNS[key]
            assert type(value) is field.type or (value is None and field.nullable), (key, value)


@pytest.mark.parametrize("name", RECORDINGS)
def test_keys_of_rows_have_the_order_of_the_table(name: str) -> None:
    order = list(dict.fromkeys(name.partition(".")[0] for name in COLUMNS))
    for row in rows_of(name):
        assert list(row) == [key for key in order if key in row]


def test_each_row_is_one_that_a_local_run_can_have_written() -> None:
    for row in rows_of("simulated-failures"):
        assert state_forms.fits(json.loads(json.dumps(row)), state_forms.JOB)


@pytest.fixture
def line() -> Any:
    """A job as a local run has written it."""
    return json.loads(json.dumps(rows_of("simulated-failures")[-1]))


def test_a_job_that_an_older_version_has_written_lacks_the_later_columns(line: Any) -> None:
    for field in COLUMNS.values():
        if not field.required:
            line.pop(field.name, None)
    assert state_forms.fits(line, state_forms.JOB)
    compile_filter(" or ".join(f"{name} == {name}" for name in FIELDS))(line)


def test_a_job_with_a_column_that_only_a_later_version_knows_is_read(line: Any) -> None:
    assert state_forms.fits({**line, "carbon": 12.5}, state_forms.JOB)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "waits"])
def test_a_value_of_another_type_is_no_job_of_a_local_run(name: str, line: Any) -> None:
    owner, _, key = name.rpartition(".")
    (line[owner] if owner else line)[key] = ["damaged"]
    assert not state_forms.fits(line, state_forms.JOB)


def test_guests_see_nothing_that_users_have_written() -> None:
    assert GUESTS == (
        "id", "member", "name", "state", "group", "nnodes", "t_submit", "t_run", "t_end", "runtime",
        "outcome", "replaced",
    )  # fmt: skip


def test_each_column_has_a_heading_of_its_own_and_a_meaning() -> None:
    headings = [field.heading for field in COLUMNS.values()]
    assert len(set(headings)) == len(headings)
    assert all(field.column.about for field in COLUMNS.values())
    assert set(headings) <= set(jobs_table("default").headings.values())


def test_what_is_known_before_the_end_of_a_job_is_no_outcome_of_it() -> None:
    ended = {name for name, column in IN_RULES.items() if column.known is Known.END}
    of_end = {"returncode", "signal", "outcome", "interrupted", "reason"}
    assert ended == of_end | {"cpu_seconds", "max_rss", "efficiency"}


@pytest.mark.parametrize("name", FIELDS)
def test_a_literal_of_the_wrong_type_is_refused_by_its_type(name: str) -> None:
    if name == "id":
        assert fitted(name, "ƒ1") == "ƒ1"
        return
    wrong = 3.5 if COLUMNS[name].type in (str, int, bool) else "soon"
    with pytest.raises(ValueError, match=name):
        fitted(name, wrong)


def test_each_field_is_in_a_row_that_the_engine_makes() -> None:
    # Only the queue knows what a job waits for, and no recording has a copy or a job that was
    # interrupted and ran again.
    found = {name for recording in RECORDINGS for row in rows_of(recording) for name in flat(row)}
    assert COLUMNS.keys() - found == {"waits", "copy_of", "replaced"}
