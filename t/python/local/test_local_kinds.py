"""A queue beside the local one takes a class and a row of `kinds.QUEUES`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from flux_ensemble import Ensemble
from flux_ensemble.cli.main import run_command
from flux_ensemble.queues.local.kinds import QUEUES, QueueName
from flux_ensemble.queues.local.queue import LocalQueue
from flux_ensemble.queues.local.run_queue import RunSide

BESIDE = cast(QueueName, "beside")


def document() -> Ensemble:
    """An ensemble of a job that fails on another queue, and until there is a file `done`."""
    command = 'test "$WHERE" = beside -a -e done'
    submit = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    return Ensemble(name="one", jobs=[{"name": "a", "command": command}], rules=[submit])


class Beside(LocalQueue):
    """A queue whose jobs know that they are on it."""

    made: list[str]

    @classmethod
    def of_run(cls, side: RunSide) -> LocalQueue:
        cls.made.append(side.spec.name)
        environment = {**side.environment, "WHERE": "beside"}
        return super().of_run(RunSide(**{**vars(side), "environment": environment}))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the runs that had the queue, which there is in this test."""
    monkeypatch.setattr(Beside, "made", [], raising=False)
    monkeypatch.setitem(QUEUES, BESIDE, f"{__name__}:Beside")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Beside.made


def test_a_run_goes_on_with_the_queue_on_which_it_was_begun(
    made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    document().run(cast(Any, BESIDE))
    assert made == ["one"]
    assert Ensemble.attach("one", queue="local").status()["groups"]["a"]["failed"] == 1
    Path("done").touch()
    assert run_command(["rerun", "--failed", "one"]) == 0
    assert made == ["one", "one"]


def test_a_run_whose_queue_there_is_not_any_more_does_not_go_on(
    made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document().run(cast(Any, BESIDE))
    monkeypatch.delitem(QUEUES, BESIDE)
    assert run_command(["rerun", "--failed", "one"]) == 1
    error = capsys.readouterr().err
    assert "'one' has the queue 'beside', which there is not here: expected one of local" in error
    # It can be read all the same.
    assert run_command(["status", "one"]) == 0


def test_only_queues_that_there_are_can_be_chosen(made: list[str]) -> None:
    with pytest.raises(ValueError, match="expected 'flux' or 'local' or 'beside', not 'slurm'"):
        document().run(cast(Any, "slurm"))
