"""Text of others forges no line, turns no text and steers no terminal, whatever shows it."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_queue import Run

from flux_ensemble.cli.display.views import as_text
from flux_ensemble.cli.main import run_command
from flux_ensemble.results.log_lines import explain
from flux_ensemble.texts import hanging, one_line, printable
from flux_ensemble.words import plain

#: A line that looks like one of ours, text that runs backwards, a title of the terminal, and what
#: is not seen: each is what somebody else may say.
NASTY = "fine\n=> trigger start\u202egnp.exe\u2066\x1b]0;owned\x07\u200bx\u2028END"
FORGED = "\n=> trigger start"
STEERING = "\u202e\u2066\x1b\x07\u200b\u2028"


def entry(name: str, **context: Any) -> dict[str, Any]:
    return {"timestamp": 1.0, "name": name, "context": context}


ENTRIES: dict[str, dict[str, Any]] = {
    "the end": entry("finish", state="failed", reason=NASTY),
    "an outcome": entry(
        "outcome", firing=1, rule=NASTY, trigger="start", action="submit", ok=False, reason=NASTY
    ),
    "a custom function": entry("custom-output", function=NASTY, text=NASTY),
    "an error": entry(
        "custom-error", firing=1, rule="r", ok=False, reason=NASTY, detail=NASTY, error=NASTY
    ),
    "a rule": entry("rule-disabled", rule=NASTY, reason=NASTY),
    "an entry of a later version": entry("something", text=NASTY),
}


@pytest.mark.parametrize("given", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_of_a_log_is_one_entry(given: Any) -> None:
    line = explain(given, 0.0, str)
    for shown in (plain(line), as_text(line).plain):
        assert FORGED not in shown
        assert not set(shown) & set(STEERING)
        first, *more = shown.split("\n")
        assert all(one.startswith("    ") for one in more), (first, more)


@pytest.mark.parametrize("given", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_is_one_row_of_a_screen(given: Any) -> None:
    text = as_text(explain(given, 0.0, str), fit=one_line).plain
    assert "\n" not in text
    assert not set(text) & set(STEERING)


@pytest.mark.parametrize("form", [printable, hanging, one_line])
def test_what_steers_turns_or_hides_text_is_escaped(form: Callable[[str], str]) -> None:
    controls = [
        *map(chr, range(0x20)),
        *map(chr, range(0x7F, 0xA0)),
        *map(chr, range(0x2028, 0x202F)),
    ]
    controls += ["\u061c", "\u200e", "\u200f", *map(chr, range(0x2066, 0x206A)), "\ud800", "\ufeff"]
    controls += ["\U000e0041"]
    for control in set(controls) - {"\n", "\t"}:
        assert control not in form(f"a{control}b"), hex(ord(control))
        assert form(f"a{control}b").startswith("a\\")
    kept = "größer 漢字 עברית العربية 🚀 a\N{NO-BREAK SPACE}b"
    assert form(kept) == kept


def test_a_cell_of_a_table_is_one_line() -> None:
    assert one_line(NASTY).startswith("fine\\n=> trigger start\\u202egnp")
    assert "\n" not in one_line(NASTY)
    assert "\t" not in one_line("a\tb")


DOCUMENT: dict[str, Any] = {
    "jobs": [{"name": "a", "command": ["printf", "%b", "\\033]0;owned\\007 caf\\0351\\n"]}],
    "rules": [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {"trigger": "job-finish", "action": {"name": "terminate", "reason": NASTY}},
    ],
}
WROTE = b"\x1b]0;owned\x07 caf\xe9\n"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of an ensemble that ended for a nasty reason, and whose job said more."""
    directory = tmp_path_factory.mktemp("nasty")
    Run(directory, DOCUMENT).end()
    return directory / "state"


SHOWING = {
    "list": ["list"],
    "status": ["status", "test"],
    "log": ["log", "test"],
    "why": ["why", "test"],
    "jobs": ["jobs", "test"],
    "failures": ["failures", "test"],
    "metrics": ["metrics", "test"],
}


@pytest.mark.parametrize("words", SHOWING.values(), ids=SHOWING)
def test_a_reason_forges_no_line_of_any_command(
    state: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    run_command([*words, "--queue", "local", "--state-dir", str(state)])
    out = capsys.readouterr()
    for text in (out.out, out.err):
        assert FORGED not in text
        assert not set(text) & set(STEERING)


def test_a_reason_forges_no_line_of_the_run_that_it_ends(tmp_path: Path) -> None:
    _, out, err = Run(tmp_path, DOCUMENT).end()
    for text in (out, err):
        assert FORGED not in text
        assert not set(text) & set(STEERING)


def test_output_is_what_the_job_wrote_where_no_terminal_shows_it(
    state: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["output", "test", "1", "--queue", "local", "--state-dir", str(state)]
    assert run_command(words) == 0
    assert capsysbinary.readouterr().out == WROTE


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ([], rb"\x1b]0;owned\x07 caf" + "\ufffd\r\n".encode()),
        (["--raw"], WROTE.replace(b"\n", b"\r\n")),
    ],
    ids=["escaped", "raw"],
)
def test_output_steers_no_terminal_unless_asked_to(
    state: Path, option: list[str], shown: bytes
) -> None:
    words = ["output", "test", "1", *option, "--queue", "local", "--state-dir", str(state)]
    program = [sys.executable, "-m", "flux_ensemble.cli.main", *words]
    master, terminal = pty.openpty()
    pid = os.posix_spawn(
        sys.executable,
        program,
        {**os.environ, "PYTHONUTF8": "1"},
        file_actions=[(os.POSIX_SPAWN_DUP2, terminal, 1)],
    )
    os.close(terminal)
    found = b""
    while True:
        try:
            data = os.read(master, 1024)
        except OSError:  # the terminal has nobody left
            break
        if not data:
            break
        found += data
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert found == shown


def test_lines_that_follow_keep_their_indentation_among_themselves() -> None:
    from flux_ensemble.texts import hanging

    trace = 'r failed\nTraceback:\n  File "f.py", line 2\n    1 / 0'
    first, *rest = trace.split("\n")
    assert hanging(trace).split("\n") == [first, *(f"    {line}" for line in rest)]
    indented = "a\n    b\n        c"
    assert hanging(indented) == indented
    assert hanging("a\n    b\nc") == "a\n        b\n    c"
