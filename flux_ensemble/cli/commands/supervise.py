"""`supervise`: have the broker module loaded again after a crash."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import click

from flux_ensemble.bindings import module_arguments, module_path
from flux_ensemble.cli.common import Failure
from flux_ensemble.client import Client
from flux_ensemble.deploy.loading import declare_module, ensure_service
from flux_ensemble.deploy.supervision import NOPANIC, release
from flux_ensemble.deploy.supervision import supervise as begin


@click.command
@click.option("--off", is_flag=True, help="Do not start it again any more.")
def supervise(off: bool) -> None:
    """Load the service where it is not there, and again whenever it is gone.

    An entry of "flux cron" sees to it until the instance ends. Sets the broker attribute
    broker.module-nopanic to 1, so that the instance outlives a module that dies.
    """
    client = Client()
    if off:
        with _sentences():
            supervised = release(client.handle)
        if supervised:
            click.echo("the ensemble service is not started again any more")
        else:
            click.echo("the ensemble service was not supervised")
        return
    ensure_service(client)
    if client.status()["service"].get("mode") == "client":
        raise Failure(
            "the ensemble service is no broker module here but `flux ensemble serve`: "
            "what started that has to start it again (etc/README.md shows how)"
        )
    with _sentences():
        declare_module(client.handle)
        begin(client.handle, str(module_path()), module_arguments())
    click.echo(f"the ensemble service is started again after a crash ({NOPANIC} is 1)")


@contextmanager
def _sentences() -> Iterator[None]:
    """Say more than Flux does about what is refused."""
    try:
        yield
    except OSError as exc:
        if exc.errno == errno.EPERM:
            raise Failure("only the owner of this Flux instance may supervise its service") from exc
        if exc.errno == errno.ENOSYS:
            raise Failure(
                "this Flux instance has no cron service, which supervision needs: "
                "`flux module load cron` starts it"
            ) from exc
        raise


COMMANDS = (supervise,)
