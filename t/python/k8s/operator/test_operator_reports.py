"""What members report of their nodes and queues: by the service into the Ensemble's status."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest
from certificates import Authority
from ensembles import Bench, ensemble, member
from memory_api import MemoryApi
from patience import PATIENCE
from rpc_servers import serving

from flux_ensemble.k8s.grpc.backend import BackendError
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.minicluster import ConfigMap, Kubernetes

pytest_plugins = ["operator_cluster"]

NODES = {"node_cores_free": 2, "node_cores_up": 6, "node_up_count": 3, "node_free_count": 1}
QUEUE = {"sched": 4, "run": 2, "inactive": 0}


def service(bench: Bench) -> Kubernetes:
    """The back end of the service of an Ensemble, with the rights that it has."""
    owner = (bench.ensemble() or {})["metadata"]["uid"]
    client = bench.api.client(bench.api.account_token("default", "sweep-grpc"))
    return Kubernetes(client, owner=owner)


def report(backend: Kubernetes, name: str = "sweep-solve", **parts: Any) -> None:
    known = parts or {"nodes": NODES, "queue": QUEUE}
    backend.report(f"default/{name}", known, time.monotonic() + PATIENCE)


def in_the_status(bench: Bench) -> None:
    """Reports of two members are there, each and together, until a member ends."""
    bench.put(ensemble("sweep", member("a"), member("b")))
    bench.look()
    bench.pod(name="sweep-a")
    bench.pod(name="sweep-b")
    assert not bench.look().keys() & {"nodes", "queue"}
    backend = service(bench)
    report(backend, "sweep-a")
    report(backend, "sweep-b", nodes=NODES, queue={"run": 1})
    status = bench.look()
    assert status["nodes"] == {key: 2 * value for key, value in NODES.items()}
    assert status["queue"] == {"sched": 4, "run": 3, "inactive": 0}
    assert [one["flux"]["queue"]["run"] for one in status["members"]] == [2, 1]
    # The same again is no change of anything.
    before = bench.ensemble()
    report(backend, "sweep-a")
    bench.look()
    assert bench.ensemble() == before
    bench.end("sweep-b", state="completed", exit_code=0)
    status = bench.look()
    assert status["queue"] == QUEUE
    assert "flux" not in status["members"][1]


def test_what_members_report_is_in_the_status(bench: Bench) -> None:
    in_the_status(bench)


def kept(bench: Bench) -> dict[str, Any]:
    found = bench.admin.get("v1", "ConfigMap", "default", "sweep-grpc")
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"uid": "another", "queue": QUEUE}),
        json.dumps({"queue": QUEUE}),
        json.dumps({"uid": "UID", "queue": {"run": "many"}}),
        json.dumps({"uid": "UID", "queue": [1]}),
        json.dumps({"uid": "UID"}),
        json.dumps(["UID"]),
        "{",
        "",
    ],
)
def test_what_is_no_report_of_this_minicluster_is_none(bench: Bench, text: str) -> None:
    bench.put(ensemble())
    bench.look()
    bench.pod()
    text = text.replace("UID", (bench.minicluster() or {})["metadata"]["uid"])
    bench.admin.replace({**kept(bench), "data": {"sweep-solve": text}})
    status = bench.look()
    assert not status.keys() & {"nodes", "queue"}
    assert "flux" not in status["members"][0]


def test_the_reports_are_mended_and_made_again_without_what_was_in_them(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    bench.pod()
    backend = service(bench)
    report(backend)
    found = kept(bench)
    found["metadata"]["annotations"] = {}
    bench.admin.replace(found)
    assert bench.look()["queue"] == QUEUE
    bench.remove("v1", "ConfigMap", "sweep-grpc")
    with pytest.raises(BackendError, match="was not written"):
        report(backend)
    bench.look()
    assert "queue" not in bench.look()
    report(backend)
    assert bench.look()["queue"] == QUEUE


def test_the_service_can_write_no_other_config_map(bench: Bench, api: MemoryApi) -> None:
    bench.put(ensemble())
    bench.look()
    client = api.client(api.account_token("default", "sweep-grpc"))
    for forbidden in (
        lambda: client.patch(ConfigMap, "sweep-solve-document", {"data": {}}, namespace="default"),
        lambda: client.get(ConfigMap, "sweep-grpc", namespace="default"),
        lambda: list(client.list(ConfigMap, namespace="default")),
    ):
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            forbidden()
        assert caught.value.response.status_code == 403


def test_a_minicluster_of_no_ensemble_has_no_status_to_report_to(
    bench: Bench, api: MemoryApi
) -> None:
    bench.put(ensemble())
    bench.look()
    live = bench.minicluster()
    assert live is not None
    live["metadata"]["ownerReferences"][0]["kind"] = "Another"
    bench.admin.replace(live)
    before = len(api.writes)
    report(Kubernetes(api.client(api.account_token("default", "sweep-grpc"))))
    assert len(api.writes) == before


def test_a_member_reports_for_itself_only_and_a_stranger_for_nobody(
    bench: Bench, tmp_path: Any
) -> None:
    bench.put(ensemble())
    bench.look()
    bench.pod()
    authority = Authority(tmp_path)
    own, shown = authority.issue("server"), authority.issue_member("default/sweep-solve")
    clusters = ["default/sweep-solve", "default/other"]
    with serving(service(bench), clusters, tls=own, token=None) as target:
        with RpcClient(target, cluster="default/sweep-solve", tls=shown) as client:
            client.report({"nodes": NODES, "queue": QUEUE})
        with (
            RpcClient(target, cluster="default/other", tls=shown) as client,
            pytest.raises(RpcError, match="does not name cluster 'default/other'"),
        ):
            client.report({"queue": QUEUE})
    assert bench.look()["queue"] == QUEUE
    with (
        serving(service(bench), clusters, token=None) as target,
        RpcClient(target, cluster="default/sweep-solve") as client,
        pytest.raises(RpcError, match="that do not say who they are"),
    ):
        client.report({"queue": {"run": 99}})
    assert bench.look()["queue"] == QUEUE
