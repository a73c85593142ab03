"""A port for probes and metrics, in plaintext: it tells nothing but that, and takes nothing.

GET /healthz    200 as long as the process does its work
GET /readyz     200 as long as it takes requests
GET /metrics    what it counts, for Prometheus
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


class HealthPort:
    """Serves it in a thread, from now until it is closed.

    Args:
        port: 0 chooses a free one.
        registry: what is counted.
        healthy, ready: what is in the way; None if all is well.
        host: where to listen.

    Attributes:
        port: where it listens.

    Raises:
        OSError: the port is taken.
    """

    def __init__(
        self,
        port: int,
        registry: CollectorRegistry,
        *,
        healthy: Callable[[], str | None] = lambda: None,
        ready: Callable[[], str | None] = lambda: None,
        host: str = "",
    ) -> None:
        def metrics() -> tuple[int, str, bytes]:
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)

        def answer(check: Callable[[], str | None]) -> tuple[int, str, bytes]:
            wrong = check()
            code = HTTPStatus.OK if wrong is None else HTTPStatus.SERVICE_UNAVAILABLE
            return code, "text/plain; charset=utf-8", f"{wrong or 'ok'}\n".encode()

        pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/healthz": lambda: answer(healthy),
            "/readyz": lambda: answer(ready),
            "/metrics": metrics,
        }

        class Handler(BaseHTTPRequestHandler):
            # A client that sends nothing holds its thread no longer.
            timeout = 10

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                if page is None:
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                code, kind, body = page()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Probes are no news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
