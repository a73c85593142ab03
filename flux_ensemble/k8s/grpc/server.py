"""The server: both protocols, health and reflection, on one port.

    access = Access(host="localhost", port=50051)
    await serve(clusters, DryRun(), access, ready=print, stop=asyncio.Event())

Requests are handled on one event loop; blocking calls run on lanes. Only the thread of a call waits
for its client.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import grpc

from flux_ensemble.files import private_socket
from flux_ensemble.k8s.grpc.admission import Gate, Limits
from flux_ensemble.k8s.grpc.backend import Backend
from flux_ensemble.k8s.grpc.calls import Calls, Method, Patience
from flux_ensemble.k8s.grpc.clusters import Clusters
from flux_ensemble.k8s.grpc.ensemble_service import TypedService
from flux_ensemble.k8s.grpc.health_reflection import Health, Reflection
from flux_ensemble.k8s.grpc.operations import Operations
from flux_ensemble.k8s.grpc.peers import Endpoint, client_of, endpoint, read_address
from flux_ensemble.k8s.grpc.predecessors import PredecessorService
from flux_ensemble.k8s.grpc.tls import Reloaded, TlsFiles

#: Seconds between two counts of the connections.
_INTERVAL_SECONDS = 1.0

_OPEN_FILES = "/proc/self/fd"


class Connections:
    """The connections to the server: each client may have some; gRPC limits only their total.

    gRPC does not expose its connections, so they are found among the open files of the process.
    Excess connections are shut down, as if their clients had left.

    Args:
        port: of the server.
        limit: number of connections that a client may have.
        busy: returns gRPC's names of the connections that have open calls.
    """

    def __init__(self, port: int, limit: int, busy: Callable[[], set[str]]) -> None:
        self._port = port
        self._limit = limit
        self._busy = busy

    async def watch(self) -> None:
        """Close excess connections until cancelled, those without calls first."""
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            # If the process may open no more files, the connections cannot be read for now.
            with suppress(OSError):
                if len(os.listdir(_OPEN_FILES)) > self._limit:
                    self._close_surplus()

    def _close_surplus(self) -> None:
        busy = set(map(endpoint, self._busy()))
        clients: dict[Hashable, list[Endpoint]] = defaultdict(list)
        with _connections(self._port) as connections:
            for end in connections:
                clients[client_of(end[0])].append(end)
            for ends in clients.values():
                ends.sort(key=busy.__contains__)
                for end in ends[: max(0, len(ends) - self._limit)]:
                    with suppress(OSError):
                        connections[end].shutdown(socket.SHUT_RDWR)


@contextmanager
def _connections(port: int) -> Iterator[dict[Endpoint, socket.socket]]:
    """Yield the connections to a port of this process, by the client's end."""
    connections: dict[Endpoint, socket.socket] = {}
    with ExitStack() as stack:
        for name in os.listdir(_OPEN_FILES):
            connection = _socket(int(name))
            if connection is None:
                continue
            stack.enter_context(connection)
            # The listening socket has no other end.
            with suppress(OSError):
                host, far = connection.getpeername()[:2]
                if connection.getsockname()[1] == port:
                    connections[read_address(host), far] = connection
        yield connections


def _socket(descriptor: int) -> socket.socket | None:
    """Return a network socket by its descriptor; None for anything else, or if it is closed."""
    with suppress(OSError):
        copy = os.dup(descriptor)
        try:
            connection = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            return None
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            return connection
        connection.close()
    return None


#: Number of records of one place in the program that are logged per time span, in seconds.
_RECORDS = 10
_SECONDS = 60.0


class LogLimit(logging.Filter):
    """A filter that passes a few records per place and minute, each as one line, no traceback.

    The first record of the next minute has the number of suppressed ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a record is logged."""
        place = record.pathname, record.lineno
        begin, count = self._counts.get(place, (time.monotonic(), 0))
        left_out = 0
        if time.monotonic() - begin > _SECONDS:
            left_out = max(0, count - _RECORDS)
            begin, count = time.monotonic(), 0
        self._counts[place] = begin, count + 1
        if count >= _RECORDS:
            return False
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text} ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        more = f"; {left_out} more like it were left out" if left_out else ""
        record.msg, record.args = _line(text) + more, ()
        record.exc_info = record.exc_text = None
        return True


