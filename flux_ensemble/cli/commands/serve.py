"""`serve`: the service in the foreground, outside the broker."""

from __future__ import annotations

import click

from flux_ensemble.cli.common import Failure
from flux_ensemble.client import Client
from flux_ensemble.service.logger import LEVELS


@click.command
@click.option(
    "--log-level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    help="The least urgent that it logs; `flux dmesg` shows the log.",
)
def serve(log_level: str) -> None:
    """Run the service in the foreground until Ctrl-C.

    It registers with the broker as a client does: for Flux older than 0.84, which has no
    Python broker modules, and for debugging.
    """
    handle = Client().handle

    from flux_ensemble.service.serve import serve as run_service

    click.echo("the ensemble service: Ctrl-C ends it, `flux dmesg` shows its log", err=True)
    try:
        run_service(handle, log_level=log_level)
    except OSError as exc:
        raise Failure(exc.strerror or str(exc)) from exc


COMMANDS = (serve,)
