"""The command that verifies a run afterwards: replay."""

from __future__ import annotations

from pathlib import Path

import click

from flux_ensemble.cli.common import FAILED, FILE, USAGE, Failure
from flux_ensemble.cli.session import completion


@click.command
@click.argument("file", shell_complete=completion.files)
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help="Check that the log of a report is what the recording brings about.",
)
def replay(file: str, report: Path | None) -> int:
    """Feed recording FILE to a fresh engine, and compare what it does.

    "flux ensemble run --record FILE" makes a recording. Exits 0 if all commands are the
    same, 1 at the first difference, 2 if FILE is no whole recording.
    """
    from flux_ensemble.document.loading import DocumentError
    from flux_ensemble.runtime.recording import RecordingError
    from flux_ensemble.runtime.recording import replay as run_replay

    try:
        found = run_replay(file)
    except (RecordingError, DocumentError) as error:
        raise Failure(str(error), USAGE) from None
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", USAGE) from None
    difference = found.difference
    if difference is None:
        click.echo(f"{found.name}: {found.events} events, the same commands; {found.state}")
        return 0 if report is None else _compare(Path(file), report)
    click.echo(f"{file}:{difference.line}: the commands differ at this event:")
    click.echo(f"  event     {difference.event}")
    for mark, commands, others in (
        ("recorded", difference.recorded, difference.replayed),
        ("replayed", difference.replayed, difference.recorded),
    ):
        for command in commands:
            if command not in others:
                click.echo(f"  {mark}  {command}")
    return FAILED


def _compare(file: Path, report: Path) -> int:
    """Compare the hash of a report's log with that of a recording."""
    from flux_ensemble.report.digest import Digest, hashes
    from flux_ensemble.report.recording_source import recorded

    try:
        known = hashes(report)
    except OSError as error:
        raise Failure(f"{report}: {error.strerror}", USAGE) from None
    if not known:
        raise Failure(f"{report}: expected a report of 'flux ensemble report'", USAGE)
    digest = Digest()
    for entry in recorded(file).entries:
        digest.add(entry)
    if digest.text in known:
        click.echo(f"{report}: its log is that of the recording")
        return 0
    click.echo(f"{report}: its log is not that of the recording, which has {digest.text}")
    return FAILED


COMMANDS = (replay,)
