"""Ensembles for tests, and what a cluster has to have before there can be one."""

from __future__ import annotations

import copy
import datetime
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from memory_jobs import INDEX
from patience import PATIENCE

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import KubernetesCluster
from flux_ensemble.k8s.operator.metrics import OperatorMetrics
from flux_ensemble.k8s.operator.queue import LAST
from flux_ensemble.k8s.operator.reconcile import Reconciler
from flux_ensemble.k8s.operator.render import Settings

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "etc" / "kubernetes"
CRDS = (KUBERNETES / "base" / "ensemble-crd.yaml", Path(__file__).with_name("minicluster_crd.yaml"))

DOCUMENT = """\
jobs: [{name: solve, command: sleep 1, nodes: 3}]
rules:
  - {trigger: start, action: {name: grow, value: 2}}
  - {trigger: scale-done, name: rule-0, action: {name: submit, label: solve}}
"""


def member(name: str = "solve", *, document: str = DOCUMENT, **spec: Any) -> dict[str, Any]:
    """A member with a MiniCluster of 1 to 3 nodes."""
    sizes = {"size": 1, "minSize": 1, "maxSize": 3}
    minicluster = {"spec": {**sizes, "containers": [{"image": "app"}], **spec}}
    return {"name": name, "ensemble": document, "minicluster": minicluster}


