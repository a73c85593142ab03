"""Authorities that cannot sign, or not for long: what is said, and how often they are tried."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from ensembles import Bench, condition, ensemble
from memory_api import MemoryApi
from patience import PATIENCE
from rpc_servers import serving

from flux_ensemble import certificates
from flux_ensemble.k8s.grpc.backend import Refused
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.tls import TlsFiles
from flux_ensemble.k8s.minicluster import Kubernetes
from flux_ensemble.k8s.operator import names

pytest_plugins = ["operator_cluster"]

MINUTE = datetime.timedelta(minutes=1)
DAY = datetime.timedelta(days=1)

GIVEN = {"tls": {"authoritySecret": "issuer"}}


def authority(
    now: datetime.datetime,
    life: datetime.timedelta,
    key: Any = None,
    begun: datetime.timedelta = 30 * DAY,
) -> dict[str, bytes]:
    """The Secret of an authority as somebody else makes it."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - begun)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return {
        "tls.crt": certificate.public_bytes(pem),
        "tls.key": key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    }


def put_issuer(bench: Bench, data: dict[str, bytes]) -> None:
    metadata = {"name": "issuer", "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "tls"}
    secret["data"] = certificates.encoded(data)
    if bench.admin.get("v1", "Secret", "default", "issuer") is None:
        bench.admin.create(secret)
    else:
        bench.admin.replace(secret)


@pytest.mark.parametrize(
    ("life", "begun", "key", "sentence"),
    [
        (-DAY, 30 * DAY, None, "its certificate has expired at 2025-12-31 00:00 UTC: renew it"),
        (MINUTE, 30 * DAY, None, "its certificate expires at 2026-01-01 00:01 UTC: renew it"),
        (9 * DAY, -DAY, None, "its certificate is not valid before 2026-01-02 00:00 UTC"),
        (DAY, DAY, ed25519.Ed25519PrivateKey.generate(), "its key is of the kind Ed25519"),
    ],
    ids=["expired", "a minute left", "not begun", "Ed25519"],
)
def test_an_authority_that_cannot_sign_is_a_condition_and_is_tried_slowly(
    bench: Bench,
    api: MemoryApi,
    life: datetime.timedelta,
    begun: datetime.timedelta,
    key: Any,
    sentence: str,
) -> None:
    put_issuer(bench, authority(bench.moment, life, key, begun))
    bench.put(ensemble(service=GIVEN))
    status = bench.look()
    holds, reason, message = condition(status, "Accepted")
    assert (holds, reason) == ("False", "Invalid")
    assert f"service.tls.authoritySecret: Secret 'issuer': {sentence}" in message
    assert bench.minicluster() is None
    before = len(api.writes)
    after = bench.reconciler.reconcile("default", "sweep")
    assert after is not None
    assert after >= 10
    assert len(api.writes) == before
    # One that can sign is taken at the next look.
    put_issuer(bench, authority(bench.moment, 300 * DAY))
    assert condition(bench.look(), "Accepted")[0] == "True"
    assert bench.minicluster() is not None


@pytest.mark.parametrize("life", [6 * MINUTE, 20 * MINUTE, 300 * MINUTE, 30 * DAY])
def test_certificates_that_end_with_their_authority_are_not_made_again_and_again(
    bench: Bench, api: MemoryApi, life: datetime.timedelta
) -> None:
    put_issuer(bench, authority(bench.moment, life))
    bench.put(ensemble(service=GIVEN))
    bench.look()
    bench.look()

    def secrets() -> int:
        return sum(" secrets " in one for one in api.writes)

    before = secrets()
    for _ in range(5):
        after = bench.reconciler.reconcile("default", "sweep")
        assert after is not None
        assert after >= 1
        bench.moment += (life - 6 * MINUTE) / 8
    assert secrets() == before
    # A new authority signs new ones.
    put_issuer(bench, authority(bench.moment, life))
    bench.look()
    assert secrets() > before


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())]
)
def test_an_authority_of_rsa_or_of_another_curve_signs(bench: Bench, key: Any) -> None:
    put_issuer(bench, authority(bench.moment, 300 * DAY, key))
    bench.put(ensemble(service=GIVEN))
    assert condition(bench.look(), "Accepted")[0] == "True"


