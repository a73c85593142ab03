"""Strict durability on a real Flux instance: held, put on disk, released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from under_flux import FAKE_CORES, under_flux


def strict(tmp_path: Path, what: str, outcome: str = "CommandDone") -> Any:
    found = under_flux(tmp_path, what, FAKE_CORES, script="flux_strict.py")
    assert found["outcome"] == outcome, found["reason"]
    return found


def names(history: list[list[Any]]) -> list[str]:
    return [name for name, _ in history if name != "priority"]


def urgencies(history: list[list[Any]]) -> list[int]:
    return [urgency for _, urgency in history if urgency is not None]


@pytest.mark.flux
def test_jobs_start_when_they_are_on_disk(tmp_path: Path) -> None:
    found = strict(tmp_path, "release")
    assert len(found["histories"]) == 3
    for history in found["histories"]:
        assert names(history) == ["submit", "urgency", "alloc", "start", "clean"]
        assert urgencies(history) == [0, 20]
    first, before, *_ = found["order"]
    assert first == "submit"
    after = found["order"][found["order"].index("urgency") + 1]
    assert found["order"].index("urgency") == 4, "all are submitted before one is released"
    assert after.startswith("sha1-")
    assert after != before


@pytest.mark.flux
def test_jobs_with_urgency_0_stay_held(tmp_path: Path) -> None:
    found = strict(tmp_path, "held")
    assert [names(history) for history in found["histories"]] == [["submit", "clean"]] * 2


@pytest.mark.flux
def test_jobs_can_be_updated_and_cancelled_while_they_are_held(tmp_path: Path) -> None:
    found = strict(tmp_path, "changed")
    updated, canceled, other = found["histories"]
    assert found["told"] == ["CommandDone", "CommandDone"]
    assert urgencies(updated) == [0, 30]
    assert "start" not in names(canceled)
    assert urgencies(other) == [0, 16]


@pytest.mark.flux
def test_what_was_accepted_before_a_refusal_is_released(tmp_path: Path) -> None:
    found = strict(tmp_path, "refused", "CommandFailed")
    assert found["reason"] == 'job 1: dependency scheme "no" not supported (EINVAL)'
    (history,) = found["histories"]
    assert urgencies(history) == [0, 16]


@pytest.mark.flux
def test_jobs_that_the_queue_has_already_are_released_if_they_are_held(tmp_path: Path) -> None:
    held, over, new = strict(tmp_path, "known")["histories"]
    assert urgencies(held) == [0, 16]
    assert urgencies(over) == [16]
    assert urgencies(new) == [0, 16]
