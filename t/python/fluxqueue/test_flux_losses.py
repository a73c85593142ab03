"""The Flux member on a real Flux instance whose job-ingest comes and goes."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from under_flux import FAKE_CORES, under_flux


def burst(tmp_path: Path, what: str) -> Any:
    """What flux_losses.py finds; no job was submitted twice, and each was told of."""
    found = under_flux(tmp_path, what, FAKE_CORES, script="flux_losses.py")
    assert not found["twice"]
    assert found["agrees"]
    assert set(found.get("codes", ())) <= {0}
    return found


@pytest.mark.flux
def test_jobs_are_submitted_once_while_job_ingest_is_reloaded(tmp_path: Path) -> None:
    found = burst(tmp_path, "reload")
    assert (found["outcome"], found["reason"]) == ("CommandDone", "")
    assert (found["missing"], found["queued"]) == (0, found["jobs"])


@pytest.mark.flux
def test_jobs_wait_for_a_job_ingest_that_is_away_for_a_while(tmp_path: Path) -> None:
    found = burst(tmp_path, "away")
    assert (found["outcome"], found["reason"]) == ("CommandDone", "")
    assert (found["missing"], found["queued"]) == (0, found["jobs"])


@pytest.mark.flux
def test_submission_waits_while_job_ingest_is_gone_and_fails_when_the_ensemble_ends(
    tmp_path: Path,
) -> None:
    found = burst(tmp_path, "gone")
    assert found["outcome"] == "CommandFailed"
    assert found["waits"] == ["away"]
    assert found["errno"] in ("ENOSYS", "ECANCELED")
    assert 0 < found["missing"] < found["jobs"]
    assert found["missing"] + found["queued"] == found["jobs"]
    assert found["again"] == "ENOSYS"
    assert found["after"] == "CommandDone"


@pytest.mark.flux
def test_a_response_that_comes_too_late_cannot_be_taken_for_that_of_another_call(
    tmp_path: Path,
) -> None:
    found = under_flux(tmp_path, "late", script="flux_losses.py")
    assert found["outcomes"] == [errno.ETIMEDOUT, None]
    assert found["free"] == [False, True]


@pytest.mark.flux
def test_a_refusal_needs_no_fence(tmp_path: Path) -> None:
    found = under_flux(tmp_path, "refused", script="flux_losses.py")
    assert (found["outcome"], found["errno"]) == ("CommandFailed", "EINVAL")
    assert found["reason"] == 'job 0: dependency scheme "no" not supported (EINVAL)'
    assert not found["fences"]
    assert not found["queued"]


@pytest.mark.flux
@pytest.mark.parametrize("queues", ["", "[queues.some]\n[queues.other]\n"])
def test_a_fence_comes_after_what_was_submitted_before_it_and_leaves_nothing(
    tmp_path: Path, queues: str
) -> None:
    found = under_flux(tmp_path, "fence", FAKE_CORES + queues, script="flux_losses.py")
    assert found["outcomes"] == ["CommandDone", "CommandDone"]
    first, second, third = found["back"]
    assert first == ["None", found["sent before"]], "what comes later waits for the fence"
    assert found["sent before"] > 0
    assert second[0] == third[0] == "None"
    assert found["fences"] == 4, "two fences of two jobs each"
    assert found["agrees"]
    assert found["jobs"] == 100


@pytest.mark.flux
def test_jobs_that_the_queue_has_already_are_not_submitted_again(tmp_path: Path) -> None:
    found = burst(tmp_path, "known")
    assert found["outcome"] == "CommandDone"
    assert found["ids"] == found["queued"] == 5
    assert found["left"] == [7], "what was used is forgotten"
