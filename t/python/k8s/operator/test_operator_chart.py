"""The chart on a real API server: Helm's own library installs it, with each value changed once.

PROMETHEUS_CRDS can name a folder with the CRDs of the Prometheus Operator, as its repository has
them; without it they are stood in for by some that take anything.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apiserver
import httpx2
import pytest
import yaml
from ensembles import CRDS, KUBERNETES, Bench, ensemble, objects
from lightkube.codecs import load_all_yaml
from test_operator_app import until
from test_operator_install import VALUES

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster

pytestmark = apiserver.MARKS

CHART = KUBERNETES / "chart"
RELEASE = "ensembles"
NAMESPACE = "team-a"


def monitoring() -> list[dict[str, Any]]:
    """The CRDs of the Prometheus Operator."""
    folder = os.environ.get("PROMETHEUS_CRDS")
    if folder:
        kinds = ("servicemonitors", "podmonitors")
        return objects(*(Path(folder) / f"monitoring.coreos.com_{kind}.yaml" for kind in kinds))
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.monitoring.coreos.com"},
            "spec": {
                "group": "monitoring.coreos.com",
                "names": {"kind": kind, "plural": f"{kind.lower()}s"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": anything},
                    }
                ],
            },
        }
        for kind in ("ServiceMonitor", "PodMonitor")
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apiserver.ApiServer]:
    pytest.importorskip("helm_python")
    with apiserver.api_server(tmp_path_factory.mktemp("apiserver"), {}) as server:
        yield server


@pytest.fixture
def cluster(server: apiserver.ApiServer) -> KubernetesCluster:
    return KubernetesCluster(server.client())


def monitors(server: apiserver.ApiServer, plural: str) -> list[str] | None:
    """The names of objects of the Prometheus Operator; None where their CRD is not served."""
    answer = httpx2.get(
        f"{server.url}/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/{plural}",
        headers={"Authorization": "Bearer admin"},
        verify=False,
    )
    if answer.status_code == 404:
        return None
    return [one["metadata"]["name"] for one in answer.raise_for_status().json()["items"]]


def test_helm_installs_the_chart_changes_each_value_once_and_takes_it_away(
    server: apiserver.ApiServer, cluster: KubernetesCluster
) -> None:
    import helm_python

    for one in load_all_yaml("---\n".join(yaml.safe_dump(crd) for crd in monitoring())):
        server.client().create(one)
    until(
        lambda: None not in (monitors(server, "servicemonitors"), monitors(server, "podmonitors")),
        "the CRDs are not established",
    )
    with helm_python.Config(
        kubeconfig_content=server.kubeconfig("admin"), namespace=NAMESPACE
    ) as helm:
        helm.install(str(CHART), RELEASE, {}, create_namespace=True)
        assert cluster.list(names.API_VERSION, names.KIND, NAMESPACE) == []
        for key, value in VALUES.items():
            release = helm.upgrade(str(CHART), RELEASE, {key: value}, reset_values=True)
            assert release["status"] == "deployed", release
            live = cluster.get("apps/v1", "Deployment", NAMESPACE, "flux-ensemble-operator")
            assert live is not None
            if key == "replicas":
                assert live["spec"]["replicas"] == value
            if key == "networkPolicy":
                policies = cluster.list("networking.k8s.io/v1", "NetworkPolicy", NAMESPACE)
                assert [one["metadata"]["name"] for one in policies] == ["flux-ensemble-operator"]
            if key == "serviceMonitor":
                assert monitors(server, "servicemonitors") == ["flux-ensemble-operator"]
                assert monitors(server, "podmonitors") == ["flux-ensemble-services"]
        with helm_python.Config(
            kubeconfig_content=server.kubeconfig("admin"), namespace="team-b"
        ) as another:
            own = {"rbac": VALUES["rbac"]}
            with pytest.raises(helm_python.HelmError, match=r"ClusterRole.*exists"):
                another.install(str(CHART), "second", {}, create_namespace=True)
            another.uninstall("second", ignore_not_found=True)
            another.install(str(CHART), "second", own, create_namespace=True)
            another.uninstall("second")
        # All at once, and what is wrong changes nothing.
        helm.upgrade(str(CHART), RELEASE, VALUES, reset_values=True)
        with pytest.raises(helm_python.HelmError, match="replicas"):
            helm.upgrade(str(CHART), RELEASE, {"replicas": "two"}, reset_values=True)
        live = cluster.get("apps/v1", "Deployment", NAMESPACE, "flux-ensemble-operator")
        assert live is not None
        assert live["spec"]["replicas"] == 3
        helm.uninstall(RELEASE)
    assert cluster.get("apps/v1", "Deployment", NAMESPACE, "flux-ensemble-operator") is None
    # Helm keeps CRDs, and so all Ensembles.
    assert cluster.list(names.API_VERSION, names.KIND, NAMESPACE) == []


def request(
    server: apiserver.ApiServer, method: str, path: str, body: Any = None
) -> httpx2.Response:
    return httpx2.request(
        method,
        f"{server.url}{path}",
        json=body,
        headers={"Authorization": "Bearer admin"},
        verify=False,
    )


def test_a_second_version_of_the_same_schema_needs_no_conversion(
    server: apiserver.ApiServer,
) -> None:
    """As docs/kubernetes-operations.md has it: served, then stored, and the first one goes on."""
    bench = Bench(server, "admin")
    (crd,) = objects(CRDS[0])
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in (CRDS[1], CRDS[0]):
        (one,) = objects(file)
        assert request(server, "POST", where, one).status_code in (201, 409)

    def put(name: str) -> bool:
        try:
            bench.put(ensemble(name))
        except ClusterFailure:
            return False  # It is not established yet.
        return True

    until(lambda: put("sweep"), "the CRD is not established")
    bench.look()
    first, second = crd["spec"]["versions"][0], copy.deepcopy(crd["spec"]["versions"][0])
    second["name"] = "v1beta1"
    beta = f"/apis/{names.GROUP}/v1beta1/namespaces/default/{names.PLURAL}"
    for stored in ("v1alpha1", "v1beta1"):
        for one in (first, second):
            one["storage"] = one["name"] == stored
        path = f"{where}/{crd['metadata']['name']}"
        live = request(server, "GET", path).json()
        live["spec"] |= {"versions": [first, second], "conversion": {"strategy": "None"}}
        assert request(server, "PUT", path, live).status_code == 200
        name = f"stored-{stored}"
        until(lambda: request(server, "GET", beta).status_code == 200, "it is not served")
        # One that is made as the new version is looked after as the old one.
        made = {**ensemble(name), "apiVersion": f"{names.GROUP}/v1beta1"}
        until(
            lambda made=made: request(server, "POST", beta, made).status_code in (201, 409),  # type: ignore[misc]
            "it cannot be made",
        )
        assert bench.look(name)["phase"] == "Pending"
        found = request(server, "GET", f"{beta}/sweep").json()
        assert found["apiVersion"] == f"{names.GROUP}/v1beta1"
        assert found["status"]["observedGeneration"] == 1
        # What was there before is not made anew.
        before = bench.minicluster()
        bench.look()
        assert bench.minicluster() == before
    for name in ("sweep", "stored-v1alpha1", "stored-v1beta1"):
        bench.remove(names.API_VERSION, names.KIND, name)
    bench.close()
