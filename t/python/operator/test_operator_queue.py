"""The queue of Ensembles, and the Lease of operators."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from memory_api import MemoryApi
from patience import PATIENCE

from flux_ensemble.operator.cluster import Cluster, ClusterFailure
from flux_ensemble.operator.lease import Lease
from flux_ensemble.operator.queue import Queue

pytest_plugins = ["operator_cluster"]


def test_one_that_fails_is_tried_again_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flux_ensemble.operator.queue.FIRST_PAUSE", 0.01)
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

    queue = Queue(look, threads=1)
    queue.add(("a", "broken"))
    for number in range(20):
        queue.add(("a", str(number)))
    assert done.wait(PATIENCE)
    queue.close()
    assert looks["broken"] == 5
    assert all(looks[str(number)] == 1 for number in range(20))


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

    queue = Queue(look, threads=3)
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

    queue = Queue(look)
    queue.add(("a", "b"))
    assert done.wait(PATIENCE)
    queue.close()
    assert len(looks) == 2


def lease(api: MemoryApi, holder: str) -> Lease:
    token = api.account_token("flux-ensemble", "flux-ensemble-operator")
    cluster = Cluster(api.client(token))
    return Lease(cluster, "flux-ensemble", "flux-ensemble-operator", holder, seconds=1.5)


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
