"""Certificates for tests: an authority that lives as long as the test."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flux_ensemble.k8s.grpc.tls import MEMBER_URI, TlsFiles

DAY = datetime.timedelta(days=1)

#: What a certificate may be used for, by default.
BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """Signs certificates and writes them to a directory.

    Args:
        directory: where its own certificate and all others go.
        name: of the authority and its file.
        parent: what signs its certificate; default: itself.
        starts: default: yesterday.
        ends: default: tomorrow.
        ca: its certificate says that it is one of an authority.
        extensions: more of them, critical ones.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "ca",
        *,
        parent: Authority | None = None,
        starts: datetime.datetime | None = None,
        ends: datetime.datetime | None = None,
        ca: bool = True,
        extensions: Sequence[x509.ExtensionType] = (),
    ) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = directory / f"{name}.pem"
        basic = x509.BasicConstraints(ca=ca, path_length=None)
        certificate = (parent or self)._sign(
            self._name, self._key, starts, ends, [(one, True) for one in (basic, *extensions)]
        )
        _write(self.file, certificate)

    def issue(
        self,
        name: str,
        *,
        uris: Sequence[str] = (),
        hosts: Sequence[str] = ("localhost",),
        starts: datetime.datetime | None = None,
        ends: datetime.datetime | None = None,
        usages: Sequence[x509.ObjectIdentifier] = BOTH_ENDS,
        key: Any = None,
        ca: bool = False,
    ) -> TlsFiles:
        """A certificate for localhost and its key.

        Args:
            name: of the files, and the common name.
            uris: of the subject alternative name.
            hosts: of the subject alternative name; there is none without hosts and URIs.
            starts: default: yesterday.
            ends: default: tomorrow.
            usages: the extended ones; none: the extension is left out.
            key: the private key; default: a new one.
            ca: the certificate says that it is one of an authority.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        extensions: list[tuple[x509.ExtensionType, bool]] = []
        names = [*map(x509.DNSName, hosts), *map(x509.UniformResourceIdentifier, uris)]
        if names:
            extensions.append((x509.SubjectAlternativeName(names), False))
        if usages:
            extensions.append((x509.ExtendedKeyUsage(usages), False))
        if ca:
            extensions.append((x509.BasicConstraints(ca=True, path_length=None), True))
        files = TlsFiles(
            self._directory / f"{name}.pem", self._directory / f"{name}.key", self.file
        )
        _write(files.cert, self._sign(subject, key, starts, ends, extensions))
        write_key(files.key, key)
        return files

    def issue_member(self, *members: str, file: str = "client") -> TlsFiles:
        """A client's certificate that names members."""
        return self.issue(file, uris=[MEMBER_URI + member for member in members])

    def _sign(
        self,
        subject: x509.Name,
        key: Any,
        starts: datetime.datetime | None,
        ends: datetime.datetime | None,
        extensions: Sequence[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts or _now() - DAY)
            .not_valid_after(ends or _now() + DAY)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def write_key(file: Path, key: Any, password: bytes | None = None) -> None:
    """Writes a private key, encrypted if there is a password."""
    how = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    form = serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, how))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def _write(file: Path, certificate: x509.Certificate) -> None:
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
