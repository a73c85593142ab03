"""What is said of recorded runs is what was said before, to the letter."""

from __future__ import annotations

import difflib
from pathlib import Path

import goldens
import pytest

from flux_ensemble.runtime.recording import replay

RECORDINGS = goldens.recordings()

#: Lines of a difference that are shown.
SHOWN = 60


def check(name: str, text: str) -> None:
    """Compare an output with the golden one."""
    golden = goldens.GOLDEN / f"{name}.txt"
    before = golden.read_text() if golden.exists() else ""
    if text == before:
        return
    lines = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "golden", "now", n=2))
    more = f"\n... and {len(lines) - SHOWN} more lines" if len(lines) > SHOWN else ""
    said = "\n".join(lines[:SHOWN])
    pytest.fail(f"{name}: if it is to be so, 'make golden' writes it:\n{said}{more}", pytrace=False)


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_is_said_of_a_recorded_run_is_the_golden_output(name: str) -> None:
    check(name, goldens.output(RECORDINGS[name]))


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_golden_recording_replays_to_the_same_commands(name: str) -> None:
    with goldens.same_everywhere(), goldens.opened(RECORDINGS[name]) as path:
        found = replay(path).difference
    assert found is None, "if it is to be so: 'goldens.py --record' (see its description)"


def test_what_explain_prints_is_the_golden_output() -> None:
    check(goldens.EXPLAIN, goldens.explanations())


def test_no_golden_output_is_of_a_recording_that_is_gone() -> None:
    files = {path.stem for path in goldens.GOLDEN.glob("*.txt")}
    assert files == {goldens.EXPLAIN, *RECORDINGS}


def test_another_output_is_shown_as_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    name = next(iter(RECORDINGS))
    text = (goldens.GOLDEN / f"{name}.txt").read_text()
    changed = text.replace("completed", "complete", 1)
    assert changed != text
    with pytest.raises(
        pytest.fail.Exception, match=r"(?s)make golden.*\n-.*completed.*\n[+].*complete"
    ):
        check(name, changed)