def _line(text: str) -> str:
    """Return the text as one line of bounded length."""
    return text[:500].encode(errors="backslashreplace").decode().replace("\n", " ")


#: Seconds for which open requests may continue when the server stops.
_GRACE_SECONDS = 5.0

#: Threads for calls beyond the limits, to refuse them.
_SPARE_THREADS = 16

#: Number of calls that may wait for such a thread. gRPC itself refuses more, with its own sentence.
_WAITING_CALLS = 256

#: Number of calls of one connection that gRPC accepts at once; a client holds back more. It is well
#: above the limit of a connection: gRPC is late to notice that a call has ended, and aborts calls
#: that arrive too early.
_CALLS_OF_CONNECTION = 256

#: The full names of the two services.
SERVICES = (TypedService.name, PredecessorService.name)

#: Loggers of gRPC for invalid input, which clients can trigger at any rate.
_GRPC_LOGS = ("grpc._server", "grpc._common", "grpc._cython.cygrpc")
_SPARING = LogLimit()


class ServerError(Exception):
    """The server cannot start; the text is one sentence."""


def is_loopback(host: str) -> bool:
    """Return True if a host can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address of the server, and the permissions of its clients.

    Attributes:
        host: a name or address of this machine.
        port: 0 chooses a free one; None listens on none.
        tls: the server's files; None is plaintext.
        insecure: allows plaintext on a host that other machines can connect to.
        allow_load: authenticated clients may load documents.
        socket: the path of a UNIX socket to listen at, too, which only the user can connect to.
        token: authenticates clients that connect in plaintext.
        owner: the uid that clients' certificates have to name; None accepts any.
    """

    host: str = "localhost"
    port: int | None
    tls: TlsFiles | None = None
    insecure: bool = False
    allow_load: bool = False
    socket: Path | None = None
    token: str | None = None
    owner: str | None = None

    @property
    def address(self) -> str:
        """HOST:PORT in the form of gRPC, if there is a port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def check(self) -> None:
        """Check that plaintext is allowed, if it is used.

        Raises:
            ServerError: it is not.
        """
        if self.tls is not None:
            return
        if self.port is not None and not self.insecure and not is_loopback(self.host):
            raise ServerError(
                f"host {self.host!r} can be reached from other machines: give --tls-cert, "
                "--tls-key and --tls-ca, or write out --insecure"
            )
        if self.allow_load and self.socket is None and self.token is None:
            raise ServerError(
                "--allow-load is for clients that say who they are: give --socket, --token-file, "
                "or --tls-cert, --tls-key and --tls-ca"
            )


async def serve(
    clusters: Clusters,
    backend: Backend | None,
    access: Access,
    *,
    ready: Callable[[int | None], None],
    stop: asyncio.Event,
    limits: Limits | None = None,
) -> None:
    """Serve until `stop` is set.

    Args:
        clusters: the table of clusters.
        backend: changes their size; None if nothing does.
        access: the address, and the permissions.
        ready: called with the port, if there is one, when the server answers.
        stop: ends the server; open requests may continue for some seconds.
        limits: bounds of the requests; default: `Limits()`.

    Raises:
        ServerError: plaintext is not allowed there, or the port is taken.
        TlsError: the files are not usable.
    """
    access.check()
    limits = limits or Limits()
    # Only once, however often this is called: a logger holds a filter only once.
    for name in _GRPC_LOGS:
        logging.getLogger(name).addFilter(_SPARING)
    files = None if access.tls is None else Reloaded(access.tls)
    credentials = None if files is None else files.server_credentials()
    operations = Operations(clusters, backend, files, allow_load=access.allow_load)
    health = Health(SERVICES)
    methods = {
        **TypedService(operations).methods(),
        **PredecessorService(operations).methods(),
        **health.methods(),
        **Reflection(SERVICES).methods(),
    }
    gate = Gate(limits, tls=access.tls is not None, token=access.token, owner=access.owner)
    async with _server(methods, limits, gate) as server, AsyncExitStack() as stack:
        bound = None
        if access.socket is not None:
            _listen_unix(server, access.socket)
            stack.callback(access.socket.unlink, missing_ok=True)
        if access.port is not None:
            bound = _listen(server, access.address, credentials)
        server.start()
        if bound is not None:
            connections = Connections(bound, limits.connections_of_client, gate.busy)
            watch = asyncio.create_task(connections.watch())
            stack.callback(watch.cancel)
        ready(bound)
        try:
            await stop.wait()
        finally:
            health.stop()
    operations.close()


def _listen(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Make the server listen at an address; return the port.

    Raises:
        ServerError: it cannot listen there.
    """
    # Both raise RuntimeError if the port cannot be had.
    try:
        if credentials is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, credentials))
    except RuntimeError as exc:
        # gRPC raises the same for keys of a kind that it cannot use.
        also = "" if credentials is None else ", or gRPC cannot use the key or the certificate"
        raise ServerError(
            f"cannot listen at {address}: the port is taken, or the host is not this "
            f"machine's{also}"
        ) from exc


