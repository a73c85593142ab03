"""Odd certificates: who is let in with one, and which a server or client does not begin with."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import DAY, Authority, write_key
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from rpc_servers import PATIENCE, Log, serving, table

from flux_ensemble.k8s.grpc import instances
from flux_ensemble.k8s.grpc.backend import DryRun
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2_grpc as api
from flux_ensemble.k8s.grpc.tls import MEMBER_URI, Reloaded, TlsError, TlsFiles

pytest_plugins = ["tls_server"]

ALPHA = f"{MEMBER_URI}alpha"


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def status(target: str, authority: Authority, shown: TlsFiles, cluster: str = "alpha") -> str:
    """How a client fares that checks nothing about itself: the status code."""
    credentials = grpc.ssl_channel_credentials(
        root_certificates=authority.file.read_bytes(),
        private_key=shown.key.read_bytes(),
        certificate_chain=shown.cert.read_bytes(),
    )
    with grpc.secure_channel(target, credentials) as channel:
        stub = api.EnsembleServiceStub(channel)
        try:
            stub.Status(pb.StatusRequest(cluster=cluster, size_only=True), timeout=PATIENCE)
        except grpc.RpcError as error:
            name: str = error.code().name
            return name
        return "OK"


def chained(signer: Authority, files: TlsFiles) -> TlsFiles:
    """The same files with the certificate of the signer after the certificate."""
    files.cert.write_bytes(files.cert.read_bytes() + signer.file.read_bytes())
    return files


def of_other(authority: Authority, directory: Path, name: str) -> TlsFiles:
    aside = directory / "aside"
    aside.mkdir(exist_ok=True)
    return Authority(aside, name).issue("client", uris=[ALPHA])


def constrained(authority: Authority, directory: Path, name: x509.GeneralName) -> TlsFiles:
    constraint = x509.NameConstraints(permitted_subtrees=[name], excluded_subtrees=None)
    signer = Authority(directory, "constrained", parent=authority, extensions=[constraint])
    return chained(signer, signer.issue("in-constraints", uris=[ALPHA]))


def of_intermediate(
    authority: Authority, directory: Path, *, ends: datetime.datetime | None = None, ca: bool = True
) -> TlsFiles:
    signer = Authority(directory, "intermediate", parent=authority, ends=ends, ca=ca)
    return chained(signer, signer.issue("below", uris=[ALPHA]))


def without_intermediate(authority: Authority, directory: Path) -> TlsFiles:
    signer = Authority(directory, "left-out", parent=authority)
    return signer.issue("below-left-out", uris=[ALPHA])


CLIENTS: dict[str, tuple[str, Callable[[Authority, Path], TlsFiles]]] = {
    "good": ("OK", lambda ca, at: ca.issue("client", uris=[ALPHA])),
    "two clusters": ("OK", lambda ca, at: ca.issue("client", uris=[f"{MEMBER_URI}beta", ALPHA])),
    "the same twice": ("OK", lambda ca, at: ca.issue("client", uris=[ALPHA, ALPHA])),
    "a hundred clusters": (
        "OK",
        lambda ca, at: ca.issue("client", uris=[*(f"{ALPHA}{n}" for n in range(100)), ALPHA]),
    ),
    "also others": ("OK", lambda ca, at: ca.issue("client", uris=["spiffe://a/b", ALPHA])),
    "no extended usage": ("OK", lambda ca, at: ca.issue("client", uris=[ALPHA], usages=())),
    "an authority's": ("OK", lambda ca, at: ca.issue("client", uris=[ALPHA], ca=True)),
    "below an intermediate": ("OK", of_intermediate),
    "expired": (
        "UNAVAILABLE",
        lambda ca, at: ca.issue("client", uris=[ALPHA], starts=now() - 2 * DAY, ends=now() - DAY),
    ),
    "of tomorrow": (
        "UNAVAILABLE",
        lambda ca, at: ca.issue("client", uris=[ALPHA], starts=now() + DAY, ends=now() + 2 * DAY),
    ),
    "of another authority": ("UNAVAILABLE", lambda ca, at: of_other(ca, at, "other")),
    "of another one of the same name": ("UNAVAILABLE", lambda ca, at: of_other(ca, at, "ca")),
    "for servers only": (
        "UNAVAILABLE",
        lambda ca, at: ca.issue("client", uris=[ALPHA], usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
    ),
    "for code": (
        "UNAVAILABLE",
        lambda ca, at: ca.issue("client", uris=[ALPHA], usages=[ExtendedKeyUsageOID.CODE_SIGNING]),
    ),
    "beyond name constraints of hosts": (
        "UNAVAILABLE", lambda ca, at: constrained(ca, at, x509.DNSName("example.org")),
    ),
    "beyond name constraints of URIs": (
        "UNAVAILABLE",
        lambda ca, at: constrained(ca, at, x509.UniformResourceIdentifier("example.org")),
    ),
    "without its intermediate": ("UNAVAILABLE", without_intermediate),
    "below an intermediate that has expired": (
        "UNAVAILABLE", lambda ca, at: of_intermediate(ca, at, ends=now() - DAY / 2),
    ),
    "below one that is no authority": (
        "UNAVAILABLE", lambda ca, at: of_intermediate(ca, at, ca=False),
    ),
    "ten thousand clusters": (
        "UNAVAILABLE",
        lambda ca, at: ca.issue("client", uris=[*(f"{ALPHA}{n}" for n in range(10_000)), ALPHA]),
    ),
    "no names": ("PERMISSION_DENIED", lambda ca, at: ca.issue("client", hosts=())),
    "a common name only": ("PERMISSION_DENIED", lambda ca, at: ca.issue("alpha", hosts=())),
    "a host": ("PERMISSION_DENIED", lambda ca, at: ca.issue("client", hosts=["alpha"])),
}  # fmt: skip


@pytest.mark.parametrize(("expected", "issue"), CLIENTS.values(), ids=CLIENTS)
def test_a_client_fares_as_its_certificate_says(
    server: str,
    authority: Authority,
    tmp_path: Path,
    expected: str,
    issue: Callable[[Authority, Path], TlsFiles],
) -> None:
    assert status(server, authority, issue(authority, tmp_path)) == expected


URIS = [
    f"{ALPHA}\0evil",
    f"{ALPHA}\0",
    f"\0{ALPHA}",
    f"{ALPHA}\n",
    f"{ALPHA} ",
    f"{ALPHA}/",
    f"{ALPHA}/..",
    f"{ALPHA}?",
    f"{ALPHA}#a",
    f"{ALPHA}%00",
    f"{MEMBER_URI}al%70ha",
    f"{MEMBER_URI}ALPHA",
    f"{MEMBER_URI}*",
    f"{MEMBER_URI}",
    f"{MEMBER_URI}/alpha",
    f"{MEMBER_URI}x/../alpha",
    f"{MEMBER_URI}alph\\a",
    "FLUX-ENSEMBLE://member/alpha",
    "flux-ensemble://Member/alpha",
    "flux-ensemble://user@member/alpha",
    "flux-ensemble://member:1/alpha",
    "flux-ensemble:///alpha",
    "flux-ensemble:alpha",
    "",
]


@pytest.mark.parametrize("uri", URIS, ids=repr)
def test_a_uri_that_is_not_quite_that_of_a_cluster_names_nobody(
    server: str, authority: Authority, uri: str
) -> None:
    mine = authority.issue("odd-uri", uris=[uri, f"{MEMBER_URI}beta"])
    assert status(server, authority, mine) == "PERMISSION_DENIED"
    assert status(server, authority, mine, "beta") == "OK"


def test_a_certificate_is_looked_at_again_for_each_request_and_ends_streams(
    monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    monkeypatch.setattr(instances, "Client", Log)
    clusters = table(("alpha",), has_flux=True)
    with serving(DryRun(), clusters, tls=authority.issue("server")) as target:
        t_end = now() + datetime.timedelta(seconds=6)
        mine = authority.issue("brief", uris=[ALPHA], ends=t_end)
        with RpcClient(target, cluster="alpha", tls=mine, timeout=PATIENCE) as client:
            assert client.size().nodes == 1
            log = client.log("quiet", follow=True)
            assert next(log)["name"] == "entry"
            with pytest.raises(RpcError, match="the client's certificate has expired at") as caught:
                next(log)
            assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
            assert time.time() >= t_end.timestamp()
            for ask in (client.size, lambda: client.submit("hello", "echo")):
                with pytest.raises(RpcError, match="has expired at") as caught:
                    ask()
                assert caught.value.refused


def test_a_client_is_told_of_no_cluster_that_its_certificate_does_not_name(
    authority: Authority,
) -> None:
    clusters = ("alpha", "beta", "secret")
    with serving(DryRun(), clusters, tls=authority.issue("server")) as target:
        mine = authority.issue_member("beta", "ghost", file="mine")
        sentences = []
        for name in ("", "ghost", "secret", "nobody", "a b"):
            with (
                RpcClient(target, cluster=name, tls=mine) as client,
                pytest.raises(RpcError) as caught,
            ):
                client.size()
            sentences.append(f"{caught.value.code.name}: {caught.value}")
    denied = "PERMISSION_DENIED: the client's certificate does not name cluster"
    assert sentences == [
        "INVALID_ARGUMENT: the request names no cluster (clusters: beta)",
        "NOT_FOUND: no cluster is named 'ghost' (clusters: beta)",
        f"{denied} 'secret' (clusters it names: beta, ghost)",
        f"{denied} 'nobody' (clusters it names: beta, ghost)",
        "INVALID_ARGUMENT: 'a b' is not a cluster's name: expected NAME or NAMESPACE/NAME",
    ]


def test_the_only_cluster_is_not_told_to_a_client_that_does_not_name_it(
    authority: Authority,
) -> None:
    with serving(DryRun(), ("secret",), tls=authority.issue("server")) as target:
        mine = authority.issue_member("beta", file="mine")
        with (
            RpcClient(target, tls=mine) as client,
            pytest.raises(
                RpcError, match="does not name the only cluster of the service"
            ) as caught,
        ):
            client.size()
        assert "secret" not in str(caught.value)
        assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


def test_a_client_whose_certificate_names_hundreds_is_told_in_a_sentence_that_arrives(
    authority: Authority, server: str
) -> None:
    mine = authority.issue_member(*(f"m{n:080}" for n in range(60)), file="many")
    with (
        RpcClient(server, cluster="alpha", tls=mine) as client,
        pytest.raises(RpcError, match=r"does not name cluster 'alpha' .* \[\.\.\.\]$") as caught,
    ):
        client.size()
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


def refusal(files: TlsFiles) -> str:
    """Why a server and a client do not begin with these files."""
    with pytest.raises(TlsError) as caught:
        Reloaded(files)
    return str(caught.value)


def test_an_authority_has_to_be_valid_and_to_be_one(tmp_path: Path) -> None:
    def files(name: str, **options: Any) -> TlsFiles:
        return Authority(tmp_path, name, **options).issue(f"by-{name}")

    assert "of 'CN=old', which " in (old := refusal(files("old", ends=now() - DAY / 2)))
    assert "needs, has expired at" in old
    early = refusal(files("early", starts=now() + DAY / 2))
    assert "needs, is not valid before" in early
    leaf = refusal(files("leaf", ca=False))
    assert leaf.endswith("in PEM: certificate 1 in it must not sign others")
    # The authority of the others, which need not be that of one's own certificate.
    good, other = files("good"), files("other", ends=now() - DAY / 2)
    assert "other.pem' has expired at" in refusal(dataclasses.replace(good, ca=other.ca))


def test_of_several_authorities_one_has_to_be_valid(tmp_path: Path) -> None:
    old = Authority(tmp_path, "old", ends=now() - DAY / 2)
    end = now() + 2 * DAY
    new = Authority(tmp_path, "new", ends=end)
    files = new.issue("mine", ends=end + DAY)
    both = tmp_path / "both.pem"
    both.write_bytes(old.file.read_bytes() + new.file.read_bytes())
    files = dataclasses.replace(files, ca=both)
    files.check()
    assert files.read().t_expires == end.timestamp()
    both.write_bytes(both.read_bytes() + files.cert.read_bytes())
    assert refusal(files).endswith("certificate 3 in it must not sign others")


def test_an_intermediate_certificate_that_is_needed_has_to_be_valid(
    authority: Authority, tmp_path: Path
) -> None:
    good = of_intermediate(authority, tmp_path)
    dataclasses.replace(good, ca=authority.file).check()
    expired = of_intermediate(authority, tmp_path, ends=now() - DAY / 2)
    files = dataclasses.replace(expired, ca=authority.file)
    assert "of 'CN=intermediate', which" in refusal(files)
    # One that it does not need may be what it will.
    unneeded = chained(Authority(tmp_path, "unneeded", ends=now() - DAY / 2), authority.issue("a"))
    unneeded.check()


@pytest.mark.parametrize("which", ["leaf", "intermediate", "authority"])
def test_files_expire_with_the_first_certificate_of_the_chain(tmp_path: Path, which: str) -> None:
    first = now() + DAY
    ends = dict.fromkeys(("leaf", "intermediate", "authority"), first + DAY) | {which: first}
    top = Authority(tmp_path, "top", ends=ends["authority"])
    middle = Authority(tmp_path, "middle", parent=top, ends=ends["intermediate"])
    files = chained(middle, middle.issue("leaf", ends=ends["leaf"]))
    files = dataclasses.replace(files, ca=top.file)
    files.check()
    assert files.read().t_expires == first.timestamp()


def rewritten(files: TlsFiles, change: Callable[[bytes], bytes]) -> TlsFiles:
    files.cert.write_bytes(change(files.cert.read_bytes()))
    return files


def as_der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


CHANGES = {
    "empty": lambda pem: b"",
    "DER": as_der,
    "cut off": lambda pem: pem[:-80],
    "damaged": lambda pem: pem[:200] + b"!!!!" + pem[204:],
    "damaged within": lambda pem: pem[:200] + b"AAAA" + pem[204:],
    "a key": lambda pem: b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    "zeros": lambda pem: bytes(1000),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_holds_something_else_is_refused(
    authority: Authority, change: Callable[[bytes], bytes]
) -> None:
    files = rewritten(authority.issue("changed"), change)
    assert "are not a certificate in PEM and its key without a password: " in refusal(files)
    as_ca = dataclasses.replace(authority.issue("mine"), ca=files.cert)
    assert "is not the certificate of an authority in PEM: " in refusal(as_ca)


@pytest.mark.parametrize(
    "change",
    [
        lambda pem: b"junk\n" + pem + b"junk\n",
        lambda pem: pem.replace(b"\n", b"\r\n"),
        lambda pem: b"\n\n" + pem + b"\n\n",
    ],
    ids=["text around", "other ends of lines", "empty lines"],
)
def test_text_around_a_certificate_is_no_matter(
    server: str, authority: Authority, change: Callable[[bytes], bytes]
) -> None:
    files = rewritten(authority.issue("around", uris=[ALPHA]), change)
    with RpcClient(server, cluster="alpha", tls=files) as client:
        assert client.size().nodes == 1


def test_a_key_with_a_password_or_a_weak_one_is_refused(authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    files = authority.issue("locked", key=key)
    write_key(files.key, key, b"password")
    assert "its key without a password: " in refusal(files)
    weak = authority.issue("weak", key=rsa.generate_private_key(65537, 1024))
    assert "ee key too small" in refusal(weak)


def test_a_key_of_a_kind_that_grpc_cannot_use_is_refused_at_the_start(
    authority: Authority,
) -> None:
    odd = authority.issue("odd-key", key=ec.generate_private_key(ec.SECP256K1()))
    with (
        pytest.raises(Exception, match="gRPC cannot use the key or the certificate"),
        serving(DryRun(), tls=odd),
    ):
        pass


def test_what_is_no_file_is_refused_and_not_waited_for(
    authority: Authority, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    large = tmp_path / "large"
    large.write_bytes(b"\n" * (1 << 20) + b"-")
    mine = authority.issue("mine")
    for path, reason in (
        (fifo, "it is not a regular file"),
        (tmp_path, "it is not a regular file"),
        (Path("/dev/zero"), "it is not a regular file"),
        (large, "it is larger than 1048576 bytes"),
        (Path("a\0b"), "embedded null byte"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        for field in ("cert", "key", "ca"):
            files = dataclasses.replace(mine, **{field: path})
            assert refusal(files) == f"cannot read {str(path)!r}: {reason}"


def test_a_link_to_a_file_is_followed_as_in_a_volume_of_kubernetes(
    authority: Authority, tmp_path: Path
) -> None:
    mine = authority.issue("mine")
    link = tmp_path / "tls.crt"
    link.symlink_to(mine.cert)
    dataclasses.replace(mine, cert=link).check()
