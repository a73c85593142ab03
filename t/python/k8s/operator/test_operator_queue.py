"""The queue of Ensembles, and the Lease of operators."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from memory_api import MemoryApi
from patience import PATIENCE

from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster
from flux_ensemble.k8s.operator.lease import Lease
from flux_ensemble.k8s.operator.queue import LAST, WorkQueue

pytest_plugins = ["operator_cluster"]


def test_one_that_fails_is_tried_again_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flux_ensemble.k8s.operator.queue.FIRST_PAUSE", 0.01)
    looks: Counter[str] = Counter()
    done = threading.Event()

    def look(namespace: str, name: str) -> None:
        looks[name] += 1
        if name == "broken":
            if looks[name] == 3:
                raise ValueError("nobody thought of this")
            if looks[name] < 5:
                raise ClusterFailure("no", 500)
            done.set()

    queue = WorkQueue(look, threads=1)
    queue.add(("a", "broken"))
    for number in range(20):
        queue.add(("a", str(number)))
    assert done.wait(PATIENCE)
    queue.close()
    assert looks["broken"] == 5
    assert all(looks[str(number)] == 1 for number in range(20))


def looks_of(*added: str, patience: float) -> list[str]:
    """The order of looks by one thread, where each is to be looked at once more, the last."""
    looked: list[str] = []
    begin, done = threading.Event(), threading.Event()

    def look(namespace: str, name: str) -> float | None:
        assert begin.wait(PATIENCE)
        looked.append(name)
        if len(looked) == 2 * len(added):
            done.set()
        return LAST if looked.count(name) == 1 else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flux_ensemble.k8s.operator.queue._LONGEST_LAST", patience)
        queue = WorkQueue(look, threads=1)
        for name in added:
            queue.add(("a", name))
        begin.set()
        assert done.wait(PATIENCE)
        queue.close()
    return looked


def test_what_may_wait_comes_after_all_that_are_due() -> None:
    assert looks_of("x", "y", "z", patience=PATIENCE) == ["x", "y", "z", "x", "y", "z"]


def test_what_may_wait_does_not_wait_for_ever() -> None:
    assert looks_of("x", "y", "z", patience=0.0) == ["x", "x", "y", "y", "z", "z"]


def test_one_that_may_wait_goes_on_waiting_though_it_has_changed() -> None:
    looked: list[str] = []
    done = threading.Event()

    def look(namespace: str, name: str) -> float | None:
        looked.append(name)
        if name == "x" and looked.count("x") == 1:
            queue.add(("a", "x"), 0.0001)
            queue.add(("a", "x"))
            for other in "yz":
                queue.add(("a", other))
            return LAST
        if looked.count("x") == 2:
            done.set()
        return None

    queue = WorkQueue(look, threads=1)
    queue.add(("a", "x"))
    assert done.wait(PATIENCE)
    queue.close()
    assert looked == ["x", "y", "z", "x"]


def test_one_is_looked_at_once_at_a_time_and_again_if_it_was_added_meanwhile() -> None:
    begun, go_on, again = threading.Semaphore(0), threading.Event(), threading.Event()
    at_once: list[int] = []
    busy = 0

    def look(namespace: str, name: str) -> None:
        nonlocal busy
        busy += 1
        at_once.append(busy)
        begun.release()
        assert go_on.wait(PATIENCE)
        busy -= 1
        if len(at_once) == 2:
            again.set()

    queue = WorkQueue(look, threads=3)
    queue.add(("a", "b"))
    assert begun.acquire(timeout=PATIENCE)
    for _ in range(5):
        queue.add(("a", "b"))
    assert queue.age() >= 0
    go_on.set()
    assert again.wait(PATIENCE)
    queue.close()
    assert at_once == [1, 1]


def test_one_is_looked_at_again_when_it_has_asked_for_that() -> None:
    looks: list[float] = []
    done = threading.Event()

    def look(namespace: str, name: str) -> float | None:
        looks.append(0)
        if len(looks) == 2:
            done.set()
            return None
        return 0.01

    queue = WorkQueue(look)
    queue.add(("a", "b"))
    assert done.wait(PATIENCE)
    queue.close()
    assert len(looks) == 2


LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/flux-ensemble/leases/flux-ensemble-operator"


def lease(api: MemoryApi, holder: str, seconds: float = 1.5) -> Lease:
    token = api.account_token("flux-ensemble", "flux-ensemble-operator")
    cluster = KubernetesCluster(api.client(token))
    return Lease(cluster, "flux-ensemble", "flux-ensemble-operator", holder, seconds=seconds)


def test_of_two_operators_one_has_the_lease_until_it_is_silent(api: MemoryApi) -> None:
    first, second = lease(api, "first"), lease(api, "second")
    assert first.wait()
    assert not second._try()
    lost = threading.Event()
    first.keep(lost.set)
    # It gives it back: the other one need not wait until it has run out.
    first.release()
    assert second.wait()
    assert not lost.is_set()
    # The next one is silent at once, as one that was killed is.
    third = lease(api, "third")
    assert third.wait()
    assert not second._try()


def test_an_operator_that_cannot_renew_its_lease_is_told_in_time(api: MemoryApi) -> None:
    first = lease(api, "first")
    assert first.wait()
    lost = threading.Event()
    first.keep(lost.set)
    api.users.clear()
    assert lost.wait(PATIENCE)


def http(status: str, *headers: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


JSON = "Content-Type: application/json"

#: What comes from a proxy, a load balancer or an API server that is ending, in place of an answer.
GARBAGE = {
    "no content type": http("503 Service Unavailable", body="no healthy upstream"),
    "a page": http("502 Bad Gateway", "Content-Type: text/html", body="<html>"),
    "a page that is no error": http("200 OK", "Content-Type: text/html", body="<html>sign in"),
    "half an error": http("500 Internal Server Error", JSON, body='{"kind": "Status", "mess'),
    "an error that is a list": http("500 Internal Server Error", JSON, body="[]"),
    "half an object": http("200 OK", JSON, body='{"kind": "Lease", "metadata": {"na'),
    "too few bytes": http("200 OK", JSON, "Content-Length: 9000", body='{"kind": "Lease"}'),
    "nothing": http("200 OK", JSON),
    "a number": http("200 OK", JSON, body="7"),
    "another object": http("200 OK", JSON, body='{"kind": "Lease"}'),
    "an empty object": http("200 OK", JSON, body="{}"),
    "not HTTP": b"\x00\x01",
    "no answer": b"",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_nothing_that_arrives_ends_the_attempts_to_have_the_lease(
    api: MemoryApi, garbage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has it goes on, and so does the one that waits for it."""
    # It tries often, and has long to succeed.
    monkeypatch.setattr("flux_ensemble.k8s.operator.lease.RETRY_SECONDS", 0.001)
    first, second = lease(api, "first", 900), lease(api, "second", 900)
    assert first.wait()
    lost = threading.Event()
    asked = threading.Semaphore(0)

    def instead(method: str, path: str) -> bytes | None:
        if "/leases" not in path:
            return None
        asked.release()
        return garbage

    api.instead = instead
    first.keep(lost.set)
    for _ in range(4):
        assert asked.acquire(timeout=PATIENCE)
    assert not second._try()
    before = renewed(api)
    api.instead = lambda method, path: None
    deadline = time.monotonic() + PATIENCE
    while renewed(api) == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not lost.is_set()
    first.release()
    assert second.wait()


