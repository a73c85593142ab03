"""What the objects of an Ensemble are called, and how they are told from those of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUP = "flux-ensemble.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Ensemble"
PLURAL = "ensembles"

MINICLUSTER = "flux-framework.org/v1alpha2"

#: What an Ensemble can own, in the order in which it is deleted.
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

#: Whose fields are ours, for server-side apply.
MANAGER = "flux-ensemble-operator"

#: Labels: of which Ensemble something is, of which member, and what it is for.
ENSEMBLE_LABEL = f"{GROUP}/ensemble"
MEMBER_LABEL = f"{GROUP}/member"
PART_LABEL = "app.kubernetes.io/component"
MANAGED_LABEL = "app.kubernetes.io/managed-by"

#: Annotations: what a manifest was made of, the release that made it, and what of a MiniCluster
#: cannot change while it runs; the port at which it looks for the service.
HASH = f"{GROUP}/hash"
RELEASE = f"{GROUP}/version"
TEMPLATE = f"{GROUP}/template"
PORT = f"{GROUP}/port"

#: Label of pods: the uid of the Ensemble that they are of, for one before may have had its name.
UID_LABEL = f"{GROUP}/uid"

#: Label of pods: the name of their Job, by its controller.
JOB_LABEL = "job-name"

#: A change of this annotation of an Ensemble makes its members anew.
RESTART = f"{GROUP}/restarted-at"

#: Where a member finds its document, and its certificate.
DOCUMENT_PATH = "/etc/flux-ensemble/document"
TLS_PATH = "/etc/flux-ensemble/tls"
DOCUMENT_FILE = "ensemble.yaml"

#: Where the volume is that keeps what a member is to go on with.
STATE_PATH = "/var/lib/flux-ensemble"

#: Stands in a manifest for what tells one MiniCluster of a name from the one before, and the
#: annotation that has it.
RUN_TOKEN = "FLUX_ENSEMBLE_RUN"
RUN = f"{GROUP}/run"

#: The port of the service for probes and metrics.
HEALTH_PORT = 8080

#: Where the members of an Ensemble install what runs them.
PREFIX = "/tmp/flux-ensemble"

#: What Kubernetes takes the message of a container from.
SUMMARY_PATH = "/dev/termination-log"


def service(ensemble: str) -> str:
    """The name of the gRPC service, and all that belongs to it."""
    return f"{ensemble}-grpc"


def service_tls(ensemble: str) -> str:
    """The Secret of the service."""
    return f"{ensemble}-grpc-tls"


def authority(ensemble: str) -> str:
    """The Secret of the authority that signs the certificates of an Ensemble."""
    return f"{ensemble}-authority"


def member(ensemble: str, name: str) -> str:
    """The MiniCluster of a member."""
    return f"{ensemble}-{name}"


def member_tls(ensemble: str, name: str) -> str:
    """The Secret of a member."""
    return f"{ensemble}-{name}-tls"


def member_document(ensemble: str, name: str) -> str:
    """The ConfigMap of a member."""
    return f"{ensemble}-{name}-document"


def labels(ensemble: str, part: str, of_member: str | None = None) -> dict[str, str]:
    """The labels of an object of ours.

    Args:
        ensemble: its Ensemble.
        part: "service", "tls" or "member".
        of_member: the member that it is of.
    """
    labels = {ENSEMBLE_LABEL: ensemble, PART_LABEL: part, MANAGED_LABEL: MANAGER}
    if of_member is not None:
        labels[MEMBER_LABEL] = of_member
    return labels


def of_job(name: str) -> str:
    """What selects the pods of a Job."""
    return f"{JOB_LABEL}={name}"


def member_state(ensemble: str, name: str) -> str:
    """The PersistentVolumeClaim that is made for a member."""
    return f"{ensemble}-{name}-state"


def entrypoint(minicluster: str) -> str:
    """The ConfigMap in which the Flux Operator has what the pods of a MiniCluster run."""
    return f"{minicluster}-entrypoint"


def selector(ensemble: str) -> str:
    """What selects the objects of an Ensemble."""
    return f"{ENSEMBLE_LABEL}={ensemble},{MANAGED_LABEL}={MANAGER}"


def service_pods(ensemble: Mapping[str, Any]) -> dict[str, str]:
    """The labels that select the pods of the gRPC service of an Ensemble.

    Args:
        ensemble: as the API server has it; one of a file has no uid.
    """
    chosen = {ENSEMBLE_LABEL: ensemble["metadata"]["name"], PART_LABEL: "service"}
    return {**chosen, **of_uid(ensemble)}


def member_pods(ensemble: Mapping[str, Any]) -> dict[str, str]:
    """The labels that select the pods of the members of an Ensemble."""
    return {**service_pods(ensemble), PART_LABEL: "member"}


def of_uid(ensemble: Mapping[str, Any]) -> dict[str, str]:
    """The label that tells pods of an Ensemble from those of one that had its name before."""
    metadata = ensemble["metadata"]
    return {UID_LABEL: metadata["uid"]} if "uid" in metadata else {}


def hosts(ensemble: str, namespace: str) -> list[str]:
    """The names that the service goes by in DNS."""
    name = service(ensemble)
    return [f"{name}.{namespace}.svc", f"{name}.{namespace}", name]


def foreign(kind: str, name: str) -> str:
    """What to say of an object of somebody else that has a name of ours."""
    return (
        f"{kind} {name!r} is there already, and is not of this Ensemble: delete it, or give the "
        "Ensemble or the member another name"
    )


def leaving(kind: str, name: str) -> str:
    """What to say of an object that has a name of ours and goes by itself."""
    return f"{kind} {name!r} from before is still being deleted"


def leaves(ensemble: Mapping[str, Any], resource: Mapping[str, Any]) -> bool:
    """Whether an object goes by itself: it is being deleted, or its Ensemble was, of this name."""
    metadata = resource["metadata"]
    own = ensemble["metadata"]
    return bool(metadata.get("deletionTimestamp")) or any(
        (reference.get("kind"), reference.get("name")) == (KIND, own["name"])
        and str(reference.get("apiVersion", "")).startswith(f"{GROUP}/")
        and reference.get("uid") != own["uid"]
        for reference in metadata.get("ownerReferences") or ()
    )


def owned_by(owner: Mapping[str, Any], resource: Mapping[str, Any]) -> bool:
    """Whether an object belongs to this very owner, and not to one of the same name before."""
    uid = owner["metadata"]["uid"]
    references = resource["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == uid for reference in references)
