"""Small HTTP servers of pages for GET: metrics and probes. No client can block the others.

    connection ──► waits: its request arrives, and is admitted ──► a page is sent

Both steps have a total time limit, however slowly bytes arrive, and a bound. A connection beyond
the bound ends the one that has waited longest without a request: a client that opens connections
and sends little ends only its own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseServer, TCPServer, ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, Any, NamedTuple

from flux_ensemble.files import private_socket

if TYPE_CHECKING:
    _Server = BaseServer
else:
    _Server = object

#: Seconds within which a request has to arrive completely, and its page has to be received.
REQUEST_SECONDS = 10.0
PAGE_SECONDS = 60.0

#: Connections that may wait for their request, and those that may receive a page.
MOST_WAITING = 32
MOST_SENT = 16


class Page(NamedTuple):
    """The response to a request; `headers` are in addition to the usual ones."""

    status: HTTPStatus
    kind: str
    body: bytes
    headers: Mapping[str, str] = {}


#: Returns the page of a request, given its path without a query, and its headers.
Give = Callable[[str, Message], Page]

#: Checks the headers of a request: returns the refusal, or None to admit the request.
Check = Callable[[Message], Page | None]

_BUSY = Page(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"too many requests: try again later\n")


class _Bounded(ThreadingMixIn, _Server):
    """The connections of a server, each with a thread and a time limit."""

    daemon_threads = True
    block_on_close = False

    def limit(self, waiting_seconds: float) -> None:
        """Begin without connections."""
        self._seconds = waiting_seconds
        self._lock = threading.Lock()
        # Deadlines of connections, the oldest first.
        self._waiting: dict[Any, float] = {}
        self._sent: dict[Any, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection, for which the one that has waited longest may have to end."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                _end(oldest)
            self._waiting[request] = time.monotonic() + self._seconds
        super().process_request(request, client_address)

    def let_in(self, request: Any) -> bool:
        """Return True if a connection with a complete request may receive a page."""
        with self._lock:
            self._waiting.pop(request, None)
            if len(self._sent) >= MOST_SENT:
                return False
            self._sent[request] = time.monotonic() + PAGE_SECONDS
        return True

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is over."""
        with self._lock:
            self._waiting.pop(request, None)
            self._sent.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections whose time is up; the server calls this twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [
                one
                for held in (self._waiting, self._sent)
                for one, end in held.items()
                if end < now
            ]
        for one in late:
            _end(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects early, which is no error of the server."""


class _Tcp(_Bounded, TCPServer):
    # A restarted server can have the port of its predecessor at once.
    allow_reuse_address = True


class _Unix(_Bounded, UnixStreamServer):
    def server_close(self) -> None:
        """Close the server and remove its socket."""
        super().server_close()
        Path(str(self.server_address)).unlink(missing_ok=True)


def serve_port(
    host: str,
    port: int,
    give: Give,
    check: Check | None = None,
    *,
    seconds: float = REQUEST_SECONDS,
) -> TCPServer:
    """Return a server of pages on a port; `serve_forever` serves them.

    Args:
        host: to listen on; "" is all addresses of IPv4.
        port: 0 is a free one.
        give: returns pages. Several threads call it.
        check: admits requests; None: all.
        seconds: the time for a request to arrive.

    Raises:
        OSError, OverflowError: it cannot listen there.
    """
    # Bound here, because a class has one address family.
    server = _Tcp((host, port), _handler(give, check), bind_and_activate=False)
    if ":" in host:
        server.socket.close()
        server.address_family = socket.AF_INET6
        server.socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    return _begin(server, seconds)


def serve_socket(path: Path, give: Give, *, seconds: float = REQUEST_SECONDS) -> TCPServer:
    """Return a server of pages on a UNIX socket for its user only; see `serve_port`.

    Raises:
        OSError: it cannot listen there, or somebody does already.
        ForeignFile: others can make files in its directory, so that they could replace the socket.
    """
    with private_socket(path):
        return _begin(_Unix(str(path), _handler(give, None), bind_and_activate=False), seconds)


def _begin(server: _Tcp | _Unix, seconds: float) -> TCPServer:
    server.limit(seconds)
    try:
        server.server_bind()
        server.server_activate()
    except BaseException:
        server.socket.close()
        raise
    return server


def _end(connection: socket.socket) -> None:
    # The thread of the connection notices the end, and closes it.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _handler(give: Give, check: Check | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server: Any
        server_version = "flux-ensemble"
        sys_version = ""

        def do_GET(self) -> None:
            refused = None if check is None else check(self.headers)
            if refused is not None:
                self._send(refused)
            elif not self.server.let_in(self.connection):
                self._send(_BUSY)
            else:
                self._send(give(self.path.partition("?")[0], self.headers))

        def _send(self, page: Page) -> None:
            self.send_response(page.status)
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(page.body)))
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.body)

        def address_string(self) -> str:
            return "a client"

        def log_message(self, *_: Any) -> None:
            """Log nothing, since scrapes and probes are frequent."""

    return Handler
