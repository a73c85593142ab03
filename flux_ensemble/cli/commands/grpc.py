"""`grpc start`: the gRPC service in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_ensemble.cli.commands.server_options import HEALTH_PORT, LOG_FORMAT, needs
from flux_ensemble.cli.common import FILE, USAGE, Failure, say

if TYPE_CHECKING:
    from flux_ensemble.k8s.grpc.backend import Backend
    from flux_ensemble.k8s.grpc.clusters import Cluster, Clusters
    from flux_ensemble.k8s.grpc.server import Access
    from flux_ensemble.k8s.grpc.tls import TlsFiles

#: The name of the default cluster: the instance that this runs in.
DEFAULT_CLUSTER = "flux"

#: The default port.
DEFAULT_PORT = 50051


@click.group()
def grpc() -> None:
    """The gRPC service: it changes the size of clusters, and gives remote access to ensembles."""


@grpc.command(short_help="Run the gRPC service in the foreground.")
@click.option("--host", help="Where to listen.  [default: localhost; with --socket: nowhere]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port; 0 chooses a free one, which is printed.  [default: {DEFAULT_PORT}; with "
    "--socket: none]",
)
@click.option(
    "--socket",
    type=FILE,
    metavar="PATH",
    help="Listen at a UNIX socket that you alone can connect to, for requests of every kind.",
)
@click.option(
    "--token-file",
    type=FILE,
    metavar="FILE",
    help="The token that plaintext clients present for requests of every kind; made if missing.",
)
@click.option(
    "--cluster",
    "clusters",
    metavar="NAME[=URI]",
    multiple=True,
    help="A cluster, and the URI of its Flux instance; without a URI, the enclosing one. "
    f"Can be repeated. Default: {DEFAULT_CLUSTER!r}, the enclosing instance.",
)
@click.option(
    "--backend",
    type=click.Choice(["dry-run", "kubernetes", "instance"]),
    help="What changes the size of clusters; without it their size is fixed.",
)
@click.option(
    "--min-nodes", type=int, help="The least nodes of a cluster of the dry run.  [default: 1]"
)
@click.option(
    "--max-nodes", type=int, help="The most nodes of a cluster of the dry run.  [default: 16]"
)
@click.option(
    "--shared-nodes",
    type=int,
    metavar="N",
    help="The most nodes that the clusters of a namespace have together; each gets its part.",
)
@click.option("--tls-cert", type=FILE, help="The server's certificate, in PEM.")
@click.option("--tls-key", type=FILE, help="The key of the certificate, in PEM.")
@click.option("--tls-ca", type=FILE, help="The authority that signs clients' certificates, in PEM.")
@click.option(
    "--owner",
    metavar="UID",
    help="Take only clients whose certificates name this owner, and change only MiniClusters that "
    "it owns: the uid of an Ensemble.",
)
@click.option(
    "--insecure", is_flag=True, help="Serve plaintext on a host that other machines can reach."
)
@click.option(
    "--allow-load",
    is_flag=True,
    help="Let clients that say who they are load documents, and so run commands.",
)
@HEALTH_PORT
@LOG_FORMAT
def start(
    host: str | None,
    port: int | None,
    socket: Path | None,
    token_file: Path | None,
    clusters: tuple[str, ...],
    backend: str | None,
    min_nodes: int | None,
    max_nodes: int | None,
    shared_nodes: int | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    owner: str | None,
    insecure: bool,
    allow_load: bool,
    health_port: int | None,
    log_format: str,
) -> None:
    """Run the gRPC service in the foreground until Ctrl-C.

    It speaks the protocol of ensemble-python and one of its own (docs/grpc.md). Clients that do
    not say who they are can read the status and change sizes. Without certificates it listens on
    this machine only, unless --insecure is given.
    """
    # gRPC logs each connection that is not a client's, however many arrive.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    with needs("grpc"):
        from flux_ensemble.k8s.grpc import server
        from flux_ensemble.k8s.grpc.tls import TlsError
        from flux_ensemble.k8s.json_logs import start_logging

    tls = _tls(tls_cert, tls_key, tls_ca)
    if tls is not None and insecure:
        raise click.UsageError("--insecure is plaintext: it cannot be had with certificates")
    if tls is not None and token_file is not None:
        raise click.UsageError("--token-file is for plaintext: certificates say who asks")
    if owner is not None and (tls is None or backend != "kubernetes"):
        raise click.UsageError("--owner needs certificates and --backend kubernetes")
    wanted = _wanted(clusters)
    scaler = _backend(backend, wanted, min_nodes, max_nodes, owner)
    table = _clusters(wanted, scaler)
    if shared_nodes is not None:
        scaler = _shared(scaler, shared_nodes, table)
    if not wanted and (scaler is None or not scaler.discovers):
        _look_for_flux()
    start_logging(log_format)
    if port is None and (host is not None or socket is None):
        port = DEFAULT_PORT
    host = host or "localhost"
    access = server.Access(
        host=host,
        port=port,
        tls=tls,
        insecure=insecure,
        allow_load=allow_load,
        socket=socket,
        token=None if token_file is None else _token(token_file),
        owner=owner,
    )

    def ready(bound: int | None) -> None:
        names = ", ".join(sorted(table.listed)) or "those that the back end knows"
        where = [] if bound is None else [f"{host}:{bound}, {_who(access)}"]
        where += [] if socket is None else [f"unix:{socket}, all requests"]
        click.echo(
            f"the gRPC service: {'; '.join(where)}, back end {backend or 'none'}, "
            f"clusters: {names}; Ctrl-C ends it",
            err=True,
        )

    try:
        with _health(health_port, scaler) as scaler:
            asyncio.run(_serve(table, scaler, access, ready))
    except (server.ServerError, TlsError) as exc:
        raise Failure(str(exc), USAGE) from exc


def _who(access: Access) -> str:
    """Return how clients on the network connect, and what they may do."""
    if access.tls is not None:
        return "TLS"
    if access.token is not None:
        return "plaintext, sizes and status, and all requests with the token"
    return "plaintext, sizes and status only"


def _token(file: Path) -> str:
    from flux_ensemble.tokens import TokenError, read_or_make_token

    try:
        return read_or_make_token(file)
    except TokenError as exc:
        raise Failure(f"--token-file: {exc}", USAGE) from exc


async def _serve(
    clusters: Clusters, scaler: Backend | None, access: Access, ready: Callable[[int | None], None]
) -> None:
    """Serve until the process has to end."""
    from flux_ensemble.k8s.grpc.server import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(clusters, scaler, access, ready=ready, stop=stop)


@contextmanager
def _health(port: int | None, scaler: Backend | None) -> Iterator[Backend | None]:
    """Serve probes and metrics; yield the back end, with its changes counted."""
    if port is None:
        yield scaler
        return
    with needs("k8s"):
        from flux_ensemble.k8s.grpc.backend_metrics import MeteredBackend, registry
        from flux_ensemble.k8s.health_port import HealthPort
    try:
        health = HealthPort(port, registry)
    except OSError as exc:
        raise Failure(f"--health-port {port}: {exc.strerror}", USAGE) from exc
    say(f"probes and metrics: port {health.port}")
    try:
        yield None if scaler is None else MeteredBackend(scaler)
    finally:
        health.close()


def _look_for_flux() -> None:
    """Warn if there is no Flux instance to serve."""
    from flux_ensemble.bindings import BindingsError
    from flux_ensemble.client import Client, EnsembleError

    try:
        Client()
    except (BindingsError, EnsembleError) as exc:
        click.echo(
            f"warning: {exc}\nwarning: until then requests about ensembles and sizes are refused",
            err=True,
        )


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> TlsFiles | None:
    from flux_ensemble.k8s.grpc.tls import TlsFiles

    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None or ca is None:
        raise click.UsageError("TLS needs all three of --tls-cert, --tls-key and --tls-ca")
    return TlsFiles(cert, key, ca)


def _wanted(texts: tuple[str, ...]) -> list[Cluster]:
    from flux_ensemble.k8s.grpc.clusters import parse_cluster

    try:
        return [parse_cluster(text) for text in texts]
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def _default() -> list[Cluster]:
    """Return the default clusters."""
    from flux_ensemble.k8s.grpc.clusters import Cluster

    return [Cluster(DEFAULT_CLUSTER)]


def _backend(
    name: str | None,
    clusters: list[Cluster],
    minimum: int | None,
    maximum: int | None,
    owner: str | None,
) -> Backend | None:
    from flux_ensemble.k8s.grpc.backend import BackendError

    if name != "dry-run" and (minimum, maximum) != (None, None):
        raise click.UsageError("--min-nodes and --max-nodes are bounds of --backend dry-run only")
    try:
        match name:
            case "dry-run":
                from flux_ensemble.k8s.grpc.backend import DryRun

                bounds = {"minimum": minimum, "maximum": maximum}
                return DryRun(**{key: size for key, size in bounds.items() if size is not None})
            case "kubernetes":
                with needs("k8s"):
                    from flux_ensemble.k8s.minicluster import Kubernetes
                return Kubernetes(owner=owner)
            case "instance":
                from flux_ensemble.k8s.grpc.flux_instances import FluxInstances

                return FluxInstances(clusters or _default())
    except BackendError as exc:
        raise Failure(str(exc), USAGE) from exc
    return None


def _shared(backend: Backend | None, nodes: int, clusters: Clusters) -> Backend:
    from flux_ensemble.k8s.grpc.backend import BackendError
    from flux_ensemble.k8s.grpc.shared_nodes import SharedNodes

    if backend is None:
        raise click.UsageError("--shared-nodes needs a --backend")
    try:
        return SharedNodes(backend, nodes, clusters.listed)
    except BackendError as exc:
        raise Failure(f"--shared-nodes: {exc}", USAGE) from exc


def _clusters(clusters: list[Cluster], backend: Backend | None) -> Clusters:
    from flux_ensemble.k8s.grpc.clusters import Clusters

    # If clusters are given, the service acts for these only.
    discovered = backend is not None and backend.discovers and not clusters
    try:
        return Clusters(
            [] if discovered else clusters or _default(),
            backend.canonical if backend else str,
            discovered=discovered,
        )
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


COMMANDS = (grpc,)
