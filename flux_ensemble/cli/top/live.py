"""The live view without Textual: a table that rich redraws once a second, without keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache
from typing import Any

from flux_ensemble.cli.display.colours import make_console
from flux_ensemble.cli.display.progress import active_first
from flux_ensemble.cli.display.views import as_text
from flux_ensemble.cli.top import lines
from flux_ensemble.cli.top.picture import Picture
from flux_ensemble.cli.top.poller import Poller
from flux_ensemble.extras import install_command
from flux_ensemble.texts import one_line
from flux_ensemble.words import Line, Span


@cache
def _hint() -> str:
    """Return the hint about the missing package."""
    return f"Ctrl-C leaves; keys need the extra 'tui': {install_command('tui')}"


def follow(poller: Poller, label: Callable[[int], str], *, ascii_only: bool) -> None:
    """Display pictures until the user interrupts.

    Raises:
        Exception: the error that ended the pictures.
    """
    from rich.live import Live

    console = make_console(soft_wrap=False)
    ended: Future[None] = Future()
    picture = poller.first()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(picture: Picture) -> None:
            live.update(
                render(picture, console.width, console.height, label, ascii_only), refresh=True
            )

        show(picture)
        poller.show(show, ended.set_exception)
        ended.result()


def render(
    picture: Picture, width: int, height: int, label: Callable[[int], str], ascii_only: bool
) -> Any:
    """Return a picture that fits into a terminal."""
    from rich.text import Text

    rows = fit(picture, width, height - 1, label, ascii_only)
    texts = [as_text(row, fit=one_line) for row in rows[: height - 1]]
    for text in texts:
        text.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    texts += [Text("")] * (height - 1 - len(texts))
    hint = Text(f"{lines.clock(time.time())}  {_hint()}", style="bright_black")
    hint.truncate(width)
    return Text("\n", no_wrap=True).join([*texts, hint])


def fit(
    picture: Picture, width: int, height: int, label: Callable[[int], str], ascii_only: bool
) -> list[Line]:
    """Return the lines of a picture, at most `height`, with a share for each part."""
    status = picture.status
    head: list[Line] = [lines.title(picture)]
    if picture.trouble:
        head.append((Span(picture.trouble, "warn"),))
    if status is None:
        return head[:height]
    parts: list[list[Line]] = []
    if len(picture.ensembles) > 1:
        parts.append(
            lines.ensemble_lines(picture.ensembles, picture.t, picture.name, width, ascii_only)
        )
    groups = active_first(picture.groups, max(height // 4, 3))
    parts += [
        lines.group_lines(groups, width, ascii_only),
        lines.member_lines(picture.members, picture.runs, picture.t, width, ascii_only),
        lines.rule_lines(picture.rules, picture.t, width, ascii_only),
        lines.failure_lines(picture.failures, width, ascii_only),
    ]
    log = [lines.log_line(entry, picture.t_log, label) for entry in picture.log]
    return head + _share(parts, log, height - len(head))


def _share(parts: Iterable[list[Line]], log: list[Line], room: int) -> list[Line]:
    """Return a share of each part, and the last lines of the log in the remaining room."""
    shown: list[Line] = []
    filled = [part for part in parts if part]
    for index, part in enumerate(filled):
        # Each part leaves a fair share to those after it, including the log.
        most = max((room - len(shown)) // (len(filled) - index + 1) - 1, 1)
        if len(part) > most:
            more = len(part) - most + 1
            part = [*part[: most - 1], (Span(f"... and {more} more", "detail"),)]
        shown += [(), *part]
    left = room - len(shown) - 1
    if left > 0 and log:
        shown += [(), *log[-left:]]
    return shown[:room]
