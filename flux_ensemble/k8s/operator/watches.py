"""The objects of the cluster in memory, kept current by watches: reconciling reads no others.

    list, then watch ──► Watch: one for each kind ──► Seen.known, Seen.list
                           └──► changed(namespace, ensemble): reconcile that Ensemble

Written objects are known at once, and not only when their watch reports them. Objects of the same
name are distinguished by uid: a deleted object does not come back by a late response. A watch is
reopened after some minutes, since one can end silently. When the API server has forgotten its
position, everything is listed again. A watch of a kind that the cluster does not have yet is opened
when the kind appears.

All requests are lightkube's, but its `watch` is not used (`test_operator_watches` has each reason):

- It has no list, so it misses what is deleted while the API server has forgotten the position.
- It splits responses at any Unicode line separator, so that a text with U+2028 ends each watch of
  its object.
- It has no read timeout, and so waits for ever on a connection that was lost silently.
- When a response ends, it asks again at once, however often: nobody can pause in between.

A subclass would need a hook for each of these: more than the loop of `ObjectWatch._watch`.
"""

from __future__ import annotations

import copy
import json
import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
from lightkube import Client

from flux_ensemble.k8s.api_server import sturdy
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import (
    ClusterFailure,
    KubernetesCluster,
    Resource,
    resource_class,
)

log = logging.getLogger(__name__)

#: The namespace and name of an object.
Key = tuple[str, str]

#: Seconds for which the API server keeps a watch, and after which it must have ended in addition.
_WATCH_SECONDS = 300
_LATE_SECONDS = 30.0

#: Pauses after a failure in seconds, doubled each time: the first and the longest one; also for a
#: kind that the cluster does not have.
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0

#: A watch that ends sooner, in seconds, is not reopened at once.
_SHORT = 1.0

#: Objects per page of a list.
_PAGE = 500

