"""The back end `kubernetes`: changes the size of MiniClusters of the Flux Operator.

A change reads the custom resource and writes its `/scale` subresource with the resource version
that was read. If the resource changes in between, bounds included, the API server refuses the write
(409), and the change is tried again. A service can be limited to the MiniClusters of one owner, by
its uid, since another owner may have had its name. A size outside the bounds is never written: the
Flux Operator would refuse to reconcile the MiniCluster, and report that only in its own log.

The service account needs `get` on `miniclusters`, `update` on `miniclusters/scale`, and `create` on
`events` (etc/kubernetes/grpc.yaml). A cluster is named NAMESPACE/NAME, or NAME in the service's own
namespace.

Source of the resource: flux-operator, api/v1alpha2/minicluster_types.go.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx2
from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.types import PatchType

from flux_ensemble.k8s import reports
from flux_ensemble.k8s.api_server import (
    CREDENTIAL_ERRORS,
    ClusterError,
    connect,
    sturdy,
)
from flux_ensemble.k8s.events import Refusals, owner_of
from flux_ensemble.k8s.grpc.backend import (
    BackendError,
    Contended,
    Grant,
    Refused,
    Report,
    Size,
    Unavailable,
    UnknownCluster,
    check_bounds,
    target,
)

T = TypeVar("T")

MiniCluster = create_namespaced_resource(
    "flux-framework.org", "v1alpha2", "MiniCluster", "miniclusters"
)

ConfigMap = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")

#: Number of attempts of a change while others change the MiniCluster at the same time.
_ATTEMPTS = 8

#: The first pause between two attempts in seconds, doubled each time.
_BACKOFF_SECONDS = 0.05

#: Seconds for which a call repeats requests after 401 and 403, and the pause between two. An API
#: server that has just started responds so until it has read the permissions. The time is less than
#: a cluster waits for its response (`k8s.scaler`).
_FORBIDDEN_SECONDS = 6.0
_FORBIDDEN_PAUSE = 0.5

#: Seconds for which 401 and 403 are not final. On a busy machine the API server takes as long to
#: read the permissions, and a refusal ends the request for another size for good. Clusters repeat
#: the request until then.
_FORBIDDEN_FINAL_SECONDS = 60.0

#: Number of forbidden clusters that are noted: clients choose the names.
_MOST_FORBIDDEN = 1000


class Kubernetes:
    """MiniClusters, by the Kubernetes API.

    Args:
        client: default: one with the pod's service account, or with the current context of the
            configuration that KUBECONFIG names.
        owner: the uid of the object that has to own the MiniClusters; None accepts any.

    Raises:
        BackendError: there is no configuration for a client.
    """

    name = "kubernetes"
    discovers = True

    def __init__(self, client: Client | None = None, *, owner: str | None = None) -> None:
        if client is None:
            try:
                client = connect()
            except ClusterError as exc:
                raise BackendError(str(exc)) from exc
        self._client = sturdy(client)
        self._owner = owner
        self._refusals = Refusals(client)
        # Times since when requests are forbidden, by cluster.
        self._forbidden: dict[str, float] = {}

    def canonical(self, cluster: str) -> str:
        """Return NAMESPACE/NAME."""
        return cluster if "/" in cluster else f"{self._client.namespace}/{cluster}"

    def size(self, cluster: str, deadline: float) -> Size:
        """Return `spec.size` and the bounds that the operator accepts."""
        return _size(cluster, self._read(cluster, deadline))

    def scale(
        self, cluster: str, *, deadline: float, to: int | None = None, by: int | None = None
    ) -> Grant:
        """Write the new size to the `/scale` subresource; a refusal becomes an event."""
        pause = _BACKOFF_SECONDS
        for _ in range(_ATTEMPTS):
            resource = self._read(cluster, deadline)
            try:
                now = _changeable(cluster, resource)
                size = target(cluster, now, to=to, by=by)
                if size == now.nodes:
                    return Grant(now.nodes, size)
                if time.monotonic() >= deadline:
                    break
                if self._write(cluster, resource["metadata"]["resourceVersion"], size, deadline):
                    return Grant(now.nodes, size)
            except Refused as exc:
                self._refusals.tell(resource, str(exc))
                raise
            time.sleep(min(random.uniform(pause / 2, pause), max(0, deadline - time.monotonic())))
            pause *= 2
        raise Contended(
            f"MiniCluster {cluster!r} was not changed: others changed it at the same time, or "
            "the API server was too slow; try again"
        )

    def report(self, cluster: str, report: Report, deadline: float) -> None:
        """Write the report for the operator, if the MiniCluster belongs to an Ensemble."""
        resource = self._read(cluster, deadline)
        owner = owner_of(resource)
        if owner["kind"] != "Ensemble":
            return
        name, namespace = reports.service(owner["metadata"]["name"]), cluster.partition("/")[0]
        patch = reports.patch(resource, report)
        try:
            self._client.patch(
                ConfigMap, name, patch, namespace=namespace, patch_type=PatchType.MERGE
            )
        except (httpx2.HTTPError, *CREDENTIAL_ERRORS) as exc:
            raise Unavailable(
                f"the report of MiniCluster {cluster!r} was not written: {_line(exc)}"
            ) from exc

    def _read(self, cluster: str, deadline: float) -> Mapping[str, Any]:
        namespace, _, name = cluster.partition("/")
        found: Mapping[str, Any] = self._ask(
            cluster, deadline, lambda: self._client.get(MiniCluster, name, namespace=namespace)
        )
        owners = found["metadata"].get("ownerReferences") or ()
        if self._owner is not None and all(one.get("uid") != self._owner for one in owners):
            raise Refused(
                f"MiniCluster {cluster!r} is not of the owner that this service is for: it is of "
                "another one, maybe of the same name before, or of none"
            )
        return found

    def _write(self, cluster: str, version: str, size: int, deadline: float) -> bool:
        """Return True if the size was written, False if the resource has another version."""
        namespace, _, name = cluster.partition("/")
        # lightkube does not type the scale of a custom resource as a subresource.
        scale: Any = MiniCluster.Scale(
            metadata=ObjectMeta(name=name, namespace=namespace, resourceVersion=version),
            spec=ScaleSpec(replicas=size),
        )

        def write() -> bool:
            try:
                self._client.replace(scale, name, namespace=namespace)
            except ApiError as exc:
                if exc.response.status_code == 409:
                    return False
                raise
            return True

        return self._ask(cluster, deadline, write)

    def _ask(self, cluster: str, deadline: float, request: Callable[[], T]) -> T:
        """Send a request, and repeat it for some seconds if it is forbidden.

        Raises:
            BackendError: the request failed.
        """
        t_end = min(deadline, time.monotonic() + _FORBIDDEN_SECONDS)
        while True:
            try:
                result = request()
                self._forbidden.pop(cluster, None)
                return result
            except httpx2.HTTPError as exc:
                if not _is_forbidden(exc):
                    raise _failure(cluster, exc) from exc
                now = time.monotonic()
                if len(self._forbidden) >= _MOST_FORBIDDEN:
                    self._forbidden.clear()
                since = self._forbidden.setdefault(cluster, now)
                if now + _FORBIDDEN_PAUSE < t_end:
                    time.sleep(_FORBIDDEN_PAUSE)
                elif now < since + _FORBIDDEN_FINAL_SECONDS:
                    raise Unavailable(_forbidden(cluster, exc)) from exc
                else:
                    raise _failure(cluster, exc) from exc
            except CREDENTIAL_ERRORS as exc:
                raise Unavailable(
                    f"there are no credentials for the Kubernetes API server: {_line(exc)}"
                ) from exc


def _is_forbidden(exc: Exception) -> bool:
    return isinstance(exc, httpx2.HTTPStatusError) and exc.response.status_code in (401, 403)


def _changeable(cluster: str, resource: Mapping[str, Any]) -> Size:
    """Return the size of a MiniCluster that is to be changed.

    Raises:
        Refused: it is being deleted, or as for `_size`.
    """
    if resource["metadata"].get("deletionTimestamp"):
        raise Refused(f"MiniCluster {cluster!r} is being deleted: its size stays as it is")
    return _size(cluster, resource)


def _size(cluster: str, resource: Mapping[str, Any]) -> Size:
    """Return the size and the bounds in a MiniCluster.

    A value of 0, or none, means unset. The operator copies the maximum to the status when it first
    sees the MiniCluster, and uses that copy, so a `maxSize` that was raised later does not count.

    Raises:
        Refused: the values are no numbers, or contradict each other.
    """
    spec, status = resource.get("spec") or {}, resource.get("status") or {}
    fields = {
        "size": spec.get("size", 1),
        "minSize": spec.get("minSize") or 1,
        "maxSize": spec.get("maxSize") or 0,
        "maximumSize": status.get("maximumSize") or 0,
    }
    for key, value in fields.items():
        if not isinstance(value, int):
            raise Refused(f"MiniCluster {cluster!r} has a {key} of {value!r}: expected a number")
    limits = [fields[key] for key in ("maxSize", "maximumSize") if fields[key]]
    size = Size(fields["size"], fields["minSize"], min(limits, default=fields["size"]))
    check_bounds(cluster, size.minimum, size.maximum)
    return size


def _failure(cluster: str, exc: Exception) -> BackendError:
    """Return the error for a failed request, by its HTTP status."""
    if not isinstance(exc, httpx2.HTTPStatusError):
        return Unavailable(f"the Kubernetes API server does not answer: {_line(exc)}")
    code = exc.response.status_code
    if code == 404:
        # If the response names an object, the API server knows the resource.
        details = exc.status.details if isinstance(exc, ApiError) else None
        if details is None or not details.kind:
            return Refused(
                "the Kubernetes cluster has no MiniClusters of v1alpha2: the Flux Operator is not "
                "installed there (https://flux-framework.org/flux-operator)"
            )
        return UnknownCluster(f"there is no MiniCluster {cluster!r}")
    if code in (401, 403):
        return Refused(_forbidden(cluster, exc))
    if 400 <= code < 500 and code not in (408, 429):
        return Refused(f"the Kubernetes API server refuses MiniCluster {cluster!r}: {_line(exc)}")
    return Unavailable(f"the Kubernetes API server failed with HTTP status {code}: {_line(exc)}")


def _forbidden(cluster: str, exc: Exception) -> str:
    return (
        f"the Kubernetes API server does not let this service have MiniCluster {cluster!r}: "
        f"{_line(exc)}"
    )


def _line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
