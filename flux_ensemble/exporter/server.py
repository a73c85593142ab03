"""Where metrics are read: HTTP on a UNIX socket, or on loopback with a token; or a file.

On a login node everybody reaches loopback, so who asks there has to show a token. A UNIX socket is
in a directory with permissions, and is the user's alone.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseServer, UnixStreamServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

#: Gives the metrics as they are now.
Collect = Callable[[], Iterable[Metric]]

#: What is answered where a client has no wish of its own.
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

#: Seconds that a connection may take with its request.
PATIENCE = 10.0

#: The shortest token that is taken, in characters.
SHORTEST = 16

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ExporterError(Exception):
    """Metrics cannot be exported so; one sentence."""


class _Now(Collector):
    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def registry(collect: Collect) -> CollectorRegistry:
    """A registry that has the metrics anew each time it is asked."""
    # That of a process would have metrics of this process too.
    found = CollectorRegistry(auto_describe=False)
    found.register(_Now(collect))
    return found


def write_textfile(path: Path, collect: Collect) -> None:
    """Write the metrics to a file for node_exporter(1), as a whole or not at all.

    Raises:
        ExporterError: it cannot be written.
    """
    if path.suffix != ".prom":
        raise ExporterError(f"{path}: expected a file that ends in .prom, as node_exporter reads")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as directory:
            beside = Path(directory, "metrics")
            beside.write_bytes(generate_latest(registry(collect)))
            beside.chmod(0o644)
            os.replace(beside, path)
    except OSError as error:
        raise ExporterError(f"cannot write {path}: {error.strerror}") from None


def read_token(path: Path) -> str:
    """The token in a file; it is made, for the user alone, where there is none.

    Raises:
        ExporterError: others can read it, or it is no token.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _check_token(path)
    except OSError as error:
        raise ExporterError(f"cannot make {path}: {error.strerror}") from None
    with os.fdopen(fd, "w") as file:
        token = secrets.token_urlsafe(32)
        file.write(f"{token}\n")
    return token


def _check_token(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            status = os.fstat(file.fileno())
            text = file.read(4096).strip()
    except OSError as error:
        raise ExporterError(f"cannot read {path}: {error.strerror}") from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise ExporterError(f"others can read {path}: end that with 'chmod 600 {path}'")
    if len(text) < SHORTEST or not text.isprintable() or not text.isascii():
        raise ExporterError(f"{path}: expected a token of at least {SHORTEST} printable characters")
    return text


def listen(address: str, collect: Collect, token_file: Path | None) -> BaseServer:
    """A server that listens; it serves one request after the other.

    Args:
        address: the path of a UNIX socket, or HOST:PORT of loopback; port 0 is a free one.
        collect: gives the metrics.
        token_file: what has the token of those who ask by HOST:PORT.

    Raises:
        ExporterError: it cannot listen there.
    """
    found = registry(collect)
    host, colon, port = address.rpartition(":")
    try:
        if "/" in address:
            return _listen_unix(Path(address), found)
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
        return _Tcp((host, int(port)), _handler(found, read_token(token_file)))
    except (OSError, OverflowError) as error:
        raise ExporterError(f"cannot listen on {address}: {error}") from None


def _listen_unix(path: Path, registry: CollectorRegistry) -> BaseServer:
    # A socket that nobody listens on any more is in the way.
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise ExporterError(f"somebody listens on {path} already")
    before = os.umask(0o177)
    try:
        return _Unix(str(path), _handler(registry, None))
    finally:
        os.umask(before)


class _Tcp(HTTPServer):
    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who goes away in the middle is no error of ours."""


class _Unix(UnixStreamServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """As for `_Tcp`."""

    def server_close(self) -> None:
        """The socket goes with the server."""
        super().server_close()
        Path(str(self.server_address)).unlink(missing_ok=True)


def _handler(registry: CollectorRegistry, token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "flux-ensemble"
        sys_version = ""
        timeout = PATIENCE

        def do_GET(self) -> None:
            if token is not None:
                given = self.headers.get("Authorization", "")
                if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                    self._answer(HTTPStatus.UNAUTHORIZED, "text/plain", b"expected the token\n")
                    return
            if self.path.partition("?")[0] != "/metrics":
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"see /metrics\n")
                return
            accept = self.headers.get("Accept", "")
            encode, kind = choose_encoder(OPENMETRICS if accept in ("", "*/*") else accept)
            self._answer(HTTPStatus.OK, kind, encode(registry))

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            if status == HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "a client"

        def log_message(self, format: str, *args: Any) -> None:
            """Scrapes are nothing to tell."""

    return Handler
