"""What is known of a job, from its events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Play, document, on_start

from flux_ensemble.engine.jobs import MAX_MEMO, MAX_NOTE, ActiveJob
from flux_ensemble.engine.snapshot import dump, restore


@pytest.fixture
def play() -> Play:
    return Play(document(rules=[on_start()], finish="never"))


def job(play: Play, *events: tuple[str, dict[str, Any]]) -> ActiveJob:
    """The first job, after these events of it."""
    play.event(1, "submit")
    found = play.engine.workload.jobs[1]
    for name, context in events:
        play.event(1, name, **context)
    return found


def test_what_is_not_known_yet_is_none(play: Play) -> None:
    found = job(play)
    assert (found.t_alloc, found.t_start, found.t_end, found.status) == (None,) * 4
    assert (found.ranks, found.exception_type, found.exception_note) == (None,) * 3
    assert found.memo == {}


def test_its_resources_come_with_its_start(play: Play) -> None:
    found = job(play, ("validate", {}), ("start", {"t_alloc": 1000.5, "ranks": "0-3"}))
    assert (found.t_alloc, found.ranks) == (1000.5, "0-3")


@pytest.mark.parametrize("context", [{}, {"t_alloc": "x", "ranks": 3}])
def test_a_start_that_says_nothing_of_them_is_one_too(play: Play, context: dict[str, Any]) -> None:
    found = job(play, ("validate", {}), ("start", context))
    assert (found.t_alloc, found.ranks) == (None, None)


def test_it_ends_when_it_finishes(play: Play) -> None:
    found = job(play, ("validate", {}), ("start", {}), ("finish", {"status": 256}))
    assert (found.t_end, found.status) == (play.t, 256)
    play.event(1, "clean")
    assert (found.t_end or play.t) < play.t


def test_one_that_never_ran_ends_when_it_is_gone(play: Play) -> None:
    found = job(play, ("validate", {}), ("exception", {"type": "alloc", "severity": 0}))
    before = found.t_end
    play.event(1, "clean")
    assert (before, found.t_end, found.status) == (None, play.t, None)


def test_its_first_fatal_exception_is_kept(play: Play) -> None:
    found = job(
        play,
        ("exception", {"type": "warned", "severity": 1, "note": "no"}),
        ("exception", {"type": "timeout", "severity": 0, "note": "n" * 2 * MAX_NOTE}),
        ("exception", {"type": "cancel", "severity": 0, "note": "later"}),
    )
    assert found.exception_type == "timeout"
    assert "characters left out" in (found.exception_note or "")
    assert len(found.exception_note or "") < 2 * MAX_NOTE


def test_memos_add_up_and_null_removes_a_key(play: Play) -> None:
    found = job(play, ("memo", {"a": 1, "b": "x"}), ("memo", {"a": 2.5, "b": None, "c": [1]}))
    assert found.memo == {"a": 2.5, "c": [1]}


def test_a_memo_is_bounded_and_counts_what_is_left_out(play: Play) -> None:
    found = job(play, ("memo", {"long": "x" * MAX_MEMO, "short": 1}), ("memo", {"more": 2}))
    assert found.memo == {"short": 1, "more": 2}
    assert found.memo_left_out == 1


def test_all_of_it_is_in_snapshots(play: Play) -> None:
    play.engine.stats.keep_values()
    job(
        play,
        ("validate", {}),
        ("start", {"t_alloc": 1000.5, "ranks": "2"}),
        ("memo", {"a": 1, "b": {"c": [None, 2]}}),
        ("exception", {"type": "timeout", "severity": 0, "note": "too long"}),
        ("finish", {"status": 14}),
    )
    before = dump(play.engine)
    engine = restore(
        play.engine.spec, json.loads(json.dumps(before)), [play.engine.stats.take_values()]
    )
    restored, known = engine.workload.jobs[1], play.engine.workload.jobs[1]
    for name in ("t_alloc", "ranks", "t_end", "status", "exception_type", "exception_note", "memo"):
        assert getattr(restored, name) == getattr(known, name)
    assert dump(engine) == before
