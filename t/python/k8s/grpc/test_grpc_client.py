"""The client: what it sends again, and what it makes of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import grpc
import pytest
from ports import free_ports
from rpc_servers import PATIENCE, Failing, Held, known_client, serving

from flux_ensemble.k8s.grpc.admission import Bound, Limits
from flux_ensemble.k8s.grpc.backend import (
    Contended,
    DryRun,
    Grant,
    Refused,
    Size,
    Unavailable,
    UnknownCluster,
)
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb


def test_the_size_can_be_read_and_changed() -> None:
    with serving(DryRun(1, 5)) as target, known_client(target) as client:
        assert client.size() == Size(1, 1, 5)
        assert client.grow(2) == Grant(1, 3)
        assert client.shrink() == Grant(3, 2)
        assert client.scale(99) == Grant(2, 5)
        assert client.status().size.nodes == 5


def test_a_client_takes_a_cluster_by_the_argument_that_it_had_before() -> None:
    with serving(DryRun(), ("alpha", "beta")) as target:
        with pytest.warns(DeprecationWarning, match="member= is deprecated: use cluster="):
            client = RpcClient(target, member="beta")  # type: ignore[call-arg]
        with client:
            assert client.cluster == "beta"
            assert client.status().cluster == "beta"


def test_the_bytes_of_a_request_are_those_of_clients_that_are_older() -> None:
    old = b"\x0a\x04beta\x18\x01"
    assert pb.StatusRequest(cluster="beta", size_only=True).SerializeToString() == old
    assert pb.StatusRequest.FromString(old).cluster == "beta"


def test_a_change_at_the_bound_is_refused() -> None:
    with serving(DryRun(1, 2)) as target, known_client(target) as client:
        with pytest.raises(
            RpcError, match="cluster 'alpha' cannot shrink: its size is 1"
        ) as caught:
            client.shrink()
        assert caught.value.refused
        assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION


FAULTS = [Unavailable("down"), Contended("later"), Unavailable("down again")]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda client: client.size(), Size(1, 1, 9)),
        (lambda client: client.scale(3), Grant(1, 3)),
        (lambda client: client.grow(3), Grant(1, 4)),
    ],
    ids=["size", "scale", "grow"],
)
def test_a_fault_that_passes_is_waited_out(
    ask: Callable[[RpcClient], object], expected: object
) -> None:
    backend = Failing(*FAULTS)
    with serving(backend) as target, known_client(target) as client:
        assert ask(client) == expected
    assert not backend.exceptions


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Refused("no"), grpc.StatusCode.FAILED_PRECONDITION),
        (UnknownCluster("who"), grpc.StatusCode.NOT_FOUND),
    ],
)
def test_a_decision_is_not_asked_for_again(fault: Exception, code: grpc.StatusCode) -> None:
    backend = Failing(fault, Unavailable("not reached"))
    with serving(backend) as target, known_client(target) as client:
        with pytest.raises(RpcError, match=f"^{fault}$") as caught:
            client.scale(3)
        assert caught.value.code is code
    assert len(backend.exceptions) == 1


def test_a_fault_that_stays_is_told_when_the_time_is_up() -> None:
    backend = Failing(*(Unavailable(f"down {number}") for number in range(99)))
    with (
        serving(backend) as target,
        RpcClient(target, timeout=2) as client,
        pytest.raises(RpcError, match=r"^down \d+$") as caught,
    ):
        client.scale(3)
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert not caught.value.refused


def test_a_service_that_is_not_there_is_named() -> None:
    target = f"localhost:{free_ports(1)[0]}"
    with (
        RpcClient(target, timeout=2) as client,
        pytest.raises(RpcError, match=f"the gRPC service at {target} is not available"),
    ):
        client.size()


def test_a_service_that_comes_later_is_waited_for() -> None:
    port = free_ports(1)[0]
    sizes: list[Size] = []
    with RpcClient(f"localhost:{port}", timeout=PATIENCE) as client:
        thread = threading.Thread(target=lambda: sizes.append(client.size()))
        thread.start()
        with serving(DryRun(2, 3), port=port):
            thread.join(PATIENCE)
    assert sizes == [Size(2, 2, 3)]


def test_a_service_that_hangs_is_given_up() -> None:
    held = Held()
    with serving(held) as target, known_client(target, timeout=0.3) as client:
        with pytest.raises(RpcError, match="did not answer in time") as caught:
            client.size()
        assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
        held.release.set()


def test_a_service_that_is_full_is_asked_again() -> None:
    held = Held()
    sizes: list[Size] = []
    with (
        serving(held, limits=Limits(requests=Bound(1, 1, 1))) as target,
        known_client(target, timeout=PATIENCE) as client,
    ):
        threads = [threading.Thread(target=lambda: sizes.append(client.size())) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert held.entered.acquire(timeout=PATIENCE)
        held.release.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert sizes == [Size(1, 1, 9)] * 3


def test_what_must_not_be_done_twice_is_not_sent_again() -> None:
    with serving(DryRun()) as target, known_client(target) as client:
        for ask in (
            lambda: client.submit("hello", "echo"),
            lambda: client.action("hello", {"name": "terminate"}),
            lambda: list(client.log("hello")),
        ):
            with pytest.raises(RpcError, match="--cluster NAME=URI gives it one"):
                ask()