def ensemble(
    name: str = "sweep", *members: Mapping[str, Any], namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    """An Ensemble, of one member unless some are given."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"members": [dict(one) for one in members] or [member()], **spec},
    }


def objects(*files: Path) -> list[dict[str, Any]]:
    """The objects in files of YAML."""
    return [copy.deepcopy(one) for file in files for one in _objects(file)]


def install(api: Any) -> None:
    """Have a `memory_api.MemoryApi` know the CRDs, and all that is shipped with the operator."""
    for one in objects(*CRDS, KUBERNETES / "install.yaml"):
        version, plural = one["apiVersion"], one["kind"].lower() + "s"
        group = "api" if "/" not in version else "apis"
        namespace = one["metadata"].get("namespace")
        where = f"/namespaces/{namespace}" if namespace else ""
        url = f"/{group}/{version}{where}/{plural}"
        code, answer = api.answer("POST", url, "admin", one, "application/json")
        # The CRD is in both.
        assert code in (201, 409), answer


@functools.cache
def _objects(file: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


class Bench:
    """A cluster, its administrator, and a reconciler with the operator's rights.

    Args:
        api: `memory_api.MemoryApi`, or `apiserver.ApiServer`.
        token: of the operator.
    """

    def __init__(self, api: Any, token: str) -> None:
        self.api = api
        self.clients = [api.client(), api.client(token)]
        self.admin = KubernetesCluster(self.clients[0])
        self.moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self.metrics = OperatorMetrics()
        self.reconciler = Reconciler(
            KubernetesCluster(self.clients[1]),
            Settings("image:1"),
            self.metrics,
            lambda: self.moment,
        )

    def put(self, manifest: Mapping[str, Any]) -> None:
        """Make an Ensemble, or change its spec as a user does."""
        metadata = manifest["metadata"]
        live = self.ensemble(metadata["name"])
        if live is None:
            self.admin.create(manifest)
        else:
            self.admin.replace({**live, "spec": manifest["spec"]})

    def look(self, name: str = "sweep") -> dict[str, Any]:
        """Reconcile an Ensemble until nothing is left to be done at once; its status."""
        while self.reconciler.reconcile("default", name) == LAST:
            pass
        live = self.ensemble(name)
        assert live is not None
        status: dict[str, Any] = live["status"]
        return status

    def ensemble(self, name: str = "sweep") -> dict[str, Any] | None:
        """An Ensemble as it is."""
        return self.admin.get(names.API_VERSION, names.KIND, "default", name)

    def minicluster(self, name: str = "sweep-solve") -> dict[str, Any] | None:
        """A MiniCluster as it is."""
        return self.admin.get(names.MINICLUSTER, "MiniCluster", "default", name)

    def events(self) -> list[str]:
        """The reasons of the events of Ensembles, in order."""
        found = self.admin.list("v1", "Event", "default")
        own = [one for one in found if one["involvedObject"]["kind"] == names.KIND]
        own.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [one["reason"] for one in own]

    def remove(self, api_version: str, kind: str, name: str) -> None:
        """Delete an object, if it is there."""
        live = self.admin.get(api_version, kind, "default", name)
        if live is not None:
            self.admin.delete(live)

    def close(self) -> None:
        """Close the clients."""
        for client in self.clients:
            client.close()

    def flux(self, name: str = "sweep-solve") -> dict[str, Any]:
        """The Job of a MiniCluster, as the Flux Operator makes it, and gives it its size.

        It takes any Job of that name for it, whose ever that is.
        """
        cluster = self.minicluster(name)
        assert cluster is not None, f"there is no MiniCluster {name!r}"
        size = cluster["spec"].get("size", 1)
        job = self.admin.get("batch/v1", "Job", "default", name)
        if job is None:
            if self.admin.get("v1", "ConfigMap", "default", names.entrypoint(name)) is None:
                self.admin.create(entrypoint_of(cluster))
            return self.admin.create(job_of(cluster))
        if job["spec"]["completions"] != size:
            job["spec"] |= {"completions": size, "parallelism": size}
            job = self.admin.replace(job)
        return job

    def live_pod(self, index: int = 0, name: str = "sweep-solve") -> dict[str, Any]:
        """The pod of an index that has not ended, nor leaves; waits for it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for pod in self.admin.list("v1", "Pod", "default", labels=f"job-name={name}"):
                metadata = pod["metadata"]
                ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
                if metadata["labels"][INDEX] != str(index) or ended:
                    continue
                if not metadata.get("deletionTimestamp"):
                    return pod
            assert time.monotonic() < deadline, f"{name!r} has no pod {index}"
            time.sleep(0.1)

    def pod(
        self, index: int = 0, phase: str = "Running", name: str = "sweep-solve", **container: Any
    ) -> dict[str, Any]:
        """What a kubelet tells of a pod of a MiniCluster; the pod as it was before."""
        self.flux(name)
        pod = self.live_pod(index, name)
        known = {"name": "a", "image": "a", "imageID": "a", "ready": False, "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [{**known, **container}]}
        write_status(self.admin, pod, status)
        return pod

    def evict(self, index: int = 0, name: str = "sweep-solve") -> dict[str, Any]:
        """A node that is short of something evicts a pod, which stays, as one that has failed."""
        pod = self.live_pod(index, name)
        evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
        write_status(self.admin, pod, evicted)
        return pod

    def lose(self, way: str, index: int = 0) -> dict[str, Any]:
        """A pod is lost: "evicted" by its node, "deleted", or by an "eviction" of the API."""
        if way == "evicted":
            return self.evict(index)
        pod = self.live_pod(index)
        if way == "deleted":
            self.admin.delete(pod)
        else:
            evict_pod(self.admin, pod)
        return pod

    def gone(self, pod: Mapping[str, Any]) -> None:
        """A kubelet has ended a pod, so it is no more."""
        remove_pod(self.admin, pod)

    def put_status(self, status: Mapping[str, Any]) -> None:
        """Give the Ensemble a status, as an operator that was killed has left it."""
        live = self.ensemble()
        assert live is not None
        write_status(self.admin, live, status)

    def end(self, name: str = "sweep-solve", **summary: Any) -> None:
        """The pod of rank 0 ends, and says how the ensemble did."""
        terminated = {
            "exitCode": 0,
            "message": json.dumps(summary),
            "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:01:00Z",
        }
        self.pod(phase="Succeeded", name=name, state={"terminated": terminated})


def _by_flux(cluster: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The metadata of what the Flux Operator makes of a MiniCluster."""
    metadata = cluster["metadata"]
    owner = {
        "apiVersion": names.MINICLUSTER,
        "kind": "MiniCluster",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": metadata["namespace"], "ownerReferences": [owner]}


def entrypoint_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The ConfigMap that the Flux Operator makes of a MiniCluster, and which its pods run.

    It takes one that is there, whose ever that is.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _by_flux(cluster, names.entrypoint(cluster["metadata"]["name"])),
        "data": {"spec": json.dumps(cluster["spec"])},
    }


def job_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The Job that the Flux Operator makes of a MiniCluster."""
    spec = cluster["spec"]
    size = spec.get("size", 1)
    pod = {
        "containers": [{"name": "flux", "image": "a"}],
        "restartPolicy": "OnFailure",
        # Its pods are on a node at once: one that is deleted leaves it before it is gone.
        "nodeName": "node",
    }
    metadata = _by_flux(cluster, cluster["metadata"]["name"])
    if spec.get("jobLabels"):
        metadata["labels"] = {**(metadata.get("labels") or {}), **spec["jobLabels"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            "backoffLimit": spec.get("backoffLimit") or 100,
            "template": {"metadata": {"labels": spec["pod"]["labels"]}, "spec": pod},
        },
    }


def evict_pod(cluster: KubernetesCluster, pod: Mapping[str, Any]) -> None:
    """Evict a pod by the API, as `kubectl drain` does."""
    metadata = pod["metadata"]
    key = {"name": metadata["name"], "namespace": metadata["namespace"]}
    _request(
        cluster,
        "POST",
        pod,
        "/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": key},
    )


def remove_pod(cluster: KubernetesCluster, pod: Mapping[str, Any]) -> None:
    """Delete a pod without waiting for its containers; one that is gone is no error."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    options["preconditions"] = {"uid": pod["metadata"]["uid"]}
    _request(cluster, "DELETE", pod, "", options)


def _request(
    cluster: KubernetesCluster,
    method: str,
    pod: Mapping[str, Any],
    sub: str,
    body: Mapping[str, Any],
) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{sub}"
    answer = cluster.client._client._client.request(method, path, json=dict(body))
    assert answer.is_success or answer.status_code in (404, 409), answer.text


def write_status(
    cluster: KubernetesCluster, resource: Mapping[str, Any], status: Mapping[str, Any]
) -> None:
    """Put a status in place of that of an object."""
    from flux_ensemble.k8s.operator.cluster import resource_class

    kind = resource_class(resource["apiVersion"], resource["kind"])
    metadata = resource["metadata"]
    full = kind.Status({**resource, "status": dict(status)})
    cluster.client.replace(full, metadata["name"], namespace=metadata["namespace"])


def condition(status: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    """A condition of a status: whether it holds, its reason and its message."""
    one = next(one for one in status["conditions"] if one["type"] == name)
    return one["status"], one["reason"], one["message"]