def test_an_authority_of_ones_own_that_has_expired_is_made_anew(bench: Bench) -> None:
    """As when no operator was there for years."""
    bench.put(ensemble())
    bench.look()
    bench.moment += certificates.AUTHORITY_LIFE + DAY
    assert condition(bench.look(), "Accepted")[0] == "True"
    found = bench.admin.get("v1", "Secret", "default", "sweep-authority")
    data = certificates.decoded((found or {})["data"])
    certificates.read_authority(data, bench.moment)
    assert data["ca.crt"].count(b"BEGIN") == 1


def test_an_error_that_nobody_thought_of_is_in_the_status(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(certificates, "issue", broken)
    bench.put(ensemble())
    with pytest.raises(Exception, match="nobody thought of this"):
        bench.look()
    found = bench.ensemble()
    assert found is not None
    assert "nobody thought of this" in condition(found["status"], "Ready")[2]


# -- whose they are --------------------------------------------------------------------------


def mounted(bench: Bench, name: str, where: Path) -> TlsFiles:
    """The files of a Secret, as a pod has them."""
    found = bench.admin.get("v1", "Secret", "default", name)
    where.mkdir()
    for key, value in certificates.decoded((found or {})["data"]).items():
        (where / key).write_bytes(value)
    return TlsFiles(where / "tls.crt", where / "tls.key", where / "ca.crt")


def test_a_pod_of_an_ensemble_that_had_the_name_changes_no_size_of_the_one_that_has_it(
    bench: Bench, api: MemoryApi, tmp_path: Path
) -> None:
    bench.moment = datetime.datetime.now(datetime.UTC)
    put_issuer(bench, authority(bench.moment, 300 * DAY))
    shown = []
    for number in range(2):
        bench.remove(names.API_VERSION, names.KIND, "sweep")
        bench.put(ensemble(service=GIVEN))
        bench.look()
        shown.append(mounted(bench, "sweep-solve-tls", tmp_path / str(number)))
    own = mounted(bench, "sweep-grpc-tls", tmp_path / "service")
    deployment = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    (container,) = (deployment or {})["spec"]["template"]["spec"]["containers"]
    (owner,) = (word[8:] for word in container["args"] if word.startswith("--owner="))
    backend = Kubernetes(api.client(api.account_token("default", "sweep-grpc")), owner=owner)
    member = "default/sweep-solve"
    with serving(backend, [member], tls=own, token=None, owner=owner) as target:
        with (
            RpcClient(target, cluster=member, tls=shown[0]) as before,
            pytest.raises(RpcError, match="is not of the owner that this service is for"),
        ):
            before.scale(3)
        with RpcClient(target, cluster=member, tls=shown[1]) as after:
            assert after.scale(2).size == 2


def test_a_minicluster_of_the_name_that_is_not_of_the_ensemble_keeps_its_size(
    bench: Bench, api: MemoryApi
) -> None:
    bench.put(ensemble())
    bench.look()
    live = bench.minicluster()
    assert live is not None
    live["metadata"]["ownerReferences"][0]["uid"] = "another"
    bench.admin.replace(live)
    owner = (bench.ensemble() or {})["metadata"]["uid"]
    backend = Kubernetes(api.client(api.account_token("default", "sweep-grpc")), owner=owner)
    deadline = time.monotonic() + PATIENCE
    for ask in (
        lambda: backend.scale("default/sweep-solve", deadline=deadline, to=3),
        lambda: backend.size("default/sweep-solve", deadline),
    ):
        with pytest.raises(Refused, match="not of the owner that this service is for"):
            ask()
    assert (bench.minicluster() or {})["spec"]["size"] == 1


def test_a_certificate_that_names_another_owner_is_made_anew(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    found = bench.admin.get("v1", "Secret", "default", "sweep-authority")
    of_it = certificates.read_authority(certificates.decoded((found or {})["data"]), bench.moment)
    live = bench.admin.get("v1", "Secret", "default", "sweep-solve-tls")
    assert live is not None
    uris = ["flux-ensemble://member/default/sweep-solve", "flux-ensemble://owner/another"]
    other = certificates.issue(
        of_it, certificates.CertificateRequest("sweep-solve", uris=uris), bench.moment
    )
    bench.admin.replace({**live, "data": certificates.encoded(other)})
    bench.look()
    mended = bench.admin.get("v1", "Secret", "default", "sweep-solve-tls")
    assert mended is not None
    certificate = certificates.certificate_of(certificates.decoded(mended["data"]))
    kind = x509.SubjectAlternativeName
    named = certificate.extensions.get_extension_for_class(kind).value
    owner = (bench.ensemble() or {})["metadata"]["uid"]
    assert named.get_values_for_type(x509.UniformResourceIdentifier)[1].endswith(owner)
