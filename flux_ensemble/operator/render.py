"""An Ensemble as the manifests that it consists of; pure.

    render(ensemble, Settings(image="flux-ensemble:0.1.0")) -> manifests

The manifests are complete but for what only a cluster has: the owner (`owned`), and the contents of
Secrets (`flux_ensemble.operator.tls`). MiniClusters come last, so that what their pods mount is
there when these start.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.operator import names

Manifest = dict[str, Any]

#: How often pods of a MiniCluster may fail before it has failed. The Flux Operator takes 0 for 100.
BACKOFF_LIMIT = 6

#: How many processes pip may be asked to install; and what it installs unless that is said.
REQUIREMENT = f"flux-ensemble[grpc]=={__version__}"

#: The user of the service: nobody.
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator adds to each Ensemble.

    Args:
        image: of the gRPC service, where the Ensemble names none.
    """

    image: str = f"flux-ensemble:{__version__}"


def render(
    ensemble: Mapping[str, Any], settings: Settings, *, serve: bool = True
) -> list[Manifest]:
    """The manifests of an Ensemble, but for its Secrets.

    Args:
        ensemble: as the API server has it, or as a file does.
        settings: of the operator.
        serve: its members still need the gRPC service.

    Returns:
        Those of the service, then for each member its document and its MiniCluster.
    """
    manifests = _service(ensemble, settings, serve)
    for member in ensemble["spec"]["members"]:
        if "ensemble" in member:
            manifests.append(_document(ensemble, member))
        manifests.append(minicluster(ensemble, member))
    for manifest in manifests:
        _mark(manifest)
    return manifests


