"""The chart on a real API server: Helm's own library installs it, with each value changed once.

PROMETHEUS_CRDS can name a folder with the CRDs of the Prometheus Operator, as its repository has
them; without it they are stood in for by some that take anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apiserver
import httpx2
import pytest
import yaml
from ensembles import KUBERNETES, objects
from lightkube.codecs import load_all_yaml
from test_operator_app import until
from test_operator_install import VALUES

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import KubernetesCluster

pytestmark = apiserver.MARKS

CHART = KUBERNETES / "chart"
RELEASE = "ensembles"
NAMESPACE = "team-a"


def monitoring() -> list[dict[str, Any]]:
    """The CRDs of the Prometheus Operator."""
    folder = os.environ.get("PROMETHEUS_CRDS")
    if folder:
        return objects(*Path(folder).glob("monitoring.coreos.com_*.yaml"))
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
