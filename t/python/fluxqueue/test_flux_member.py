"""The Flux member and its journal on a real Flux instance."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from under_flux import FAKE_CORES, under_flux


@pytest.mark.flux
def test_a_busy_journal_loses_and_repeats_nothing_while_it_widens(tmp_path: Path) -> None:
    found = under_flux(tmp_path, "widen", FAKE_CORES)
    assert found["jobs"] == found["tags"] == 400
    assert not found["wrong"]
    assert len(found["later"]) == 8
    assert sum(found["later"].values()) > 400


@pytest.mark.flux
def test_nothing_is_sent_twice_where_responses_are_late(tmp_path: Path) -> None:
    # What is late is looked for behind a fence, a job of the queue's own.
    found = under_flux(tmp_path, "hurry", FAKE_CORES)
    assert found["fences"] > 0
    assert found["jobs"] == found["tags"] == 400
    assert not found["wrong"]


@pytest.mark.flux
def test_responses_are_handled_in_order_and_a_request_overtakes_them(tmp_path: Path) -> None:
    found = under_flux(tmp_path, "overtake")
    handled = found["handled"]
    assert found["raised"] == ["eight", "of a timer", "seven"]
    assert [one for one in handled if one != "request"] == list(range(201))
    assert handled.index("request") < 200


@pytest.mark.flux
def test_a_response_that_comes_too_late_is_nobodys(tmp_path: Path) -> None:
    found = under_flux(tmp_path, "wait")
    assert found["late"] == ["slow"]
    assert sorted(found["early"]) == [
        "another: 0", "not sent", "quick: 0", f"unknown: {errno.ENOSYS}",
    ]  # fmt: skip


@pytest.mark.flux
def test_jobs_are_submitted_changed_canceled_and_refused(tmp_path: Path) -> None:
    found = under_flux(tmp_path, "change")
    assert found["ids"] == 3
    for what in ("update", "cancel", "cancel again", "update again"):
        assert found[what] == ["CommandDone", ""], what
    number, reason = found["refused"]
    assert number == "EINVAL"
    assert reason.startswith("job 0: ")
    assert "'nowhere'" in reason
    assert found["jobs"] == 3


@pytest.mark.flux
def test_nothing_is_kept_of_a_submission(tmp_path: Path) -> None:
    found = under_flux(tmp_path, "keep")
    assert found["bytes"] < found["jobspec"] / 10
