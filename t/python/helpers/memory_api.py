"""The Kubernetes API in memory, as a server on loopback: what an operator and its tests need of it.

Objects have versions, and a write of another version than the current one is 409. Schemas and
rules of CRDs are checked, which is 422, and unknown fields too where that is asked for. Roles are
enforced, 403, and nobody makes a Role that has more rights than he has. Server-side apply drops
what its manager had applied before and does not any more.

There are two controllers. What an object owns goes with it, by its uid: at once, or with `collects`
false as in a cluster, some time later (`collect`). Jobs have pods (`memory_jobs`); one on a node
leaves it before it is gone, and pods can be evicted.

It is used like a real API server (`apiserver`): `with memory_api() as api: api.client("admin")`.
"""

from __future__ import annotations

import copy
import datetime
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx2
from crd_schema import Schema
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from memory_fields import applied, entry_of, updated
from memory_jobs import Jobs, ended
from patience import PATIENCE

Object = dict[str, Any]

#: Kind and plural of each group and version, and whether it has namespaces.
KINDS = {
    "v1": {
        "ConfigMap": "configmaps",
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "Event": "events",
        "Pod": "pods",
        "Secret": "secrets",
        "Service": "services",
        "ServiceAccount": "serviceaccounts",
        "Namespace": "namespaces",
    },
    "apps/v1": {"Deployment": "deployments"},
    "batch/v1": {"Job": "jobs"},
    "coordination.k8s.io/v1": {"Lease": "leases"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "rbac.authorization.k8s.io/v1": {
        "Role": "roles",
        "RoleBinding": "rolebindings",
        "ClusterRole": "clusterroles",
        "ClusterRoleBinding": "clusterrolebindings",
    },
    "apiextensions.k8s.io/v1": {"CustomResourceDefinition": "customresourcedefinitions"},
}
CLUSTERED = {
    "namespaces",
    "clusterroles",
    "clusterrolebindings",
    "customresourcedefinitions",
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Failure(Exception):
    """The answer is an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class MemoryApi:
    """The objects, and who may do what with them.

    Attributes:
        url: where it answers.
        users: the name of each token's user; that of "admin" may do everything.
        writes: what was written: "POST configmaps default/a".
        refuse: raises a `Failure` for a request that is to fail: method, plural, name.
        collects: what has lost its owner goes at once, and not when `collect` is called.
        most_pods: how many a quota allows.
        replaces: whether Jobs make pods for those that were lost.
        canonical: what is kept in place of values of limits and requests.
        unknown: keys that are dropped without a word from what has no schema here.
        instead: the bytes that come in place of an answer, by method and path; None: the answer.
    """

    def __init__(self) -> None:
        self.url = ""
        self.users = {"admin": "admin"}
        self.writes: list[str] = []
        self.refuse: Any = lambda method, plural, name: None
        self.collects = True
        self.most_pods: int | None = None
        self._replaces = True
        self.canonical: dict[Any, str] = {}
        self.unknown: set[str] = set()
        self.instead: Callable[[str, str], bytes | None] = lambda method, path: None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._kinds = copy.deepcopy(KINDS)
        self._schemas: dict[str, Schema] = {}
        self._gone: set[str] = set()
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._history: list[tuple[int, str, str, Object]] = []
        self.version = 0
        self._controlling = False
        self._jobs = Jobs(self)
        self._watches_end = 0
        self.closed = False
        self.clients: list[Client] = []

    def client(self, token: str = "admin", namespace: str = "default") -> Client:
        """A client with a token."""
        # It is plaintext: reading the authorities of this machine for each client is for nothing.
        cluster = Cluster(server=self.url, insecure=True)
        config = KubeConfig.from_one(cluster=cluster, user=User(token=token), namespace=namespace)
        client = Client(config=config, timeout=httpx2.Timeout(PATIENCE))
        self.clients.append(client)
        return client

    def kubeconfig(self, token: str, namespace: str = "default") -> str:
        """A configuration with a token, as text."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [
                    {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}
                ],
                "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )

    def account_token(self, namespace: str, name: str) -> str:
        """A token of a ServiceAccount."""
        token = f"{namespace}-{name}"
        self.users[token] = f"system:serviceaccount:{namespace}:{name}"
        return token

    # -- requests ----------------------------------------------------------------------

    def answer(self, method: str, url: str, token: str, body: Any, kind: str) -> tuple[int, Any]:
        """The answer to a request but a watch: its status, and its object."""
        parts = urlsplit(url)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        discovered = self._discover(parts.path)
        if discovered is not None:
            return 200, discovered
        with self._lock:
            try:
                where = self.place(parts.path)
                if where is None:
                    raise Failure(404, "", "404 page not found")
                version, plural, namespace, name, sub = where
                self.refuse(method, plural, name)
                self.authorize(token, method, version, plural, namespace, name, sub)
                return self._do(
                    method, version, plural, namespace, name, sub, query, body, token, kind
                )
            except Failure as failure:
                if not failure.reason:
                    return failure.code, str(failure)
                return failure.code, {
                    "apiVersion": "v1",
                    "kind": "Status",
                    "status": "Failure",
                    "message": str(failure),
                    "reason": failure.reason,
                    "code": failure.code,
                    "details": {"kind": where[1] if where else ""},
                }

    def place(self, path: str) -> tuple[str, str, str, str, str] | None:
        """Version, plural, namespace, name and subresource of a path."""
        words = [unquote(word) for word in path.strip("/").split("/")]
        if words[:1] == ["api"]:
            version, rest = words[1], words[2:]
        elif words[:1] == ["apis"] and len(words) > 2:
            version, rest = "/".join(words[1:3]), words[3:]
        else:
            return None
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if version not in self._kinds or not rest:
            return None
        if rest[0] not in self._kinds[version].values():
            return None
        rest += ["", ""]
        return version, rest[0], namespace, rest[1], rest[2]

    def _discover(self, path: str) -> Any:
        groups = sorted({version for version in self._kinds if "/" in version})
        if path in ("/readyz", "/version"):
            return {"gitVersion": "memory"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            listed = [
                {
                    "name": version.partition("/")[0],
                    "versions": [{"groupVersion": version, "version": version.partition("/")[2]}],
                    "preferredVersion": {
                        "groupVersion": version,
                        "version": version.partition("/")[2],
                    },
                }
                for version in groups
            ]
            return {"kind": "APIGroupList", "groups": listed}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version not in self._kinds:
            return None
        resources = [
            {
                "name": plural,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": plural not in CLUSTERED,
                "verbs": VERBS,
                "shortNames": [],
                "categories": [],
            }
            for kind, plural in self._kinds[version].items()
        ]
        return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}

    def _do(
        self,
        method: str,
        version: str,
        plural: str,
        namespace: str,
        name: str,
        sub: str,
        query: Mapping[str, str],
        body: Any,
        token: str,
        kind: str,
    ) -> tuple[int, Any]:
        table = self._objects.setdefault(plural, {})
        dry = "dryRun" in query
        if method == "GET" and not name:
            items = [
                one
                for (ns, _), one in sorted(table.items())
                if namespace in ("", ns) and chosen(one, query)
            ]
            return 200, {
                "kind": "List",
                "apiVersion": version,
                "metadata": {"resourceVersion": str(self.version)},
                "items": items,
            }
        if method == "POST" and (plural, sub) == ("pods", "eviction"):
            evicted = table.get((namespace, name))
            if evicted is None:
                raise Failure(404, "NotFound", f'pods "{name}" not found')
            self.delete_pod(evicted)
            self._control()
            return 201, {"kind": "Status", "status": "Success"}
        if method == "POST" and not sub:
            return 201, self._create(version, plural, namespace, body, query, token)
        if method == "PATCH" and "apply" in kind:
            return 200, self._apply(version, plural, namespace, name, body, query, token)
        live = table.get((namespace, name))
        if live is None:
            raise Failure(404, "NotFound", f'{plural} "{name}" not found')
        if method == "GET":
            return 200, self._scale_of(live) if sub == "scale" else live
        if method == "DELETE":
            for key, value in ((body or {}).get("preconditions") or {}).items():
                if live["metadata"][key] != value:
                    raise Failure(409, "Conflict", f"the {key} in the precondition is another one")
            if not dry and plural == "pods":
                self.delete_pod(live, now=(body or {}).get("gracePeriodSeconds") == 0)
            elif not dry:
                self._remove(plural, (namespace, name))
            self._control()
            return 200, {"kind": "Status", "status": "Success"}
        if method not in ("PUT", "PATCH"):
            raise Failure(405, "MethodNotAllowed", "the method is not allowed")
        if method == "PATCH" and "json-patch" in kind:
            merged = replaced(copy.deepcopy(live), body)
        elif method == "PATCH":
            merged = merge(copy.deepcopy(live), body)
        else:
            merged = body
        asked = (merged.get("metadata") or {}).get("resourceVersion")
        if asked and asked != live["metadata"]["resourceVersion"]:
            raise Failure(409, "Conflict", "the object has been modified")
        new = copy.deepcopy(live)
        if sub == "scale":
            new["spec"]["size"] = merged["spec"]["replicas"]
        elif sub == "status":
            new["status"] = merged.get("status", {})
        else:
            new = {**merged, "metadata": {**merged["metadata"]}}
            for key in ("uid", "creationTimestamp", "generation", "resourceVersion"):
                if key in live["metadata"]:
                    new["metadata"][key] = live["metadata"][key]
            if plural in self._statused() and "status" in live:
                new["status"] = live["status"]
            new["metadata"]["managedFields"] = updated(
                live, new, query.get("fieldManager", "unknown")
            )
        self._check(version, plural, new, live, query, token)
        if not dry:
            self._store(method, version, plural, new, live)
            self._control()
        return 200, self._scale_of(new) if sub == "scale" else new

    def _create(
        self,
        version: str,
        plural: str,
        namespace: str,
        body: Object,
        query: Mapping[str, str],
        token: str,
    ) -> Object:
        new = copy.deepcopy(body)
        metadata = new.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if plural not in CLUSTERED:
            metadata["namespace"] = namespace
        key = namespace, metadata["name"]
        if key in self._objects[plural]:
            raise Failure(409, "AlreadyExists", f'{plural} "{key[1]}" already exists')
        home = self._objects.get("namespaces", {}).get(("", namespace))
        if home is not None and home["metadata"].get("deletionTimestamp"):
            raise Failure(
                403, "Forbidden", f"unable to create: namespace {namespace} is being terminated"
            )
        metadata |= {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": moment(),
            "generation": 1,
        }
        if plural in self._statused():
            new.pop("status", None)
        new["apiVersion"] = version
        metadata["managedFields"] = [entry_of(new, query.get("fieldManager", "unknown"), "Update")]
        self._check(version, plural, new, None, query, token)
        if "dryRun" not in query:
            self._store("POST", version, plural, new, None)
            self._control()
        return new

    def _apply(
        self,
        version: str,
        plural: str,
        namespace: str,
        name: str,
        body: Object,
        query: Mapping[str, str],
        token: str,
    ) -> Object:
        live = self._objects[plural].get((namespace, name))
        uid = body["metadata"].get("uid")
        if uid is not None and live is None:
            raise Failure(409, "Conflict", f"uid mismatch: there is no object with {uid}")
        if uid is not None and live is not None and live["metadata"]["uid"] != uid:
            raise Failure(422, "Invalid", f"metadata.uid: {uid}: field is immutable")
        if live is None:
            return self._create(version, plural, namespace, body, query, token)
        new = applied(live, body, query["fieldManager"])
        self._check(version, plural, new, live, query, token)
        if "dryRun" not in query:
            self._store("APPLY", version, plural, new, live)
        return new

    # -- storing -----------------------------------------------------------------------

    def _statused(self) -> set[str]:
        return {"deployments", "jobs", "pods"} | set(self._schemas)

    def _check(
        self,
        version: str,
        plural: str,
        new: Object,
        live: Object | None,
        query: Mapping[str, str],
        token: str,
    ) -> None:
        schema = self._schemas.get(plural)
        if schema is not None:
            strict = query.get("fieldValidation") == "Strict"
            wrong = schema.problems(new, live, strict=strict)
            if wrong:
                unknown = [one for one in wrong if one.startswith("unknown field")]
                if unknown:
                    raise Failure(400, "BadRequest", "strict decoding error: " + "; ".join(unknown))
                name = new["metadata"]["name"]
                raise Failure(
                    422, "Invalid", f'{new["kind"]} "{name}" is invalid: {"; ".join(wrong)}'
                )
        if plural in ("roles", "clusterroles") and token != "admin":
            namespace = new["metadata"].get("namespace", "")
            for rule in new.get("rules") or ():
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            if not self._may(token, verb, group, resource, namespace, ""):
                                raise Failure(
                                    403,
                                    "Forbidden",
                                    "attempting to grant RBAC permissions not currently held: "
                                    f"{verb} {resource}.{group}",
                                )
        if plural == "services":
            ports = [port.get("name") for port in (new.get("spec") or {}).get("ports") or ()]
            for name in {name for name in ports if ports.count(name) > 1}:
                raise Failure(422, "Invalid", f'spec.ports[1].name: Duplicate value: "{name}"')
        kind = new.get("kind")
        if kind != next(k for k, p in self._kinds[version].items() if p == plural):
            raise Failure(400, "BadRequest", f"the kind {kind!r} does not match")

    def _store(
        self, method: str, version: str, plural: str, new: Object, live: Object | None
    ) -> None:
        metadata = new["metadata"]
        if live is not None:
            if {**new, "metadata": {**metadata, "resourceVersion": ""}} == {
                **live,
                "metadata": {**live["metadata"], "resourceVersion": ""},
            }:
                metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
                return
            if new.get("spec") != live.get("spec"):
                metadata["generation"] = live["metadata"].get("generation", 1) + 1
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        new["apiVersion"] = version
        if plural not in self._schemas:
            kept(new, self.canonical, self.unknown)
        key = metadata.get("namespace", ""), metadata["name"]
        self._objects.setdefault(plural, {})[key] = new
        self.writes.append(f"{method} {plural} {'/'.join(key)}")
        if plural == "customresourcedefinitions":
            self._define(new)
        self._happened("ADDED" if live is None else "MODIFIED", plural, new)
        # What is made for an owner that has gone meanwhile is collected, too.
        if (
            self.collects
            and live is None
            and any(owner["uid"] in self._gone for owner in metadata.get("ownerReferences") or ())
        ):
            self._remove(plural, key)

    def _define(self, crd: Object) -> None:
        spec = crd["spec"]
        version = f"{spec['group']}/{spec['versions'][0]['name']}"
        self._kinds.setdefault(version, {})[spec["names"]["kind"]] = spec["names"]["plural"]
        self._schemas[spec["names"]["plural"]] = Schema(crd)
        crd["status"] = {"conditions": [{"type": "Established", "status": "True"}]}

    def _remove(self, plural: str, key: tuple[str, str]) -> None:
        gone = self._objects[plural].pop(key)
        self._gone.add(gone["metadata"]["uid"])
        self.writes.append(f"DELETE {plural} {'/'.join(key)}")
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._happened("DELETED", plural, gone)
        if self.collects:
            self.collect()

    # -- controllers -------------------------------------------------------------------

    def collect(self, *, but: str | None = None) -> None:
        """Delete what is owned only by what is not there any more, by its uid.

        Args:
            but: the name of what is collected later.
        """
        with self._lock:
            orphans = [
                (plural, key)
                for plural, key, one in self._every()
                if self._orphaned(one) and key[1] != but
            ]
            for plural, key in orphans:
                one = self._objects[plural].get(key)
                if one is None:
                    continue
                if plural == "pods":
                    self.delete_pod(one)
                else:
                    self._remove(plural, key)

    def _every(self) -> Iterator[tuple[str, tuple[str, str], Object]]:
        for plural, table in list(self._objects.items()):
            for key, one in list(table.items()):
                yield plural, key, one

    def _orphaned(self, one: Object) -> bool:
        owners = one["metadata"].get("ownerReferences") or ()
        return bool(owners) and all(owner["uid"] in self._gone for owner in owners)

    def _control(self) -> None:
        """Let the Job controller look until there is nothing to do for it."""
        if self._controlling:
            return
        self._controlling = True
        try:
            while self._jobs.look():
                pass
        finally:
            self._controlling = False

    @property
    def replaces(self) -> bool:
        return self._replaces

    @replaces.setter
    def replaces(self, replaces: bool) -> None:
        with self._lock:
            self._replaces = replaces
            self._control()

    def objects(self, plural: str) -> dict[tuple[str, str], Object]:
        """The objects of a kind, by namespace and name."""
        return self._objects.setdefault(plural, {})

    def delete_pod(self, pod: Object, *, now: bool = False) -> None:
        """Delete a pod: one that runs on a node leaves it before, which a kubelet tells."""
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["name"]
        if now or ended(pod) or not (pod.get("spec") or {}).get("nodeName"):
            self._remove("pods", key)
        elif not metadata.get("deletionTimestamp"):
            new = copy.deepcopy(pod)
            new["metadata"]["deletionTimestamp"] = moment()
            self._store("DELETE", "v1", "pods", new, pod)

    def make_pod(self, namespace: str, pod: Object) -> str | None:
        """Make a pod for a Job; why not, else."""
        there = sum(place == namespace for place, _ in self.objects("pods"))
        if self.most_pods is not None and there >= self.most_pods:
            return "pods is forbidden: exceeded quota"
        try:
            self.refuse("POST", "pods", pod["metadata"]["name"])
            made = self._create("v1", "pods", namespace, pod, {}, "admin")
        except Failure as failure:
            return str(failure)
        key = namespace, made["metadata"]["name"]
        self.put_status("pods", key, {"phase": "Pending"})
        return None

    def put_status(self, plural: str, key: tuple[str, str], status: Object) -> None:
        """Write the status of an object."""
        live = self._objects[plural][key]
        self._store(
            "PUT", live["apiVersion"], plural, {**copy.deepcopy(live), "status": status}, live
        )

    def tell(self, about: Object, reason: str, message: str, t_now: float) -> None:
        """Write a warning of an object, once."""
        metadata = about["metadata"]
        involved = {
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        }
        for one in self.objects("events").values():
            if one["involvedObject"] == involved and one["message"] == message:
                return
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}."},
            "involvedObject": involved,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": moment(t_now),
        }
        self._create("v1", "events", metadata["namespace"], event, {}, "admin")

    def _happened(self, what: str, plural: str, one: Object) -> None:
        self._history.append((self.version, what, plural, copy.deepcopy(one)))
        self._changed.notify_all()

    def end_watches(self) -> None:
        """End the watches that are open, as an API server does after some minutes."""
        with self._changed:
            self._watches_end += 1
            self._changed.notify_all()

    def watch(self, plural: str, namespace: str, query: Mapping[str, str]) -> Iterator[Object]:
        """What happens, until the time is up."""
        begin = int(query.get("resourceVersion") or self.version)
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 300)
        at, end = 0, self._watches_end
        while not self.closed and end == self._watches_end and time.monotonic() < deadline:
            with self._changed:
                if at == len(self._history):
                    self._changed.wait(0.5)
                found, at = self._history[at:], len(self._history)
            for version, what, kind, one in found:
                ns = one["metadata"].get("namespace", "")
                wanted = version > begin and kind == plural and namespace in ("", ns)
                if wanted and chosen(one, query):
                    yield {"type": what, "object": one}

    def _scale_of(self, one: Object) -> Object:
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": one["metadata"],
            "spec": {"replicas": one["spec"].get("size", 0)},
            "status": {"replicas": 0},
        }

    # -- rights ------------------------------------------------------------------------

    def authorize(
        self,
        token: str,
        method: str,
        version: str,
        plural: str,
        namespace: str,
        name: str,
        sub: str,
    ) -> None:
        """Raises a `Failure` if the user of a token may not do it."""
        if token not in self.users:
            raise Failure(401, "Unauthorized", "Unauthorized")
        verb = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}.get(
            method, method.lower()
        )
        if verb == "get" and not name:
            verb = "list"
        group = version.rpartition("/")[0]
        resource = f"{plural}/{sub}" if sub else plural
        if not self._may(token, verb, group, resource, namespace, name):
            raise Failure(
                403,
                "Forbidden",
                f'{plural} "{name}" is forbidden: User "{self.users[token]}" cannot {verb} '
                f'resource "{resource}" in API group "{group}" in the namespace "{namespace}"',
            )

    def _may(
        self, token: str, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> bool:
        user = self.users[token]
        if user == "admin":
            return True
        return any(
            group in rule.get("apiGroups", ())
            and resource in rule.get("resources", ())
            and verb in rule.get("verbs", ())
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
            for rule in self._rules(user, namespace)
        )

    def _rules(self, user: str, namespace: str) -> Iterator[Object]:
        for plural in ("clusterrolebindings", "rolebindings"):
            for (home, _), binding in self._objects.get(plural, {}).items():
                if plural == "rolebindings" and home != namespace:
                    continue
                names = [
                    f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}"
                    for subject in binding.get("subjects") or ()
                ]
                if user not in names:
                    continue
                reference = binding["roleRef"]
                clustered = reference["kind"] == "ClusterRole"
                table = self._objects.get("clusterroles" if clustered else "roles", {})
                role = table.get(("" if clustered else home, reference["name"]))
                yield from (role or {}).get("rules") or ()


