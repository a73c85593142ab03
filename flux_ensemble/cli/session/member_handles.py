"""Connections to the members of an ensemble, for commands that send requests to these directly."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from flux_ensemble.cli.display.tables import members_of

if TYPE_CHECKING:
    from flux_ensemble.client import Client

#: Seconds within which a broker has to accept a connection.
ANSWER_SECONDS = 5.0


class MemberHandles:
    """Handles of the members of one ensemble, opened when they are needed.

    Args:
        client: of the service that has the ensemble.
        name: the ensemble.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._uris: dict[str, str | None] | None = None
        self._handles: dict[str, Any] = {}

    def handle(self, member: str) -> Any | None:
        """Return a handle of a member; None if it has ended, or does not answer."""
        if member not in self._handles:
            uri = self._known().get(member)
            self._handles[member] = None if uri is None else _opened(uri)
        return self._handles[member]

    def fate(self, member: str) -> str:
        """Return why there is no handle of a member."""
        return "cannot be reached" if member in self._known() else "has ended"

    def _known(self) -> dict[str, str | None]:
        """Return the URIs of the members that have not ended."""
        if self._uris is None:
            (status,) = self._client.status(self._name)["ensembles"]
            self._uris = {member["name"]: member.get("uri") for member in members_of(status)}
        return self._uris


def _opened(uri: str) -> Any | None:
    import flux

    from flux_ensemble.queues.nested.proxy import here

    local = here(uri)
    with contextlib.suppress(OSError, ValueError):
        return flux.Flux(uri) if local is None else _local(local)
    return None


def _local(uri: str) -> Any:
    """Open a handle of a broker of this machine, without waiting for a stopped one.

    Flux waits for a byte by which the broker accepts it (flux-core `librouter/usock.c`).
    """
    import flux

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(urlparse(uri).path)
        if not connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError
        connection.setblocking(True)
        handle = flux.Flux(f"fd://{connection.fileno()}")
        connection.detach()
    return handle