#: Number of uids of deleted objects that are kept: late responses arrive within seconds.
_GONE = 10_000


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind of object that is watched.

    Args:
        api_version, kind: of the objects.
        labels, fields: selectors, by which the API server filters.
        ours: filters the received objects.
    """

    api_version: str
    kind: str
    labels: str = ""
    fields: str = ""
    ours: Callable[[Resource], bool] = field(default=lambda one: True)


def ensemble_of(one: Mapping[str, Any]) -> str:
    """Return the name of the Ensemble that an object belongs to by its labels, or ""."""
    if one.get("kind") == names.KIND:
        return str(one["metadata"]["name"])
    labels = one["metadata"].get("labels") or {}
    if one.get("kind") == "Job":
        # The Flux Operator puts our labels on the pods of a Job, and its own on the Job.
        labels = (one["spec"].get("template", {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(names.ENSEMBLE_LABEL, ""))


_OURS = f"{names.ENSEMBLE_LABEL},{names.MANAGED_LABEL}={names.MANAGER}"

KINDS = (
    WatchedKind(names.API_VERSION, names.KIND),
    *(WatchedKind(*own, labels=_OURS) for own in names.OWN),
    WatchedKind("v1", "Pod", labels=names.ENSEMBLE_LABEL),
    WatchedKind("batch/v1", "Job", ours=lambda job: bool(ensemble_of(job))),
    WatchedKind("v1", "Event", fields="involvedObject.kind=Job,type=Warning"),
)


class ObjectWatch:
    """The objects of one kind, in one namespace or in all.

    Args:
        client: of the API.
        kind: that is watched.
        namespace: "*" for all.
        changed: called with an object after a change of it, from the thread of the watch.
        came: called when the objects become known.

    Attributes:
        failure: why the objects are not known; None if they are.
        t_heard: when the API server has last answered, by `time.monotonic`.
    """

    def __init__(
        self,
        client: Client,
        kind: WatchedKind,
        namespace: str,
        changed: Callable[[Resource], None],
        came: Callable[[], None],
    ) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._changed = changed
        self._came = came
        self._lock = threading.Lock()
        self._objects: dict[Key, Resource] = {}
        self._terms: defaultdict[tuple[str, str, str], set[Key]] = defaultdict(set)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._stopped = threading.Event()
        self._tried = threading.Event()
        self.failure: ClusterFailure | None = ClusterFailure(
            f"no {kind.kind} has been listed yet", None
        )
        self.t_heard = time.monotonic()
        self._thread = threading.Thread(
            target=self._work, name=f"watch-{kind.kind}-{namespace}", daemon=True
        )

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """End, at the next message."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the objects are known, or cannot be listed for now.

        Return False if neither.
        """
        return self._tried.wait(seconds)

    # -- reading -----------------------------------------------------------------------

    def get(self, key: Key) -> Resource | None:
        """Return an object, or None. The object must not be changed.

        Raises:
            ClusterFailure: the objects are not known.
        """
        with self._lock:
            self._known()
            return self._objects.get(key)

    def select(self, namespace: str, labels: str, fields: str) -> list[Resource]:
        """Return the objects that the selectors choose. They must not be changed.

        Raises:
            ClusterFailure: the objects are not known.
        """
        wanted = {("labels", *_parsed(part)) for part in filter(None, labels.split(","))}
        wanted |= {("fields", *_parsed(part)) for part in filter(None, fields.split(","))}
        with self._lock:
            self._known()
            keys: Iterable[Key] = self._objects
            for kind, name, value in wanted:
                if name in _TERMS:
                    keys = self._terms.get((kind, name, value), ())
                    break
            found = [self._objects[key] for key in keys if namespace in ("*", key[0])]
        chosen = [one for one in found if all(_has(one, *term) for term in wanted)]
        return sorted(chosen, key=lambda one: str(one["metadata"]["name"]))

    def _known(self) -> None:
        if self.failure is not None:
            # A new exception, since the traceback of one grows each time that it is raised.
            raise ClusterFailure(str(self.failure), self.failure.code)

    # -- updates -----------------------------------------------------------------------

    def put(self, one: Resource) -> bool:
        """Store an object that has been written or received; return True if it is new."""
        metadata = one["metadata"]
        key = metadata["namespace"], metadata["name"]
        with self._lock:
            if metadata["uid"] in self._gone or not self._kind.ours(one):
                return False
            there = self._objects.get(key)
            if there is not None and _version(there) >= _version(one):
                return False
            self._put(key, one)
        return True

    def drop(self, one: Resource) -> bool:
        """Note that an object is gone; return True if that is new."""
        metadata = one["metadata"]
        key = metadata["namespace"], metadata["name"]
        with self._lock:
            self._gone[metadata["uid"]] = None
            if len(self._gone) > _GONE:
                self._gone.popitem(last=False)
            there = self._objects.get(key)
            if there is None or there["metadata"]["uid"] != metadata["uid"]:
                return False
            self._put(key, None)
        return True

    def _put(self, key: Key, one: Resource | None) -> None:
        before = self._objects.pop(key, None)
        if before is not None:
            for term in _terms(before):
                self._terms[term].discard(key)
                if not self._terms[term]:
                    del self._terms[term]
        if one is not None:
            self._objects[key] = one
            for term in _terms(one):
                self._terms[term].add(key)

    # -- watching ----------------------------------------------------------------------

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            try:
                version = self._relist()
                while not self._stopped.is_set():
                    begun = time.monotonic()
                    version = self._watch(version)
                    pause = _FIRST_PAUSE
                    if time.monotonic() < begun + _SHORT:
                        self._stopped.wait(pause)
            except Exception as exc:
                # Whatever happens, the next list is complete.
                if self._stopped.is_set():
                    return
                if isinstance(exc, httpx2.HTTPStatusError):
                    self.t_heard = time.monotonic()
                said = log.debug if self._is_missing(exc) and self.failure else log.warning
                said("the watch of %s: %s", self._kind.kind, " ".join(str(exc).split()))
                if self.failure is not None:
                    self.failure = _failure(self._kind, exc)
                self._tried.set()
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    @staticmethod
    def _is_missing(exc: Exception) -> bool:
        return isinstance(exc, httpx2.HTTPStatusError) and exc.response.status_code == 404

    def _relist(self) -> str:
        """List all objects; return the version of the list."""
        requests, found = self._client._client, {}
        request = requests.prepare_request(
            "list",
            resource_class(self._kind.api_version, self._kind.kind),
            namespace=self._namespace,
            params={**self._selectors(), "limit": str(_PAGE)},
        )
        version = None
        for listed, page in requests.list_chunks(request):
            version = listed
            for one in page:
                full = self._whole(one)
                found[full["metadata"]["namespace"], full["metadata"]["name"]] = full
        self.t_heard = time.monotonic()
        if version is None:
            raise ValueError("the list has no version")
        with self._lock:
            first, self.failure = self.failure is not None, None
            # Objects written since then are not in the list yet.
            gone = [
                one
                for key, one in self._objects.items()
                if key not in found and _version(one) <= int(version)
            ]
        changed = [one for one in gone if self.drop(one)]
        changed += [one for one in found.values() if self.put(one)]
        self._tried.set()
        for one in changed:
            self._changed(one)
        if first:
            self._came()
        return version

    def _watch(self, version: str) -> str:
        """Watch until the API server ends that; return the version from which to continue."""
        requests = self._client._client
        request = requests.prepare_request(
            "list",
            resource_class(self._kind.api_version, self._kind.kind),
            namespace=self._namespace,
            watch=True,
            params={
                **self._selectors(),
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(_WATCH_SECONDS),
            },
        )
        # Without a read timeout, a half-open connection would last for ever.
        request.timeout = httpx2.Timeout(10.0, read=_WATCH_SECONDS + _LATE_SECONDS)
        answer = requests.send(requests.build_adapter_request(request), stream=True)
        try:
            if answer.is_error:
                answer.read()
                requests.raise_for_status(answer)
            for line in _lines(answer.iter_bytes()):
                if self._stopped.is_set():
                    break
                version = self._take(json.loads(line))
                self.t_heard = time.monotonic()
        finally:
            answer.close()
        self.t_heard = time.monotonic()
        return version

    def _take(self, event: Mapping[str, Any]) -> str:
        """Process an event of the watch; return its version."""
        what, one = event["type"], event["object"]
        if what == "ERROR":
            raise ClusterFailure(str(one.get("message", one)), one.get("code"))
        if what in ("ADDED", "MODIFIED", "DELETED"):
            full = self._whole(one)
            take = self.drop if what == "DELETED" else self.put
            if take(full):
                self._changed(full)
        return str(one["metadata"]["resourceVersion"])

    def _whole(self, one: Mapping[str, Any]) -> Resource:
        return {**one, "apiVersion": self._kind.api_version, "kind": self._kind.kind}

    def _selectors(self) -> dict[str, str]:
        selectors = {"labelSelector": self._kind.labels, "fieldSelector": self._kind.fields}
        return {key: value for key, value in selectors.items() if value}


class Seen(KubernetesCluster):
    """A cluster whose watched objects are read from memory.

    Args:
        client: of its API.
        places: the namespaces that are watched, or "*", each with a client for its watches, which
            hold connections.
        changed: called with the namespace and name of an Ensemble, after a change of it or of one
            of its objects.
    """

    def __init__(
        self,
        client: Client,
        places: Mapping[str, Client],
        changed: Callable[[str, str], None],
        kinds: Iterable[WatchedKind] = KINDS,
    ) -> None:
        super().__init__(client)
        self._call = changed
        self._watches: dict[tuple[str, str, str], ObjectWatch] = {
            (kind.api_version, kind.kind, place): ObjectWatch(
                sturdy(own), kind, place, self._happened, self._look_at_all
            )
            for kind in kinds
            for place, own in places.items()
        }

    def start(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Begin to watch; wait until all kinds are known or cannot be listed.

        Args:
            seconds: the longest wait.
            stop: gives up when it returns True.
        """
        deadline = time.monotonic() + seconds
        for watch in self._watches.values():
            watch.start()
        for watch in self._watches.values():
            while not watch.wait(0.1) and not stop() and time.monotonic() < deadline:
                pass

    def close(self) -> None:
        """End all watches."""
        for watch in self._watches.values():
            watch.close()

    def silence(self) -> tuple[float, str]:
        """Return the longest silence of a watch in seconds, and the kind of that watch."""
        now = time.monotonic()
        return max((now - watch.t_heard, key[1]) for key, watch in self._watches.items())

    def ensembles(self) -> Sequence[Key]:
        """Return the keys of all known Ensembles."""
        return [
            (one["metadata"]["namespace"], one["metadata"]["name"])
            for (_, kind, place), watch in self._watches.items()
            if kind == names.KIND and watch.failure is None
            for one in watch.select(place, "", "")
        ]

    # -- reading -----------------------------------------------------------------------

    def known(self, api_version: str, kind: str, namespace: str, name: str) -> Resource | None:
        watch = self._watch_of(api_version, kind, namespace)
        if watch is None:
            return self.get(api_version, kind, namespace, name)
        return copy.deepcopy(watch.get((namespace, name)))

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
    ) -> list[Resource]:
        watch = self._watch_of(api_version, kind, namespace)
        if watch is None:
            return super().list(api_version, kind, namespace, labels=labels, fields=fields)
        return watch.select(namespace, labels, fields)

    # -- writing -----------------------------------------------------------------------

    def _wrote(self, one: Resource) -> None:
        watch = self._watch_of(one["apiVersion"], one["kind"], one["metadata"]["namespace"])
        if watch is not None:
            watch.put(one)

    def _deleted(self, one: Resource) -> None:
        watch = self._watch_of(one["apiVersion"], one["kind"], one["metadata"]["namespace"])
        if watch is not None and watch.drop(one):
            # The watch reports nothing new about it any more, and its successor has to be created.
            self._happened(one)

    def _watch_of(self, api_version: str, kind: str, namespace: str) -> ObjectWatch | None:
        for place in (namespace, "*"):
            watch = self._watches.get((api_version, kind, place))
            if watch is not None:
                return watch
        return None

    def _look_at_all(self) -> None:
        for key in self.ensembles():
            self._call(*key)

    def _happened(self, one: Resource) -> None:
        namespace, name = one["metadata"]["namespace"], ensemble_of(one)
        if one["kind"] == "Event":
            about = one.get("involvedObject") or {}
            watch = self._watch_of("batch/v1", "Job", namespace)
            try:
                job = watch.get((namespace, about.get("name", ""))) if watch is not None else None
            except ClusterFailure:
                # All Ensembles are reconciled when Jobs become known.
                job = None
            name = ensemble_of(job) if job is not None else ""
        if name:
            self._call(namespace, name)


