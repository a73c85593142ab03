"""Mutual TLS: the files, their contents, and the clusters that a client certificate may act for.

A client's certificate names its clusters in URI entries of the subject alternative name:

    flux-ensemble://member/NAME        (NAME as in the service, NAMESPACE/NAME too)
    flux-ensemble://owner/UID          (its owner, for a service that is limited to one owner)

Both sides have certificates of the same authority. Without TLS every client may act for every
cluster, so the server listens on loopback only, unless insecure access is allowed.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from flux_ensemble.files import in_memory, read

log = logging.getLogger(__name__)

#: Mark by which a changed file is recognized: inode, size, time of change.
_Mark = tuple[int, int, int] | None


class Reloaded:
    """The files of one side, kept current while they are in use; thread-safe.

    Kubernetes replaces the files of a Secret some time after the Secret has changed, and a person
    who renews certificates by hand replaces one file after the other. So new contents count only
    if they fit together (`TlsFiles.check`); until then the previous contents stay in use.

    Args:
        files: their paths.

    Raises:
        TlsError: they cannot be used.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._marks = self._look()
        self._contents = files.read()

    @property
    def t_expires(self) -> float:
        """The time when the first of the certificates expires, in epoch seconds."""
        return self._contents.t_expires

    def renewed(self) -> Contents | None:
        """Return the contents, if they have changed since the last call and can be used."""
        with self._lock:
            marks = self._look()
            if marks == self._marks:
                return None
            try:
                contents = self._files.read()
            except TlsError as exc:
                log.warning("the certificates in use stay in use: %s", exc)
                return None
            self._marks = marks
            if contents == self._contents:
                return None
            self._contents = contents
            log.info("the certificate %s has been read again", self._files.cert)
            return contents

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials of a server, for which the files are checked at each connection."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._contents), self._fetch, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials of a client with the latest contents."""
        contents = self._contents
        return grpc.ssl_channel_credentials(
            root_certificates=contents.ca,
            private_key=contents.key,
            certificate_chain=contents.cert,
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        contents = self.renewed()
        return None if contents is None else _configuration(contents)

    def _look(self) -> list[_Mark]:
        return [_mark(file) for file in (self._files.cert, self._files.key, self._files.ca)]


def _configuration(contents: Contents) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(contents.key, contents.cert)], root_certificates=contents.ca
    )


def _mark(file: os.PathLike[str]) -> _Mark:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        # The reason is reported when the file is read.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


#: Prefix of a URI that names a cluster.
MEMBER_URI = "flux-ensemble://member/"

#: Prefix of a URI that names the owner of the client.
OWNER_URI = "flux-ensemble://owner/"

#: Largest file of keys or certificates, in bytes.
_LARGEST = 1024 * 1024


