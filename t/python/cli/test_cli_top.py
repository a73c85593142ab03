"""The live view: what it shows of a real run, and what its keys do, in terminals of two sizes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pexpect
import pyte
import pytest
from patience import PATIENCE
from textual.pilot import Pilot

from flux_ensemble import Action, Ensemble, Job, Rule
from flux_ensemble.cli.display.progress import Paces, Progress, active_first, bar_lines
from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.top import lines
from flux_ensemble.cli.top.app import TopApp
from flux_ensemble.cli.top.live import fit
from flux_ensemble.cli.top.poller import Poller
from flux_ensemble.cli.top.rows import Rows
from flux_ensemble.cli.top.screens import JobsScreen, TextScreen
from flux_ensemble.cli.top.source import Spaced, _first_going, _latest, open_source
from flux_ensemble.words import Span, plain

SIZES = [(80, 24), (200, 50)]
SEEN = PATIENCE


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two runs: "study", two of whose four jobs failed, and "other"."""
    root = tmp_path_factory.mktemp("top") / "states"
    start = Rule(id="begin", trigger="start", action=Action(name="submit", label="md"))
    submit = Action(name="submit", label="report")
    later = Rule(id="more", trigger="metric", name="count.md.failed", when="> 9", action=submit)
    script = "echo energy {t}; test {t} -lt 3 || { echo broken at {t} >&2; exit 3; }"
    jobs = [
        Job(name="md", command=["sh", "-c", script], params={"t": [1, 2, 3, 4]}),
        Job(name="report", command="true"),
    ]
    other = Ensemble(name="other", jobs=jobs[1:], rules=[Rule(trigger="start", action=submit)])
    for ensemble in (other, Ensemble(name="study", jobs=jobs, rules=[start, later])):
        ensemble.run("local", state_dir=root, cores=4)
    return root


def poller_of(root: Path, name: str | None = None, interval: float = 0.02) -> Poller:
    return Poller(partial(open_source, name, "local", root), interval)


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SEEN
    while not condition():
        assert time.monotonic() < deadline, screen_of(pilot)
        await pilot.pause(0.01)


def _picture(pilot: Pilot[Any]) -> lines.Picture:
    assert isinstance(pilot.app, TopApp)
    return pilot.app.picture


def screen_of(pilot: Pilot[Any]) -> str:
    rows = pilot.app.screen.query(Rows)
    return "\n".join(row.render().plain for row in rows if row.display)


def with_app(
    root: Path, size: tuple[int, int], check: Callable[[Pilot[Any], Poller], Any], **more: Any
) -> None:
    poller = poller_of(root, **more)
    app = TopApp(poller, str, ascii_only=False)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "md" in screen_of(pilot))
            await check(pilot, poller)

    try:
        asyncio.run(run())
    finally:
        poller.stop()


@pytest.mark.parametrize("size", SIZES)
def test_everything_is_seen_at_once(root: Path, size: tuple[int, int]) -> None:
    parts = (
        "4/4 100%",
        "2 failed",
        "begin  submit md  fired 1 of 1",
        "Failures (1)",
        "2 md exit 3",
        "Ensembles (2)",
        "study",
        "completed",
    )

    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        # All in one frame; the first frames may be drawn before the lists have their width.
        await until(pilot, lambda: all(part in screen_of(pilot) for part in parts))
        assert max(map(len, screen_of(pilot).splitlines())) <= size[0]

    with_app(root, size, check)


