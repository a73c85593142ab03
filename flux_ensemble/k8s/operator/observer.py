"""The states of an Ensemble's members and service, as read from the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.k8s import reports
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator import status as statuses
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster, Resource
from flux_ensemble.k8s.operator.members import (
    Observed,
    is_suspended,
    kind_of,
    said_by_kueue,
    waiting,
)


class Observer:
    """Reads the states of one Ensemble.

    Args:
        cluster: of the Ensemble.
        ensemble: the Ensemble.
        owned: the objects that it owns, by kind and name.

    Attributes:
        awaits_kueue: Kueue has suspended a Job, and has not said yet what it waits for.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        ensemble: Resource,
        owned: Mapping[tuple[str, str], Resource],
    ) -> None:
        self._cluster = cluster
        self._ensemble = ensemble
        self._name: str = ensemble["metadata"]["name"]
        self._namespace: str = ensemble["metadata"]["namespace"]
        self._before: Mapping[str, Any] = ensemble.get("status") or {}
        self._owned = owned
        self.awaits_kueue = False

    def member(self, member: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of a member that has not ended."""
        name = names.member(self._name, member["name"])
        resource = self._owned.get(("MiniCluster", name))
        job, pods, warnings = None, [], []
        if resource is not None:
            job = self._cluster.known("batch/v1", "Job", self._namespace, name)
            if job is not None and not names.owned_by(resource, job):
                job = None
        if job is not None and resource is not None:
            found = self._cluster.list("v1", "Pod", self._namespace, labels=names.of_job(name))
            pods = [pod for pod in found if names.owned_by(job, pod)]
            if len(pods) < resource["spec"].get("size", 1):
                warnings = self._warnings(job)
        suspended = bool(self._ensemble["spec"].get("suspend"))
        workload = self._workload(job)
        report = None
        if resource is not None:
            kept = self._owned.get(("ConfigMap", names.service(self._name)))
            report = reports.read(kept, resource)
        observed = Observed(resource, job, pods, warnings, workload, report, suspended)
        return {"name": member["name"], **kind_of(member).status(member, observed)}

    def known(self, member: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the state of a member in the status.

        None if the status does not have the member.
        """
        known = (one for one in self._before.get("members") or ())
        return next((dict(one) for one in known if one["name"] == member["name"]), None)

    def unknown(self, member: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of a member that has no objects yet."""
        return {"name": member["name"], **kind_of(member).status(member, Observed())}

    def _workload(self, job: Resource | None) -> Resource | None:
        """Return what Kueue made for a Job that it has suspended; None where it does not say.

        Workloads are not watched: they are those of the whole cluster.
        """
        if job is None or not is_suspended(job):
            return None
        if names.QUEUE_LABEL not in (job["metadata"].get("labels") or {}):
            return None
        chosen = f"{names.JOB_UID_LABEL}={job['metadata']['uid']}"
        try:
            found = self._cluster.list(names.WORKLOAD, "Workload", self._namespace, labels=chosen)
        except ClusterFailure as failure:
            # Nobody has installed Kueue, or given the right to read its objects.
            if failure.code in (403, 404):
                return None
            raise
        workload = found[-1] if found else None
        self.awaits_kueue = self.awaits_kueue or not said_by_kueue(workload)
        return workload

    def _warnings(self, job: Resource) -> list[str]:
        """Return the failures of the Job controller, such as to make pods beyond a quota."""
        found = self._cluster.list(
            "v1",
            "Event",
            self._namespace,
            fields=f"involvedObject.uid={job['metadata']['uid']},type=Warning",
        )
        found.sort(key=lambda event: str(event.get("lastTimestamp") or ""))
        return [f"{event.get('reason')}: {event.get('message')}" for event in found]

    def service(self) -> tuple[bool, str, str]:
        """Return whether the gRPC service is ready, with a reason and a sentence."""
        live = self._owned.get(("Deployment", names.service(self._name)))
        if live is None:
            return False, "NotReady", "its Deployment is not made yet"
        ready = (live.get("status") or {}).get("readyReplicas", 0)
        wanted = live["spec"].get("replicas", 1)
        said = f"{ready} of {wanted} pods are ready"
        if ready and wanted:
            return True, "Ready", said
        chosen = names.service_pods(self._ensemble)
        labels = ",".join(f"{key}={value}" for key, value in chosen.items())
        pods = self._cluster.list("v1", "Pod", self._namespace, labels=labels)
        if lacking := waiting(pods, live):
            return False, statuses.TROUBLE, "; ".join([said, *lacking])
        return False, "NotReady", said
