"""Certificates for tests: an authority that lives as long as the test."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flux_ensemble.rpc.tls import MEMBER_URI, TlsFiles

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates and writes them to a directory.

    Args:
        directory: where its own certificate and all others go.
        name: of the authority and its file.
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = directory / f"{name}.pem"
        builder = self._builder(self._name, self._key, _now() - DAY, _now() + DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        _write(self.file, builder.sign(self._key, hashes.SHA256()))

    def issue(
        self,
        name: str,
        *,
        uris: Sequence[str] = (),
        starts: datetime.datetime | None = None,
        ends: datetime.datetime | None = None,
    ) -> TlsFiles:
        """A certificate for localhost and its key.

        Args:
            name: of the files.
            uris: of the subject alternative name.
            starts: default: yesterday.
            ends: default: tomorrow.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, starts or _now() - DAY, ends or _now() + DAY)
        names = [x509.DNSName("localhost"), *map(x509.UniformResourceIdentifier, uris)]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        files = TlsFiles(
            self._directory / f"{name}.pem", self._directory / f"{name}.key", self.file
        )
        _write(files.cert, builder.sign(self._key, hashes.SHA256()))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def issue_member(self, *members: str, file: str = "client") -> TlsFiles:
        """A client's certificate that names members."""
        return self.issue(file, uris=[MEMBER_URI + member for member in members])

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        starts: datetime.datetime,
        ends: datetime.datetime,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts)
            .not_valid_after(ends)
        )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def _write(file: Path, certificate: x509.Certificate) -> None:
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
