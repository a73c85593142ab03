"""The peer of a call: its connection, client and certificate."""

from __future__ import annotations

import datetime
import functools
import ipaddress
import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from grpc import StatusCode

from flux_ensemble.k8s.grpc.clusters import CLUSTER_NAME
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.tls import MEMBER_URI, OWNER_URI
from flux_ensemble.tokens import presents

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

#: An address and a port.
Endpoint = tuple[IPAddress, int]

#: Key of the peer's certificate among gRPC's properties of a connection.
_PEER_PEM = "x509_pem_cert"

#: Prefix of gRPC's names of connections by a UNIX socket.
_UNIX = "unix:"

#: Key of the token in the metadata of a call.
AUTHORIZATION = "authorization"

#: An IPv6 network is one client: whoever has an address in it mostly has all of them.
_IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parts of a client's certificate that the service uses.

    `clusters` are the names in its URIs, and `owners` the uids of its owner. `t_end` is when it
    expires, in epoch seconds.
    """

    clusters: frozenset[str]
    t_end: float
    owners: frozenset[str] = frozenset()

    def seconds_left(self) -> float:
        """Return the seconds until it expires."""
        return self.t_end - time.time()

    def expired(self) -> RequestProblem:
        """Return the problem to report once it has expired."""
        end = datetime.datetime.fromtimestamp(self.t_end, datetime.UTC).isoformat()
        return RequestProblem(
            StatusCode.UNAUTHENTICATED, f"the client's certificate has expired at {end}"
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a call.

    `connection` is its address with the port. `client` is equal for connections that share the
    limits of one client: those whose certificates name the same clusters, or without TLS those of
    one address. `known` is True if the peer has authenticated itself: by a certificate, by the
    token, or by the socket that only the user can connect to.
    """

    connection: str
    client: Hashable
    certificate: Certificate | None
    known: bool = True


def identify(context: Any, *, tls: bool, token: str | None = None) -> Peer:
    """Return the other end of a call.

    Args:
        context: gRPC's context of the call.
        tls: clients on the network present certificates.
        token: authenticates clients in plaintext.

    Raises:
        Problem: UNAUTHENTICATED, its certificate has expired, or cannot be read; or it presents a
            wrong token.
    """
    connection = context.peer()
    if connection.startswith(_UNIX):
        return Peer(connection, _UNIX, None)
    if not tls:
        end = endpoint(connection)
        client = None if end is None else client_of(end[0])
        return Peer(connection, client, None, known=_presents(context, token))
    certificate = read_certificate(b"".join(context.auth_context().get(_PEER_PEM, ())))
    if certificate is None:
        raise RequestProblem(StatusCode.UNAUTHENTICATED, "the client's certificate cannot be read")
    # gRPC checks the certificate when the connection is made, which may be long ago.
    if certificate.seconds_left() <= 0:
        raise certificate.expired()
    return Peer(connection, certificate.clusters, certificate)


def _presents(context: Any, token: str | None) -> bool:
    """Return True if a call presents the token of the service.

    Raises:
        Problem: UNAUTHENTICATED, it presents a wrong one.
    """
    given = dict(context.invocation_metadata()).get(AUTHORIZATION)
    if token is None or given is None:
        return False
    if isinstance(given, str) and presents(given, token):
        return True
    raise RequestProblem(
        StatusCode.UNAUTHENTICATED, "the client presents another token than that of the service"
    )


@functools.lru_cache(maxsize=512)
def read_certificate(pem: bytes) -> Certificate | None:
    """Read the certificate of a client; return None if it cannot be read.

    A URI that continues after the name of a cluster, with whatever it may be, names none. gRPC
    itself returns the URI up to the first NUL, so the certificate is read here.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        t_end = certificate.not_valid_after_utc.timestamp()
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None
    named, owners = (
        frozenset(uri.removeprefix(start) for uri in uris if uri.startswith(start))
        for start in (MEMBER_URI, OWNER_URI)
    )
    return Certificate(frozenset(filter(CLUSTER_NAME.fullmatch, named)), t_end, owners)


def read_address(host: str) -> IPAddress:
    """Parse an address; an IPv4 address in the form of IPv6 is returned as IPv4.

    Raises:
        ValueError: the text is no address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def client_of(address: IPAddress) -> Hashable:
    """Return the key of a client, the same for all of its addresses."""
    if isinstance(address, ipaddress.IPv6Address):
        return ipaddress.ip_network((address, _IPV6_PREFIX), strict=False)
    return address


def endpoint(connection: str) -> Endpoint | None:
    """Parse gRPC's name for a connection, such as "ipv6:%5B2001:db8::1%5D:50000".

    Returns:
        Address and port; None if the name has none, as for a closed connection.
    """
    host, _, port = unquote(connection).partition(":")[2].rpartition(":")
    try:
        return read_address(host.strip("[]")), int(port)
    except ValueError:
        return None
