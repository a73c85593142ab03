"""Names of the objects of an Ensemble, and labels that distinguish them from those of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.k8s.reports import service as service

GROUP = "flux-ensemble.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Ensemble"
PLURAL = "ensembles"

MINICLUSTER = "flux-framework.org/v1alpha2"

#: Kinds that an Ensemble can own, in the order in which they are deleted.
OWN = (
    (MINICLUSTER, "MiniCluster"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "Service"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "PersistentVolumeClaim"),
)

#: Owner of our fields, for server-side apply.
MANAGER = "flux-ensemble-operator"

#: Labels: the Ensemble of an object, its member, and its purpose.
ENSEMBLE_LABEL = f"{GROUP}/ensemble"
MEMBER_LABEL = f"{GROUP}/member"
PART_LABEL = "app.kubernetes.io/component"
MANAGED_LABEL = "app.kubernetes.io/managed-by"

#: Annotations: the digest of a manifest, the release that made it, and the digest of the fields of
#: a MiniCluster that cannot change while it runs; the port at which it calls the service.
HASH = f"{GROUP}/hash"
RELEASE = f"{GROUP}/version"
TEMPLATE = f"{GROUP}/template"
PORT = f"{GROUP}/port"

#: Label of pods: the uid of their Ensemble, since an earlier Ensemble may have had its name.
UID_LABEL = f"{GROUP}/uid"

#: Label of pods: the name of their Job, set by the Job controller.
JOB_LABEL = "job-name"

#: Label of a Job: the queue of Kueue that starts it. Label of a Workload of Kueue: the uid of its
#: Job.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
WORKLOAD = "kueue.x-k8s.io/v1beta1"

#: A change of this annotation of an Ensemble makes its members anew.
RESTART = f"{GROUP}/restarted-at"

#: Paths in a member of its document and its certificate.
DOCUMENT_PATH = "/etc/flux-ensemble/document"
TLS_PATH = "/etc/flux-ensemble/tls"
DOCUMENT_FILE = "ensemble.yaml"

#: Path of the volume that keeps the state from which a member continues.
STATE_PATH = "/var/lib/flux-ensemble"

#: Placeholder in a manifest for the mark that distinguishes a MiniCluster from earlier ones of its
#: name, and the annotation with that mark.
RUN_TOKEN = "FLUX_ENSEMBLE_RUN"
RUN = f"{GROUP}/run"

#: Port of the service for probes and metrics.
HEALTH_PORT = 8080

#: Directory in which the members of an Ensemble install their software.
PREFIX = "/tmp/flux-ensemble"

#: File from which Kubernetes takes the termination message of a container.
SUMMARY_PATH = "/dev/termination-log"


def service_tls(ensemble: str) -> str:
    """Return the name of the Secret of the service."""
    return f"{ensemble}-grpc-tls"


def authority(ensemble: str) -> str:
    """Return the name of the Secret of the authority that signs an Ensemble's certificates."""
    return f"{ensemble}-authority"


def member(ensemble: str, name: str) -> str:
    """Return the name of the MiniCluster of a member."""
    return f"{ensemble}-{name}"


def member_tls(ensemble: str, name: str) -> str:
    """Return the name of the Secret of a member."""
    return f"{ensemble}-{name}-tls"


def member_document(ensemble: str, name: str) -> str:
    """Return the name of the ConfigMap of a member."""
    return f"{ensemble}-{name}-document"


def labels(ensemble: str, part: str, of_member: str | None = None) -> dict[str, str]:
    """Return the labels of an object of ours.

    Args:
        ensemble: its Ensemble.
        part: "service", "tls", "member" or "state".
        of_member: its member, if it has one.
    """
    labels = {ENSEMBLE_LABEL: ensemble, PART_LABEL: part, MANAGED_LABEL: MANAGER}
    if of_member is not None:
        labels[MEMBER_LABEL] = of_member
    return labels


def of_job(name: str) -> str:
    """Return the selector of the pods of a Job."""
    return f"{JOB_LABEL}={name}"


def member_state(ensemble: str, name: str) -> str:
    """Return the name of the PersistentVolumeClaim that is made for a member."""
    return f"{ensemble}-{name}-state"


def entrypoint(minicluster: str) -> str:
    """Return the name of the ConfigMap with the script that the pods of a MiniCluster run."""
    return f"{minicluster}-entrypoint"


def selector(ensemble: str) -> str:
    """Return the selector of the objects of an Ensemble."""
    return f"{ENSEMBLE_LABEL}={ensemble},{MANAGED_LABEL}={MANAGER}"


def service_pods(ensemble: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that select the pods of the gRPC service of an Ensemble.

    Args:
        ensemble: as the API server has it; an Ensemble in a file has no uid.
    """
    chosen = {ENSEMBLE_LABEL: ensemble["metadata"]["name"], PART_LABEL: "service"}
    return {**chosen, **of_uid(ensemble)}


def member_pods(ensemble: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that select the pods of the members of an Ensemble."""
    return {**service_pods(ensemble), PART_LABEL: "member"}


def of_uid(ensemble: Mapping[str, Any]) -> dict[str, str]:
    """Return the label that distinguishes pods of an Ensemble from those of an earlier namesake."""
    metadata = ensemble["metadata"]
    return {UID_LABEL: metadata["uid"]} if "uid" in metadata else {}


def hosts(ensemble: str, namespace: str) -> list[str]:
    """Return the names of the service in DNS."""
    name = service(ensemble)
    return [f"{name}.{namespace}.svc", f"{name}.{namespace}", name]


def foreign(kind: str, name: str) -> str:
    """Return the problem of an object of somebody else that has a name of ours."""
    return (
        f"{kind} {name!r} is there already, and is not of this Ensemble: delete it, or give the "
        "Ensemble or the member another name"
    )


def leaving(kind: str, name: str) -> str:
    """Return the message about an object that has a name of ours and is going away."""
    return f"{kind} {name!r} from before is still being deleted"


def leaves(ensemble: Mapping[str, Any], resource: Mapping[str, Any]) -> bool:
    """Return True if an object is going away: it is being deleted, or its Ensemble has been."""
    metadata = resource["metadata"]
    own = ensemble["metadata"]
    return bool(metadata.get("deletionTimestamp")) or any(
        (reference.get("kind"), reference.get("name")) == (KIND, own["name"])
        and str(reference.get("apiVersion", "")).startswith(f"{GROUP}/")
        and reference.get("uid") != own["uid"]
        for reference in metadata.get("ownerReferences") or ()
    )


def owned_by(owner: Mapping[str, Any], resource: Mapping[str, Any]) -> bool:
    """Return True if an object belongs to this very owner, and not to an earlier namesake."""
    uid = owner["metadata"]["uid"]
    references = resource["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == uid for reference in references)
