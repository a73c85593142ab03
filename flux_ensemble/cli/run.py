"""The commands that begin and follow an ensemble: run, load, watch."""

from __future__ import annotations

import os

import click

from flux_ensemble.cli.common import Duration, check_document, naming, read_document
from flux_ensemble.cli.loading import ensure_service
from flux_ensemble.client import Client, user_context

NAME_OPTION = click.option(
    "--name", metavar="NAME", help="The ensemble's name, instead of the document's."
)
DEBUG_OPTION = click.option("--debug", is_flag=True, help="Print every event of its jobs.")


@click.command(short_help="Load a document, follow the ensemble, and exit with it.")
@click.argument("file")
@NAME_OPTION
@DEBUG_OPTION
@click.option(
    "--timeout",
    type=Duration(),
    default=0.0,
    metavar="DURATION",
    help="End the ensemble and cancel its jobs after so long (30s, 2m, 1.5h), and exit 124.",
)
@click.option(
    "--record",
    metavar="FILE",
    help='Record every event and command in FILE, for "replay".',
)
def run(file: str, name: str | None, debug: bool, timeout: float, record: str | None) -> int:
    """Load document FILE ("-": standard input), follow the ensemble, and exit with it.

    Loads the service first where that is not loaded. Ctrl-C ends the ensemble and cancels
    its jobs; a second Ctrl-C leaves at once.
    """
    text, label = read_document(file)
    spec = check_document(text, label, name)
    client = Client()
    ensure_service(client)

    from flux_ensemble.cli.follow import Follower
    from flux_ensemble.cli.views import make_view

    follower = Follower(
        client, make_view(), owner=True, events=debug or spec.debug, timeout=timeout
    )
    request = {"text": text, "name": name, "file": label, **user_context()}
    if record is not None:
        request["record"] = os.path.abspath(record)
    return follower.load(request)


@click.command(short_help="Load a document and leave the ensemble to the service.")
@click.argument("file")
@NAME_OPTION
def load(file: str, name: str | None) -> None:
    """Load document FILE ("-": standard input), and print the ensemble's name.

    Loads the service first where that is not loaded. The ensemble belongs to the service:
    "watch" follows it, and "terminate" or "cancel" ends it.
    """
    text, label = read_document(file)
    check_document(text, label, name)
    client = Client()
    ensure_service(client)
    click.echo(client.load(text, name=name, file=label)["name"])


@click.command(short_help="Follow a loaded ensemble live, and exit with it.")
@click.argument("name")
@DEBUG_OPTION
def watch(name: str, debug: bool) -> int:
    """Follow ensemble NAME as "run" does, from its beginning to its end, and exit with it.

    Ctrl-C leaves it to the service.
    """
    client = Client()

    from flux_ensemble.cli.follow import Follower
    from flux_ensemble.cli.views import make_view

    with naming(client, name):
        client.status(name)
        return Follower(client, make_view(), owner=False, events=debug).follow(name)


COMMANDS = (run, load, watch)
