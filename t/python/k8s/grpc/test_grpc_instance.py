"""The back end `instance`, on ensemble services in memory in the place of Flux."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rpc_servers import PATIENCE, known_client, serving

from flux_ensemble.client import EnsembleError
from flux_ensemble.k8s.grpc import instances
from flux_ensemble.k8s.grpc.backend import (
    BackendError,
    BadSize,
    Contended,
    Grant,
    Refused,
    Size,
    Unavailable,
    UnknownCluster,
)
from flux_ensemble.k8s.grpc.client import RpcError
from flux_ensemble.k8s.grpc.clusters import Cluster, Clusters
from flux_ensemble.k8s.grpc.flux_instances import FluxInstances

CLUSTERS = (Cluster("alpha", uri="local://alpha"), Cluster("beta", uri="local://beta"))


class Service:
    """An ensemble service whose instance has 2 of 1 to 4 nodes, and changes when it is told."""

    def __init__(self) -> None:
        self.scaler: dict[str, Any] | None = {
            "kind": "instance",
            "low": 1,
            "high": 4,
            "changing_to": None,
            "trouble": None,
        }
        self.size: int | None = 2
        self.answer: dict[str, Any] = {}
        self.asked: list[int] = []
        self.connections = 0
        self.fault: Callable[[str], None] = lambda op: None

    def respond(self, op: str, payload: Mapping[str, Any]) -> Any:
        self.fault(op)
        if op == "status":
            own = {"nodes": self.size, "scaler": self.scaler, "failure": None}
            return {"ensembles": [], "instance": own} | self.answer
        assert op == "scale"
        assert self.scaler is not None
        self.asked.append(payload["to"])
        size = min(max(payload["to"], self.scaler["low"]), self.scaler["high"])
        self.scaler["changing_to"] = size
        return {"before": self.size, "size": size}

    def arrive(self) -> None:
        """What was begun is done."""
        assert self.scaler is not None
        self.size, self.scaler["changing_to"] = self.scaler["changing_to"], None


class Future:
    """The response to one request, made when somebody waits for it."""

    def __init__(self, respond: Callable[[], Any]) -> None:
        self._respond = respond
        self._answer: Any = None

    def wait_for(self, seconds: float) -> None:
        assert seconds > 0
        self._answer = self._respond()

    def get(self) -> Any:
        return self._answer


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> dict[str, Service]:
    """The ensemble services of `CLUSTERS`, by name."""
    services = {cluster.name: Service() for cluster in CLUSTERS}

    class Client:
        def __init__(self, *, uri: str) -> None:
            self._service = services[uri.removeprefix("local://")]
            self._service.connections += 1
            self._thread = threading.get_ident()

        def send(self, op: str, payload: Mapping[str, Any]) -> Future:
            assert threading.get_ident() == self._thread, "a handle belongs to its thread"
            return Future(lambda: self._service.respond(op, payload))

    monkeypatch.setattr(instances, "Client", Client)
    return services


@pytest.fixture
def alpha(services: dict[str, Service]) -> Service:
    return services["alpha"]


@pytest.fixture
def backend(services: dict[str, Service]) -> FluxInstances:
    return FluxInstances(CLUSTERS)


def soon() -> float:
    return time.monotonic() + PATIENCE


def raising(number: int, sentence: str) -> Callable[[str], None]:
    """A fault of every request."""

    def fault(op: str) -> None:
        raise EnsembleError(number, sentence)

    return fault


def test_a_change_is_begun_and_its_size_counts_at_once(
    alpha: Service, backend: FluxInstances
) -> None:
    assert backend.size("alpha", soon()) == Size(2, 1, 4)
    assert backend.scale("alpha", deadline=soon(), by=1) == Grant(2, 3)
    assert alpha.size == 2
    assert backend.size("alpha", soon()) == Size(3, 1, 4)
    assert backend.scale("alpha", deadline=soon(), by=1) == Grant(3, 4)
    alpha.arrive()
    assert backend.size("alpha", soon()) == Size(4, 1, 4)


def test_each_cluster_is_asked_at_its_own_instance(
    services: dict[str, Service], backend: FluxInstances
) -> None:
    assert backend.scale("beta", deadline=soon(), to=3) == Grant(2, 3)
    assert (services["alpha"].asked, services["beta"].asked) == ([], [3])


def test_a_thread_keeps_its_connection_to_a_cluster(alpha: Service, backend: FluxInstances) -> None:
    def grow_and_shrink() -> None:
        backend.scale("alpha", deadline=soon(), to=3)
        backend.scale("alpha", deadline=soon(), to=2)

    grow_and_shrink()
    assert alpha.connections == 1
    with ThreadPoolExecutor(1) as pool:
        pool.submit(grow_and_shrink).result(PATIENCE)
    assert alpha.connections == 2


def test_a_size_is_clamped_to_the_scalers_bounds(alpha: Service, backend: FluxInstances) -> None:
    assert backend.scale("alpha", deadline=soon(), by=10) == Grant(2, 4)
    assert backend.scale("alpha", deadline=soon(), by=-10) == Grant(4, 1)
    assert backend.scale("alpha", deadline=soon(), to=99) == Grant(1, 4)
    assert alpha.asked == [4, 1, 4]


def test_what_was_granted_is_what_the_scaler_says(alpha: Service, backend: FluxInstances) -> None:
    def lower(op: str) -> None:
        if op == "scale":
            assert alpha.scaler is not None
            alpha.scaler["high"] = 3

    alpha.fault = lower
    assert backend.scale("alpha", deadline=soon(), to=4) == Grant(2, 3)


def test_at_the_bound_it_is_refused_and_nothing_is_begun(
    alpha: Service, backend: FluxInstances
) -> None:
    alpha.size = 4
    with pytest.raises(Refused, match="'alpha' cannot grow: its size is 4, and its maximum is 4"):
        backend.scale("alpha", deadline=soon(), by=1)
    with pytest.raises(BadSize, match="must be 1 or more"):
        backend.scale("alpha", deadline=soon(), to=0)
    assert not alpha.asked


def test_the_size_that_it_has_is_asked_for_as_well_for_what_was_cut_short(
    alpha: Service, backend: FluxInstances
) -> None:
    assert backend.scale("alpha", deadline=soon(), to=2) == Grant(2, 2)
    assert alpha.asked == [2]


def test_an_instance_without_a_scaler_is_refused_with_what_to_do(
    alpha: Service, backend: FluxInstances
) -> None:
    alpha.scaler = None
    refused(backend, r"'alpha' has a fixed size: configure a scaler in \[ensemble\]")
    assert not alpha.asked


def test_a_scaler_that_asks_the_grpc_service_itself_is_refused(
    alpha: Service, backend: FluxInstances
) -> None:
    assert alpha.scaler is not None
    alpha.scaler["kind"] = "minicluster"
    refused(backend, "itself asks the gRPC service: run that with --backend kubernetes")
    assert not alpha.asked


def test_a_service_that_does_not_tell_of_its_clusters_is_refused(
    alpha: Service, backend: FluxInstances
) -> None:
    alpha.answer = {"instance": None}
    refused(backend, "older release, or the user of the gRPC service does not own the instance")


def test_bounds_that_contradict_each_other_are_refused(
    alpha: Service, backend: FluxInstances
) -> None:
    assert alpha.scaler is not None
    alpha.scaler["low"] = 5
    refused(backend, "'alpha' has a minimum size of 5, above its maximum of 4")


def test_a_size_that_is_not_known_yet_is_unavailable(
    alpha: Service, backend: FluxInstances
) -> None:
    alpha.size = None
    with pytest.raises(Unavailable, match="size of cluster 'alpha' is not known yet: try again"):
        backend.size("alpha", soon())


def test_a_cluster_that_is_not_listed_is_unknown(backend: FluxInstances) -> None:
    for ask in asks(backend, "gamma"):
        with pytest.raises(UnknownCluster, match="'gamma'"):
            ask()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSYS, Unavailable),
        (errno.EHOSTUNREACH, Unavailable),
        (errno.ECONNRESET, Unavailable),
        (errno.ESHUTDOWN, Unavailable),
        (errno.EAGAIN, Unavailable),
        (errno.EPERM, Refused),
        (errno.EINVAL, Refused),
    ],
    ids=lambda value: errno.errorcode.get(value) if isinstance(value, int) else None,
)
def test_what_the_ensemble_service_says_is_told_of_the_cluster(
    alpha: Service, backend: FluxInstances, number: int, kind: type[BackendError]
) -> None:
    alpha.fault = raising(number, "it says so")
    for ask in asks(backend, "alpha"):
        with pytest.raises(kind, match=r"cluster 'alpha': .*it says so"):
            ask()


def test_a_connection_that_was_lost_is_made_anew(alpha: Service, backend: FluxInstances) -> None:
    alpha.fault = raising(errno.ECONNRESET, "the connection to Flux was lost")
    with pytest.raises(Unavailable):
        backend.size("alpha", soon())
    alpha.fault = lambda op: None
    assert backend.size("alpha", soon()) == Size(2, 1, 4)
    assert alpha.connections == 2


def test_an_instance_that_is_not_there_is_unavailable(
    backend: FluxInstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(*, uri: str) -> None:
        raise EnsembleError(errno.ENOENT, f"there is no Flux instance at {uri!r}")

    monkeypatch.setattr(instances, "Client", client)
    for ask in asks(backend, "alpha"):
        with pytest.raises(Unavailable, match=r"'alpha' cannot be reached: .* at 'local://alpha'"):
            ask()


def test_an_answer_that_does_not_come_is_unavailable(
    alpha: Service, backend: FluxInstances
) -> None:
    def late(op: str) -> None:
        if op == "scale":
            raise TimeoutError(errno.ETIMEDOUT, "no answer")

    alpha.fault = late
    with pytest.raises(Unavailable, match="'alpha' did not answer the request 'scale' in time"):
        backend.scale("alpha", deadline=soon(), to=3)


def test_after_the_deadline_nothing_is_asked(alpha: Service, backend: FluxInstances) -> None:
    with pytest.raises(Unavailable, match="in time"):
        backend.scale("alpha", deadline=time.monotonic(), to=3)
    assert not alpha.asked


def test_changes_at_the_same_time_are_made_one_after_the_other(
    alpha: Service, backend: FluxInstances
) -> None:
    both_read = threading.Barrier(2)

    def meet(op: str) -> None:
        # Two that read the size before either of them changes it would meet here.
        if op == "scale":
            try:
                both_read.wait(0.1)
            except threading.BrokenBarrierError:
                return
            raise AssertionError("two changes at once")

    alpha.fault = meet
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(backend.scale, "alpha", deadline=soon(), by=1) for _ in range(2)]
        grants = [call.result(PATIENCE) for call in calls]
    assert sorted(grants, key=lambda one: one.size) == [Grant(2, 3), Grant(3, 4)]


@pytest.fixture
def hanging(alpha: Service) -> Iterator[threading.Semaphore]:
    """Requests to alpha hang until the end of the test; counts them."""
    entered, release = threading.Semaphore(0), threading.Event()

    def hang(op: str) -> None:
        entered.release()
        assert release.wait(PATIENCE)

    alpha.fault = hang
    yield entered
    release.set()


def test_a_change_behind_one_that_hangs_is_given_up_and_nothing_is_asked(
    alpha: Service, backend: FluxInstances, hanging: threading.Semaphore
) -> None:
    first = threading.Thread(
        target=lambda: backend.scale("alpha", deadline=soon(), to=3), daemon=True
    )
    first.start()
    assert hanging.acquire(timeout=PATIENCE)
    with pytest.raises(Contended, match="'alpha' was not changed: another change"):
        backend.scale("alpha", deadline=time.monotonic(), to=4)
    assert not alpha.asked


def test_an_instance_that_hangs_does_not_keep_others_waiting(
    backend: FluxInstances, hanging: threading.Semaphore
) -> None:
    table = Clusters([Cluster(one.name, has_flux=False) for one in CLUSTERS], str, discovered=False)
    with serving(backend, table) as target, ThreadPoolExecutor(8) as pool:
        clients = [known_client(target, cluster="alpha", timeout=PATIENCE) for _ in range(8)]
        for client in clients:
            pool.submit(client.size)
        # As many as are made at once for one cluster.
        for _ in range(4):
            assert hanging.acquire(timeout=PATIENCE)
        with known_client(target, cluster="beta", timeout=PATIENCE) as other:
            assert other.grow() == Grant(2, 3)
        for client in clients:
            client.close()


def test_a_client_sees_what_is_refused(alpha: Service, backend: FluxInstances) -> None:
    alpha.scaler = None
    table = Clusters([Cluster(one.name, has_flux=False) for one in CLUSTERS], str, discovered=False)
    with serving(backend, table) as target, known_client(target, cluster="alpha") as client:
        with pytest.raises(RpcError, match="has a fixed size") as caught:
            client.grow()
        assert caught.value.refused


def asks(backend: FluxInstances, cluster: str) -> tuple[Callable[[], object], ...]:
    """Both things that a back end can be asked."""
    return (
        lambda: backend.size(cluster, soon()),
        lambda: backend.scale(cluster, deadline=soon(), by=1),
    )


def refused(backend: FluxInstances, sentence: str) -> None:
    """Check that alpha neither has a size nor can change it."""
    for ask in asks(backend, "alpha"):
        with pytest.raises(Refused, match=sentence):
            ask()
