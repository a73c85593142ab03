"""Admission of calls: limits of their number and time, and the clusters that they may concern."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from grpc import StatusCode

from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.peers import Peer, identify

#: Bound of a real deadline: gRPC reports a more distant one for a call without a deadline.
_NO_DEADLINE_SECONDS = 10 * 365 * 86400.0


class CallKind(Enum):
    """The kind of a call. Calls of one kind share a limit."""

    REQUEST = "requests"
    STREAM = "streams"
    CHECK = "health checks"
    REFLECTION = "reflection streams"


@dataclass(frozen=True, slots=True)
class Bound:
    """Limits of the open calls of a kind: in total, per client, and per connection."""

    total: int
    client: int
    connection: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of calls and connections.

    `default_seconds` is the time of a call whose client sets no deadline, the time in which any
    request has to arrive, and the time of reflection and health checks. `most_seconds` is the
    longest time of any other request, and `stream_seconds` that of a stream. `send_seconds` is the
    longest time in which a client may receive one response. `message_bytes` bounds each message, in
    both directions.

    A new connection has `handshake_seconds` until it can carry requests. A connection without
    requests is closed after `idle_seconds`, and any connection accepts new requests for
    `connection_seconds`. Each connection is pinged after `ping_seconds`, and has `pong_seconds` to
    respond.
    """

    requests: Bound = Bound(128, 96, 64)
    streams: Bound = Bound(64, 32, 16)
    checks: Bound = Bound(64, 32, 16)
    reflections: Bound = Bound(32, 16, 8)
    default_seconds: float = 30.0
    most_seconds: float = 300.0
    stream_seconds: float = 86400.0
    send_seconds: float = 60.0
    message_bytes: int = 4 * 1024 * 1024
    connections: int = 512
    connections_of_client: int = 128
    handshake_seconds: float = 10.0
    idle_seconds: float = 300.0
    connection_seconds: float = 3600.0
    ping_seconds: float = 30.0
    pong_seconds: float = 20.0

    def bounds(self) -> dict[CallKind, Bound]:
        """Return the limits of the open calls, by kind."""
        return {
            CallKind.REQUEST: self.requests,
            CallKind.STREAM: self.streams,
            CallKind.CHECK: self.checks,
            CallKind.REFLECTION: self.reflections,
        }

    def seconds(self, kind: CallKind, requested: float | None) -> float:
        """Return how many seconds a call may take, given its client's deadline."""
        if kind is CallKind.STREAM:
            return self.stream_seconds if requested is None else min(requested, self.stream_seconds)
        most = self.most_seconds if kind is CallKind.REQUEST else self.default_seconds
        return self.default_seconds if requested is None else min(requested, most)


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """An admitted call.

    `deadline` is on the clock of `time.monotonic`, and `late` is the problem after it. `clusters`
    are those that the client's certificate names, and None without one. `by_client` is True if the
    deadline is the client's own, at which gRPC ends the call. `known` is True if the client has
    authenticated itself. `stranger` is True if its certificate is not of the owner that the service
    is for.
    """

    deadline: float
    late: RequestProblem
    clusters: frozenset[str] | None
    by_client: bool = False
    known: bool = True
    stranger: bool = False

    def check_known(self) -> None:
        """Check that the client has authenticated itself.

        Raises:
            Problem: UNAUTHENTICATED.
        """
        if not self.known:
            raise RequestProblem(
                StatusCode.UNAUTHENTICATED,
                "clients that do not say who they are can read the status and change sizes only: "
                "connect to the socket of the service ('grpc start --socket'), present its token "
                "('--token-file'), or show a certificate",
            )

    def check_cluster(self, name: str, canonical: Callable[[str], str], *, explicit: bool) -> None:
        """Check that the client may act for a cluster.

        Args:
            name: a canonical name.
            canonical: makes a name canonical.
            explicit: the request has the name; if not, the error must not reveal it to the client.

        Raises:
            Problem: PERMISSION_DENIED.
        """
        if self.stranger:
            raise RequestProblem(
                StatusCode.PERMISSION_DENIED,
                "the client's certificate is not of the owner that this service is for: it is of "
                "another one, maybe of the same name before, or of none",
            )
        if self.clusters is None or name in map(canonical, self.clusters):
            return
        what = f"cluster {name!r}" if explicit else "the only cluster of the service"
        named = ", ".join(sorted(self.clusters)) or "none"
        raise RequestProblem(
            StatusCode.PERMISSION_DENIED,
            f"the client's certificate does not name {what} (clusters it names: {named})",
        )