def renewed(api: MemoryApi) -> str:
    """When the Lease was renewed."""
    t_renewed: str = api.answer("GET", LEASE_PATH, "admin", None, "")[1]["spec"]["renewTime"]
    return t_renewed


def test_a_leader_stops_though_the_answer_to_its_renewal_never_ends(api: MemoryApi) -> None:
    first = lease(api, "first")
    assert first.wait()
    lost, go_on = threading.Event(), threading.Event()

    def hang(method: str, path: str) -> bytes:
        go_on.wait(PATIENCE)
        return b""

    api.instead = hang
    first.keep(lost.set)
    try:
        assert lost.wait(PATIENCE)
    finally:
        go_on.set()


def test_a_leader_stops_when_another_one_has_the_lease(api: MemoryApi) -> None:
    """As after somebody has deleted the Lease: both would work until the time is up."""
    token = api.account_token("flux-ensemble", "flux-ensemble-operator")
    place = "flux-ensemble", "flux-ensemble-operator"
    first, second = (
        Lease(KubernetesCluster(api.client(token)), *place, one, seconds=900) for one in "ab"
    )
    assert first.wait()
    api.answer("DELETE", LEASE_PATH, "admin", None, "")
    assert second.wait()
    lost = threading.Event()
    first._seconds = 1.5  # It tries at once; the time to renew it is far from being over.
    first._t_renewed += 1000
    first.keep(lost.set)
    assert lost.wait(PATIENCE)
