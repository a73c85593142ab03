"""The Kubernetes API as the operator needs it: objects as plain mappings, each request sent once.

A failed request raises a `ClusterFailure` with the HTTP status; the caller decides whether to try
again.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httpx2
from lightkube import Client
from lightkube.core.resource import ApiInfo, ResourceDef
from lightkube.generic_resource import GenericNamespacedResource, GenericNamespacedStatus
from lightkube.types import CascadeType, PatchType

from flux_ensemble.k8s.api_server import CREDENTIAL_ERRORS, sturdy
from flux_ensemble.k8s.minicluster import MiniCluster
from flux_ensemble.k8s.operator import names

#: An entry of `metadata.managedFields`.
Entry = dict[str, Any]


def as_applied(
    entries: Sequence[Entry], manager: str, without: Iterable[Sequence[str]] = ()
) -> list[Entry] | None:
    """Return the entries, with the fields that a manager has updated marked as applied by it.

    An object is created by POST, which fails if another one has its name; a server-side apply
    would take that other one over. The API server then lists the fields as updated by the
    operator, not as applied, and a later apply without such a field leaves the field in place. So
    this comes before the first apply; client-go does the same in `csaupgrade`.

    Args:
        entries: `metadata.managedFields` of an object.
        manager: the one whose entries change. Those of subresources do not.
        without: paths of fields that the manager gives up: ("spec", "size").
    Returns:
        All entries; None if there is nothing to change.

    >>> made = {"manager": "me", "operation": "Update", "apiVersion": "v1",
    ...         "fieldsV1": {"f:spec": {"f:size": {}, "f:image": {}}}}
    >>> as_applied([made], "me", [("spec", "size")])[0]["operation"]
    'Apply'
    >>> as_applied([made], "other") is None
    True
    """
    updated = [entry for entry in entries if _is_own(entry, manager, "Update")]
    if not updated:
        return None
    applied = [entry for entry in entries if _is_own(entry, manager, "Apply")]
    fields: dict[str, Any] = {}
    for entry in (*applied, *updated):
        fields = _union(fields, entry.get("fieldsV1") or {})
    for path in without:
        _take_out(fields, [f"f:{key}" for key in path])
    entry = copy.deepcopy(applied[-1] if applied else updated[-1])
    entry |= {"operation": "Apply", "fieldsV1": fields}
    return [*(other for other in entries if other not in updated + applied), entry]


def _is_own(entry: Entry, manager: str, operation: str) -> bool:
    said = entry.get("manager"), entry.get("operation"), entry.get("subresource") or ""
    return said == (manager, operation, "")


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    keys = {**one, **other}
    return {key: _union(one.get(key) or {}, other.get(key) or {}) for key in keys}


def _take_out(fields: dict[str, Any], path: Sequence[str]) -> None:
    for key in path[:-1]:
        fields = fields.get(key) or {}
    fields.pop(path[-1], None)


Resource = dict[str, Any]

#: The plural of each kind that is read or written.
PLURALS = {
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Event"): "events",
    ("v1", "PersistentVolumeClaim"): "persistentvolumeclaims",
    ("v1", "Pod"): "pods",
    ("v1", "Secret"): "secrets",
    ("v1", "Service"): "services",
    ("v1", "ServiceAccount"): "serviceaccounts",
    ("apps/v1", "Deployment"): "deployments",
    ("batch/v1", "Job"): "jobs",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("rbac.authorization.k8s.io/v1", "Role"): "roles",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "rolebindings",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "jobsets",
    (names.MINICLUSTER, "MiniCluster"): "miniclusters",
    (names.WORKLOAD, "Workload"): "workloads",
    (names.API_VERSION, names.KIND): names.PLURAL,
}

_VERBS = ["delete", "get", "global_list", "global_watch", "list", "patch", "post", "put", "watch"]


class ClusterFailure(Exception):
    """A request failed; the text is one sentence.

    Args:
        sentence: the message of the API server.
        code: the HTTP status; None if there was no answer.
    """

    def __init__(self, sentence: str, code: int | None) -> None:
        super().__init__(sentence)
        self.code = code


@functools.cache
def resource_class(api_version: str, kind: str) -> Any:
    """Return lightkube's class of a kind, untyped: types would drop fields unknown to them."""
    group, _, version = api_version.rpartition("/")
    plural = PLURALS[api_version, kind]
    info = ApiInfo(resource=ResourceDef(group, version, kind), plural=plural, verbs=_VERBS)
    status = ApiInfo(
        resource=info.resource,
        parent=info.resource,
        plural=plural,
        verbs=["get", "patch", "put"],
        action="status",
    )
    subresource = type(f"{kind}Status", (GenericNamespacedStatus,), {"_api_info": status})
    return type(kind, (GenericNamespacedResource,), {"_api_info": info, "Status": subresource})


