"""Mutants of the engine: one place is changed at a time, and who judges them notices a change."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "fuzz"))

import mutants

SOURCE = '''"""Nothing of this is changed."""
from x import y

LIMIT: int = 3
NAMES = ("a", "b")

def f(x: int) -> bool:
    """Nor of this."""
    assert x != 7
    if x < LIMIT and x:
        y.seen = x
        y(min(x, 2))
        return not x
    return None
'''


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A room with a single module."""
    (tmp_path / "small.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOM", tmp_path)
    monkeypatch.setattr(mutants, "FEATURES", tmp_path / "features")


def test_what_is_executed_is_changed_one_place_at_a_time() -> None:
    assert sorted(one.called for one in mutants.mutants_of("small")) == [
        "small:10 x < LIMIT -> x <= LIMIT",
        "small:10 x < LIMIT and x -> x",
        "small:10 x < LIMIT and x -> x < LIMIT",
        "small:10 x < LIMIT and x -> x < LIMIT or x",
        "small:11 y.seen = x -> pass",
        "small:12 2 -> 3",
        "small:12 min(x, 2) -> max(x, 2)",
        "small:12 y(min(x, 2)) -> pass",
        "small:13 not x -> x",
        "small:13 return not x -> return None",
        "small:4 3 -> 4",
        "small:5 'a' -> 'xa'",
        "small:5 'b' -> 'xb'",
    ]


def test_the_code_of_a_mutant_has_its_change_and_no_other() -> None:
    (constant,) = [one for one in mutants.mutants_of("small") if one.called == "small:4 3 -> 4"]
    own = compile(SOURCE, str(mutants.ROOM / "small.py"), "exec")
    code = constant.code()
    assert (3 in own.co_consts, 4 in own.co_consts) == (True, False)
    assert (3 in code.co_consts, 4 in code.co_consts) == (False, True)


def test_mutants_that_read_alike_have_names_of_their_own() -> None:
    (mutants.ROOM / "small.py").write_text("f(1, 1)")
    names = [one.called for one in mutants.mutants_of("small")]
    assert sorted(names) == ["small:1 1 -> 2", "small:1 1 -> 2 (2)", "small:1 f(1, 1) -> pass"]


def test_mutants_are_drawn_with_the_seed() -> None:
    drawn = [[one.called for one in mutants.drawn(8, seed)] for seed in (0, 0, 1)]
    assert len(set(drawn[0])) == 8
    assert drawn[0] == drawn[1] != drawn[2]


def test_lines_that_are_changed_are_those_of_the_statement_without_what_is_in_it() -> None:
    lines = {one.called: list(one.lines) for one in mutants.mutants_of("small")}
    assert lines["small:10 x < LIMIT -> x <= LIMIT"] == [10]
    assert lines["small:12 2 -> 3"] == [12]


def test_a_change_that_takes_effect_at_the_import_is_judged_by_all_that_use_the_module() -> None:
    source = "LIMIT = 3\n\ndef f(x=4):\n    g(lambda y=5: 6)\n"
    (mutants.ROOM / "small.py").write_text(source)
    by_name = {one.called.partition(" ")[2]: one for one in mutants.mutants_of("small")}
    at_import = {name for name, one in by_name.items() if one.at_import}
    assert at_import == {"3 -> 4", "4 -> 5"}
    known = mutants.Known({"first": 0.1, "other": 0.2})
    known.executed.update({("small", 1): {"first"}, ("small", 3): {"first"}})
    known.executed["small", 4] = {"other"}
    assert known.of(by_name["3 -> 4"]) == ["first", "other"]
    assert known.of(by_name["6 -> 7"]) == ["other"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_what_takes_no_end_of_processor_time_is_noticed() -> None:
    def never_ends() -> int:
        while True:
            pass

    assert mutants.forked(never_ends, 0.1) == 1
    assert mutants.forked(lambda: 0, 10) == 0
    assert mutants.forked(lambda: 1, 10) == 1
