"""Tables and sentences on a terminal fit its width; pipes have everything."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from flux_ensemble.bindings import require_flux
from flux_ensemble.cli.common import say
from flux_ensemble.cli.display import formats
from flux_ensemble.cli.display.formats import Pairs, Table
from flux_ensemble.cli.display.jobs_table import jobs_table
from flux_ensemble.cli.display.views import make_lines
from flux_ensemble.cli.prose import wrapped
from flux_ensemble.words import Span

Show = Callable[..., list[str]]

TABLE = Table(
    "things",
    {"name": "NAME", "zeros": "ZEROS", "less": "LESS", "much": "MUCH", "why": "WHY"},
    {
        "default": {
            "description": "",
            "format": "+:{name:<4} {zeros:>5} {less:>4} {much:>4} ?:{why}",
        }
    },
    yields=("why",),
    drops=("less", "zeros"),
)
ROW = {"name": "a", "zeros": 0, "less": 7, "much": 8, "why": "for many reasons, each of them long"}


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.flux)])
def show(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Show:
    """A function that shows a table on a terminal of a width; None is a pipe."""
    if request.param:
        require_flux()
    monkeypatch.setattr(formats, "_has_flux", lambda: request.param)

    def shown(table: Table, width: int | None, *rows: dict[str, Any], **more: Any) -> list[str]:
        monkeypatch.setattr(formats, "_is_terminal", lambda: width is not None)
        monkeypatch.setenv("COLUMNS", str(width))
        table.show(rows, **more)
        return capsys.readouterr().out.splitlines()

    return shown


def test_a_pipe_has_all_columns_whole(show: Show) -> None:
    lines = show(TABLE, None, ROW)
    assert lines == [
        "NAME ZEROS LESS MUCH WHY",
        f"a        0    7    8 {ROW['why']}",
    ]
    assert show(TABLE, 80, ROW) == lines


def test_what_is_long_is_shortened_before_a_column_is_left_out(show: Show) -> None:
    lines = show(TABLE, 52, ROW)
    assert lines[0] == "NAME ZEROS LESS MUCH WHY"
    assert len(lines[1]) == 52
    assert "..." in lines[1]
    assert len(lines) == 2


def test_columns_of_zeros_are_left_out_first_and_not_named(show: Show) -> None:
    assert show(TABLE, 46, ROW)[0] == "NAME LESS MUCH WHY"
    assert len(show(TABLE, 46, ROW)) == 2


def test_columns_without_room_are_named_with_what_shows_them(show: Show) -> None:
    lines = show(TABLE, 40, ROW)
    assert lines[0] == "NAME MUCH WHY"
    assert lines[2:] == ["no room for LESS: '| less -S' shows all columns"]
    assert show(TABLE, 40, ROW, elsewhere="")[2:] == ["no room for LESS"]
    assert all(len(line) <= 40 for line in lines[:2])


def test_a_format_of_the_user_keeps_its_columns(show: Show) -> None:
    assert show(TABLE, 20, ROW, fmt="{name} {less} {why}")[0] == "NAME LESS WHY"


def test_a_value_that_is_not_there_fits_formats_of_numbers(show: Show) -> None:
    rows = [{**ROW, "less": 0.5}, {**ROW, "less": ""}]
    lines = show(TABLE, None, *rows, fmt="{less:>6.0%} {much}")
    assert [line.split() for line in lines] == [["LESS", "MUCH"], ["50%", "8"], ["8"]]


def test_of_parameters_whole_ones_are_kept() -> None:
    pairs = Pairs(["a=1", "length=20", "material=copper and tin"])
    assert pairs.cut(40) == pairs
    assert pairs.cut(20) == "a=1 length=20 ..."
    assert pairs.cut(12) == "a=1 ..."
    assert len(Pairs(["material=copper and tin", "b=2"]).cut(12)) == 12


def test_published_values_have_a_column_if_there_are_some(show: Show) -> None:
    row: dict[str, Any] = {
        **dict.fromkeys(jobs_table("default").headings, ""),
        "id": 1, "runtime": 1.0, "t_run": 0.0, "params": Pairs(["a=1"]), "memo": Pairs(["x=2.5"]),
    }  # fmt: skip
    assert show(jobs_table("default"), None, row)[0].split()[-2:] == ["PARAMS", "MEMO"]
    assert "x=2.5" in show(jobs_table("default"), 80, row)[1]
    row["memo"] = ""
    assert show(jobs_table("default"), None, row)[0].split()[-1] == "PARAMS"


@pytest.mark.parametrize(
    ("line", "width", "lines"),
    [
        ("as short as it is", 20, ["as short as it is"]),
        ("broken between words", 16, ["broken between", "    words"]),
        (
            "3 jobs failed: see 'flux-ensemble failures a' or so",
            30,
            ["3 jobs failed: see", "    'flux-ensemble failures a'", "    or so"],
        ),
        ("  see: flux-ensemble jobs a --filter 'x == 1'", 24,
         ["  see:", "      flux-ensemble jobs a --filter 'x == 1'"]),
        ("  1.5s  best is that of a", 24, ["  1.5s  best is that of", "        a"]),
        ("not there: pip install 'a[b]' --user", 24,
         ["not there:", "    pip install 'a[b]' --user"]),
        ("flux-ensemble 0.1.0 is it", 20, ["flux-ensemble 0.1.0", "    is it"]),
        ("unbreakablebutlong", 4, ["unbreakablebutlong"]),
        ("two\nlines of text", 10, ["two", "lines of", "    text"]),
        ("trailing  ", 8, ["trailing  "]),
    ],
)  # fmt: skip
def test_lines_are_broken_between_words_and_commands_never(
    line: str, width: int, lines: list[str]
) -> None:
    assert wrapped(line, width).split("\n") == lines


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_sentences_fit_a_terminal_and_are_one_line_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    sentence = "a sentence of more words than fit"
    for terminal in (True, False):
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        for stream in (out, err):
            monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
        for name, value in {"TERM": term, "COLUMNS": "30", "NO_COLOR": ""}.items():
            monkeypatch.setenv(name, value)
        say(sentence)
        make_lines()((Span("   "), Span(sentence, "bad")))
        many = 1 + terminal
        assert len(out.getvalue().splitlines()) == many
        assert len(err.getvalue().splitlines()) == many