class KubernetesCluster:
    """Access to a cluster.

    Args:
        client: of its API.
    """

    def __init__(self, client: Client) -> None:
        self.client = sturdy(client)

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Resource | None:
        """Read an object; return None if there is none."""
        try:
            found = self._ask(
                self.client.get, resource_class(api_version, kind), name, namespace=namespace
            )
        except ClusterFailure as failure:
            if failure.code == 404:
                return None
            raise
        return {"apiVersion": api_version, "kind": kind, **dict(found)}

    def known(self, api_version: str, kind: str, namespace: str, name: str) -> Resource | None:
        """Return an object as it was last received, or None."""
        return self.get(api_version, kind, namespace, name)

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
    ) -> list[Resource]:
        """List the objects of a kind that the selectors choose."""
        chosen: Any = {
            key: dict(part.split("=", 1) for part in text.split(","))
            for key, text in (("labels", labels), ("fields", fields))
            if text
        }
        resource = resource_class(api_version, kind)

        def everything() -> list[Resource]:
            found = self.client.list(resource, namespace=namespace, **chosen)
            return [{"apiVersion": api_version, "kind": kind, **dict(one)} for one in found]

        listed: list[Resource] = self._ask(everything)
        return listed

    def create(self, manifest: Mapping[str, Any]) -> Resource:
        """Create an object; if one of the same name exists, that is a 409."""
        return self._noted(
            self._ask(
                self.client.create,
                _object(manifest),
                namespace=manifest["metadata"]["namespace"],
                field_manager=names.MANAGER,
            )
        )

    def try_out(self, manifest: Mapping[str, Any]) -> None:
        """Make the API server check an object as if it were created, unknown fields included."""
        # lightkube's `create` does not know this parameter.
        self._ask(
            self.client._client.request,
            "post",
            obj=_object(manifest),
            namespace=manifest["metadata"]["namespace"],
            params={
                "fieldManager": names.MANAGER,
                "dryRun": "All",
                "fieldValidation": "Strict",
            },
        )

    def replace(self, manifest: Mapping[str, Any]) -> Resource:
        """Replace an object if its version is the given one; another version is a 409."""
        namespace = manifest["metadata"]["namespace"]
        return self._noted(
            self._ask(
                self.client.replace,
                _object(manifest),
                namespace=namespace,
                field_manager=names.MANAGER,
            )
        )

    def apply(
        self,
        manifest: Mapping[str, Any],
        live: Mapping[str, Any],
        *,
        without: Iterable[Sequence[str]] = (),
    ) -> Resource:
        """Apply a manifest to an object on the server (server-side apply).

        The fields of the manifest become the operator's, and fields that were the operator's and
        are not in the manifest are dropped. If the object has gone, or another one has its name,
        that is a 409.

        Args:
            manifest: the wanted object.
            live: the object as it was read.
            without: paths of fields that it was created with and that are left to others since.
        """
        metadata = {**manifest["metadata"], "uid": live["metadata"]["uid"]}
        patch = functools.partial(
            self._ask,
            self.client.patch,
            resource_class(manifest["apiVersion"], manifest["kind"]),
            metadata["name"],
            namespace=metadata["namespace"],
            field_manager=names.MANAGER,
        )
        entries = as_applied(live["metadata"].get("managedFields") or (), names.MANAGER, without)
        try:
            if entries is not None:
                self._own(live, entries, patch)
            return self._noted(
                patch({**manifest, "metadata": metadata}, patch_type=PatchType.APPLY, force=True)
            )
        except ClusterFailure as failure:
            if failure.code in (404, 422) and not self._is_there(live):
                raise ClusterFailure(str(failure), 409) from failure
            raise

    def _own(self, live: Mapping[str, Any], entries: Sequence[Entry], patch: Any) -> None:
        """Replace the `managedFields` of an object, if it still has the given version."""
        changes = {
            "managedFields": entries,
            "resourceVersion": live["metadata"]["resourceVersion"],
        }
        patch(
            [
                {"op": "replace", "path": f"/metadata/{key}", "value": value}
                for key, value in changes.items()
            ],
            patch_type=PatchType.JSON,
        )

    def _is_there(self, live: Mapping[str, Any]) -> bool:
        """Return True if the very same object still exists."""
        metadata = live["metadata"]
        now = self.get(live["apiVersion"], live["kind"], metadata["namespace"], metadata["name"])
        return now is not None and now["metadata"]["uid"] == metadata["uid"]

    def delete(
        self,
        live: Mapping[str, Any],
        *,
        unchanged: bool = False,
        cascade: CascadeType = CascadeType.BACKGROUND,
    ) -> None:
        """Delete an object, and the objects that it owns; a missing object is no error.

        Another object of that name is a 409.

        Args:
            live: the object as it was read, with its apiVersion and kind.
            unchanged: a change of the object since then is a 409, too.
            cascade: whether the objects that it owns are deleted afterwards, or before.
        """
        metadata = live["metadata"]
        keys = ("uid", "resourceVersion") if unchanged else ("uid",)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: metadata[key] for key in keys},
            # By default a Job orphans its pods, and waits for that.
            "propagationPolicy": cascade.value,
        }
        # lightkube's `delete` has no preconditions.
        api = self.client._client

        def send() -> Any:
            request = api.prepare_request(
                "delete",
                resource_class(live["apiVersion"], live["kind"]),
                name=metadata["name"],
                namespace=metadata["namespace"],
            )
            request.data = options
            answer = api.send(api.build_adapter_request(request))
            api.handle_response("delete", answer, request)
            return answer.json()

        try:
            answer = self._ask(send)
        except ClusterFailure as failure:
            if failure.code != 404:
                raise
            answer = {}
        if (answer.get("metadata") or {}).get("deletionTimestamp"):
            # It is deleted later: it has finalizers, or has to end first.
            self._wrote({**live, **answer})
        else:
            self._deleted({**live})

    def write_status(self, ensemble: Mapping[str, Any], status: Mapping[str, Any]) -> Resource:
        """Replace the status of an Ensemble, if it still has the given version."""
        metadata = ensemble["metadata"]
        resource = resource_class(names.API_VERSION, names.KIND).Status
        full = resource(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "metadata": dict(metadata),
                "spec": ensemble["spec"],
                "status": dict(status),
            }
        )
        return self._noted(
            self._ask(self.client.replace, full, metadata["name"], namespace=metadata["namespace"])
        )

    def resize(self, minicluster: Mapping[str, Any], size: int) -> None:
        """Set the size of a MiniCluster, if it still has the given version."""
        from lightkube.models.autoscaling_v1 import ScaleSpec
        from lightkube.models.meta_v1 import ObjectMeta

        metadata = minicluster["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        scale: Any = MiniCluster.Scale(
            metadata=ObjectMeta(
                name=name, namespace=namespace, resourceVersion=metadata["resourceVersion"]
            ),
            spec=ScaleSpec(replicas=size),
        )
        self._ask(self.client.replace, scale, name, namespace=namespace)

    def _noted(self, answer: Mapping[str, Any]) -> Resource:
        one = dict(answer)
        self._wrote(one)
        return one

    def _wrote(self, one: Resource) -> None:
        """Note an object that has been written; for subclasses."""

    def _deleted(self, one: Resource) -> None:
        """Note an object that does not exist any more; for subclasses."""

    def _ask(self, request: Any, *args: Any, **options: Any) -> Any:
        try:
            return request(*args, **options)
        except httpx2.HTTPStatusError as exc:
            raise ClusterFailure(_line(exc), exc.response.status_code) from exc
        except httpx2.HTTPError as exc:
            raise ClusterFailure(f"the API server does not answer: {_line(exc)}", None) from exc
        except CREDENTIAL_ERRORS as exc:
            raise ClusterFailure(
                f"there are no credentials for the API server: {_line(exc)}", None
            ) from exc


def _object(manifest: Mapping[str, Any]) -> Any:
    """Return the object for lightkube, which only reads its namespace and leaves the rest alone."""
    return resource_class(manifest["apiVersion"], manifest["kind"])(manifest)


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
