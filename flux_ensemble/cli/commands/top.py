"""`top`: a live view of ensembles."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from flux_ensemble.cli.common import OK, naming
from flux_ensemble.cli.display.colours import use_colour
from flux_ensemble.cli.prose import fitted
from flux_ensemble.cli.session.target import advising, queue_options


@click.command
@click.argument("name", required=False)
@click.option("--once", is_flag=True, help="Print it once as plain text, and leave.")
@queue_options
def top(name: str | None, once: bool, queue: str | None, state_dir: Path | None) -> int:
    """Show ensembles live, or ensemble NAME: groups, members, rules, failures and the log.

    Keys pause, resume, cancel and submit, and open the output of jobs; "?" lists them. Without
    Textual (the extra "tui") there are no keys. With --once, in a pipe, in a cell of a
    notebook, or on a terminal that cannot move its cursor, it prints plain text once.
    """
    from flux_ensemble.cli.display.progress import is_ascii, is_live
    from flux_ensemble.cli.top.poller import Poller
    from flux_ensemble.cli.top.source import Source, open_source

    opened: list[Source] = []

    def opening() -> Source:
        opened.append(open_source(name, queue, state_dir))
        return opened[0]

    plain = once or not (is_live() and sys.stdin.isatty())
    poller = Poller(opening, quick=not plain)
    # Textual draws on standard error.
    textual = not plain and sys.stderr.isatty() and find_spec("textual") is not None
    if textual:
        # While the thread waits for the response. Modules are no garbage, and to search them for
        # some takes a tenth of the time.
        gc.disable()
        if not use_colour():
            os.environ["NO_COLOR"] = "1"  # for Textual
        from flux_ensemble.cli.top.app import TopApp

        gc.freeze()
        gc.enable()
    try:
        picture = poller.first()
    except OSError:
        if name is not None and opened:
            with advising(opened[0].client, [name]), naming(opened[0].client, name):
                poller.first()
        raise
    source = opened[0]
    if plain:
        from flux_ensemble.cli.top.lines import plain_view
        from flux_ensemble.words import plain as text_of

        poller.stop()
        for line in plain_view(picture, source.label):
            click.echo(fitted(text_of(line)))
        return OK
    if not textual:
        from flux_ensemble.cli.top.live import follow

        with contextlib.suppress(KeyboardInterrupt):
            follow(poller, source.label, ascii_only=is_ascii())
        return OK
    return TopApp(poller, source.label, ascii_only=is_ascii()).follow()


COMMANDS = (top,)
