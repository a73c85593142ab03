"""Mutual TLS: who is let in, and what is said of files that cannot work."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from certificates import DAY, Authority
from patience import PATIENCE
from rpc_servers import serving

from flux_ensemble.k8s.grpc.backend import DryRun
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.protocol import predecessors_pb2, predecessors_pb2_grpc
from flux_ensemble.k8s.grpc.tls import Reloaded, TlsError, TlsFiles

pytest_plugins = ["tls_server"]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def channel(
    target: str, trusted: TlsFiles, shown: TlsFiles | None, *, plaintext: bool = False
) -> grpc.Channel:
    """A channel of a client that checks nothing about itself, as that of others may be."""
    if plaintext:
        return grpc.insecure_channel(target)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=trusted.ca.read_bytes(),
        private_key=shown.key.read_bytes() if shown else None,
        certificate_chain=shown.cert.read_bytes() if shown else None,
    )
    return grpc.secure_channel(target, credentials)


def grow(connection: grpc.Channel) -> predecessors_pb2.Response:
    request = predecessors_pb2.ActionRequest(member="minicluster", name="alpha", action="grow")
    stub = predecessors_pb2_grpc.EnsembleOperatorStub(connection)
    response: predecessors_pb2.Response = stub.RequestAction(request, timeout=PATIENCE)
    return response


def refused_at_the_door(connection: grpc.Channel) -> str:
    """The connection fails before any request is looked at; gives gRPC's reason."""
    with connection, pytest.raises(grpc.RpcError) as caught:
        grow(connection)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


def test_a_certificate_that_names_the_cluster_is_let_in(server: str, authority: Authority) -> None:
    mine = authority.issue_member("alpha")
    with channel(server, mine, mine) as connection:
        assert grow(connection).status == predecessors_pb2.Response.SUCCESS
    with RpcClient(server, cluster="alpha", tls=mine) as client:
        assert client.scale(3).size == 3


def test_one_certificate_can_name_several_clusters(server: str, authority: Authority) -> None:
    mine = authority.issue_member("alpha", "beta")
    for cluster in ("alpha", "beta"):
        with RpcClient(server, cluster=cluster, tls=mine) as client:
            assert client.scale(2).size == 2


def test_no_certificate_is_refused(server: str, authority: Authority) -> None:
    mine = authority.issue_member("alpha")
    refused_at_the_door(channel(server, mine, None))


def test_a_certificate_of_another_authority_is_refused(
    server: str, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").issue_member("alpha")
    refused_at_the_door(channel(server, authority.issue_member("alpha"), other))


def test_a_client_refuses_a_server_of_another_authority(server: str, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other").issue_member("alpha")
    refused_at_the_door(channel(server, other, other))


def test_an_expired_certificate_is_refused(server: str, authority: Authority) -> None:
    now = datetime.datetime.now(datetime.UTC)
    uris = ["flux-ensemble://member/alpha"]
    old = authority.issue("old", uris=uris, starts=now - 2 * DAY, ends=now - DAY)
    refused_at_the_door(channel(server, old, old))


def test_plaintext_is_refused(server: str, authority: Authority) -> None:
    mine = authority.issue_member("alpha")
    refused_at_the_door(channel(server, mine, mine, plaintext=True))


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["flux-ensemble://member/beta"],
        ["flux-ensemble://member/"],
        ["flux-ensemble://member/ALPHA"],
        ["flux-ensemble://member/alpha/"],
        ["flux-ensemble://other/alpha"],
        ["spiffe://example.org/alpha"],
        ["alpha"],
    ],
    ids=lambda uris: " ".join(uris) or "none",
)
def test_a_certificate_that_does_not_name_the_cluster_is_denied(
    server: str, authority: Authority, uris: list[str]
) -> None:
    mine = authority.issue("wrong", uris=uris)
    with channel(server, mine, mine) as connection:
        response = grow(connection)
    assert response.status == predecessors_pb2.Response.DENIED
    assert "does not name cluster 'alpha'" in response.payload
    with (
        RpcClient(server, cluster="alpha", tls=mine) as client,
        pytest.raises(RpcError, match="does not name cluster 'alpha'") as caught,
    ):
        client.scale(5)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.refused


