"""`run --queue minicluster`: a Flux instance whose size a gRPC service changes.

The options give the address of the service, and the MiniCluster. The ensemble service receives them
with the document, in the form of the table [ensemble] (docs/elastic.md).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from flux_ensemble.cli.common import USAGE, Failure
from flux_ensemble.cli.session.target import queue_options

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Default address of the gRPC service.
HOST = "localhost"
PORT = 50051

_FILE = click.Path(path_type=Path, dir_okay=False, resolve_path=True)


def run_queue_options(command: _Command) -> _Command:
    """Add the options that choose the queue of an ensemble."""
    for option in (
        click.option("--tls-ca", type=_FILE, help="The authority of the service, in PEM."),
        click.option("--tls-key", type=_FILE, help="The key of the certificate, in PEM."),
        click.option("--tls-cert", type=_FILE, help="The certificate to show it, in PEM."),
        click.option("--port", type=click.IntRange(1, 65535), help=f"Its port (default {PORT})."),
        click.option(
            "--host",
            help="Where the gRPC service is that changes the size of the MiniCluster "
            f"(default {HOST}).",
        ),
    ):
        command = option(command)
    return queue_options(command, ("flux", "local", "minicluster"))


def read_minicluster(
    queue: str | None, name: str | None, options: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the scaler of a MiniCluster; None for another queue.

    Args:
        queue: as `--queue`.
        name: as `--name`: the MiniCluster, as NAMESPACE/NAME.
        options: `host`, `port`, `tls_cert`, `tls_key` and `tls_ca`.

    Raises:
        Failure: an option is for a MiniCluster, but the queue is another.
    """
    if queue != "minicluster":
        for key, value in options.items():
            if value is not None:
                option = "--" + key.replace("_", "-")
                raise Failure(f"{option} is for a MiniCluster: add --queue minicluster", USAGE)
        return None
    host, port = options.pop("host") or HOST, options.pop("port") or PORT
    scaler = {"scaler": "minicluster", "grpc-target": f"{host}:{port}"}
    if name is not None:
        scaler["grpc-cluster"] = name
    files = {key.replace("_", "-"): value for key, value in options.items()}
    return {**scaler, **{key: str(value) for key, value in files.items() if value is not None}}
