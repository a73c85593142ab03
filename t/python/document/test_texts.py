"""Text of others: whatever it holds, it can be sent, logged and shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.texts import MAX_LINE, MAX_LINES, MAX_TEXT, bounded, clip, printable

#: Any text that Python can have, surrogates included.
ANY = st.text(st.characters())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("as it is: 100% ä 語", "as it is: 100% ä 語"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\0b", r"a\x00b"),
        ("\udcff\ud800", r"\udcff\ud800"),
        ("\x7f\x9b", r"\x7f\x9b"),
    ],
)
def test_odd_characters_are_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_long_text_loses_its_middle_and_says_how_much() -> None:
    text = clip("a" * 5000 + "b" * 5000, 100)
    assert text == "a" * 50 + " ... 9900 characters left out ... " + "b" * 50
    assert clip("a" * 100, 100) == "a" * 100


@pytest.mark.parametrize("problem", ["problem", "problem " * 50])
def test_of_many_lines_the_last_are_left_out_and_counted(problem: str) -> None:
    lines = bounded("\n".join(f"{problem} {n}" for n in range(100_000))).splitlines()
    assert lines[0] == f"{problem} 0"
    assert lines[-1] == f"... {100_000 - len(lines) + 1} more lines left out"
    assert lines[-2] == f"{problem} {len(lines) - 2}"
    assert len(lines) <= MAX_LINES + 1


def test_sane_text_of_several_lines_stays_as_it_is() -> None:
    for text in ("one\n  two\n\nthree", "ends with a newline\n", "\n", ""):
        assert bounded(text) == text


@given(st.lists(ANY).map("\n".join) | st.builds(lambda text, n: text * n, ANY, st.just(10_000)))
def test_whatever_the_text_it_can_be_sent_and_is_not_long(text: str) -> None:
    result = bounded(text)
    result.encode()
    assert "\0" not in result
    assert "\x1b" not in result
    assert len(result) <= MAX_TEXT + MAX_LINE
    assert all(len(line) <= MAX_LINE + 100 for line in result.split("\n"))
