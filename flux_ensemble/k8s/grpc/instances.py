"""Requests to the ensemble services in clusters' Flux instances.

A Flux handle blocks and belongs to one thread. So each instance has a lane of a few threads with a
handle each, and each log stream has a thread of its own.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import AsyncGenerator
from typing import Any

from grpc import StatusCode

from flux_ensemble.bindings import BindingsError
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.errors import failure
from flux_ensemble.client.reconnect import LOOK_INTERVAL
from flux_ensemble.client.responses import Entry
from flux_ensemble.k8s.grpc.clusters import Cluster
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.threads import Lane, LaneFull

#: Requests to one instance that run at once, and that may wait. Together they are more than one
#: client may have open, so that a client cannot keep the others out.
_THREADS = 4
_WAITING = 124

#: Seconds after which a reader of a log notices at the latest that it is closed.
_SLICE_SECONDS = 0.5

#: Number of closed streams whose thread has not ended, because Flux does not return. Healthy
#: streams end their thread within a slice.
_LEFT = 64

#: Errors after which the connection is lost.
_LOST = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)


class ClusterInstance:
    """The Flux instance of a cluster.

    Args:
        cluster: one that has an instance.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lane = Lane(f"cluster {cluster.name!r}", threads=_THREADS, waiting=_WAITING)
        self._local = threading.local()
        # Generation of the connections: a lost one invalidates those of the other threads.
        self._generation = 0
        self._left: list[Lane] = []

    async def call(self, op: str, payload: dict[str, Any], deadline: float) -> Any:
        """Send a request to the ensemble service and return the response.

        Args:
            op: the topic without "ensemble."
            payload: the request; keys whose value is None are left out.
            deadline: when to give up, on the clock of `time.monotonic`.

        Raises:
            EnsembleError: the service refuses it.
            LaneFull: too many requests are under way.
            Problem: UNAVAILABLE, the instance cannot be reached; DEADLINE_EXCEEDED.
        """
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await self._lane.run(lambda: self.ask(op, payload, deadline))
        except TimeoutError:
            raise self._late(op) from None

    async def log(
        self, ensemble: str, *, follow: bool, events: bool
    ) -> AsyncGenerator[Entry, None]:
        """Yield the entries of an ensemble's eventlog; closing the iterator ends the request.

        Raises:
            EnsembleError: the service refuses it, or went away.
            LaneFull: too many streams of the instance hang.
            Problem: UNAVAILABLE, the instance cannot be reached.
        """
        self._left = [lane for lane in self._left if lane.busy]
        if len(self._left) >= _LEFT:
            raise LaneFull(f"cluster {self._cluster.name!r} has {_LEFT} streams that hang")
        reader = _LogReader(self, {"name": ensemble, "follow": follow, "events": events})
        lane = Lane(f"log of cluster {self._cluster.name!r}", threads=1, waiting=0)
        try:
            while (entry := await lane.run(reader.next)) is not None:
                yield entry
        finally:
            reader.closed = True
            lane.close()
            self._left.append(lane)

    def close(self) -> None:
        """End the threads, and with them the connections."""
        self._lane.close()

    def connect(self) -> Client:
        """Connect to the instance, for the calling thread.

        Raises:
            Problem: UNAVAILABLE.
        """
        try:
            return Client(uri=self._cluster.uri)
        except (EnsembleError, BindingsError) as exc:
            raise RequestProblem(
                StatusCode.UNAVAILABLE, f"cluster {self._cluster.name!r} cannot be reached: {exc}"
            ) from exc

    def ask(self, op: str, payload: dict[str, Any], deadline: float) -> Any:
        """Do as `call`, in a thread that may block, with a connection of that thread.

        Raises:
            EnsembleError, Problem: as `call`.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._late(op)
        generation, client = getattr(self._local, "connection", (-1, None))
        if client is None or generation != self._generation:
            generation, client = self._generation, self.connect()
            self._local.connection = (generation, client)
        try:
            future = client.send(op, payload)
            future.wait_for(left)
            return future.get()
        except OSError as exc:
            if exc.errno == errno.ETIMEDOUT:
                # The response may still arrive: it is dropped with the connection.
                self._local.connection = (-1, None)
                raise self._late(op) from exc
            if exc.errno in _LOST:
                self._generation = max(self._generation, generation + 1)
            if isinstance(exc, EnsembleError):
                raise
            raise failure(exc, op) from exc

    def _late(self, op: str) -> RequestProblem:
        return RequestProblem(
            StatusCode.DEADLINE_EXCEEDED,
            f"cluster {self._cluster.name!r} did not answer the request {op!r} in time",
        )


class _LogReader:
    """A reader of one log; `next` is called from one thread, `closed` is set from another."""

    def __init__(self, instance: ClusterInstance, payload: dict[str, Any]) -> None:
        self.closed = False
        self._instance = instance
        self._payload = payload
        self._client: Client | None = None
        self._future: Any = None
        self._t_sent = 0.0

    def next(self) -> Entry | None:
        """Return the next entry; None at the end of the log, and once the reader is closed."""
        if self._client is None:
            self._client = self._instance.connect()
            self._t_sent = time.monotonic()
            self._future = self._client.send("log", self._payload, stream=True)
        t_look = time.monotonic() + LOOK_INTERVAL
        while not self.closed:
            try:
                self._future.wait_for(_SLICE_SECONDS)
                entry: Entry = self._future.get()
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    return None
                if exc.errno != errno.ETIMEDOUT:
                    raise failure(exc, "log") from exc
            else:
                self._future.reset()
                return entry
            if time.monotonic() >= t_look:
                # A request that a process received before it died is never answered.
                if self._client.has_died(self._t_sent) and not self._future.is_ready():
                    raise failure(OSError(errno.EHOSTUNREACH, ""), "log")
                t_look = time.monotonic() + LOOK_INTERVAL
        return None
