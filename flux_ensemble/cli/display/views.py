"""What `run` and `watch` look like: lines on a pipe, a bar per group on a terminal.

A view is told everything that happens and decides what to print. `Plain` prints lines
only; `Terminal` keeps a live bar for each group below them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import click

from flux_ensemble.cli.display.colours import use_colour
from flux_ensemble.cli.display.messages import Line, Span, closing, plain
from flux_ensemble.cli.display.metrics_tables import summary_rows, summary_table
from flux_ensemble.cli.display.troubles import failed_jobs
from flux_ensemble.client.responses import EnsembleStatus, GroupCounts
from flux_ensemble.texts import printable

#: Seconds between progress lines of `Plain`: at first, at last, and the growth.
FIRST_PAUSE, LAST_PAUSE, GROWTH = 2.0, 60.0, 1.5

#: Styles of spans on a terminal, in rich's words.
STYLES = {
    "trigger": "blue",
    "action": "cyan",
    "detail": "bright_black",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
}


class View(Protocol):
    """What follows an ensemble prints to one of these."""

    #: Seconds between two looks at the counts.
    interval: float

    def line(self, line: Line) -> None:
        """Prints one line."""

    def progress(self, status: EnsembleStatus) -> None:
        """Takes the counts of the groups, and shows them if it is time."""

    def close(self) -> None:
        """Takes away what is live; lines may still be printed."""


class Plain:
    """Lines, for pipes and files.

    A progress line is printed when the counts have changed, at intervals that grow from
    two seconds to a minute, so that a long run does not fill its log with them.
    """

    interval = 1.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = FIRST_PAUSE
        self._next = clock() + FIRST_PAUSE
        self._last = ""

    def line(self, line: Line) -> None:
        click.echo(plain(line))

    def progress(self, status: EnsembleStatus) -> None:
        text = ", ".join(
            f"{group} {counts['finished']}/{total(counts)} ({detail})"
            if (detail := plain(describe(counts)))
            else f"{group} {counts['finished']}/{total(counts)}"
            for group, counts in status["groups"].items()
            if total(counts)
        )
        if not text or text == self._last or self._clock() < self._next:
            return
        self._last = text
        self._pause = min(self._pause * GROWTH, LAST_PAUSE)
        self._next = self._clock() + self._pause
        self.line((Span(f"   progress {text}", "detail"),))

    def close(self) -> None:
        pass


class Terminal:
    """Coloured lines, and below them a bar for each group that has jobs."""

    interval = 0.2

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        self._console = Console(highlight=False, soft_wrap=True)
        # Redrawn with each status, on the reactor's thread: a thread of rich's own would
        # run while Flux's callbacks do.
        self._progress = Progress(
            TextColumn("   {task.description}", markup=False, style="bold"),
            BarColumn(28, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(table_column=Column(justify="right")),
            TextColumn("{task.fields[detail]}"),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._tasks: dict[str, Any] = {}
        self._progress.start()

    def line(self, line: Line) -> None:
        self._console.print(_text(line))

    def progress(self, status: EnsembleStatus) -> None:
        for group, counts in status["groups"].items():
            if not total(counts):
                continue
            if group not in self._tasks:
                self._tasks[group] = self._progress.add_task(group, detail="", total=0)
            self._progress.update(
                self._tasks[group],
                total=total(counts),
                completed=counts["finished"],
                detail=_markup(describe(counts)),
            )
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


def make_lines() -> Callable[[Line], None]:
    """Prints lines to standard output, coloured on a terminal."""
    if not use_colour():
        return Plain().line
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    return lambda line: console.print(_text(line))


def make_view() -> View:
    """The view for standard output."""
    return Terminal() if use_colour() else Plain()


def total(counts: GroupCounts) -> int:
    """The jobs of a group that are known so far."""
    return counts["waiting"] + counts["pending"] + counts["running"] + counts["finished"]


def describe(counts: GroupCounts) -> Line:
    """Where a group's jobs are and what went wrong, leaving out what is zero."""
    spans: list[Span] = []
    for key, style in (
        ("running", "action"),
        ("pending", "detail"),
        ("waiting", "detail"),
        ("failed", "bad"),
        ("timeout", "bad"),
        ("canceled", "warn"),
    ):
        amount: int = counts[key]  # type: ignore[literal-required]
        if amount:
            spans += [Span(", ")] * bool(spans) + [Span(f"{amount} {key}", style)]
    return tuple(spans)


def summarize(
    view: View, status: EnsembleStatus, metrics: Mapping[str, Any], failures: str | None = None
) -> None:
    """Prints the closing table, counts and statistics of each group, and the last lines.

    Args:
        view: where to print.
        status, metrics: of the ensemble.
        failures: the command that says why jobs failed, if there is one.
    """
    view.close()
    rows = summary_rows(status, metrics)
    if rows:
        click.echo()
        summary_table(metrics).show(rows)
        click.echo()
    view.line(closing(status))
    line = failed_line(status, failures) if failures is not None else None
    if line is not None:
        view.line(line)


def failed_line(status: EnsembleStatus, command: str) -> Line | None:
    """How many jobs failed, and what says why; None if none did.

    Args:
        status: of the ensemble.
        command: `failures`, as it is called from where the ensemble ran.
    """
    failed = failed_jobs(status)
    if not failed:
        return None
    jobs = sum(group["finished"] for group in status["groups"].values())
    text = f"{failed} of {jobs} job{'s'[: jobs != 1]} failed: see '{command} {status['name']}'"
    return (Span(text, "warn"),)


def _text(line: Line) -> Any:
    from rich.text import Text

    return Text.assemble(*((printable(span.text), STYLES.get(span.style, "")) for span in line))


def _markup(line: Line) -> str:
    return str(_text(line).markup)
