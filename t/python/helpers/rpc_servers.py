"""A gRPC server of ours in a thread of the test, and back ends that misbehave."""

from __future__ import annotations

import asyncio
import errno
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from patience import PATIENCE

from flux_ensemble.client import EnsembleError
from flux_ensemble.k8s.grpc.admission import Limits
from flux_ensemble.k8s.grpc.backend import Backend, Grant, Report, Size
from flux_ensemble.k8s.grpc.client import RpcClient
from flux_ensemble.k8s.grpc.clusters import Cluster, Clusters
from flux_ensemble.k8s.grpc.server import Access, serve

#: The token of the servers here: clients in plaintext that present it may do anything.
TOKEN = "a token for all of the tests"
AUTHORIZATION = ("authorization", f"Bearer {TOKEN}")


class _Presenting(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Presents the token with each call of a channel."""

    def _intercept(self, proceed: Any, details: Any, request: Any) -> Any:
        more = {"metadata": [*(details.metadata or ()), AUTHORIZATION]}
        return proceed(details._replace(**more), request)

    intercept_unary_unary = intercept_unary_stream = _intercept
    intercept_stream_unary = intercept_stream_stream = _intercept


def known_channel(target: str) -> grpc.Channel:
    """A connection in plaintext of a client that presents the token."""
    return grpc.intercept_channel(grpc.insecure_channel(target), _Presenting())


def known_client(target: str, **options: Any) -> RpcClient:
    """A client in plaintext that presents the token; for the options see `RpcClient`."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(TOKEN)
        file.flush()
        return RpcClient(target, token_file=file.name, **options)


def table(
    names: Sequence[str], backend: Backend | None = None, *, has_flux: bool = False
) -> Clusters:
    """Clusters, without Flux instances unless there is something in their place."""
    clusters = [Cluster(name, has_flux=has_flux) for name in names]
    return Clusters(clusters, backend.canonical if backend else str, discovered=False)


@contextmanager
def serving(
    backend: Backend | None,
    clusters: Clusters | Sequence[str] = ("alpha",),
    *,
    host: str = "localhost",
    port: int | None = 0,
    limits: Limits | None = None,
    **options: Any,
) -> Iterator[str]:
    """Runs a server; gives HOST:PORT.

    Args:
        backend: what changes sizes.
        clusters: the table of clusters, or names of clusters without Flux.
        host: where to listen.
        port: 0 chooses a free one.
        limits: bounds of the requests.
        options: more of `Access`.
    """
    known = clusters if isinstance(clusters, Clusters) else table(clusters, backend)
    started = threading.Event()
    state: dict[str, Any] = {}

    async def main() -> None:
        state["stop"], state["loop"] = asyncio.Event(), asyncio.get_running_loop()

        def ready(bound: int | None) -> None:
            state["port"] = bound
            started.set()

        access = Access(**{"host": host, "port": port, "token": TOKEN, **options})
        await serve(known, backend, access, ready=ready, stop=state["stop"], limits=limits)

    def run() -> None:
        try:
            asyncio.run(main())
        except Exception as exc:
            state["error"] = exc
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(PATIENCE)
    try:
        if "error" in state:
            raise state["error"]
        yield f"localhost:{state['port']}"
    finally:
        if "error" not in state:
            state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Held:
    """A back end whose calls wait until `release` is set; `entered` counts them."""

    name = "held"
    discovers = False

    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Semaphore(0)

    def canonical(self, cluster: str) -> str:
        return cluster

    def size(self, cluster: str, deadline: float) -> Size:
        self.entered.release()
        assert self.release.wait(PATIENCE)
        return Size(1, 1, 9)

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        self.size(cluster, deadline)
        return Grant(1, 2)

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        self.size(cluster, deadline)


class Failing:
    """A back end that raises the given exceptions, one in each call, and then works."""

    name = "failing"
    discovers = False

    def __init__(self, *exceptions: Exception) -> None:
        self.exceptions = list(exceptions)
        self.nodes = 1

    def canonical(self, cluster: str) -> str:
        return cluster

    def size(self, cluster: str, deadline: float) -> Size:
        if self.exceptions:
            raise self.exceptions.pop(0)
        return Size(self.nodes, 1, 9)

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        before = self.size(cluster, deadline).nodes
        self.nodes = to if to is not None else before + (by or 0)
        return Grant(before, self.nodes)

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        self.size(cluster, deadline)


class Log:
    """A connection to a Flux instance, in the place of `instances.Client`: all it has is logs.

    The log of the ensemble "quiet" has one entry and goes on; that of "busy" has entries
    without end. Any other request fails with the text in `refusal`.
    """

    refusal = "no"

    def __init__(self, *, uri: str | None) -> None:
        self._left = -1

    def send(self, op: str, payload: Mapping[str, Any], *, stream: bool = False) -> Log:
        if op != "log":
            raise EnsembleError(errno.EINVAL, self.refusal)
        self._left = 1 if payload["name"] == "quiet" else -1
        return self

    def wait_for(self, seconds: float) -> None:
        if not self._left:
            time.sleep(seconds)
            raise OSError(errno.ETIMEDOUT, "nothing")

    def get(self) -> dict[str, Any]:
        self._left -= 1
        return {"timestamp": 1.0, "name": "entry", "context": {"text": "x" * 1000}}

    def reset(self) -> None:
        """The next entry may come."""

    def has_died(self, t_sent: float) -> bool:
        return False
