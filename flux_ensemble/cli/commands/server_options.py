"""Options that `grpc start` and `operator run` share: both run in a container, and are probed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from flux_ensemble.cli.common import Failure
from flux_ensemble.extras import install_command

HEALTH_PORT = click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Answer probes and give metrics on this port of all hosts, in plaintext; 0 chooses a "
    "free one.",
)

LOG_FORMAT = click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Name the extra that installs what is imported within, if it is missing."""
    try:
        yield
    except ImportError as exc:
        raise Failure(
            f"a package is missing ({exc}): `{install_command(extra)}` brings it"
        ) from exc
