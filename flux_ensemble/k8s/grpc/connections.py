"""Limits the connections of each client; gRPC limits only their total.

gRPC does not expose its connections, so they are found among the open files of the process.
Excess connections are shut down, as if their clients had left.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from flux_ensemble.k8s.grpc.peers import Endpoint, client_of, endpoint, read_address

#: Seconds between two counts of the connections.
_INTERVAL_SECONDS = 1.0

_OPEN_FILES = "/proc/self/fd"


class Connections:
    """The connections to the server.

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