class Gate:
    """Counts and limits the open calls; thread-safe.

    Args:
        limits: the bounds.
        tls: clients on the network present certificates.
        token: authenticates clients in plaintext.
        owner: the uid that certificates have to name; None accepts any.
    """

    def __init__(
        self, limits: Limits, *, tls: bool, token: str | None = None, owner: str | None = None
    ) -> None:
        self._limits = limits
        self._owner = owner
        self._tls = tls
        self._token = token
        self._places = {kind: _Places(kind, bound) for kind, bound in limits.bounds().items()}

    @contextmanager
    def call(self, kind: CallKind, context: Any) -> Iterator[AdmittedCall]:
        """Admit a call while the context manager is open.

        Args:
            kind: of the call.
            context: gRPC's context of the call.

        Raises:
            Problem: RESOURCE_EXHAUSTED; UNAUTHENTICATED, the client's certificate is not valid any
                more, or its token is a wrong one.
        """
        peer = identify(context, tls=self._tls, token=self._token)
        with self._places[kind].taken(peer):
            yield self._call(kind, context, peer)

    def busy(self) -> set[str]:
        """Return the connections that have open calls."""
        return {name for places in self._places.values() for name in places.connections()}

    def _call(self, kind: CallKind, context: Any, peer: Peer) -> AdmittedCall:
        left = context.time_remaining()
        requested = left if left < _NO_DEADLINE_SECONDS else None
        seconds = self._limits.seconds(kind, requested)
        late = RequestProblem(StatusCode.DEADLINE_EXCEEDED, f"not done within {seconds:g} seconds")
        if peer.certificate is None:
            deadline = time.monotonic() + seconds
            return AdmittedCall(deadline, late, None, seconds == requested, peer.known)
        valid = peer.certificate.seconds_left()
        if valid < seconds:
            seconds, late = valid, peer.certificate.expired()
        return AdmittedCall(
            time.monotonic() + seconds,
            late,
            peer.certificate.clusters,
            by_client=seconds == requested,
            stranger=self._owner is not None and self._owner not in peer.certificate.owners,
        )


class _Places:
    """The open calls of one kind."""

    def __init__(self, kind: CallKind, bound: Bound) -> None:
        self._what = kind.value
        self._bound = bound
        # Reentrant: an abandoned call is released when its generator is collected, in any thread.
        self._lock = threading.RLock()
        self._total = 0
        self._clients: Counter[Hashable] = Counter()
        self._connections: Counter[str] = Counter()

    @contextmanager
    def taken(self, peer: Peer) -> Iterator[None]:
        """Take a place, and release it at the end.

        Raises:
            Problem: RESOURCE_EXHAUSTED.
        """
        with self._lock:
            self._check(peer)
            self._total += 1
            self._clients[peer.client] += 1
            self._connections[peer.connection] += 1
        try:
            yield
        finally:
            with self._lock:
                self._total -= 1
                _less(self._clients, peer.client)
                _less(self._connections, peer.connection)

    def connections(self) -> list[str]:
        """Return the connections that have open calls."""
        with self._lock:
            return list(self._connections)

    def _check(self, peer: Peer) -> None:
        bound, client, connection = self._bound, peer.client, peer.connection
        for who, taken, limit, why in (
            ("the service", self._total, bound.total, "it takes"),
            ("this client", self._clients[client], bound.client, "it may have"),
            ("this connection", self._connections[connection], bound.connection, "it may have"),
        ):
            if taken >= limit:
                raise RequestProblem(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"{who} has {limit} {self._what} open, which is all {why}: try again later",
                )


def _less(counter: Counter[Any], key: Any) -> None:
    """Decrement a count, and drop it at zero."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