def chosen(one: Object, query: Mapping[str, str]) -> bool:
    """Whether an object is one that the selectors choose."""
    labels = one["metadata"].get("labels") or {}
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, equal, value = part.partition("=")
        if key not in labels or (equal and labels[key] != value.lstrip("=")):
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = part.partition("=")
        found: Any = one
        for key in path.split("."):
            found = (found or {}).get(key)
        if str(found) != value.lstrip("="):
            return False
    return True


def kept(value: Any, canonical: Mapping[Any, str], unknown: set[str], key: str = "") -> None:
    """Writes values in place of those of an object as an API server keeps them."""
    if isinstance(value, list):
        for item in value:
            kept(item, canonical, unknown)
    elif isinstance(value, dict):
        for name in unknown & set(value):
            del value[name]
        for name, inner in value.items():
            if key in ("limits", "requests"):
                value[name] = canonical.get(inner, inner)
            kept(inner, canonical, unknown, name)


def merge(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            old.pop(key, None)
        else:
            old[key] = merge(old.get(key), value)
    return old


def replaced(old: Object, changes: list[Object]) -> Object:
    """An object after a JSON patch (RFC 6902) that only replaces."""
    for change in changes:
        assert change["op"] == "replace", change
        *path, last = change["path"].strip("/").split("/")
        where = old
        for key in path:
            where = where[key]
        where[last] = change["value"]
    return old


def moment(t: float | None = None) -> str:
    time_of_it = time.time() if t is None else t
    return datetime.datetime.fromtimestamp(time_of_it, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def memory_api() -> Iterator[MemoryApi]:
    """An API that answers on loopback."""
    api = MemoryApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            raw = api.instead(self.command, self.path)
            if raw is not None:
                self.wfile.write(raw)
                self.close_connection = True
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            if query.get("watch") in ("true", "1"):
                where = api.place(parts.path)
                assert where is not None
                try:
                    api.authorize(token, "watch", *where)
                except Failure as failure:
                    self.send(failure.code, {"kind": "Status", "message": str(failure)})
                    return
                self.stream(api.watch(where[1], where[2], query))
                return
            kind = self.headers.get("Content-Type", "")
            self.send(*api.answer(self.command, self.path, token, body, kind))

        def send(self, code: int, answer: Any) -> None:
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(code)
            kind = "text/plain" if isinstance(answer, str) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def stream(self, events: Iterator[Object]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for event in events:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients are killed, too."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield api
    finally:
        api.closed = True
        for client in api.clients:
            client.close()
        server.shutdown()
        server.server_close()
        thread.join()
