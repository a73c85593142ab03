"""Mutual TLS: the files, what is in them, and which members a client certificate may act for.

A client's certificate names its members in URI entries of the subject alternative name:

    flux-ensemble://member/NAME        (NAME as the service has it, NAMESPACE/NAME too)

Both sides show a certificate of the same authority. Without TLS nobody shows anything, and
everybody may act for every member: the server then listens on loopback only, unless told.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509

#: What a URI that names a member starts with.
MEMBER_URI = "flux-ensemble://member/"

#: Key of the peer's URIs among the properties that gRPC knows of a connection.
_PEER_URI = "peer_uri"


class TlsError(Exception):
    """A file of keys or certificates is not usable; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one side, in PEM: its certificate, its key, and the authority's certificate.

    The certificate's file may hold intermediate certificates after the certificate.
    """

    cert: Path
    key: Path
    ca: Path

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server that asks every client for a certificate.

        Raises:
            TlsError: see `check`.
        """
        self.check()
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.cert.read_bytes())],
            root_certificates=self.ca.read_bytes(),
            require_client_auth=True,
        )

    def client_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client that shows its certificate.

        Raises:
            TlsError: see `check`.
        """
        self.check()
        return grpc.ssl_channel_credentials(
            root_certificates=self.ca.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.cert.read_bytes(),
        )

    def check(self) -> None:
        """Checks that the files can be read and fit together; gRPC would say it in no words.

        Raises:
            TlsError: one cannot be read, is not PEM, belongs to another key, or the
                certificate is not valid now.
        """
        for file in (self.cert, self.key, self.ca):
            try:
                file.read_bytes()
            except OSError as exc:
                raise TlsError(f"cannot read {str(file)!r}: {exc.strerror}") from exc
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # The password is for a key that has one: without it OpenSSL asks the terminal.
            context.load_cert_chain(self.cert, self.key, password=lambda: "")
        except ssl.SSLError as exc:
            raise TlsError(
                f"{str(self.cert)!r} and {str(self.key)!r} are not a certificate in PEM and its "
                f"key without a password: {_reason(exc)}"
            ) from exc
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as exc:
            raise TlsError(
                f"{str(self.ca)!r} is not the certificate of an authority in PEM: {_reason(exc)}"
            ) from exc
        certificate = self._certificate()
        if certificate.not_valid_before_utc.timestamp() > time.time():
            day = certificate.not_valid_before_utc.isoformat()
            raise TlsError(f"the certificate {str(self.cert)!r} is not valid before {day}")
        if certificate.not_valid_after_utc.timestamp() <= time.time():
            day = certificate.not_valid_after_utc.isoformat()
            raise TlsError(f"the certificate {str(self.cert)!r} has expired at {day}")

    def expires(self) -> float:
        """When the certificate expires, in epoch seconds."""
        return self._certificate().not_valid_after_utc.timestamp()

    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificates(self.cert.read_bytes())[0]


def members_named(context: Any) -> frozenset[str]:
    """The members that the client's certificate names, by the context of its request."""
    uris = [value.decode(errors="replace") for value in context.auth_context().get(_PEER_URI, ())]
    return frozenset(uri.removeprefix(MEMBER_URI) for uri in uris if uri.startswith(MEMBER_URI))


def _reason(exc: ssl.SSLError) -> str:
    return (exc.reason or str(exc)).lower().replace("_", " ")