@pytest.mark.parametrize("size", SIZES)
def test_a_group_opens_its_jobs_and_a_job_its_output(root: Path, size: tuple[int, int]) -> None:
    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobsScreen))
        await until(pilot, lambda: "t=4" in screen_of(pilot))
        assert screen_of(pilot).count("success") == 2
        await pilot.press("end", "home", "down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))
        await until(pilot, lambda: "energy" in screen_of(pilot))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await pilot.press("o")
        await until(pilot, lambda: "broken at" in screen_of(pilot))

    with_app(root, size, check)


def test_nothing_is_asked_while_the_lists_are_not_seen(root: Path) -> None:
    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        await pilot.press("question_mark")
        await until(pilot, lambda: "Escape" in screen_of(pilot))
        # Whatever was under way is over when the thread has done this.
        done: list[Any] = []
        poller.do(lambda source: poller.pictures, done.append)
        await until(pilot, lambda: bool(done))
        await pilot.pause(0.2)
        assert poller.pictures == done[0]
        await pilot.press("escape")
        await until(pilot, lambda: poller.pictures > done[0])

    with_app(root, (80, 24), check)


def test_a_rule_opens_why_it_fires_or_not_and_an_entry_all_of_it(root: Path) -> None:
    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        pilot.app.query_one("#rules", Rows).focus()
        await pilot.press("down", "enter")
        await until(pilot, lambda: "count.md.failed is 2" in screen_of(pilot))
        await pilot.press("escape")
        pilot.app.query_one("#log", Rows).focus()
        await pilot.press("end", "enter")
        await until(pilot, lambda: "state: completed" in screen_of(pilot))

    with_app(root, (80, 24), check, name="study")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run with a search, in which x matters and y does not."""
    root = tmp_path_factory.mktemp("searched") / "states"
    variables = {"x": {"low": 0, "high": 1}, "y": {"low": 0, "high": 1}}
    given = {"id": "hpo", "group": "md", "variables": variables, "minimize": "loss"}
    memo = "import flux_ensemble; flux_ensemble.memo(loss={x})"
    Ensemble(
        name="tune",
        seed=7,
        search=[{**given, "sampler": "random", "trials": 12, "parallel": 6}],
        jobs=[Job(name="md", command=[sys.executable, "-c", memo, "{y}"])],
        rules=[Rule(trigger="start", action=Action(name="search", label="hpo"))],
    ).run("local", state_dir=root, cores=6)
    return root


@pytest.mark.parametrize("size", SIZES)
def test_a_search_has_its_best_and_what_matters_and_opens_all_of_it(
    searched: Path, size: tuple[int, int]
) -> None:
    seen = r"hpo  done  12 of 12 trials; best loss 0\.\d+; importance x \d\d%, y \d+%"

    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        await until(pilot, lambda: bool(re.search(seen, screen_of(pilot))))
        assert max(map(len, screen_of(pilot).splitlines())) <= size[0]
        await pilot.press("tab")
        await until(pilot, lambda: pilot.app.focused is not None)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextScreen))
        await until(pilot, lambda: "IMPORTANCE" in screen_of(pilot))
        assert "Search hpo" in screen_of(pilot)
        assert screen_of(pilot).index("TRIAL ") < screen_of(pilot).index("IMPORTANCE LOSS TRIALS")

    with_app(searched, size, check)


def test_what_a_search_has_found_is_in_plain_text_too(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ["--queue", "local", "--state-dir", str(searched)]
    assert run_command(["top", "tune", *local, "--once"]) == 0
    once = capsys.readouterr().out
    assert re.search(r"\nSearches\n  hpo  done  12 of 12 trials; best loss .* at x=0\.", once)
    assert run_command(["search", "tune", *local]) == 0
    table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert table[0].split() == ["IMPORTANCE", "LOSS", "TRIALS"]
    assert [row.split()[0] for row in table[1:]] == ["x", "y"]
    assert run_command(["search", "tune", *local, "--json"]) == 0
    (search,) = json.loads(capsys.readouterr().out)["searches"]
    (x, y) = search["importances"]["loss"]
    assert (x["name"], x["trials"], y["name"]) == ("x", 12, "y")
    assert x["share"] > 0.6 > y["share"]
    assert search["variables"]["y"] == {"low": 0, "high": 1, "log": False, "integer": False}
    trials = search["all_trials"]
    assert [trial["trial"] for trial in trials] == list(range(search["trials"]))
    assert all(trial["memo"] == {"loss": trial["params"]["x"]} for trial in trials)
    assert min(trial["memo"]["loss"] for trial in trials) == search["best"][0]["value"]


def test_of_many_ensembles_those_that_go_on_come_first_and_then_the_latest() -> None:
    states = ["completed"] * 20 + ["running"]
    listed: list[Any] = [
        {"name": f"run-{number}", "state": state, "reason": "", "t_start": 100.0 - number,
         "t_end": None, "active": 0, "waiting": 0, "finished": 0}
        for number, state in enumerate(states)
    ]  # fmt: skip
    names = [one["name"] for one in sorted(listed, key=_first_going)]
    assert names[:3] == ["run-20", "run-0", "run-1"]
    assert names[-1] == "run-19"
    assert _latest(listed) == "run-20"
    assert _latest(listed[:20]) == "run-0"


def test_of_many_ensembles_it_is_seen_in_which_jobs_failed() -> None:
    counts: Any = {"reason": "", "t_start": 1.0, "t_end": 2.0, "active": 0, "waiting": 0}
    ensembles: list[Any] = [
        {"name": name, "state": "completed", **counts, "finished": 3, "failed": failed}
        for name, failed in (("bad", 2), ("good", 0))
    ]
    bad, good = lines.ensemble_lines(ensembles, 2.0, None, 80, ascii_only=True)
    assert "".join(span.text for span in bad).endswith("3 finished, 2 failed")
    assert "".join(span.text for span in good).endswith("3 finished")


def test_another_ensemble_is_looked_at(root: Path) -> None:
    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        pilot.app.query_one("#ensembles", Rows).focus()
        await pilot.press("end", "enter")
        await until(pilot, lambda: _picture(pilot).name == "other")
        await until(
            pilot, lambda: "report" in screen_of(pilot) and "exit 3" not in screen_of(pilot)
        )

    with_app(root, (80, 24), check)


def test_what_a_local_run_cannot_do_is_said(root: Path) -> None:
    said: list[str] = []

    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        pilot.app.notify = lambda text, **_: said.append(text)  # type: ignore[method-assign]
        for keys in (["p"], ["r"], ["c", "y"], ["s", "space", "5", "enter"]):
            said.clear()
            await pilot.press(*keys)
            await until(pilot, lambda: bool(said))
            refusals = ("a local run cannot be asked to", "the run of", "ensemble 'study'")
            assert said[0].startswith(refusals), keys

    with_app(root, (80, 24), check, name="study")


def test_a_wrong_submission_is_refused_before_it_is_asked_for(root: Path) -> None:
    said: list[str] = []

    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        pilot.app.notify = lambda text, **_: said.append(text)  # type: ignore[method-assign]
        await pilot.press("s", "space", "x", "enter")
        await until(pilot, lambda: bool(said))

    with_app(root, (80, 24), check)
    assert said == ["expected GROUP or GROUP COUNT, not 'md x'"]


def test_only_what_is_seen_is_drawn(root: Path) -> None:
    drawn: list[int] = []

    def draw(seen: Sequence[Any], width: int) -> list[lines.Line]:
        drawn.append(len(seen))
        return [(Span(f"row {number}"),) for number in seen]

    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        poller.hide()
        rows = Rows("Many", draw, key=lambda number: number)
        await pilot.app.screen.mount(rows)
        rows.show(range(100_000))
        rows.focus()
        await pilot.press("end")
        await until(pilot, lambda: "row 99999" in rows.render().plain)
        await pilot.press("pageup", "up")
        assert rows.cursor < 99_999
        rows.show(range(50_000, 100_000))
        assert rows.item is not None
        assert rows.item >= 50_000
        assert max(drawn) <= 24

    with_app(root, (80, 24), check)


def test_what_comes_first_stays_in_view_until_somebody_moves_the_mark(root: Path) -> None:
    def draw(seen: Sequence[Any], width: int) -> list[lines.Line]:
        return [(Span(f"row {number}"),) for number in seen]

    async def check(pilot: Pilot[Any], poller: Poller) -> None:
        poller.hide()
        rows = Rows("Sorted", draw, key=lambda number: number)
        await pilot.app.screen.mount(rows)
        rows.show(range(100))
        # The first one has ended, and is the last one now.
        rows.show([*range(1, 100), 0])
        assert (rows.cursor, rows.item) == (0, 1)
        rows.focus()
        await pilot.press("down")
        rows.show([*range(50, 100), *range(50)])
        assert (rows.cursor, rows.item) == (52, 2)

    with_app(root, (80, 24), check)


# -- in a real terminal --------------------------------------------------------------


class Terminal:
    """The command in a terminal, and what is seen there."""

    def __init__(self, size: tuple[int, int], *words: str, **environment: str) -> None:
        columns, rows = size
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        script = "import sys; from flux_ensemble.cli.main import main; main(sys.argv[1:])"
        if "NO_TEXTUAL" in environment:
            script = "import sys; sys.modules['textual'] = None\n" + script
        base = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
        self.child = pexpect.spawn(
            sys.executable,
            ["-c", script, *words],
            dimensions=(rows, columns),
            env={**base, "TERM": "xterm-256color", **environment},
            timeout=SEEN,
        )

    def until(self, *words: str) -> None:
        deadline = time.monotonic() + SEEN
        while not all(word in self.text for word in words):
            assert time.monotonic() < deadline, self.text
            self._read()

    def _read(self) -> None:
        try:
            data = self.child.read_nonblocking(65536, timeout=0.1)
        except pexpect.TIMEOUT:
            return
        self.raw += data
        # pyte takes Textual's question for a keyboard protocol for the end of a text.
        self.stream.feed(data.replace(b"\x1b[>", b"\x1b["))

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def end(self) -> int:
        """Reads to the end; the exit code."""
        while True:
            try:
                self._read()
            except pexpect.EOF:
                break
        self.child.close()
        code: int = -self.child.signalstatus if self.child.signalstatus else self.child.exitstatus
        return code


@pytest.mark.parametrize("size", SIZES)
def test_keys_work_in_a_terminal_and_ctrl_c_gives_it_back(
    root: Path, size: tuple[int, int]
) -> None:
    terminal = Terminal(size, "top", "study", "--state-dir", str(root))
    terminal.until("study: completed", "md", "4/4", "Log", "Leave")
    terminal.child.send("\r")
    terminal.until("Jobs of md", "t=4")
    terminal.child.send("q")
    terminal.until("study: completed")
    terminal.child.send("\x03")
    assert terminal.end() == 0
    assert b"\x1b[?1049h" in terminal.raw
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


def test_a_signal_gives_the_terminal_back(root: Path) -> None:
    terminal = Terminal((80, 24), "top", "study", "--state-dir", str(root))
    terminal.until("study: completed", "Log")
    terminal.child.kill(signal.SIGTERM)
    assert terminal.end() == 0
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")


def test_without_textual_there_is_a_live_table(root: Path) -> None:
    terminal = Terminal((80, 24), "top", "study", "--state-dir", str(root), NO_TEXTUAL="1")
    terminal.until("study: completed", "4/4", "keys need the extra 'tui'")
    terminal.child.sendintr()
    assert terminal.end() == 0
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")


def test_colours_are_left_out_and_bars_stay(root: Path) -> None:
    terminal = Terminal((80, 24), "top", "study", "--state-dir", str(root), NO_COLOR="1")
    terminal.until("study: completed", "━━━", "2 failed")
    terminal.child.send("q")
    assert terminal.end() == 0
    colours = {char.fg for row in terminal.screen.buffer.values() for char in row.values()}
    # Textual draws in shades of grey then.
    assert all(
        colour == "default" or len({colour[i : i + 2] for i in (0, 2, 4)}) == 1
        for colour in colours
    )


def test_a_locale_without_characters_gets_ascii(root: Path) -> None:
    terminal = Terminal((80, 24), "top", "study", "--state-dir", str(root), LC_ALL="C", LANG="C")
    terminal.until("study: completed", "###", "2 failed", "Leave")
    assert terminal.text.isascii(), terminal.text
    terminal.child.send("q")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("words", "environment"),
    [(["--once"], {}), ([], {"TERM": "dumb"}), ([], {"JPY_PARENT_PID": "1"})],
    ids=["once", "dumb", "cell of a notebook"],
)
def test_plain_text_is_printed_once(
    words: list[str], environment: dict[str, str], root: Path
) -> None:
    terminal = Terminal((80, 24), "top", "study", "--state-dir", str(root), *words, **environment)
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.raw
    text = terminal.raw.decode()
    assert "md: 4 of 4 finished (100%), 2 failed" in text
    assert "  2 md exit 3" in text
    assert "finish        completed" in text


def test_status_has_bars_on_a_terminal_and_none_in_a_pipe(root: Path) -> None:
    words = ["status", "study", "--state-dir", str(root)]
    terminal = Terminal((80, 24), *words, NO_COLOR="1")
    assert terminal.end() == 0
    text = terminal.text
    assert re.search(r"^4 of 4 jobs \(100%\), \d+s elapsed *$", text, re.MULTILINE)
    assert re.search(r"^md ━+ 4/4 100%  2 failed *$", text, re.MULTILINE)
    assert "GROUP" in text
    command = [sys.executable, "-m", "flux_ensemble.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "━" not in done.stdout
    assert "4 of 4" not in done.stdout


def test_a_pipe_gets_plain_text_and_may_be_closed(root: Path) -> None:
    command = [sys.executable, "-m", "flux_ensemble.cli.main", "top", "--state-dir", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.isascii()
    assert "\nEnsembles\n" in done.stdout
    shell = f"{' '.join(command)} | head -n 1"
    first = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert first.stdout.startswith("study: completed")
    assert first.stderr == ""


def test_an_unknown_name_and_no_state_are_errors(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flux_ensemble.cli.main", "top"]
    done = subprocess.run(
        [*command, "stduy", "--state-dir", str(root)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "no ensemble named 'stduy'" in done.stderr
    done = subprocess.run([*command, "--state-dir", str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "no ensemble is loaded yet\n")


# -- what the lines say ----------------------------------------------------------------

COUNTS = dict.fromkeys(("waiting", "pending", "running", "finished", "failed", "timeout"), 0)


def test_a_rate_is_that_of_the_last_minute_and_at_first_that_since_the_start() -> None:
    def status(finished: int) -> dict[str, Any]:
        counts = {**COUNTS, "finished": finished, "waiting": 1000 - finished}
        return {"name": "a", "t_start": 0.0, "t_end": None, "groups": {"md": counts}}

    paces = Paces()
    whole, (group,) = paces.take(status(100), 50.0)
    assert (group.rate, group.left) == (2.0, 450.0)
    assert (whole.finished, whole.total) == (100, 1000)
    for second in range(51, 200):
        whole, (group,) = paces.take(status(100 + second), float(second))
    assert group.rate == pytest.approx(1.0)
    whole, (group,) = paces.take({**status(500), "t_end": 200.0}, 200.0)
    assert group.left is None


def test_what_is_predicted_goes_before_the_rate() -> None:
    counts = {**COUNTS, "finished": 10, "waiting": 90}
    status = {"name": "a", "t_start": 0.0, "t_end": None, "groups": {"md": counts}}
    whole, (group,) = Paces().take({**status, "t_predicted": 70.0}, 10.0)
    assert (whole.outlook, group.outlook) == ("1m left as predicted", "1m 30s left at 1/s")
    # One that takes longer than was predicted.
    whole, _ = Paces().take({**status, "t_predicted": 70.0}, 80.0)
    assert whole.outlook == "0s left as predicted"


def test_the_trials_that_a_search_is_still_to_submit_are_in_the_total() -> None:
    counts = {**COUNTS, "finished": 5, "running": 1}
    search = {
        "group": "trial", "state": "running", "trials": 20, "active": 1,
        "complete": 4, "failed": 1, "canceled": 0,
    }  # fmt: skip
    status = {
        "name": "a", "t_start": 0.0, "t_end": None, "t_predicted": 12.0,
        "groups": {"trial": counts, "other": {**COUNTS, "finished": 2, "running": 2}},
        "searches": [search],
    }  # fmt: skip
    whole, (trial, other) = Paces().take(status, 10.0)
    assert (whole.finished, whole.total) == (7, 24)
    assert (trial.finished, trial.total, trial.left) == (5, 20, 30.0)
    assert (other.finished, other.total) == (2, 4)
    # A prediction is of the jobs that are known.
    assert whole.outlook == "24s left at 42/min"
    # A search that gets no more points has no more trials, nor has an ensemble that has ended.
    for over in ({"searches": [{**search, "state": "done"}]}, {"t_end": 10.0}):
        whole, (trial, other) = Paces().take({**status, **over}, 10.0)
        assert (whole.total, trial.total) == (10, 6)


def test_lines_fit_whatever_the_width() -> None:
    groups = [
        Progress(f"group-{'x' * number}", {**COUNTS, "running": 1, "failed": 2}, 5, 10**number, 2.0)
        for number in range(1, 7)
    ]
    for width in (20, 40, 80, 200):
        for ascii_only in (True, False):
            found = bar_lines(groups, width, ascii_only=ascii_only)
            assert len(found) == len(groups)
            assert plain(found[0]).isascii() or not ascii_only
            # Numbers are there in any width from 40 on; what follows may be cut.
            if width >= 40:
                assert all("5/" in plain(line)[:width] for line in found)


@pytest.mark.parametrize("width", [60, 76, 80, 117])
@pytest.mark.parametrize("rate", [None, 0.4])
def test_no_state_of_jobs_is_cut_within_its_word(width: int, rate: float | None) -> None:
    counts = {**COUNTS, "running": 8, "waiting": 12, "failed": 4}
    (line,) = bar_lines([Progress("throw-the-ball", counts, 32, 56, rate)], width)
    assert len(plain(line)) <= width
    assert plain(line).endswith("4 failed")
    assert "8 running" in plain(line) or width == 60


#: Names as people give them: what differs is at the end, in the middle, or in two places.
LONG = {
    "end": [f"equilibration-of-the-solvated-membrane-protein-at-{t}K" for t in (280, 290, 300)],
    "middle": [f"relax-lysozyme-{t}K-in-water-with-ions-and-membrane-final" for t in (280, 310)],
    "beginning": [f"{a}-production-run-of-the-solvated-protein-with-ions" for a in ("wt", "mut")],
    "two places": [
        f"free-energy-of-ligand-{ligand}-in-the-binding-pocket-{site}-with-restraints-on"
        for ligand in ("aspirin", "atenolol")
        for site in ("a", "b", "c")
    ],
    "one more": [f"umbrella-sampling-of-the-whole-ion-channel{end}" for end in ("", "-2", "-22")],
}


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("names", LONG.values(), ids=LONG)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_long_names_can_be_told_apart_in_every_list_that_has_them(
    names: list[str], width: int, ascii_only: bool
) -> None:
    def seen(found: Sequence[lines.Line], place: int = 0) -> None:
        texts = [line[place].text for line in found]
        assert len(set(texts)) == len(names), texts
        assert max(map(len, texts)) <= width // 3 + len("▸  ")
        assert all(text.isascii() for text in texts) or not ascii_only

    counts = {**COUNTS, "running": 1}
    seen(bar_lines([Progress(one, counts, 5, 100, 2.0) for one in names], width,
                   ascii_only=ascii_only))  # fmt: skip
    summary: Any = {"state": "running", "t_start": 1.0, "t_end": None, "finished": 1,
                    "active": 0, "waiting": 0}  # fmt: skip
    ensembles: Any = [{**summary, "name": one} for one in names]
    seen(lines.ensemble_lines(ensembles, 2.0, None, width, ascii_only))
    rule: Any = {**RULE, "actions": ["submit md"]}
    rules: Any = [{**rule, "id": one} for one in names]
    seen(lines.rule_lines(rules, 2.0, width, ascii_only))
    actions: Any = [{**rule, "actions": [f"submit {one}"]} for one in names]
    seen(lines.rule_lines(actions, 2.0, width, ascii_only), 1)
    kinds: Any = [
        SimpleNamespace(
            jobs=1, group=one, reason="exit 1", ranks=Counter(), example={"exception": {"note": ""}}
        )
        for one in names
    ]
    seen(lines.failure_lines(kinds, width, ascii_only), 1)


def test_a_name_that_has_room_is_whole_and_the_bar_keeps_its_place() -> None:
    (short,) = LONG["end"][:1]
    one = Progress(short[:38], {**COUNTS, "running": 1}, 5, 100, 2.0)
    (line,) = bar_lines([one], 120)
    assert line[0].text.rstrip() == one.name
    assert "5/100" in plain(line)[:120]


def test_a_bar_has_as_much_of_a_failure_as_failed_and_some_of_each() -> None:
    def bad(**counts: int) -> str:
        found = {**COUNTS, **counts, "finished": counts["attempts"]}
        one = Progress("a", found, counts["attempts"], 1000)
        (line,) = bar_lines([one], 100, ascii_only=True)
        return "".join(span.text for span in line[1:] if span.style == "bad" and "#" in span.text)

    assert bad(attempts=1000, failed=0) == ""
    assert bad(attempts=1000, failed=1) == "#"
    assert bad(attempts=1000, failed=200, timeout=300) == "#" * 20
    assert bad(attempts=1000, failed=1000) == "#" * 40


def test_busy_groups_come_first_where_the_screen_is_short() -> None:
    done = [Progress(f"done{number}", COUNTS, 1, 1) for number in range(30)]
    busy = Progress("busy", {**COUNTS, "running": 1}, 0, 1)
    picture = lines.Picture(
        0.0,
        (),
        {"name": "a", "state": "running", "t_start": 0.0, "t_end": None},
        busy,
        [*done, busy],
    )
    for height in (8, 12, 24):
        found = [plain(line) for line in fit(picture, 80, height, str, True)]
        assert len(found) <= height
        assert any(line.startswith("busy") for line in found)
        assert any("more" in line for line in found)
    assert active_first([*done, busy], 100)[-1] is busy


RULE: Any = {
    "id": "r", "trigger": "metric", "action": "submit", "label": "md", "enabled": True, "fired": 1,
    "actions": ["submit md"],
    "left": None, "error": None, "terms": [], "skips": 0, "t_cooldown": None, "t_next": None,
    "waits": None, "never": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "at the next metric"),
        ({"waits": "waits for a job"}, "waits for a job"),
        ({"enabled": False}, "disabled"),
        ({"error": "it raised\nTraceback"}, "it raised"),
        ({"never": "md has ended"}, "never again: md has ended"),
        ({"t_next": 163.0}, "due in 1m 3s"),
        ({"t_cooldown": 105.0}, "not before 5s from now"),
        (
            {"terms": [{"text": "x > 5", "holds": False, "values": {"x": 3.0}, "missing": None}]},
            "when x > 5 (x is 3)",
        ),
    ],
)
def test_a_rule_says_when_it_can_fire_next(change: dict[str, Any], words: str) -> None:
    rule: Any = {**RULE, **change}
    assert lines.chance(rule, 100.0)[0] == words


def test_what_takes_long_is_done_rarely() -> None:
    now = [0.0]

    def work() -> int:
        now[0] += 1.0
        return 1

    spaced = Spaced(lambda: now[0])
    assert spaced.do(work, 0) == 1
    assert spaced.do(work, 7) == 7
    now[0] += 30.0
    assert spaced.do(work, 7) == 1