def _listen_unix(server: grpc.Server, path: Path) -> None:
    """Make the server listen at a UNIX socket that only the user can connect to.

    Raises:
        ServerError: it cannot listen there, or others could replace the socket.
    """
    try:
        with private_socket(path):
            server.add_insecure_port(f"unix:{quote(str(path.absolute()))}")
    except OSError as exc:
        raise ServerError(f"cannot listen at {str(path)!r}: {exc.strerror or exc}") from exc
    except RuntimeError as exc:
        raise ServerError(
            f"cannot listen at {str(path)!r}: the path of a UNIX socket has at most 107 bytes"
        ) from exc


@asynccontextmanager
async def _server(
    methods: Mapping[str, Method], limits: Limits, gate: Gate
) -> AsyncIterator[grpc.Server]:
    """Yield gRPC's server for these methods; at the end, stop it and its threads."""
    most = sum(bound.total for bound in limits.bounds().values()) + _SPARE_THREADS
    pool = ThreadPoolExecutor(most, "call")
    patience = Patience()
    calls = Calls(methods, gate, limits, patience, asyncio.get_running_loop())
    server = grpc.server(
        pool,
        handlers=[calls],
        options=_options(limits).items(),
        maximum_concurrent_rpcs=most + _WAITING_CALLS,
    )
    watch = asyncio.create_task(patience.watch())
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop(_GRACE_SECONDS).wait)
        await asyncio.to_thread(pool.shutdown)
        watch.cancel()


def _options(limits: Limits) -> dict[str, int]:
    """Return gRPC's options; times in milliseconds."""
    # The other half is for connections to Flux and to a back end.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    connections = limits.connections if files < 0 else min(limits.connections, files // 2)
    return {
        "grpc.max_receive_message_length": limits.message_bytes,
        "grpc.max_send_message_length": limits.message_bytes,
        # Otherwise a second server on the port would receive half of the requests.
        "grpc.so_reuseport": 0,
        "grpc.max_concurrent_streams": _CALLS_OF_CONNECTION,
        "grpc.max_allowed_incoming_connections": connections,
        "grpc.server_handshake_timeout_ms": round(1000 * limits.handshake_seconds),
        "grpc.max_connection_idle_ms": round(1000 * limits.idle_seconds),
        "grpc.max_connection_age_ms": round(1000 * limits.connection_seconds),
        # Open calls continue then for as long as any call may.
        "grpc.max_connection_age_grace_ms": round(1000 * limits.stream_seconds),
        "grpc.keepalive_time_ms": round(1000 * limits.ping_seconds),
        "grpc.keepalive_timeout_ms": round(1000 * limits.pong_seconds),
        # The same for newer releases of gRPC, which otherwise wait for a minute.
        "grpc.http2.ping_timeout_ms": round(1000 * limits.pong_seconds),
        "grpc.keepalive_permit_without_calls": 1,
        # Idle streams are pinged as often as any.
        "grpc.http2.max_pings_without_data": 0,
        # Otherwise a client may send 4 MiB on each call before the server has asked for it.
        "grpc.http2.bdp_probe": 0,
    }