REQUESTS: dict[str, Callable[[RpcClient], object]] = {
    "status": lambda client: client.status(),
    "size": lambda client: client.size(),
    "grow": lambda client: client.grow(),
    "submit": lambda client: client.submit("hello", "echo"),
    "action": lambda client: client.action("hello", {"name": "terminate"}),
    "log": lambda client: list(client.log("hello")),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("cluster", ["alpha", "nobody"])
def test_no_request_for_a_cluster_that_is_not_named_is_answered(
    server: str, authority: Authority, cluster: str, request_of: Callable[[RpcClient], object]
) -> None:
    mine = authority.issue_member("beta", file="beta")
    with (
        RpcClient(server, cluster=cluster, tls=mine) as client,
        pytest.raises(RpcError) as caught,
    ):
        request_of(client)
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED


def test_status_tells_when_the_servers_certificate_expires(
    server: str, authority: Authority
) -> None:
    mine = authority.issue_member("alpha")
    now = datetime.datetime.now(datetime.UTC).timestamp()
    with RpcClient(server, cluster="alpha", tls=mine) as client:
        left = client.status().t_certificate_expires - now
    assert 0.9 * DAY.total_seconds() < left <= DAY.total_seconds()


def test_the_client_says_that_it_does_not_trust_the_server(server: str, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other").issue_member("alpha")
    with (
        RpcClient(server, cluster="alpha", tls=other) as client,
        pytest.raises(RpcError, match="do not accept each other's keys") as caught,
    ):
        client.size()
    assert not caught.value.refused


def check(files: TlsFiles) -> str:
    with pytest.raises(TlsError) as caught:
        files.check()
    return str(caught.value)


def test_a_file_that_is_not_there_is_named(authority: Authority, tmp_path: Path) -> None:
    files = dataclasses.replace(authority.issue("mine"), key=tmp_path / "no.key")
    assert check(files) == f"cannot read {str(tmp_path / 'no.key')!r}: No such file or directory"


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    files = dataclasses.replace(authority.issue("mine"), key=authority.issue("other").key)
    assert "key values mismatch" in check(files)


def test_text_that_is_no_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("hello\n")
    mine = authority.issue("mine")
    assert "are not a certificate in PEM" in check(dataclasses.replace(mine, cert=junk))
    assert "is not the certificate of an authority" in check(dataclasses.replace(mine, ca=junk))


def test_an_expired_certificate_is_refused_with_its_date(authority: Authority) -> None:
    end = datetime.datetime(2020, 2, 3, tzinfo=datetime.UTC)
    files = authority.issue("old", starts=end - DAY, ends=end)
    assert check(files).endswith("has expired at 2020-02-03T00:00:00+00:00")


def test_a_certificate_of_the_future_is_refused_with_its_date(authority: Authority) -> None:
    start = datetime.datetime(2120, 2, 3, tzinfo=datetime.UTC)
    files = authority.issue("early", starts=start, ends=start + DAY)
    assert check(files).endswith("is not valid before 2120-02-03T00:00:00+00:00")


def test_a_server_does_not_start_with_files_that_cannot_work(
    authority: Authority, tmp_path: Path
) -> None:
    files = dataclasses.replace(authority.issue("mine"), ca=tmp_path / "no.pem")
    with pytest.raises(TlsError, match="cannot read"), serving(DryRun(), tls=files):
        pass


def renew(files: TlsFiles, by: TlsFiles) -> None:
    """Puts new files in place of those that are in use."""
    for old, new in ((files.cert, by.cert), (files.key, by.key), (files.ca, by.ca)):
        old.write_bytes(new.read_bytes())


def test_renewed_files_are_read_again_on_both_sides(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "server", tmp_path / "client"
    mine.mkdir()
    theirs.mkdir()
    old = Authority(tmp_path, "old", ends=now() + DAY / 4)
    new = Authority(tmp_path, "new", ends=now() + DAY)
    both = TlsFiles(mine / "tls.crt", mine / "tls.key", mine / "ca.crt")
    shown = TlsFiles(theirs / "tls.crt", theirs / "tls.key", theirs / "ca.crt")
    renew(both, old.issue("a"))
    renew(shown, old.issue_member("alpha", file="b"))
    with serving(DryRun(1, 9), tls=both) as target:
        with RpcClient(target, cluster="alpha", tls=shown) as client:
            assert client.scale(2).size == 2
            first = client.t_expires
            renew(both, new.issue("c"))
            renew(shown, new.issue_member("alpha", file="d"))
            assert client.scale(3).size == 3
            assert first is not None
            assert client.t_expires is not None
            assert client.t_expires > first
            assert client.status().t_certificate_expires > first
        # Who has the old authority alone is not let in any more.
        stale = old.issue_member("alpha", file="e")
        with channel(target, dataclasses.replace(stale, ca=new.file), stale) as connection:
            refused_at_the_door(connection)


def test_files_that_do_not_fit_together_are_left_until_they_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("mine")
    reloaded = Reloaded(files)
    assert reloaded.renewed() is None
    new = authority.issue("new")
    files.cert.write_bytes(new.cert.read_bytes())
    assert reloaded.renewed() is None
    assert "the certificates in use stay in use" in caplog.text
    files.key.write_bytes(new.key.read_bytes())
    contents = reloaded.renewed()
    assert contents is not None
    assert contents.key == new.key.read_bytes()
    assert reloaded.renewed() is None


@pytest.mark.parametrize("owners", [[], ["another"], ["uid/"], ["UID"], ["uid", "another"]])
def test_a_service_that_is_for_one_owner_takes_only_clients_of_it(
    authority: Authority, owners: list[str]
) -> None:
    uris = ["flux-ensemble://member/alpha", *(f"flux-ensemble://owner/{one}" for one in owners)]
    mine = authority.issue("owned", uris=uris)
    own = authority.issue("server")
    with (
        serving(DryRun(), tls=own, token=None, owner="uid") as target,
        RpcClient(target, cluster="alpha", tls=mine) as client,
    ):
        if "uid" in owners:
            assert client.scale(3).size == 3
            return
        for ask in (lambda: client.scale(3), client.status):
            with pytest.raises(RpcError, match="not of the owner that this service is") as caught:
                ask()
            assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
