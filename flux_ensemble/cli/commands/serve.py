"""The service outside the broker: `serve` in the foreground, `supervise` beside the broker."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import Any

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import Failure
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.service.logger import LEVELS


@click.command
@click.option(
    "--log-level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    help="The least urgent that it logs; `flux dmesg` shows the log.",
)
@click.option("--keeper", "socket", type=click.IntRange(min=3), hidden=True)
@click.option("--attach", "member", metavar="MEMBER", hidden=True)
@click.option("--worker", metavar="MEMBER", hidden=True)
def serve(log_level: str, socket: int | None, member: str | None, worker: str | None) -> None:
    """Run the service in the foreground until Ctrl-C.

    It registers with the broker as a client does: for Flux older than 0.84, which has no
    Python broker modules, and for debugging. The broker module "ensemble-keeper" runs it,
    too, and starts it again when it dies ("load --isolate").
    """
    if member is not None:
        sys.exit(_attach(member))
    if worker is not None:
        sys.exit(_work(worker))
    try:
        handle = Client().handle
    except (BindingsError, EnsembleError) as exc:
        if socket is not None:
            # The process that waits for the service receives the problem with Flux's bindings.
            os.write(socket, f"{errno.ENOPKG} {exc}\n".encode())
        raise

    from flux_ensemble.service.serve import KeeperLink
    from flux_ensemble.service.serve import serve as run_service

    keeper = None if socket is None else KeeperLink(socket)
    if keeper is None:
        click.echo("the ensemble service: Ctrl-C ends it, `flux dmesg` shows its log", err=True)
    try:
        run_service(handle, log_level=log_level, keeper=keeper)
    except OSError as exc:
        if keeper is not None:
            keeper.refused(exc.errno or errno.EIO, exc.strerror or str(exc))
        raise Failure(exc.strerror or str(exc)) from exc


def _attach(member: str) -> int:
    """Run the service of a member, which a document with `service: child` starts."""
    own = Client().handle
    try:
        uri = own.attr_get("parent-uri")
    except OSError:
        uri = None
    if uri is None:
        raise Failure("--attach: this Flux instance is in no other; it is for members of ensembles")
    tag = _tag("--attach", member)
    parent = Client(uri=uri).handle

    from flux_ensemble.service.child import attach

    return attach(parent, own.attr_get("local-uri"), tag)


def _work(member: str) -> int:
    """Run a worker, which is the job of a member with `runs: tasks`."""
    if "FLUX_JOB_ID" not in os.environ:
        raise Failure("--worker: this is no Flux job; it is for members of ensembles")
    tag = _tag("--worker", member)
    handle = Client().handle

    from flux_ensemble.service.child import attach

    return attach(handle, None, tag)


def _tag(option: str, member: str) -> Any:
    try:
        return json.loads(member)
    except ValueError as error:
        raise Failure(f"{option}: expected the tag of a member as JSON: {error}") from None


@click.command
def supervise() -> None:
    """Run the service beside the broker, and start it again whenever it dies.

    The broker module "ensemble-keeper" sees to that until the instance ends, or
    "flux module remove ensemble-keeper". A service that is a broker module itself is
    replaced; its ensembles go on.
    """
    # Imported here, because each member runs `serve`.
    from flux_ensemble.deploy.service_start import replace_service

    click.echo(replace_service(Client()))


COMMANDS = (serve, supervise)