#: Labels and fields by which objects are indexed.
_TERMS = (names.ENSEMBLE_LABEL, names.JOB_LABEL, "involvedObject.uid", "involvedObject.name")


def _terms(one: Resource) -> Iterator[tuple[str, str, str]]:
    for name in _TERMS:
        kind = "fields" if name.startswith("involvedObject") else "labels"
        value = _value(one, kind, name)
        if value is not None:
            yield kind, name, value


def _value(one: Resource, kind: str, name: str) -> str | None:
    if kind == "labels":
        label: str | None = (one["metadata"].get("labels") or {}).get(name)
        return label
    found: Any = one
    for key in name.split("."):
        found = (found or {}).get(key)
    return None if found is None else str(found)


def _has(one: Resource, kind: str, name: str, value: str) -> bool:
    return _value(one, kind, name) == value


def _parsed(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name, value


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a watch: only a newline ends one, no other separator within a text.

    >>> list(_lines([b"on", b"e\\ntwo", b"\\n"]))
    [b'one', b'two']
    """
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from filter(None, whole)


def _version(one: Resource) -> int:
    """Return the version of an object; those of one kind can be compared (KEP 5504)."""
    version = str(one["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0


def _failure(kind: WatchedKind, exc: Exception) -> ClusterFailure:
    """Return the failure of a list of a kind."""
    code = exc.response.status_code if isinstance(exc, httpx2.HTTPStatusError) else None
    return ClusterFailure(f"{kind.kind} cannot be listed: {' '.join(str(exc).split())}", code)
