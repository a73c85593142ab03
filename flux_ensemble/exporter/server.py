"""The endpoint of metrics: HTTP on a UNIX socket, or on loopback with a token; or a file.

On a login node every user reaches loopback, so a client there has to present a token. A UNIX socket
is in a directory with permissions, and only its user can connect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from socketserver import BaseServer

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from flux_ensemble.files import replacing
from flux_ensemble.pages import (
    REQUEST_SECONDS,
    Check,
    Give,
    Page,
    serve_port,
    serve_socket,
)
from flux_ensemble.tokens import TokenError, presents, read_or_make_token

#: Returns the current metrics.
Collect = Callable[[], Iterable[Metric]]

#: The format of a response to a client that accepts any.
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ExporterError(Exception):
    """Metrics cannot be exported this way; the text is one sentence."""


class _Now(Collector):
    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def registry(collect: Collect) -> CollectorRegistry:
    """Return a registry that collects the metrics anew at each request."""
    # The default registry would have metrics of this process, too.
    found = CollectorRegistry(auto_describe=False)
    found.register(_Now(collect))
    return found


def write_textfile(path: Path, collect: Collect) -> None:
    """Write the metrics to a file for node_exporter(1), as a whole or not at all.

    Raises:
        ExporterError: the file cannot be written.
    """
    if path.suffix != ".prom":
        raise ExporterError(f"{path}: expected a file that ends in .prom, as node_exporter reads")
    try:
        with replacing(path, mode=0o644) as beside:
            beside.write_bytes(generate_latest(registry(collect)))
    except OSError as error:
        raise ExporterError(f"cannot write {path}: {error.strerror}") from None


def listen(
    address: str, collect: Collect, token_file: Path | None, *, seconds: float = REQUEST_SECONDS
) -> BaseServer:
    """Return a listening server; one thread at a time collects the metrics.

    Args:
        address: the path of a UNIX socket, or HOST:PORT of loopback; port 0 is a free one.
        collect: returns the metrics.
        token_file: file with the token that clients by HOST:PORT have to present.
        seconds: the time for a request to arrive.

    Raises:
        ExporterError: it cannot listen there.
    """
    give = _metrics(registry(collect))
    host, colon, port = address.rpartition(":")
    try:
        if "/" in address:
            return serve_socket(Path(address), give, seconds=seconds)
        host = host.strip("[]")
        if not colon or not port.isdigit():
            raise ExporterError(
                f"--listen {address}: expected HOST:PORT, or a path with a slash of a UNIX socket"
            )
        if host not in _LOOPBACK:
            raise ExporterError(
                f"--listen {address}: expected localhost: others shall ask by a proxy with TLS"
            )
        if token_file is None:
            raise ExporterError(
                f"--listen {address} needs --token-file FILE: everybody on this machine reaches "
                "loopback; a path, of a UNIX socket, needs none"
            )
        token = read_or_make_token(token_file)
        return serve_port(host, int(port), give, _holds(token), seconds=seconds)
    except TokenError as error:
        raise ExporterError(str(error)) from None
    except (OSError, OverflowError) as error:
        raise ExporterError(f"cannot listen on {address}: {error}") from None


def _metrics(registry: CollectorRegistry) -> Give:
    # Only one thread at a time may send requests for the metrics.
    lock = threading.Lock()

    def give(path: str, headers: Message) -> Page:
        if path != "/metrics":
            return Page(HTTPStatus.NOT_FOUND, "text/plain", b"see /metrics\n")
        accept = headers.get("Accept", "")
        encode, kind = choose_encoder(OPENMETRICS if accept in ("", "*/*") else accept)
        with lock:
            return Page(HTTPStatus.OK, kind, encode(registry))

    return give


def _holds(token: str) -> Check:
    refusal = Page(
        HTTPStatus.UNAUTHORIZED,
        "text/plain",
        b"expected the token\n",
        {"WWW-Authenticate": "Bearer"},
    )
    return lambda headers: None if presents(headers.get("Authorization", ""), token) else refusal
