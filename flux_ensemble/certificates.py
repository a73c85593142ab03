"""Certificates: an authority for each ensemble, and the certificates that it signs.

The service's certificate holds its names in DNS. Each member's certificate holds the one member
that it may act for, and this very ensemble (`flux_ensemble.k8s.grpc.tls`, `service.home`). Those of
an Ensemble in Kubernetes are in Secrets. They are renewed after two thirds of their lifetime. A new
authority is trusted together with the previous one, so that both sides can be renewed one after the
other; they reload their files when these change.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Lifetimes of certificates.
AUTHORITY_LIFE = datetime.timedelta(days=1095)
LIFE = datetime.timedelta(days=90)

#: Certificates are valid a little earlier than now, because clocks of nodes differ.
_EARLIER = datetime.timedelta(minutes=10)

#: An authority with less time left signs nothing: it would have expired before pods have started.
_LEAST = datetime.timedelta(minutes=5)

#: Longest common name that X.509 allows.
_COMMON_NAME = 64

CERTIFICATE, KEY, TRUSTED = "tls.crt", "tls.key", "ca.crt"


class UnusableAuthority(Exception):
    """A Secret is not that of an authority; the text is one sentence."""


@dataclass(frozen=True)
class Authority:
    """A signing authority, and the certificates to be trusted.

    Args:
        certificate, key: its own.
        trusted: certificates in PEM of this authority and of the previous one.
    """

    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes
    trusted: bytes

    def data(self) -> dict[str, bytes]:
        """Return the contents of its Secret."""
        return {
            CERTIFICATE: _pem(self.certificate),
            KEY: _private(self.key),
            TRUSTED: self.trusted,
        }


def new_authority(name: str, now: datetime.datetime, before: Authority | None = None) -> Authority:
    """Make an authority.

    Args:
        name: of its owner.
        now: the time.
        before: the authority that it replaces, which stays trusted until it expires.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        _begin(subject, subject, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(_usage(signs=True), True)
        .sign(key, hashes.SHA256())
    )
    trusted = _pem(certificate)
    if before is not None and before.certificate.not_valid_after_utc > now:
        trusted += _pem(before.certificate)
    return Authority(certificate, key, trusted)


def read_authority(data: Mapping[str, bytes], now: datetime.datetime) -> Authority:
    """Read an authority from its Secret, ours or one of cert-manager.

    Raises:
        UnusableAuthority: it is no authority, or cannot sign what gRPC accepts.
    """
    try:
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE])
        key = serialization.load_pem_private_key(data[KEY], None)
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        fits = key.public_key() == certificate.public_key()
    except KeyError as exc:
        raise UnusableAuthority(f"it has no key {exc.args[0]!r}") from exc
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound) as exc:
        raise UnusableAuthority("it has no certificate of an authority with its key") from exc
    if not basic.ca or not fits:
        raise UnusableAuthority("its certificate is not one of an authority, or of another key")
    if not isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)):
        kind = type(key).__name__.strip("_").removesuffix("PrivateKey")
        raise UnusableAuthority(
            f"its key is of the kind {kind}, which gRPC does not take: give it one of RSA or ECDSA"
        )
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        raise UnusableAuthority(f"its certificate is not valid before {begin:%Y-%m-%d %H:%M} UTC")
    if now > end - _LEAST:
        ends = "has expired" if now > end else "expires"
        raise UnusableAuthority(f"its certificate {ends} at {end:%Y-%m-%d %H:%M} UTC: renew it")
    # A Secret of cert-manager has there the issuer of the authority, which need not be trusted
    # here.
    own = data.get(TRUSTED, b"")
    trusted = own if own.startswith(_pem(certificate)) else _pem(certificate)
    return Authority(certificate, key, trusted)


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """The subject of a certificate.

    Args:
        name: the common name.
        hosts: the names in DNS, of a service.
        uris: what a member may act for, and its owner.
    """

    name: str
    hosts: Sequence[str] = ()
    uris: Sequence[str] = ()

    def names(self) -> list[x509.GeneralName]:
        """Return the subject alternative names."""
        uris = map(x509.UniformResourceIdentifier, self.uris)
        return [*map(x509.DNSName, self.hosts), *uris]


def issue(
    authority: Authority, wanted: CertificateRequest, now: datetime.datetime
) -> dict[str, bytes]:
    """Return the contents of the Secret of a service or a member, with a new certificate."""
    usages = ExtendedKeyUsageOID
    usage = usages.SERVER_AUTH if wanted.hosts else usages.CLIENT_AUTH
    key = ec.generate_private_key(ec.SECP256R1())
    # No certificate outlives its issuer.
    life = min(LIFE, authority.certificate.not_valid_after_utc - now)
    certificate = (
        _begin(_subject(wanted.name), authority.certificate.subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(x509.SubjectAlternativeName(wanted.names()), False)
        .add_extension(x509.ExtendedKeyUsage([usage]), False)
        .add_extension(_usage(signs=False), True)
        .sign(authority.key, hashes.SHA256())
    )
    return {CERTIFICATE: _pem(certificate), KEY: _private(key), TRUSTED: authority.trusted}


def t_renew(certificate: x509.Certificate, authority: Authority | None = None) -> float:
    """Return when a certificate is to be renewed, in epoch seconds.

    Args:
        certificate: of an authority, or of a service or member.
        authority: the issuer: if it expires together with the certificate, it could not sign one
            that lives longer.
    """
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if authority is not None and end >= authority.certificate.not_valid_after_utc:
        return end.timestamp()
    return (begin + (end - begin) * 2 / 3).timestamp()


def is_current(
    data: Mapping[str, bytes],
    wanted: CertificateRequest,
    authority: Authority,
    now: datetime.datetime,
) -> bool:
    """Return True if a Secret fits the request and the authority, and need not be renewed yet."""
    try:
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE])
        certificate.verify_directly_issued_by(authority.certificate)
        key = serialization.load_pem_private_key(data[KEY], None)
        kind = x509.SubjectAlternativeName
        names = list(certificate.extensions.get_extension_for_class(kind).value)
    except Exception:
        # Whatever is wrong with the certificate, it is renewed.
        return False
    return names == wanted.names() and (
        data.get(TRUSTED) == authority.trusted
        and key.public_key() == certificate.public_key()
        and now.timestamp() < t_renew(certificate, authority)
    )


def certificate_of(data: Mapping[str, bytes]) -> x509.Certificate:
    """Return the certificate in a Secret."""
    return x509.load_pem_x509_certificate(data[CERTIFICATE])


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """Encode the contents of a Secret in base64."""
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    """Decode the contents of a Secret."""
    return {key: base64.b64decode(value) for key, value in (data or {}).items()}


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    life: datetime.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + life)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[-_COMMON_NAME:])])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
