"""The views of `run` and `watch`: lines on a pipe, a bar per group on a terminal.

A view receives every event and decides what to print. `Plain` prints lines only; `Terminal` keeps
the progress below them, with a live bar for each group.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import click

from flux_ensemble.cli.display.colours import make_console, use_colour
from flux_ensemble.cli.display.messages import closing
from flux_ensemble.cli.display.metrics_tables import (
    attempts_left_out,
    summary_rows,
    summary_table,
)
from flux_ensemble.cli.display.progress import (
    Paces,
    details_of,
    is_ascii,
    is_live,
    progress_lines,
)
from flux_ensemble.cli.display.troubles import left
from flux_ensemble.cli.prose import fitted, indent, pieces
from flux_ensemble.client.troubles import failed_jobs
from flux_ensemble.texts import hanging
from flux_ensemble.words import Line, Span, counted, elapsed, known_jobs, plain, trials_to_come

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Seconds between progress lines of `Plain`: at first, at last, and the growth factor.
FIRST_PAUSE, LAST_PAUSE, GROWTH = 2.0, 60.0, 1.5

#: Styles of spans on a terminal, in rich's words.
STYLES = {
    "trigger": "blue",
    "action": "cyan",
    "detail": "bright_black",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "name": "bold",
}


class EnsembleView(Protocol):
    """A view to which a follower of an ensemble prints."""

    #: Seconds between two updates of the counts.
    interval: float

    def line(self, line: Line) -> None:
        """Print one line."""

    def progress(self, status: EnsembleStatus) -> None:
        """Process the counts of the groups, and print them if it is time."""

    def close(self) -> None:
        """Remove the live part; lines may still be printed."""


class Plain:
    """Lines, for pipes and files.

    A progress line is printed when the counts have changed, at intervals that grow from two seconds
    to a minute, so that a long run does not fill its log with them.
    """

    interval = 1.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = FIRST_PAUSE
        self._next = clock() + FIRST_PAUSE
        self._last = ""
        self.line = make_lines()

    def progress(self, status: EnsembleStatus) -> None:
        to_come = trials_to_come(status)
        parts = []
        for group, counts in status["groups"].items():
            if known := known_jobs(counts):
                detail = plain(details_of(counts, ""))
                part = f"{group} {counts['finished']}/{known + to_come.get(group, 0)}"
                parts.append(f"{part} ({detail})" if detail else part)
        text = ", ".join(parts)
        if not text or text == self._last or self._clock() < self._next:
            return
        self._last = text
        self._pause = min(self._pause * GROWTH, LAST_PAUSE)
        self._next = self._clock() + self._pause
        self.line((Span(f"   progress {text}", "detail"),))

    def close(self) -> None:
        pass


class Quiet(Plain):
    """A view with only the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self.line = lambda line: None

    def progress(self, status: EnsembleStatus) -> None:
        pass

    def close(self) -> None:
        self.line = make_lines()


