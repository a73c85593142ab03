"""A port for probes and metrics, in plaintext: it reports nothing else, and accepts no input.

GET /healthz    200 as long as the process does its work
GET /readyz     200 as long as it accepts requests
GET /metrics    metrics, for Prometheus
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from flux_ensemble.pages import Page, serve_port

_NO_PAGE = Page(HTTPStatus.NOT_FOUND, "text/plain", b"see /healthz, /readyz or /metrics\n")


class HealthPort:
    """A server in a thread, from its creation until it is closed.

    Args:
        port: 0 chooses a free one.
        registry: of the metrics.
        healthy, ready: return the problem; None if all is well.
        host: to listen on.

    Attributes:
        port: the actual one.

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
        def metrics() -> Page:
            return Page(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))

        def answer(check: Callable[[], str | None]) -> Page:
            wrong = check()
            code = HTTPStatus.OK if wrong is None else HTTPStatus.SERVICE_UNAVAILABLE
            return Page(code, "text/plain; charset=utf-8", f"{wrong or 'ok'}\n".encode())

        pages: dict[str, Callable[[], Page]] = {
            "/healthz": lambda: answer(healthy),
            "/readyz": lambda: answer(ready),
            "/metrics": metrics,
        }

        def give(path: str, headers: object) -> Page:
            page = pages.get(path)
            return _NO_PAGE if page is None else page()

        self._server = serve_port(host, port, give)
        self.port: int = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
