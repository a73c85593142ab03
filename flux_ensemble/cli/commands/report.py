"""The command that makes a report of ensembles: one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_ensemble.cli.common import FILE, USAGE, Failure, naming
from flux_ensemble.cli.session.target import advising, queue_options, reach
from flux_ensemble.client import Client

if TYPE_CHECKING:
    from flux_ensemble.report.source import Source


@click.command
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option(
    "--recording",
    "recordings",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="A recording, of a run or a simulation, in the place of an ensemble; may be repeated.",
)
@click.option(
    "--simulation",
    type=FILE,
    metavar="FILE",
    help="A recording to compare with, such as that of a simulation; for one ensemble.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help='The file to write (default: NAME.html; "-": standard output).',
)
@click.option("--open", "shown", is_flag=True, help="Open it in a browser.")
@click.option("--force", is_flag=True, help="Replace a file that is no report.")
@click.option("--environment", is_flag=True, help="Show values of environment variables, too.")
@queue_options
def report(
    names: tuple[str, ...],
    recordings: tuple[Path, ...],
    simulation: Path | None,
    output: Path | None,
    shown: bool,
    force: bool,
    environment: bool,
    queue: str | None,
    state_dir: Path | None,
) -> None:
    """Write a report of ensemble NAME, or of several, as one HTML file for any browser.

    It has the document, the time line of jobs and firings, failures with their reasons, the best
    points of a sweep, and the log. It needs no network, and can be sent to others.
    """
    from flux_ensemble.cli.display.reports import written
    from flux_ensemble.report.page import MOST_ENSEMBLES
    from flux_ensemble.report.recording_source import recorded
    from flux_ensemble.results.report import default_file, describe

    count = len(names) + len(recordings)
    if not count:
        raise Failure("name an ensemble, or a recording with --recording", USAGE)
    if count > MOST_ENSEMBLES:
        raise Failure(f"a report is of at most {MOST_ENSEMBLES} ensembles, not {count}", USAGE)
    if simulation is not None and count > 1:
        raise Failure("--simulation is for a report of one ensemble", USAGE)
    with _refusals():
        other = None if simulation is None else recorded(simulation)
        sources = [*_named(names, queue, state_dir), *map(recorded, recordings)]
        if output is None:
            output = default_file(names[0] if names else recordings[0].stem, sources)
        contents = [describe(one, other, path=output, environment=environment) for one in sources]
    written(output, contents, force=force)
    if shown and str(output) != "-":
        from flux_ensemble.cli.session.results import open_page

        open_page(output)


def _named(names: tuple[str, ...], queue: str | None, state_dir: Path | None) -> Iterator[Source]:
    """Yield ensembles of the service or the local queue as sources."""
    from flux_ensemble.results.sources import source_of

    client = reach(Client, queue, state_dir) if names else None
    for name in dict.fromkeys(names):
        assert client is not None
        with advising(client, names), naming(client, name):
            source = source_of(client, name)
        yield source


@contextmanager
def _refusals() -> Iterator[None]:
    """Convert errors of recordings to failures of the command."""
    from flux_ensemble.document.loading import DocumentError
    from flux_ensemble.runtime.recording import RecordingError

    try:
        yield
    except (RecordingError, DocumentError) as error:
        raise Failure(str(error), USAGE) from None
    except FileNotFoundError as error:
        raise Failure(f"{error.filename}: {error.strerror}", USAGE) from None


COMMANDS = (report,)
