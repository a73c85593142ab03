"""What `run` prints on a pipe, and how counts become words."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.cli.display.colours import use_colour
from flux_ensemble.cli.display.metrics_tables import metrics_table, summary_rows, summary_table
from flux_ensemble.cli.display.progress import details_of
from flux_ensemble.cli.display.tables import ensemble_row, rule_row
from flux_ensemble.cli.display.views import Plain, Terminal, make_view, next_lines
from flux_ensemble.results.statistics import metrics_rows, split_stream
from flux_ensemble.words import Span, known_jobs, plain

ROOT = Path(__file__).parents[3]

COUNTS = {
    "waiting": 0,
    "pending": 0,
    "running": 0,
    "submitted": 0,
    "finished": 0,
    "success": 0,
    "failed": 0,
    "canceled": 0,
    "timeout": 0,
}


def counts(**given: int) -> Any:
    return {**COUNTS, **given}


def status(**groups: Any) -> Any:
    return {"name": "a", "groups": groups}


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_progress_is_a_line_with_what_is_known_of_each_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    view = Plain(clock)
    clock.now = 5.0
    view.progress(status(sleep=counts(finished=3, running=2, failed=1), echo=counts()))
    assert lines(capsys) == ["   progress sleep 3/5 (2 running, 1 failed)"]


def test_of_jobs_that_were_tried_again_progress_says_that_attempts_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    view = Plain(clock)
    clock.now = 5.0
    view.progress(status(case=counts(finished=7, success=7, attempts=10, running=1, failed=3)))
    assert lines(capsys) == ["   progress case 7/8 (1 running, 3 attempts failed)"]


def test_progress_counts_the_trials_that_a_search_is_still_to_submit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    view = Plain(clock)
    clock.now = 5.0
    search = {"group": "trial", "state": "running", "trials": 20, "active": 2, "complete": 3}
    of_search: Any = {**status(trial=counts(finished=3, running=2)), "searches": [search]}
    view.progress(of_search)
    assert lines(capsys) == ["   progress trial 3/20 (2 running)"]


def test_progress_is_printed_when_counts_changed_and_ever_more_rarely(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    view = Plain(clock)
    printed = []
    for second in range(1, 1001):
        clock.now = float(second)
        view.progress(status(sleep=counts(running=1000 - second, finished=second)))
        if lines(capsys):
            printed.append(second)
    gaps = [after - before for before, after in pairwise(printed)]
    assert printed[0] == 2
    assert gaps == sorted(gaps)
    assert gaps[-1] == 60
    clock.now = 5000.0
    view.progress(status(sleep=counts(finished=1000)))
    assert len(lines(capsys)) == 1
    clock.now = 9000.0
    view.progress(status(sleep=counts(finished=1000)))
    assert lines(capsys) == []


def test_a_terminal_has_a_bar_for_each_group_that_has_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    for name, value in {"TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    view = make_view()
    assert isinstance(view, Terminal)
    view.line((Span(" => trigger start", "trigger"),))
    view.progress(status(**{"sleep[1]": counts(finished=3, running=2, failed=1), "echo": counts()}))
    shown = screen.getvalue()
    assert "\x1b[34m => trigger start" in shown
    assert "sleep[1]" in shown
    assert "3/5" in shown
    assert "2 running" in shown
    assert "1 failed" in shown
    assert "echo" not in shown
    view.close()
    view.line((Span("a: completed"),))
    assert screen.getvalue().endswith("a: completed\n")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_view(), Plain)


def test_a_terminal_without_colours_has_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    view = make_view()
    view.line((Span(" => trigger start", "trigger"),))
    view.progress(status(sleep=counts(finished=3, running=2, failed=1)))
    view.close()
    assert "━" in screen.getvalue()
    assert not re.search(r"\x1b\[[349][0-9]", screen.getvalue())


@pytest.mark.parametrize(
    ("when", "environment", "coloured"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_outside_of_a_terminal_are_there_if_they_are_asked_for(
    when: str, environment: dict[str, str], coloured: bool
) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.endswith("_COLOR")}
    document = ROOT / "examples" / "hello-world.yaml"
    words = ["--color", when, "simulate", "--nodes", "1", "--cores", "1", str(document)]
    done = subprocess.run(
        [sys.executable, "-m", "flux_ensemble.cli.main", *words],
        env={**kept, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ("\x1b[" in done.stdout) == coloured
    assert "completed" in done.stdout


def test_a_quiet_run_prints_how_it_ended_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(
        "jobs: [{name: bad, command: 'false'}]\n"
        "rules: [{trigger: start, action: {name: submit, label: bad}}]\n"
    )
    words = ["run", "-q", "--queue", "local", "--state-dir", str(tmp_path / "states"), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "flux_ensemble.cli.main", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first.startswith("short: completed after")
    see = f"flux-ensemble failures short --state-dir {tmp_path / 'states'}"
    assert second == f"1 of 1 job failed: see '{see}'"
    words[:2], words[-1] = ["watch", "-q"], "short"
    done = subprocess.run(
        [sys.executable, "-m", "flux_ensemble.cli.main", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line, *_) = done.stdout.splitlines()
    assert line.startswith("short: completed after")


@pytest.mark.parametrize(
    ("best", "words"),
    [
        ({}, ["report"]),
        ({"best": [{"job": None}]}, ["report"]),
        ({"best": [{"job": 7}]}, ["best", "report"]),
        ({"searches": [{"best": [{"trial": 3}]}]}, ["best", "report"]),
        ({"searches": [{"front": [{"trial": 3}], "best": []}]}, ["best", "report"]),
    ],
)
def test_the_next_commands_on_a_terminal_are_those_that_have_something_to_show(
    best: dict[str, Any], words: list[str]
) -> None:
    status: Any = {"name": "study", **best}
    lines = [plain(line) for line in next_lines(status, lambda *words: " ".join(words))]
    assert [line.split()[:2] for line in lines] == [[word, "study"] for word in words]


def test_no_next_command_is_named_where_nobody_can_be_asked_any_more() -> None:
    status: Any = {"name": "study", "best": [{"job": 7}]}
    assert list(next_lines(status, lambda *words: "")) == []


def test_the_total_of_a_group_is_what_is_known_so_far() -> None:
    assert known_jobs(counts(waiting=1, pending=2, running=3, finished=4, submitted=9)) == 10


def test_only_what_is_not_zero_is_described() -> None:
    assert plain(details_of(counts())) == ""
    assert plain(details_of(counts(running=1, waiting=2, timeout=3, canceled=4))) == (
        "1 running, 2 waiting, 3 timeout, 4 canceled"
    )


def test_there_is_no_colour_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert not use_colour()


def test_the_group_of_a_stream_is_the_longest_that_fits() -> None:
    assert split_stream("a-b-duration", ["a", "a-b"]) == ("a-b", "duration")
    assert split_stream("a-x-y", ["a", "a-b"]) == ("a", "x-y")


METRICS = {
    "mean": {"a-duration": 2.0, "a-energy": 1.25, "a-b-duration": None, "a-b-pending": None},
    "min": {"a-duration": 1.0, "a-energy": 1.0, "a-b-duration": None, "a-b-pending": None},
    "max": {"a-duration": 3.0, "a-energy": 1.5, "a-b-duration": None, "a-b-pending": None},
    "count": {"a": counts(submitted=2, finished=2), "a-b": counts()},
    "nodes": {"size": 3, "up": 3, "free": 1},
    "queue": {"pending-nodes": 0},
}


def test_metrics_have_a_row_for_each_stream_in_the_order_of_the_groups() -> None:
    rows = metrics_rows(METRICS)
    assert [(row["group"], row["variable"], row["mean"]) for row in rows] == [
        ("a", "duration", "2"),
        ("a", "energy", "1.25"),
        ("a-b", "duration", "-"),
        ("a-b", "pending", "-"),
    ]
    assert set(rows[0]) <= set(metrics_table(METRICS).headings)


def test_metrics_say_how_many_values_of_memos_were_ignored_where_some_were() -> None:
    metrics = {**METRICS, "memo-ignored": {"a": {"energy": 3, "word": 9}}}
    rows = {(row["group"], row["variable"]): row for row in metrics_rows(metrics)}
    assert rows["a", "energy"]["ignored"] == "3"
    assert (rows["a", "word"]["ignored"], rows["a", "word"]["mean"]) == ("9", "-")
    assert rows["a", "duration"]["ignored"] == "0"
    assert "{ignored" in metrics_table(metrics).formats["default"]["format"]
    assert "{ignored" not in metrics_table(METRICS).formats["default"]["format"]
    assert "memo-ignored" not in metrics_table(metrics).headings


def test_the_summary_has_the_groups_that_had_jobs_and_what_they_published() -> None:
    given = {"name": "a", "groups": METRICS["count"]}
    (row,) = summary_rows(given, METRICS)  # type: ignore[arg-type]
    assert (row["group"], row["submitted"]) == ("a", 2)
    assert (row["mean_duration"], row["min_duration"], row["max_duration"]) == (2.0, 1.0, 3.0)
    assert row["mean_pending"] == ""
    assert row["mean_energy"] == "1.25"
    assert summary_table(METRICS).headings["mean_energy"] == "ENERGY"


def test_a_mean_below_a_millisecond_is_not_as_if_there_were_none() -> None:
    metrics: Any = {**METRICS, "mean": {**METRICS["mean"], "a-pending": 0.0002}}
    status: Any = {"name": "a", "groups": METRICS["count"]}
    (row,) = summary_rows(status, metrics)
    assert row["mean_pending"] == 0.001


def test_a_published_variable_may_have_any_name() -> None:
    metrics: Any = {**METRICS, "mean": {**METRICS["mean"], "a-failed": 7.0, "a-x.{y}": 8.0}}
    status: Any = {"name": "a", "groups": METRICS["count"]}
    (row,) = summary_rows(status, metrics)
    assert (row["failed"], row["mean_failed"], row["mean_x__y_"]) == (0, "7", "8")
    assert summary_table(metrics).headings["mean_x__y_"] == "X.{Y}"


def test_tables_have_the_units_of_the_document_and_no_column_without_any() -> None:
    units = {"energy": "eV"}
    rows = metrics_rows(METRICS, units)
    assert [row["unit"] for row in rows] == ["s", "eV", "s", "s"]
    assert "{unit" in metrics_table(METRICS, units=True).formats["default"]["format"]
    assert "{unit" not in metrics_table(METRICS).formats["default"]["format"]
    assert "unit" not in metrics_rows(METRICS)[0]
    status = {"units": units, "groups": METRICS["count"]}
    assert summary_table(METRICS, status).headings["mean_energy"] == "ENERGY [eV]"


RULE: Any = {
    "id": "r",
    "trigger": "start",
    "action": "submit",
    "label": "a",
    "actions": ["submit a"],
    "enabled": True,
    "fired": 0,
    "repetitions": 1,
    "error": None,
}


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "enabled"),
        ({"fired": 1}, "done"),
        ({"fired": 7, "repetitions": None}, "enabled"),
        ({"enabled": False}, "disabled"),
        ({"enabled": False, "error": "it raised\nTraceback"}, "failed"),
    ],
)
def test_the_state_of_a_rule_is_one_word(change: dict[str, Any], state: str) -> None:
    rule: Any = {**RULE, **change}
    assert rule_row(rule)["state"] == state


def test_the_runtime_of_an_ensemble_ends_with_it() -> None:
    def runtime(t_start: float | None, t_end: float | None) -> Any:
        one: Any = {"name": "a", "state": "running", "t_start": t_start, "t_end": t_end}
        return ensemble_row(one, 15.0)["runtime"]

    assert runtime(10.0, None) == 5.0
    assert runtime(10.0, 12.0) == 2.0
    assert runtime(None, None) == ""


@pytest.mark.flux
def test_a_table_takes_formats_and_refuses_unknown_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    import click

    from flux_ensemble.bindings import require_flux
    from flux_ensemble.cli.display.tables import GROUPS, group_rows

    require_flux()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "flux").mkdir()
    (tmp_path / "flux" / "flux-ensemble.toml").write_text(
        '[groups.formats.mine]\nformat = "{group} {failed}"\n'
    )
    rows = group_rows(status(sleep=counts(finished=3), echo=counts(failed=2)))
    GROUPS.show(rows, "{group:<6} {finished}")
    assert lines(capsys) == ["GROUP  FINISHED", "sleep  3", "echo   0"]
    GROUPS.show(rows, "mine", no_header=True)
    assert lines(capsys) == ["sleep 0", "echo 2"]
    with pytest.raises(click.UsageError, match="colour"):
        GROUPS.show(rows, "{colour}")
    with pytest.raises(click.UsageError, match="No such format theirs"):
        GROUPS.show(rows, "theirs")
