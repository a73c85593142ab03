"""The command that exports metrics to Prometheus: metrics-exporter."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import FILE, USAGE, Duration, Failure, warn
from flux_ensemble.cli.session.target import queue_options, reach
from flux_ensemble.client import Client, EnsembleError, is_named
from flux_ensemble.extras import install_command
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.results.hosts import Target

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@click.command("metrics-exporter")
@click.option(
    "--listen",
    "address",
    metavar="ADDRESS",
    help="Serve them at /metrics: the path of a UNIX socket, or HOST:PORT of loopback.",
)
@click.option(
    "--token-file",
    type=FILE,
    metavar="FILE",
    help="What who asks by HOST:PORT has to show; made where there is none.",
)
@click.option(
    "--textfile",
    type=FILE,
    metavar="FILE",
    help="Write them to FILE.prom for node_exporter instead.",
)
@click.option(
    "--interval",
    type=Duration(),
    default="15s",
    show_default=True,
    metavar="DURATION",
    help="Write the file so often; 0: once.",
)
@click.option(
    "--max-series",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Most series of ensembles; what is left out is counted.",
)
@queue_options
def exporter(
    address: str | None,
    token_file: Path | None,
    textfile: Path | None,
    interval: float,
    max_series: int,
    queue: str | None,
    state_dir: Path | None,
) -> None:
    """Give the metrics of ensembles to Prometheus, until Ctrl-C.

    One of --listen and --textfile says where. A scrape is one request for the status.
    """
    if (address is None) == (textfile is None):
        raise Failure("expected one of --listen and --textfile", USAGE)
    try:
        from flux_ensemble.exporter.server import ExporterError
    except ImportError:
        raise Failure(
            f"the exporter needs prometheus_client: {install_command('metrics')}"
        ) from None
    collect = _collector(_host(queue, state_dir), max_series)
    try:
        if textfile is not None:
            _write(textfile, collect, interval)
        else:
            assert address is not None
            _serve(address, collect, token_file)
    except ExporterError as error:
        raise Failure(str(error), USAGE) from None


def _host(queue: str | None, state_dir: Path | None) -> Callable[[], Target]:
    """Return a function that connects to the host of the ensembles, and to no other one.

    An instance that was named may start, or be reachable again, later, and so may its service.
    """
    target: Target | None = None
    try:
        target = reach(Client, queue, state_dir)
        target.list()
    except EnsembleError as error:
        is_flux = queue == "flux" or is_named() if target is None else isinstance(target, Client)
        if not is_flux or error.errno in (errno.EPERM, errno.EACCES):
            raise
        warn(f"{error}; until it answers, the metric 'up' is 0")
    if isinstance(target, LocalClient):
        local = target
        return lambda: local
    return Client


def _collector(connect: Callable[[], Target], most: int) -> Callable[[], Iterator[Metric]]:
    """Return a function that requests the status each time, reconnecting after a loss."""
    from flux_ensemble.exporter.families import families

    held: list[Target] = []

    def collect() -> Iterator[Metric]:
        status: Any = None
        try:
            if not held:
                held.append(connect())
            status = held[0].status()
        except (EnsembleError, BindingsError, Failure, OSError):
            held.clear()
        yield from families(status, most)

    return collect


@contextlib.contextmanager
def _ending(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGINT and SIGTERM."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: stop()) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _write(path: Path, collect: Callable[[], Iterator[Metric]], interval: float) -> None:
    from flux_ensemble.exporter.server import write_textfile

    ended = threading.Event()
    with _ending(ended.set):
        while True:
            write_textfile(path, collect)
            if not interval or ended.wait(interval):
                return


def _serve(address: str, collect: Callable[[], Iterator[Metric]], token: Path | None) -> None:
    from flux_ensemble.exporter.server import listen

    with listen(address, collect, token) as server:
        bound = server.server_address
        where = ":".join(map(str, bound[:2])) if isinstance(bound, tuple) else bound
        click.echo(f"metrics of ensembles: {where}, /metrics; Ctrl-C ends it", err=True)
        # `shutdown` waits for the loop that it ends, so another thread calls it.
        end = threading.Thread(target=server.shutdown)

        def stop() -> None:
            if end.ident is None:
                end.start()

        with _ending(stop):
            server.serve_forever()
        end.join()


COMMANDS = (exporter,)