class TlsError(Exception):
    """A file of keys or certificates is not usable; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one side, in PEM: its certificate, its key, and the authority's certificate.

    The certificate's file may hold intermediate certificates after the certificate, and the
    authority's may hold several authorities.
    """

    cert: Path
    key: Path
    ca: Path

    def check(self) -> None:
        """Check that the files can be read and fit together, because gRPC's errors do not tell.

        Raises:
            TlsError: a file cannot be read, is not PEM, or belongs to another key; a certificate
                that is needed is not valid now; or that of an authority must not sign others.
        """
        self.read()

    def read(self) -> Contents:
        """Return the contents of the files, once they have been checked.

        Raises:
            TlsError: see `check`.
        """
        contents = self._read()
        now = datetime.datetime.now(datetime.UTC)
        for number, certificate in enumerate(contents.authorities, 1):
            if not _may_sign(certificate):
                raise TlsError(
                    f"{str(self.ca)!r} is not the certificate of an authority in PEM: "
                    f"certificate {number} in it must not sign others"
                )
        first, *others = contents.chain()
        _check_time(f"the certificate {str(self.cert)!r}", first, now)
        for certificate in others:
            subject = certificate.subject.rfc4514_string()[:80]
            _check_time(
                f"the certificate of {subject!r}, which {str(self.cert)!r} needs,", certificate, now
            )
        latest = max(contents.authorities, key=lambda certificate: _preference(certificate, now))
        _check_time(f"the certificate {str(self.ca)!r}", latest, now)
        return contents

    def _read(self) -> Contents:
        """Read the files.

        Each is read once: whatever happens to the files, the checked contents are the ones in use.
        """
        cert, key, ca = (_contents(file) for file in (self.cert, self.key, self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        unusable = (
            f"{str(self.cert)!r} and {str(self.key)!r} are not a certificate in PEM and its key "
            "without a password"
        )
        no_authority = f"{str(self.ca)!r} is not the certificate of an authority in PEM"
        try:
            with in_memory(cert) as cert_file, in_memory(key) as key_file:
                # The password is for keys that have one: without it OpenSSL prompts on the
                # terminal.
                context.load_cert_chain(cert_file, key_file, password=lambda: "")
        except ssl.SSLError as exc:
            raise TlsError(f"{unusable}: {_reason(exc)}") from exc
        try:
            with in_memory(ca) as ca_file:
                context.load_verify_locations(ca_file)
        except ssl.SSLError as exc:
            raise TlsError(f"{no_authority}: {_reason(exc)}") from exc
        return Contents(
            cert, key, ca, _certificates(cert, unusable), _certificates(ca, no_authority)
        )


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of the files as bytes, and the certificates in them."""

    cert: bytes
    key: bytes
    ca: bytes
    certificates: tuple[x509.Certificate, ...]
    authorities: tuple[x509.Certificate, ...]

    @property
    def t_expires(self) -> float:
        """The time when the first of the needed certificates expires, in epoch seconds.

        That is the earliest end of the certificate's chain, or the end of the last authority.
        """
        ends = [certificate.not_valid_after_utc for certificate in self.chain()]
        ends.append(max(authority.not_valid_after_utc for authority in self.authorities))
        return min(ends).timestamp()

    def chain(self) -> list[x509.Certificate]:
        """Return the certificate, its signer, and so on, as far as the files have them."""
        now = datetime.datetime.now(datetime.UTC)
        chain = [self.certificates[0]]
        while signers := [
            signer
            for signer in (*self.certificates[1:], *self.authorities)
            if signer not in chain and _has_signed(signer, chain[-1])
        ]:
            chain.append(max(signers, key=lambda signer: _preference(signer, now)))
        return chain


def _contents(file: Path) -> bytes:
    """Read a file that belongs to the user or to root; see `files.read`."""
    try:
        return read(file, limit=_LARGEST)
    except OSError as exc:
        raise TlsError(f"cannot read {str(file)!r}: {exc.strerror}") from exc
    except ValueError as exc:
        raise TlsError(f"cannot read {str(file)!r}: {exc}") from exc


def _certificates(pem: bytes, unusable: str) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as exc:
        raise TlsError(f"{unusable}: {str(exc)[:200]}") from exc


def _has_signed(signer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _may_sign(certificate: x509.Certificate) -> bool:
    """Return True if a certificate may be an authority's; the oldest kind does not tell."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return certificate.version is x509.Version.v1
    except (ValueError, x509.DuplicateExtension):
        return False
    return basic.ca


def _preference(
    certificate: x509.Certificate, now: datetime.datetime
) -> tuple[bool, datetime.datetime]:
    """Return a sort key for certificates: those that are valid now, and for longer, are greater."""
    end = certificate.not_valid_after_utc
    return certificate.not_valid_before_utc <= now < end, end


def _check_time(what: str, certificate: x509.Certificate, now: datetime.datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begin > now:
        raise TlsError(f"{what} is not valid before {begin.isoformat()}")
    if end <= now:
        raise TlsError(f"{what} has expired at {end.isoformat()}")


def _reason(exc: ssl.SSLError) -> str:
    return (exc.reason or str(exc)).lower().replace("_", " ")
