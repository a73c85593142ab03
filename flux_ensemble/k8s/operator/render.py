"""The manifests of an Ensemble; pure.

    render(ensemble, Settings(image="flux-ensemble:0.2.0")) -> manifests

The manifests are complete except for what only a cluster has: the owner (`owned`), and the contents
of Secrets (`certificates`). MiniClusters come last, so that the objects that their pods mount
exist when these start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.manifests import Manifest, mark, new, port_of, service_of
from flux_ensemble.k8s.operator.minicluster import claim, document, minicluster

#: The user id of the service: nobody.
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator for all Ensembles.

    Args:
        image: default image of the gRPC service.
    """

    image: str = f"flux-ensemble:{__version__}"


def render(
    ensemble: Mapping[str, Any], settings: Settings, *, serve: bool = True
) -> list[Manifest]:
    """Return the manifests of an Ensemble, except for its Secrets.

    Args:
        ensemble: as the API server, or a file, has it.
        settings: of the operator.
        serve: its members still need the gRPC service.

    Returns:
        Those of the service, then for each member its document, its volume and its MiniCluster.
    """
    manifests = _service(ensemble, settings, serve)
    for member in ensemble["spec"]["members"]:
        if "ensemble" in member:
            manifests.append(document(ensemble, member))
        if "template" in member.get("state", {}):
            manifests.append(claim(ensemble, member))
        manifests.append(minicluster(ensemble, member))
    for manifest in manifests:
        mark(manifest)
    return manifests


# -- the service ---------------------------------------------------------------------------


def _service(ensemble: Mapping[str, Any], settings: Settings, serve: bool) -> list[Manifest]:
    owner = ensemble["metadata"]["name"]
    name = names.service(owner)
    labels = names.labels(owner, "service")
    chosen = names.service_pods(ensemble)
    port = port_of(ensemble)
    miniclusters = [names.member(owner, member["name"]) for member in ensemble["spec"]["members"]]

    def make(api_version: str, kind: str, **content: Any) -> Manifest:
        return new(ensemble, api_version, kind, name, dict(labels), **content)

    rbac = "rbac.authorization.k8s.io"
    scale = {"apiGroups": ["flux-framework.org"], "resourceNames": miniclusters}
    ports = [{"name": "grpc", "port": port, "targetPort": "grpc", "protocol": "TCP"}]
    return [
        make("v1", "ServiceAccount", automountServiceAccountToken=False),
        make(
            f"{rbac}/v1",
            "Role",
            rules=[
                {**scale, "resources": ["miniclusters"], "verbs": ["get"]},
                {**scale, "resources": ["miniclusters/scale"], "verbs": ["update"]},
                # A refused size is reported as an event of the Ensemble.
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
                # What members report of their nodes and their queues.
                {
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "resourceNames": [name],
                    "verbs": ["patch"],
                },
            ],
        ),
        make("v1", "ConfigMap"),
        make(
            f"{rbac}/v1",
            "RoleBinding",
            roleRef={"apiGroup": rbac, "kind": "Role", "name": name},
            subjects=[_subject(ensemble, name)],
        ),
        make("v1", "Service", spec={"selector": chosen, "ports": ports}),
        make("networking.k8s.io/v1", "NetworkPolicy", spec=_policy(ensemble, chosen)),
        # A drain of nodes evicts one of its pods at a time.
        make(
            "policy/v1",
            "PodDisruptionBudget",
            spec={"maxUnavailable": 1, "selector": {"matchLabels": chosen}},
        ),
        make("apps/v1", "Deployment", spec=_deployment(ensemble, settings, chosen, port, serve)),
    ]


def _subject(ensemble: Mapping[str, Any], name: str) -> dict[str, str]:
    subject = {"kind": "ServiceAccount", "name": name}
    namespace = ensemble["metadata"].get("namespace")
    return subject if namespace is None else {**subject, "namespace": namespace}


def _policy(ensemble: Mapping[str, Any], chosen: dict[str, str]) -> dict[str, Any]:
    """Return a policy by which only members, and probes, reach the service."""
    members = names.member_pods(ensemble)
    return {
        "podSelector": {"matchLabels": chosen},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": members}}],
                "ports": [{"port": "grpc", "protocol": "TCP"}],
            },
            {"ports": [{"port": "health", "protocol": "TCP"}]},
        ],
    }


def _deployment(
    ensemble: Mapping[str, Any],
    settings: Settings,
    chosen: dict[str, str],
    port: int,
    serve: bool,
) -> dict[str, Any]:
    service = service_of(ensemble)
    owner = ensemble["metadata"]["name"]
    # At least one pod stays while others are replaced; members wait through short outages.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    pod: dict[str, Any] = {
        "serviceAccountName": names.service(owner),
        "automountServiceAccountToken": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(ensemble, settings, port)],
        "volumes": [
            {
                "name": "tls",
                "secret": {"secretName": names.service_tls(owner), "defaultMode": 0o440},
            }
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": chosen},
            }
        ],
        **(service.get("scheduling") or {}),
    }
    if service.get("imagePullSecrets"):
        pod["imagePullSecrets"] = service["imagePullSecrets"]
    return {
        "replicas": service.get("replicas", 1) if serve else 0,
        "strategy": rolling,
        "selector": {"matchLabels": chosen},
        "template": {
            "metadata": {"labels": {**names.labels(owner, "service"), **chosen}},
            "spec": pod,
        },
    }


def _container(ensemble: Mapping[str, Any], settings: Settings, port: int) -> dict[str, Any]:
    service = service_of(ensemble)
    owner = ensemble["metadata"].get("uid")

    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10}

    container: dict[str, Any] = {
        "name": "grpc",
        "image": service.get("image", settings.image),
        "command": ["flux-ensemble", "grpc", "start"],
        "args": [
            "--host=0.0.0.0",
            f"--port={port}",
            "--backend=kubernetes",
            f"--tls-cert={names.TLS_PATH}/tls.crt",
            f"--tls-key={names.TLS_PATH}/tls.key",
            f"--tls-ca={names.TLS_PATH}/ca.crt",
            # Pods, and a MiniCluster, of an earlier Ensemble of this name may still exist.
            *([] if owner is None else [f"--owner={owner}"]),
            f"--health-port={names.HEALTH_PORT}",
            "--log-format=json",
        ],
        "ports": [
            {"name": "grpc", "containerPort": port, "protocol": "TCP"},
            {"name": "health", "containerPort": names.HEALTH_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": probe("/readyz"),
        "livenessProbe": {**probe("/healthz"), "failureThreshold": 6},
        "resources": service.get("resources")
        or {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tls", "mountPath": names.TLS_PATH, "readOnly": True}],
    }
    if "imagePullPolicy" in service:
        container["imagePullPolicy"] = service["imagePullPolicy"]
    return container
