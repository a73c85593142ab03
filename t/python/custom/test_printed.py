"""What custom functions print, in the eventlog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from caller_bench import Make, benches

from flux_ensemble.eventlog import CustomOutput
from flux_ensemble.runtime.custom.output import MAX_ALL, MAX_CALL, PrintedOutput


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path) as make:
        yield make


class Notes:
    """An eventlog."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.printed = PrintedOutput(self._note)

    def _note(self, entry: CustomOutput) -> None:
        self.texts.append((entry.function, entry.text))


def test_each_call_that_prints_has_one_entry(bench: Make) -> None:
    notes = Notes()
    worker = bench(
        "print('loading')\n"
        "def f(**kwargs):\n"
        "    print('one')\n"
        "    print('two')\n"
        "def g(**kwargs): pass\n",
        printed=notes.printed.take,
    )
    worker.calls("f", "g", "f")
    assert notes.texts == [("custom", "loading"), ("f", "one\ntwo"), ("f", "one\ntwo")]


def test_a_call_that_fails_has_one_too(bench: Make) -> None:
    notes = Notes()
    bench("def f(**kwargs):\n    print('here')\n    1 / 0\n", printed=notes.printed.take).failure()
    assert notes.texts == [("f", "here")]


def test_of_a_long_text_the_end_is_kept() -> None:
    notes = Notes()
    notes.printed.take("f", "x" * 10 + "y" * MAX_CALL)
    (_, text), = notes.texts  # fmt: skip
    assert text == "... 10 characters before this\n" + "y" * MAX_CALL


def test_all_together_is_bounded_and_the_last_entry_says_so() -> None:
    notes = Notes()
    for _ in range(2 * MAX_ALL // MAX_CALL):
        notes.printed.take("f", "x" * MAX_CALL)
    assert sum(len(text) for _, text in notes.texts) < MAX_ALL + 2 * MAX_CALL
    assert notes.texts[-1][1] == "what is printed from here on is in the service's log only"


def test_what_steers_a_terminal_is_escaped() -> None:
    notes = Notes()
    notes.printed.take("f", "\x1b[2J")
    assert notes.texts == [("f", "\\x1b[2J")]
