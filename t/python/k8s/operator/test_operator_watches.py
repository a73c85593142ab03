"""What the operator knows of a cluster without asking it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx2
import pytest
from ensembles import KUBERNETES, Bench, condition, ensemble, member, objects, write_status
from lightkube import ApiError, Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import OnErrorAction, OnErrorResult
from memory_api import Failure, MemoryApi
from patience import PATIENCE
from test_operator_queue import GARBAGE

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import PLURALS, ClusterFailure
from flux_ensemble.k8s.operator.queue import LAST
from flux_ensemble.k8s.operator.reconcile import Reconciler
from flux_ensemble.k8s.operator.render import Settings
from flux_ensemble.k8s.operator.watches import KINDS as WATCHED
from flux_ensemble.k8s.operator.watches import Seen

pytest_plugins = ["operator_cluster"]

RIGHTS = KUBERNETES / "cluster-wide" / "rights.yaml"

MINICLUSTERS = names.MINICLUSTER, "MiniCluster"


class Watching:
    """A reconciler that reads what watches tell of."""

    def __init__(self, api: MemoryApi, bench: Bench) -> None:
        self.api = api
        self.changed: list[tuple[str, str]] = []
        self._bench = bench
        client = api.client(api.account_token("flux-ensemble", "flux-ensemble-operator"))
        self.seen = Seen(client, {"*": client}, lambda *key: self.changed.append(key))
        self.seen.start(PATIENCE)
        self._reconciler = Reconciler(
            self.seen, Settings("image:1"), bench.metrics, lambda: bench.moment
        )

    def reconcile(self) -> None:
        while self._reconciler.reconcile("default", "sweep") == LAST:
            pass

    def look(self) -> dict[str, Any]:
        self.reconcile()
        status: dict[str, Any] = (self._bench.ensemble() or {})["status"]
        return status

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def knows(self) -> None:
        """Wait until it knows all that there is."""
        for kind in KINDS:
            self.until(partial(self.is_known, kind))

    def is_known(self, kind: tuple[str, str]) -> bool:
        return self.versions(self.seen, kind) == self.there(kind)

    def versions(self, cluster: Any, kind: tuple[str, str]) -> dict[str, str]:
        found = cluster.list(*kind, "default", labels=f"{names.ENSEMBLE_LABEL}=sweep")
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}

    def there(self, kind: tuple[str, str]) -> dict[str, str]:
        return self.versions(self._bench.admin, kind)

    def count(self) -> list[str]:
        """The requests from now on, but for watches."""
        asked: list[str] = []

        def instead(method: str, path: str) -> None:
            if "watch=true" not in path:
                asked.append(f"{method} {path}")

        self.api.instead = instead
        return asked


KINDS = (
    MINICLUSTERS,
    ("apps/v1", "Deployment"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "Pod"),
    ("policy/v1", "PodDisruptionBudget"),
)


@pytest.fixture
def watching(api: MemoryApi, bench: Bench) -> Iterator[Watching]:
    watching = Watching(api, bench)
    yield watching
    watching.seen.close()


def put(bench: Bench, watching: Watching, manifest: dict[str, Any]) -> None:
    """Make or change an Ensemble, and wait until it is known."""
    bench.put(manifest)
    live = bench.ensemble()
    assert live is not None
    version = live["metadata"]["resourceVersion"]

    def known() -> bool:
        seen = watching.seen.known(names.API_VERSION, names.KIND, "default", "sweep")
        return seen is not None and seen["metadata"]["resourceVersion"] == version

    watching.until(known)


def test_a_look_at_an_ensemble_that_is_as_it_is_to_be_asks_nothing(
    bench: Bench, watching: Watching
) -> None:
    put(bench, watching, ensemble())
    watching.look()
    watching.look()
    watching.knows()
    asked = watching.count()
    for _ in range(5):
        watching.reconcile()
    assert asked == []


def test_one_whose_pods_wait_is_asked_for_nothing_either(bench: Bench, watching: Watching) -> None:
    put(bench, watching, ensemble("sweep", member(size=2)))
    watching.look()
    bench.flux()
    pod = bench.live_pod()
    lacks = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    write_status(
        bench.admin, pod, {"phase": "Pending", "conditions": [{**lacks, "message": "0/3 nodes"}]}
    )
    watching.knows()
    status = watching.look()
    assert "cannot be scheduled: 0/3 nodes" in status["members"][0]["reason"]
    asked = watching.count()
    for _ in range(5):
        watching.reconcile()
    assert asked == []


def test_all_that_is_listed_is_watched_and_may_be() -> None:
    watched = {(kind.api_version, kind.kind) for kind in WATCHED}
    listed = {("batch/v1", "Job"), ("v1", "Pod"), ("v1", "Event")}
    assert {*names.OWN, *listed, (names.API_VERSION, names.KIND)} == watched
    (role,) = (one for one in objects(RIGHTS) if one["kind"] == "ClusterRole")
    for api_version, kind in watched:
        group = api_version.rpartition("/")[0]
        plural = PLURALS[api_version, kind]
        (verbs,) = (
            set(rule["verbs"])
            for rule in role["rules"]
            if group in rule["apiGroups"] and plural in rule["resources"]
        )
        assert {"list", "watch"} <= verbs, kind


def test_each_change_of_what_is_of_an_ensemble_is_told_once_and_ones_own_are_not(
    bench: Bench, watching: Watching
) -> None:
    put(bench, watching, ensemble())
    watching.look()
    watching.look()
    watching.knows()
    watching.changed.clear()
    live = bench.minicluster()
    assert live is not None
    bench.admin.resize(live, 2)
    watching.until(lambda: bool(watching.changed))
    watching.knows()
    assert watching.changed == [("default", "sweep")]


def made(api: MemoryApi) -> list[str]:
    return [one for one in api.writes if one.startswith("POST") and " events " not in one]


def test_what_is_written_is_known_at_once(bench: Bench, watching: Watching) -> None:
    """A look that begins before a watch tells of it makes nothing twice."""
    put(bench, watching, ensemble(onChange="Recreate"))
    watching.look()
    before = made(watching.api)
    watching.look()
    assert made(watching.api) == before


def test_what_is_deleted_does_not_come_back_by_a_late_answer(
    bench: Bench, watching: Watching
) -> None:
    put(bench, watching, ensemble())
    watching.look()
    watching.knows()
    live = watching.seen.list(*MINICLUSTERS, "default")[0]
    watching.changed.clear()
    watching.seen.delete(live)
    # There is something to make now, and no other word of it.
    assert watching.changed == [("default", "sweep")]
    assert watching.seen.list(*MINICLUSTERS, "default") == []
    # An answer to a write that was under way.
    watching.seen._wrote(live)
    assert watching.seen.list(*MINICLUSTERS, "default") == []
    watching.look()
    # Another one of that name is another one.
    (again,) = watching.seen.list(*MINICLUSTERS, "default")
    assert again["metadata"]["uid"] != live["metadata"]["uid"]


def test_a_kind_that_comes_after_the_operator_is_watched_when_it_comes(
    bench: Bench, api: MemoryApi
) -> None:
    kinds = api._kinds.pop(names.MINICLUSTER)
    watching = Watching(api, bench)
    try:
        bench.put(ensemble())
        watching.until(lambda: watching.changed == [("default", "sweep")])
        with pytest.raises(ClusterFailure):
            watching.look()
        status = (bench.ensemble() or {})["status"]
        assert "install the Flux Operator" in condition(status, "Ready")[2]
        watching.changed.clear()
        api._kinds[names.MINICLUSTER] = kinds
        watching.until(lambda: bool(watching.changed))
        watching.look()
        assert bench.minicluster() is not None
    finally:
        watching.seen.close()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_whatever_comes_in_place_of_a_watch_is_outlived(
    bench: Bench, api: MemoryApi, garbage: bytes
) -> None:
    watching = Watching(api, bench)
    bad = [garbage] * 3
    api.instead = lambda method, path: (
        bad.pop() if bad and "/miniclusters" in path and method == "GET" else None
    )
    try:
        # The watch that is open ends, and the next lists are garbage.
        api.end_watches()
        watching.until(lambda: not bad)
        put(bench, watching, ensemble())
        watching.look()
        api.instead = lambda method, path: None
        live = bench.minicluster()
        assert live is not None
        bench.admin.resize(live, 2)
        watching.until(
            lambda: (
                [one["spec"]["size"] for one in watching.seen.list(*MINICLUSTERS, "default")] == [2]
            )
        )
    finally:
        watching.seen.close()


def test_what_happened_while_nobody_watched_is_in_the_next_list(
    bench: Bench, watching: Watching, api: MemoryApi
) -> None:
    put(bench, watching, ensemble())
    watching.look()
    watching.knows()

    def refuse(method: str, plural: str, name: str) -> None:
        if method == "GET" and not name and plural == "miniclusters":
            raise Failure(410, "Expired", "too old resource version")

    api.refuse = refuse
    watching.changed.clear()
    api.end_watches()
    bench.remove(*MINICLUSTERS, "sweep-solve")
    bench.remove("v1", "ConfigMap", "sweep-solve-document")
    api.refuse = lambda *_: None
    watching.until(lambda: watching.seen.list(*MINICLUSTERS, "default") == [])
    watching.until(lambda: bool(watching.changed))
    watching.look()
    assert bench.minicluster() is not None


def test_what_is_made_while_a_list_is_under_way_stays_known(
    bench: Bench, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bench, watching, ensemble())
    watch = watching.seen._watches[*MINICLUSTERS, "*"]
    requests = watch._client._client
    pages = requests.list_chunks

    def late(request: Any) -> Iterator[Any]:
        listed = list(pages(request))
        monkeypatch.undo()
        watching.look()
        return iter(listed)

    monkeypatch.setattr(requests, "list_chunks", late)
    watch._relist()
    assert [one["metadata"]["name"] for one in watching.seen.list(*MINICLUSTERS, "default")] == [
        "sweep-solve"
    ]
    before = made(watching.api)
    watching.look()
    assert made(watching.api) == before


def test_a_text_with_any_separator_is_one_event(bench: Bench, watching: Watching) -> None:
    text = "jobs: [{name: a, command: a}]  # \x85 \u2028 \x0b \u2029\n"
    put(bench, watching, ensemble("sweep", member(document=text)))
    seen = watching.seen.known(names.API_VERSION, names.KIND, "default", "sweep")
    assert seen is not None
    assert seen["spec"]["members"][0]["ensemble"] == text


def test_what_cannot_be_read_is_no_empty_cluster(bench: Bench, api: MemoryApi) -> None:
    """All would be made again, or taken for gone."""

    def refuse(method: str, plural: str, name: str) -> None:
        if method == "GET" and plural == "pods":
            raise Failure(403, "Forbidden", "pods is forbidden")

    api.refuse = refuse
    watching = Watching(api, bench)
    try:
        with pytest.raises(ClusterFailure, match="Pod cannot be listed: pods is forbidden"):
            watching.seen.list("v1", "Pod", "default")
    finally:
        watching.seen.close()


def config_map(name: str, version: int, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Watched:
    """An API server that sends events to lightkube's own watch, and then an error.

    Args:
        answers: the events of each response.

    Attributes:
        requests: what was asked.
    """

    def __init__(self, *answers: list[tuple[str, dict[str, Any]]]) -> None:
        self._left = list(answers)
        self.requests: list[httpx2.Request] = []

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        over = [("ERROR", {"message": "over", "code": 500})]
        events = self._left.pop(0) if self._left else over
        lines = [json.dumps({"type": t, "object": o}, ensure_ascii=False) for t, o in events]
        self.requests.append(request)
        return httpx2.Response(200, content="".join(f"{line}\n" for line in lines).encode())

    def told(self) -> list[Any]:
        """What the watch yields, and the error at its end."""

        def again(error: Exception, count: int) -> OnErrorResult:
            gone = isinstance(error, ApiError) and error.status.code == 410
            return OnErrorResult(OnErrorAction.RETRY if gone else OnErrorAction.RAISE)

        cluster = Cluster(server="http://kubernetes.invalid")
        config = KubeConfig.from_one(cluster=cluster, user=User(), namespace="default")
        seen: list[Any] = []
        with Client(config=config, transport=httpx2.MockTransport(self._answer)) as client:
            try:
                for what, one in client.watch(ConfigMap, on_error=again):
                    assert one.metadata is not None
                    seen.append((what, one.metadata.name))
            except Exception as error:
                seen.append(type(error).__name__)
        return seen


def test_why_lightkubes_own_watch_is_not_used() -> None:
    """When this fails, it may be of use."""
    # A text may have a separator of lines that is none of the protocol.
    separated = config_map("a", 1, text="one\u2028two")
    assert Watched([("ADDED", separated)]).told() == ["DecodeError"]
    # What is deleted while the position is forgotten is not told of.
    gone = {"kind": "Status", "message": "too old resource version", "code": 410}
    two = [("ADDED", config_map("a", 1)), ("ADDED", config_map("b", 2)), ("ERROR", gone)]
    seen = Watched(two, [("ADDED", config_map("b", 2))]).told()
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "b"), "ApiError"]
    # A response that ends is followed by the next request, whatever the caller wants.
    ends = Watched([], [], [], [])
    assert ends.told() == ["ApiError"]
    assert len(ends.requests) == 5
    # A connection that is lost silently is waited for without end.
    assert ends.requests[0].extensions["timeout"]["read"] is None