def owned(manifest: Manifest, ensemble: Mapping[str, Any]) -> Manifest:
    """A manifest with its owner.

    The owner does not block: that takes a right on `ensembles/finalizers`, and nothing waits.
    """
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": ensemble["metadata"]["name"],
        "uid": ensemble["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    manifest = copy.deepcopy(manifest)
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


def digest(value: Any) -> str:
    """A short text that differs where values do."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _mark(manifest: Manifest) -> None:
    annotations = manifest["metadata"].setdefault("annotations", {})
    annotations[names.RELEASE] = __version__
    content = {key: value for key, value in manifest.items() if key != "metadata"}
    annotations[names.HASH] = digest([content, manifest["metadata"].get("labels")])


def _object(
    ensemble: Mapping[str, Any],
    api_version: str,
    kind: str,
    name: str,
    labels: dict[str, str],
    **content: Any,
) -> Manifest:
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    if "namespace" in ensemble["metadata"]:
        metadata["namespace"] = ensemble["metadata"]["namespace"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


# -- the service ---------------------------------------------------------------------------


def _service(ensemble: Mapping[str, Any], settings: Settings, serve: bool) -> list[Manifest]:
    owner = ensemble["metadata"]["name"]
    name = names.service(owner)
    labels = names.labels(owner, "service")
    chosen = {names.ENSEMBLE_LABEL: owner, names.PART_LABEL: "service"}
    port = _of_service(ensemble).get("port", 50051)
    miniclusters = [names.member(owner, member["name"]) for member in ensemble["spec"]["members"]]

    def make(api_version: str, kind: str, **content: Any) -> Manifest:
        return _object(ensemble, api_version, kind, name, dict(labels), **content)

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
            ],
        ),
        make(
            f"{rbac}/v1",
            "RoleBinding",
            roleRef={"apiGroup": rbac, "kind": "Role", "name": name},
            subjects=[_subject(ensemble, name)],
        ),
        make("v1", "Service", spec={"selector": chosen, "ports": ports}),
        make("networking.k8s.io/v1", "NetworkPolicy", spec=_policy(owner, chosen)),
        make("apps/v1", "Deployment", spec=_deployment(ensemble, settings, chosen, port, serve)),
    ]


def _of_service(ensemble: Mapping[str, Any]) -> Mapping[str, Any]:
    service: Mapping[str, Any] = ensemble["spec"].get("service") or {}
    return service


def _subject(ensemble: Mapping[str, Any], name: str) -> dict[str, str]:
    subject = {"kind": "ServiceAccount", "name": name}
    namespace = ensemble["metadata"].get("namespace")
    return subject if namespace is None else {**subject, "namespace": namespace}


def _policy(owner: str, chosen: dict[str, str]) -> dict[str, Any]:
    """Only the members reach the service, and whoever probes it."""
    members = {names.ENSEMBLE_LABEL: owner, names.PART_LABEL: "member"}
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
    service = _of_service(ensemble)
    owner = ensemble["metadata"]["name"]
    # One pod at least stays while others are made anew; members wait through what is left.
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
        "containers": [_container(service, settings, port)],
        "volumes": [
            {
                "name": "tls",
                "secret": {"secretName": names.service_tls(owner), "defaultMode": 0o440},
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
        "template": {"metadata": {"labels": names.labels(owner, "service")}, "spec": pod},
    }


def _container(service: Mapping[str, Any], settings: Settings, port: int) -> dict[str, Any]:
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


# -- members -------------------------------------------------------------------------------


def _document(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> Manifest:
    owner = ensemble["metadata"]["name"]
    return _object(
        ensemble,
        "v1",
        "ConfigMap",
        names.member_document(owner, member["name"]),
        names.labels(owner, "member", member["name"]),
        data={names.DOCUMENT_FILE: member["ensemble"]},
    )


def runner(spec: Mapping[str, Any]) -> int:
    """Which container of a MiniCluster runs Flux: that with `runFlux`, or the only one.

    Raises:
        ValueError: a sentence.
    """
    containers = spec["containers"]
    chosen = [at for at, container in enumerate(containers) if container.get("runFlux")]
    if len(chosen) == 1:
        return chosen[0]
    if not chosen and len(containers) == 1:
        return 0
    raise ValueError(
        f"containers: expected one container with 'runFlux: true' of {len(containers)}, "
        f"not {len(chosen)}"
    )


def minicluster(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> Manifest:
    """The MiniCluster of a member, with the size that it begins with.

    What its user says of volumes, commands and environment stays; ours is added.
    """
    owner, given = ensemble["metadata"]["name"], member["minicluster"]
    name = names.member(owner, member["name"])
    labels = names.labels(owner, "member", member["name"])
    spec = copy.deepcopy(given["spec"])
    own = given.get("metadata") or {}
    manifest = _object(
        ensemble,
        names.MINICLUSTER,
        "MiniCluster",
        name,
        {**(own.get("labels") or {}), **labels},
        spec=spec,
    )
    if own.get("annotations"):
        manifest["metadata"]["annotations"] = dict(own["annotations"])
    spec.setdefault("size", 1)
    spec.setdefault("maxSize", spec["size"])
    spec.setdefault("minSize", 1)
    spec.setdefault("backoffLimit", BACKOFF_LIMIT)
    # Of one name for all members, the first one would select the pods of that member only.
    spec.setdefault("network", {}).setdefault("headlessName", name)
    # Only with it does the Flux Operator's script end with the exit code of the ensemble; and a
    # pod that fails is started again.
    logging = spec.setdefault("logging", {})
    logging.setdefault("strict", ensemble["spec"].get("restart", "Never") == "OnFailure")
    # Workers that lose rank 0 have done their work.
    spec.setdefault("flux", {}).setdefault("completeWorkers", True)
    pod = spec.setdefault("pod", {})
    pod["labels"] = {**(pod.get("labels") or {}), **labels}
    # Members ask the service, never the API server.
    pod.setdefault("automountServiceAccountToken", False)
    _run(ensemble, member, spec["containers"][runner(spec)])
    manifest["metadata"].setdefault("annotations", {})[names.TEMPLATE] = template(ensemble, member)
    return manifest


def template(ensemble: Mapping[str, Any], member: Mapping[str, Any]) -> str:
    """What its user cannot change while the member runs: all but its size and the least size.

    It is of what the user says, and not of what that becomes: a new release of the operator
    leaves members alone.
    """
    given = {key: value for key, value in member.items() if key != "minicluster"}
    spec = member["minicluster"]["spec"]
    fixed = {key: value for key, value in spec.items() if key not in ("size", "minSize")}
    own = ensemble["spec"]
    restarted = (ensemble["metadata"].get("annotations") or {}).get(names.RESTART)
    return digest([given, fixed, own.get("install"), own.get("restart", "Never"), restarted])


def _run(ensemble: Mapping[str, Any], member: Mapping[str, Any], container: dict[str, Any]) -> None:
    """Adds to the container that runs Flux what runs the ensemble there."""
    owner = ensemble["metadata"]["name"]
    install = member.get("install") or ensemble["spec"].get("install") or {}
    container["runFlux"] = container["launcher"] = True
    volumes = container.setdefault("volumes", {})
    source = member.get("ensembleFrom") or {
        "name": names.member_document(owner, member["name"]),
        "key": names.DOCUMENT_FILE,
    }
    key = source.get("key", names.DOCUMENT_FILE)
    volumes["flux-ensemble-document"] = {
        "configMapName": source["name"],
        "path": names.DOCUMENT_PATH,
        "items": {key: names.DOCUMENT_FILE},
        "readOnly": True,
    }
    volumes["flux-ensemble-tls"] = {
        "secretName": names.member_tls(owner, member["name"]),
        "path": names.TLS_PATH,
        "readOnly": True,
    }
    if not install.get("skip"):
        commands = container.setdefault("commands", {})
        given = [commands["brokerPre"]] if commands.get("brokerPre") else []
        commands["brokerPre"] = "\n".join([*given, _installation(install)])
    container["command"] = " ".join(_command(ensemble, member, install))


def _installation(install: Mapping[str, Any]) -> str:
    """The shell commands that install what runs the ensemble, on rank 0, or end the pod."""
    pip = [f"{names.PREFIX}/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    if "indexUrl" in install:
        pip += ["--index-url", install["indexUrl"]]
    pip.append(install.get("requirement", REQUIREMENT))
    failed = '{"exit_code": 1, "error": "flux-ensemble could not be installed: see the log"}'
    return (
        f"{{ python3 -m venv --system-site-packages {names.PREFIX} && {shlex.join(pip)}; }} || "
        f"{{ echo {shlex.quote(failed)} > {names.SUMMARY_PATH}; exit 1; }}"
    )


def _command(
    ensemble: Mapping[str, Any], member: Mapping[str, Any], install: Mapping[str, Any]
) -> list[str]:
    """The command of rank 0. The Flux Operator splits it at spaces, so no word has one."""
    owner, namespace = (
        ensemble["metadata"]["name"],
        ensemble["metadata"].get("namespace", "default"),
    )
    program = "flux-ensemble" if install.get("skip") else f"{names.PREFIX}/bin/flux-ensemble"
    return [
        program,
        "run",
        "--member=minicluster",
        f"--name={namespace}/{names.member(owner, member['name'])}",
        f"--host={names.hosts(owner, namespace)[0]}",
        f"--port={_of_service(ensemble).get('port', 50051)}",
        f"--tls-cert={names.TLS_PATH}/tls.crt",
        f"--tls-key={names.TLS_PATH}/tls.key",
        f"--tls-ca={names.TLS_PATH}/ca.crt",
        f"--summary={names.SUMMARY_PATH}",
        # The Flux Operator's view of Flux may be older than the broker modules in Python.
        "--serve",
        f"{names.DOCUMENT_PATH}/{names.DOCUMENT_FILE}",
    ]
