"""`supervise`: the service as a process beside the broker, which is restarted after a crash."""

from __future__ import annotations

import click

from flux_ensemble.client import Client
from flux_ensemble.deploy.service_start import replace_service


@click.command
def supervise() -> None:
    """Run the service beside the broker, and start it again whenever it dies.

    The broker module "ensemble-keeper" sees to that until the instance ends, or
    "flux module remove ensemble-keeper". A service that is a broker module itself is
    replaced; its ensembles go on.
    """
    click.echo(replace_service(Client()))


COMMANDS = (supervise,)
