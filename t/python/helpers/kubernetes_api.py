"""The Kubernetes API in memory: MiniClusters, and the three calls that the service makes.

It stands behind lightkube's own HTTP client. Conflicts are the API server's: each write
gives the resource a new version, and a write with another version than the current one is
refused with 409 and changes nothing.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User

PATH = re.compile(
    r"/apis/flux-framework\.org/v1alpha2/namespaces/([^/]+)/miniclusters/([^/]+)(/scale)?"
)
EVENTS = "/api/v1/namespaces/default/events"


class Api:
    """MiniClusters by NAMESPACE/NAME.

    `writes` are the sizes that clients have written, `events` the events, unless these are not
    `events_allowed`. `before_write` is called, with the name, when a client's write has arrived
    and nothing of it has been done. `fault` is raised, or returned as the answer, instead of
    doing a request.
    """

    def __init__(self) -> None:
        self.resources: dict[str, dict[str, Any]] = {}
        self.writes: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.events_allowed = True
        self.calls: list[str] = []
        self.before_write: Callable[[str], None] = lambda name: None
        self.fault: Exception | httpx2.Response | None = None
        self._version = 0

    def client(self) -> Client:
        """A client of this API, in the namespace default."""
        config = KubeConfig.from_one(
            cluster=Cluster(server="http://kubernetes.invalid"), user=User(), namespace="default"
        )
        return Client(config=config, transport=httpx2.MockTransport(self._answer))

    def put(self, name: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> None:
        """Creates or replaces a MiniCluster, as somebody else would."""
        self._version += 1
        namespace, _, own = name.partition("/")
        metadata = {
            "name": own,
            "namespace": namespace,
            "resourceVersion": str(self._version),
            "uid": name,
        }
        self.resources[name] = {
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": metadata,
            "spec": spec,
            "status": status or {},
        }

    def change(self, name: str, **spec: Any) -> None:
        """Changes keys of a MiniCluster's spec, as somebody else would."""
        found = self.resources[name]
        self.put(name, {**found["spec"], **spec}, found["status"])

    def size(self, name: str) -> int:
        """The size that a MiniCluster is to have."""
        size: int = self.resources[name]["spec"]["size"]
        return size

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.calls.append(f"{request.method} {request.url.path}")
        if isinstance(self.fault, Exception):
            raise self.fault
        if self.fault is not None:
            return self.fault
        if (request.method, request.url.path) == ("POST", EVENTS):
            if not self.events_allowed:
                return failure(403, "Forbidden", "cannot create resource events")
            self.events.append(json.loads(request.content))
            return httpx2.Response(201, json=self.events[-1])
        path = PATH.fullmatch(request.url.path)
        if path is None:
            return failure(404, "NotFound", "the path is not known")
        name = f"{path[1]}/{path[2]}"
        if request.method == "PUT":
            self.before_write(name)
        found = self.resources.get(name)
        if found is None:
            return failure(404, "NotFound", f'miniclusters "{path[2]}" not found', "miniclusters")
        match request.method, bool(path[3]):
            case "GET", False:
                return httpx2.Response(200, json=found)
            case "GET", True:
                return httpx2.Response(200, json=scale_of(found))
            case "PUT", True:
                return self._scale(name, found, json.loads(request.content))
        return failure(405, "MethodNotAllowed", "the method is not allowed")

    def _scale(self, name: str, found: dict[str, Any], scale: dict[str, Any]) -> httpx2.Response:
        assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
        metadata = scale["metadata"]
        assert f"{metadata['namespace']}/{metadata['name']}" == name
        # Without a version the write would be unconditional, and a conflict go unnoticed.
        if metadata["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return failure(409, "Conflict", "the object has been modified")
        size = scale["spec"]["replicas"]
        self.writes.append(size)
        self.put(name, {**copy.deepcopy(found["spec"]), "size": size}, found["status"])
        return httpx2.Response(200, json=scale_of(self.resources[name]))


def scale_of(resource: dict[str, Any]) -> dict[str, Any]:
    """The `/scale` subresource of a MiniCluster."""
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": resource["metadata"],
        "spec": {"replicas": resource["spec"].get("size", 0)},
        "status": {"replicas": resource["status"].get("size", 0)},
    }


def failure(code: int, reason: str, message: str, kind: str = "") -> httpx2.Response:
    """An error of the API server; it names what it knows the kind of."""
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
        "details": {"kind": kind} if kind else None,
    }
    return httpx2.Response(code, json=status)
