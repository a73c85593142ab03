"""Ensembles for tests, and what a cluster has to have before there can be one."""

from __future__ import annotations

import copy
import datetime
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from flux_ensemble.operator import names
from flux_ensemble.operator.cluster import Cluster
from flux_ensemble.operator.metrics import Metrics
from flux_ensemble.operator.reconcile import Reconciler
from flux_ensemble.operator.render import Settings

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
        self.admin = Cluster(self.clients[0])
        self.moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self.metrics = Metrics()
        self.reconciler = Reconciler(
            Cluster(self.clients[1]), Settings("image:1"), self.metrics, lambda: self.moment
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
        """Reconcile an Ensemble; its status."""
        self.reconciler.reconcile("default", name)
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

    def pod(
        self, index: int = 0, phase: str = "Running", name: str = "sweep-solve", **container: Any
    ) -> None:
        """A pod of a MiniCluster as the Job controller and a kubelet would make it."""
        self.remove("v1", "Pod", f"{name}-{index}")
        status = {"phase": phase, "containerStatuses": [{"name": "a", **container}]}
        labels = {"job-name": name, "batch.kubernetes.io/job-completion-index": str(index)}
        made = self.admin.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{index}",
                    "namespace": "default",
                    "labels": labels,
                },
                "spec": {"containers": [{"name": "a", "image": "a"}]},
            }
        )
        write_status(self.admin, made, status)


def write_status(cluster: Cluster, resource: Mapping[str, Any], status: Mapping[str, Any]) -> None:
    """Put a status in place of that of an object."""
    from flux_ensemble.operator.cluster import _resource

    kind = _resource(resource["apiVersion"], resource["kind"])
    metadata = resource["metadata"]
    full = kind.Status({**resource, "status": dict(status)})
    cluster.client.replace(full, metadata["name"], namespace=metadata["namespace"])


def no_pods(cluster: Cluster, job: str, message: str, namespace: str = "default") -> None:
    """What the Job controller says when it may not make pods."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{job}.", "namespace": namespace},
            "involvedObject": {"kind": "Job", "name": job, "namespace": namespace},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": message,
            "lastTimestamp": now,
        }
    )


def condition(status: Mapping[str, Any], name: str) -> tuple[str, str, str]:
    """A condition of a status: whether it holds, its reason and its message."""
    one = next(one for one in status["conditions"] if one["type"] == name)
    return one["status"], one["reason"], one["message"]