class Terminal:
    """Coloured lines, with the progress of the ensemble and a bar for each group below them."""

    interval = 0.2

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        from rich.live import Live

        self._clock = clock
        self._paces = Paces()
        self._console = make_console()
        self._ascii = is_ascii()
        # Redrawn with each status, on the reactor's thread: a thread of rich's own would run
        # concurrently with Flux's callbacks.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def line(self, line: Line) -> None:
        self._console.print(_fitted(as_text(line), self._console.width))

    def progress(self, status: EnsembleStatus) -> None:
        from rich.text import Text

        now = self._clock()
        whole, groups = self._paces.take(status, now)
        width, height = self._console.size
        # Half of the screen is for the lines above.
        room = max(height // 2, 3)
        took = elapsed(status, now)
        texts = []
        for line in progress_lines(whole, groups, took, width - 4, room, ascii_only=self._ascii):
            text = as_text((Span("   "), *line))
            text.truncate(width - 1, overflow="crop")
            texts.append(text)
        self._live.update(Text("\n", no_wrap=True).join(texts), refresh=True)

    def close(self) -> None:
        self._live.stop()


def make_lines() -> Callable[[Line], None]:
    """Return a function that prints lines to standard output, coloured if that has colours."""
    if not use_colour():
        return lambda line: print(fitted(plain(line)), flush=True)
    console = make_console()
    if not sys.stdout.isatty():
        return lambda line: console.print(as_text(line))
    return lambda line: console.print(_fitted(as_text(line), console.width))


def _fitted(text: Any, width: int) -> Any:
    """Return a text of rich in lines that fit the terminal: see `prose`."""
    from rich.text import Text

    lines = text.split()
    for number, line in enumerate(lines):
        margin = Text(f"\n{' ' * indent(line.plain, width)}")
        lines[number] = margin.join(line[part] for part in pieces(line.plain, width))
    return Text("\n").join(lines)


def make_view(*, quiet: bool = False) -> EnsembleView:
    """Return the view for standard output; bars do not depend on colours (`NO_COLOR`).

    Args:
        quiet: print only how the ensemble ended.
    """
    if quiet:
        return Quiet()
    return Terminal() if is_live() else Plain()


def summarize(
    view: EnsembleView,
    status: EnsembleStatus,
    metrics: Mapping[str, Any],
    command: Callable[..., str] | None = None,
) -> None:
    """Print the closing table, counts and statistics of each group, and the last lines.

    Args:
        view: to print to.
        status, metrics: of the ensemble.
        command: returns a command about the ensemble, from its words; "" if there is nobody to
            query any more. None if the ensemble is none that one can ask for.
    """
    view.close()
    rows = [] if isinstance(view, Quiet) else summary_rows(status, metrics)
    if rows:
        click.echo()
        shown = command("metrics", status["name"]) if command else ""
        elsewhere = f"'{shown}' shows the statistics" if shown else ""
        summary_table(metrics, status).show(rows, elsewhere=elsewhere)
        if again := attempts_left_out(status):
            attempts, are = counted(again, "attempt"), "are" if again > 1 else "is"
            click.echo(f"{attempts} that ran again {are} left out of the outcomes")
        click.echo()
    view.line(closing(status))
    if command is None:
        return
    line = failed_line(status, command("failures", status["name"]))
    if line is not None:
        view.line(line)
    for sentence in left(status, command):
        view.line((Span(sentence, "warn"),))
    if status.get("best"):
        from flux_ensemble.results.best import unpublished_in

        for sentence in unpublished_in(status, metrics):
            view.line((Span(sentence, "warn"),))
    if isinstance(view, Terminal):
        for line in next_lines(status, command):
            view.line(line)


def next_lines(status: EnsembleStatus, command: Callable[..., str]) -> Iterator[Line]:
    """Yield the commands that show the results of an ensemble that has ended."""
    suggested = {"report": "a page for your browser"}
    searches = status.get("searches", ())
    if any(best["job"] is not None for best in status.get("best", ())) or any(
        search.get("front") or search["best"] for search in searches
    ):
        suggested = {"best": "the best points", **suggested}
    texts = {command(word, status["name"]): why for word, why in suggested.items()}
    texts.pop("", None)
    width = max(map(len, texts), default=0)
    for text, why in texts.items():
        yield (Span(f"   {text:<{width}}  {why}", "detail"),)


def failed_line(status: EnsembleStatus, command: str) -> Line | None:
    """Return a line with the number of failed jobs, and the command that explains them, or None.

    Args:
        status: of the ensemble.
        command: that explains failures, for the place where the ensemble ran; "" if there is none.
    """
    failed = failed_jobs(status)
    if not failed:
        return None
    jobs = sum(group["finished"] for group in status["groups"].values())
    see = f": see '{command}'" if command else ""
    return (Span(f"{failed} of {jobs} job{'s'[: jobs != 1]} failed{see}", "warn"),)


def as_text(
    line: Line, styles: Mapping[str, str] = STYLES, fit: Callable[[str], str] = hanging
) -> Any:
    """Return the line as rich's text; `styles` are rich's for each style of a span.

    With `one_line` as `fit`, the result is a row of a screen: texts of others cannot add a second
    one.
    """
    from rich.text import Text

    return Text.assemble(*((fit(span.text), styles.get(span.style, "")) for span in line))
