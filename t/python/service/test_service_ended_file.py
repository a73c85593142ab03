"""The note of how many jobs have ended, which a crash of the instance does not undo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import FakeLoop
from play import on_start
from test_service_catchup import begun, entry, live
from test_service_ensembles import Bench, jobspec, tag

from flux_ensemble.service.recovery.ended_file import Ended, EndedFile


def test_it_is_written_while_jobs_are_in_the_queue_and_read_by_the_next_service(
    tmp_path: Path,
) -> None:
    bench, loop, path = Bench(), FakeLoop(), tmp_path / "ensemble.ended"
    ensemble, _ = bench.load(rules=[on_start("a")])
    file = EndedFile(path, [ensemble], loop, lambda: True)
    assert file.before == {}
    file.stirred()
    file.stirred()
    (timer,) = loop.timers
    live(bench, 1, jobspec(tag()), begun())
    timer.callback()
    assert json.loads(path.read_text()) == {"test": [ensemble.run, 0, 1000.0]}
    live(bench, 1, jobspec(tag()), [entry(2009.0, "finish", status=0), entry(2009.1, "clean")])
    loop.timers[-1].callback()
    before = EndedFile(path, [], loop, lambda: True).before
    assert before == {"test": Ended(ensemble.run, 1, 1000.0)}


def test_a_service_that_has_not_caught_up_leaves_the_note_of_the_one_before(
    tmp_path: Path,
) -> None:
    bench, loop, path = Bench(), FakeLoop(), tmp_path / "ensemble.ended"
    ensemble, _ = bench.load(rules=[on_start("a")])
    path.write_text(f'{{"test": [{ensemble.run}, 7, 900.0]}}')
    file = EndedFile(path, [ensemble], loop, lambda: False)
    assert file.before == {"test": Ended(ensemble.run, 7, 900.0)}
    file.stirred()
    loop.timers[-1].callback()
    assert "7" in path.read_text()


def test_without_a_directory_that_outlives_the_instance_nothing_is_noted() -> None:
    loop = FakeLoop()
    EndedFile(None, [], loop, lambda: True).stirred()
    assert not loop.timers


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "3", '{"a": 1}', '{"a": [1, 2]}', '{"a": [1, "x", 2.0]}']
)
def test_a_file_that_is_damaged_says_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ensemble.ended"
    path.write_text(text)
    assert EndedFile(path, [], FakeLoop(), lambda: True).before == {}
