"""Brings the cluster in line with an Ensemble, and the Ensemble's status in line with the cluster.

    Reconciler(cluster, settings).reconcile(namespace, name)

The call may be made at any time and any number of times: it reads, writes the differences, and a
second call writes nothing. An Ensemble with an error changes nothing in the cluster but its own
status. Owned objects are found by label and owner; an object of another owner is never touched.

A MiniCluster is created with its size, and applied without it afterwards. The size belongs to the
gRPC service from then on, and a server-side apply that had it once and does not any more would
reset it.
"""

from __future__ import annotations

import copy
import datetime
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flux_ensemble.k8s.events import event as event_of
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator import status as statuses
from flux_ensemble.k8s.operator.check import Missing, check
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster, Resource
from flux_ensemble.k8s.operator.differences import Settled, annotation
from flux_ensemble.k8s.operator.manifests import digest, owned, port_of
from flux_ensemble.k8s.operator.members import OVER, has_ended, kind_of
from flux_ensemble.k8s.operator.metrics import OperatorMetrics
from flux_ensemble.k8s.operator.minicluster import numbered
from flux_ensemble.k8s.operator.observer import Observer
from flux_ensemble.k8s.operator.queue import LAST
from flux_ensemble.k8s.operator.render import Settings, render
from flux_ensemble.k8s.operator.secrets import Certificates
from flux_ensemble.k8s.operator.status import Event, StatusFacts


def documents(cluster: KubernetesCluster, ensemble: dict[str, Any]) -> dict[str, str | Missing]:
    """Return the document of each member, or why it is missing.

    The digest of a text in a ConfigMap is noted in the Ensemble as `ensembleFrom.digest`, so that
    another text is a change of the member (`minicluster.template`).
    """
    found: dict[str, str | Missing] = {}
    for member in ensemble["spec"]["members"]:
        if "ensemble" in member:
            found[member["name"]] = member["ensemble"]
            continue
        source = member["ensembleFrom"]
        text = _from_map(cluster, ensemble["metadata"]["namespace"], source)
        found[member["name"]] = text
        if isinstance(text, str):
            source["digest"] = digest(text)
    return found


def _from_map(cluster: KubernetesCluster, namespace: str, source: dict[str, str]) -> str | Missing:
    name, key = source["name"], source.get("key", names.DOCUMENT_FILE)
    found = cluster.get("v1", "ConfigMap", namespace, name)
    if found is None:
        return Missing(f"there is no ConfigMap {name!r}")
    data = found.get("data") or {}
    if key not in data:
        keys = ", ".join(sorted(data)) or "none"
        return Missing(f"ConfigMap {name!r} has no key {key!r} (keys: {keys})")
    text: str = data[key]
    return text


log = logging.getLogger(__name__)

#: HTTP statuses by which the API server rejects a manifest, whoever sends it.
_WRONG = (400, 422)

#: Kind of the object that keeps the state of a member.
_CLAIM = "PersistentVolumeClaim"

#: Seconds until the next call: for an Ensemble whose status has to be written before the next step;
#: for one that waits until somebody else's object is gone, which is not watched; and for one that
#: refers to other objects that are not watched.
_VERY_SOON = 1.0
_SOON = 10.0
_LATER = 60.0


class Reconciler:
    """Reconciles Ensembles, each by a call.

    Args:
        cluster: of the Ensembles.
        settings: of the operator.
        metrics: counts.
        now: returns the time.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        settings: Settings,
        metrics: OperatorMetrics,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._settled = Settled()

    def reconcile(self, namespace: str, name: str) -> float | None:
        """Reconcile one Ensemble.

        Returns:
            The longest time in seconds until the next call; None if the regular calls for all
            Ensembles suffice; `queue.LAST` if its MiniClusters are made, and its other objects may
            wait for the MiniClusters of others.

        Raises:
            ClusterFailure: the cluster has failed a request. The status has the reason, if it could
                be written. The call is to be repeated.
        """
        ensemble = self._cluster.known(names.API_VERSION, names.KIND, namespace, name)
        if ensemble is None or ensemble["metadata"].get("deletionTimestamp"):
            # Its owned objects are deleted with it.
            self._metrics.forget(namespace, name)
            return None
        turn = _Turn(
            self._cluster, self._settings, self._metrics, self._settled, self._now(), ensemble
        )
        return turn.take()


class _Turn:
    """A single reconciliation of an Ensemble."""

    def __init__(
        self,
        cluster: KubernetesCluster,
        settings: Settings,
        metrics: OperatorMetrics,
        settled: Settled,
        now: datetime.datetime,
        ensemble: Resource,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._settled = settled
        self._now = now
        self._ensemble = ensemble
        self._namespace: str = ensemble["metadata"]["namespace"]
        self._before: Mapping[str, Any] = ensemble.get("status") or {}
        self._events: list[Event] = []
        self._refused: list[str] = []
        self._problems: list[str] = []
        self._waits: list[str] = []
        self._owned: dict[tuple[str, str], Resource] = {}
        self._looked = False
        self._checked = False
        self._awaits_kueue = False
        self._rest_waits = False
        # Remains of an earlier MiniCluster that are not gone yet, by member.
        self._awaited: dict[str, str] = {}
        self._certificates = Certificates(cluster, ensemble, now)

    def take(self) -> float | None:
        failure: ClusterFailure | None = None
        try:
            self._look()
            self._looked = True
            self._problems = check(self._ensemble, documents(self._cluster, self._ensemble))
            self._checked = True
            if not self._problems:
                self._write()
                if self._rest_waits:
                    return LAST
        except ClusterFailure as exc:
            failure = exc
        except Exception as exc:
            # Even after an unforeseen error, the known state is written to the status.
            log.exception("%s: an unexpected error", self._label())
            failure = ClusterFailure(f"the operator failed, as its log says: {exc!r}", None)
        # A conflict with somebody else's write is not reported, since the call is repeated.
        passing = failure is None or failure.code == 409
        status = self._write_status("" if passing else str(failure))
        if failure is not None:
            raise failure
        return self._finish(status)

    # -- existing objects --------------------------------------------------------------

    def _look(self) -> None:
        """Find the objects that the Ensemble owns."""
        selector = names.selector(self._ensemble["metadata"]["name"])
        for api_version, kind in names.OWN:
            for found in self._list(api_version, kind, selector):
                if names.owned_by(self._ensemble, found):
                    self._owned[kind, found["metadata"]["name"]] = found

    def _list(self, api_version: str, kind: str, selector: str) -> list[Resource]:
        try:
            return self._cluster.list(api_version, kind, self._namespace, labels=selector)
        except ClusterFailure as failure:
            if failure.code != 404:
                raise
            raise ClusterFailure(
                f"the cluster has no {kind} of {api_version}: install the Flux Operator", 404
            ) from failure

    def _members(self) -> list[Mapping[str, Any]]:
        members: list[Mapping[str, Any]] = self._ensemble["spec"]["members"]
        return members

    def _ended(self) -> set[str]:
        """Return the members that have ended, and are not to begin anew.

        An end in the status belongs to one MiniCluster, by its uid, and to the template of that. If
        there is another MiniCluster, or another template is wanted, the end is past. While the
        Ensemble is suspended, the ends of all members are past.
        """
        if self._suspended():
            return set()
        ended = set()
        known = {member["name"]: member for member in self._before.get("members") or ()}
        for member in self._members():
            end = known.get(member["name"])
            if end is None or end["state"] not in OVER:
                continue
            live = self._owned.get(("MiniCluster", names.member(self._name(), member["name"])))
            if live is not None and live["metadata"]["uid"] != end.get("uid"):
                continue
            if self._recreates() and self._differs_from(member, end):
                continue
            ended.add(member["name"])
        return ended

    def _differs_from(self, member: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
        """Return True if a member's wanted template differs from that of its end."""
        wanted = kind_of(member).render(self._ensemble, member)
        return annotation(wanted, names.TEMPLATE) != end.get("template")

    def _recreates(self) -> bool:
        return bool(self._ensemble["spec"].get("onChange", "Refuse") == "Recreate")

    def _suspended(self) -> bool:
        return bool(self._ensemble["spec"].get("suspend"))

    def _is_forgotten_first(self) -> bool:
        """Return True if the status has an end that becomes past by a suspension.

        The status has to be written before the MiniCluster is deleted. Otherwise, after an operator
        was killed in between, a member that is to begin anew would look like one whose MiniCluster
        somebody else has deleted after its end.
        """
        known = self._before.get("members") or ()
        return self._suspended() and any(member["state"] in OVER for member in known)

    # -- writing -----------------------------------------------------------------------

    def _write(self) -> None:
        ended = self._ended()
        suspended = self._suspended()
        serve = not suspended and len(ended) < len(self._members())
        manifests = self._render(serve)
        clusters = [manifest for manifest in manifests if _is_cluster(manifest)]
        claims = {_member(one): one for one in manifests if one["kind"] == _CLAIM}
        others = [one for one in manifests if not _is_cluster(one) and one["kind"] != _CLAIM]
        self._try_out(clusters)
        if self._problems or self._waits:
            return
        # Unwanted MiniClusters are deleted first: what they mount stays until then.
        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
        keep |= {("Secret", name) for name in self._certificates.names()}
        if suspended and not self._is_forgotten_first():
            keep -= {("MiniCluster", manifest["metadata"]["name"]) for manifest in clusters}
        self._prune(keep)
        # For a new Ensemble, the objects that its members need to begin are made before the
        # service, which members can miss for a while.
        new = not (self._before or self._owned or suspended)
        of_members = [one for one in others if _member(one)]
        ready = self._ensure_parts(of_members if new else others, members_only=new)
        if ready and not suspended:
            self._ensure_miniclusters(clusters, claims, ended)
        if new:
            self._rest_waits = not (self._problems or self._waits or self._awaited)
            for manifest in [] if self._rest_waits else others:
                self._ensure(manifest)

    def _ensure_parts(self, manifests: Iterable[Resource], *, members_only: bool = False) -> bool:
        """Create or correct Secrets and other objects; return True if all of them exist."""
        self._certificates.ensure(self._owned, members_only=members_only)
        self._problems += self._certificates.problems
        for manifest in self._certificates.occupied:
            self._is_there(manifest)
        for manifest in manifests:
            self._ensure(manifest)
        return not (self._problems or self._waits)

    def _ensure_miniclusters(
        self, clusters: Iterable[Resource], claims: Mapping[str, Resource], ended: set[str]
    ) -> None:
        known = [member["name"] for member in self._members()]
        members = {names.member(self._name(), name): name for name in known}
        for manifest in clusters:
            name = members[manifest["metadata"]["name"]]
            self._ensure_minicluster(name, manifest, claims.get(name), ended=name in ended)

    def _render(self, serve: bool) -> list[Resource]:
        """Return the manifests; the service keeps the port that running members were given."""
        manifests = render(self._ensemble, self._settings, serve=serve)
        ports = {annotation(found, names.PORT) for found in self._live_miniclusters()}
        told = next(filter(None, ports), None)
        if told is not None and str(port_of(self._ensemble)) not in ports:
            spec = self._ensemble["spec"]
            service = {**(spec.get("service") or {}), "port": int(told)}
            before = {**self._ensemble, "spec": {**spec, "service": service}}
            manifests = [
                *(
                    one
                    for one in render(before, self._settings, serve=serve)
                    if not _is_cluster(one)
                ),
                *(one for one in manifests if _is_cluster(one)),
            ]
        return [owned(manifest, self._ensemble) for manifest in manifests]

    def _live_miniclusters(self) -> list[Resource]:
        """Return the MiniClusters that stay: none if a change makes them anew."""
        if self._recreates():
            return []
        return [found for (kind, _), found in self._owned.items() if kind == "MiniCluster"]

    def _try_out(self, clusters: Iterable[Resource]) -> None:
        """Make the API server check new MiniClusters before anything is created."""
        for manifest in clusters:
            name = manifest["metadata"]["name"]
            if ("MiniCluster", name) in self._owned:
                continue
            try:
                self._cluster.try_out(manifest)
            except ClusterFailure as failure:
                if failure.code == 409:
                    self._is_there(manifest)
                elif failure.code in _WRONG:
                    self._problems.append(f"MiniCluster {name!r}: {failure}")
                else:
                    raise

    def _prune(self, keep: set[tuple[str, str]]) -> None:
        for (kind, name), found in list(self._owned.items()):
            if (kind, name) in keep or found["metadata"].get("deletionTimestamp"):
                continue
            if kind == _CLAIM and ("MiniCluster", self._minicluster(found)) in self._owned:
                continue  # A member that runs keeps its volume, whatever the spec has now.
            log.info("%s: delete %s %s", self._label(), kind, name)
            self._delete(kind, name)

    def _delete(self, kind: str, name: str) -> None:
        """Delete an owned object; a MiniCluster is Ending until a watch reports that it is gone."""
        found = self._owned.pop((kind, name))
        self._cluster.delete(found)
        if kind == "MiniCluster":
            leaving = {**found["metadata"], "deletionTimestamp": self._now.isoformat()}
            self._owned[kind, name] = {**found, "metadata": leaving}

    def _ensure(self, manifest: Resource) -> bool:
        """Create an object, or correct those of its fields that are ours.

        Return True if created.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live = self._owned.get((kind, name))
        try:
            if live is None:
                self._owned[kind, name] = self._cluster.create(manifest)
                self._settled.note(manifest, self._owned[kind, name])
                log.info("%s: made %s %s", self._label(), kind, name)
                return True
            if self._settled.differs(manifest, live):
                log.info("%s: mend %s %s", self._label(), kind, name)
                self._owned[kind, name] = self._cluster.apply(manifest, live)
                self._settled.note(manifest, self._owned[kind, name])
        except ClusterFailure as failure:
            if failure.code == 409 and live is None:
                self._is_there(manifest)
            elif failure.code in _WRONG:
                self._problems.append(f"{kind} {name!r}: {failure}")
            else:
                raise
        return False

    def _is_there(self, manifest: Resource) -> None:
        """Note why an object cannot be created whose name is taken."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        there = self._cluster.get(manifest["apiVersion"], kind, self._namespace, name)
        if there is None or names.leaves(self._ensemble, there):
            self._waits.append(names.leaving(kind, name))
        elif names.owned_by(self._ensemble, there):
            raise ClusterFailure(f"{kind} {name!r} was made just now", 409)
        else:
            self._problems.append(names.foreign(kind, name))

    def _ensure_minicluster(
        self, member: str, manifest: Resource, claim: Resource | None, *, ended: bool
    ) -> None:
        name = manifest["metadata"]["name"]
        live = self._owned.get(("MiniCluster", name))
        if live is None and not ended:
            fresh = numbered(manifest, uuid.uuid4().hex[:12])
            if self._is_awaited(member, name) or not self._has_claim(member, claim):
                return
            self._ensure(fresh)
            return
        if live is not None and live["metadata"].get("deletionTimestamp"):
            return
        if self._template_of(member, live) != annotation(manifest, names.TEMPLATE):
            if live is not None and self._recreates():
                log.info("%s: delete MiniCluster %s, to make it anew", self._label(), name)
                self._delete("MiniCluster", name)
                self._tell("MemberRecreated", f"member {member!r}: it has changed, and begins anew")
            else:
                self._refused.append(
                    f"members[{member}]: a member that runs does not change, but for its minSize: "
                    "set onChange: Recreate to have it begin anew"
                )
            return
        if live is None:
            return
        if not ended:
            if claim is not None and (_CLAIM, claim["metadata"]["name"]) not in self._owned:
                # Somebody has deleted the claim: without it no pod could start any more.
                self._ensure(claim)
            run = annotation(live, names.RUN)
            live = self._mend(numbered(manifest, run) if run else manifest, live)
            self._bound(member, live)

    def _has_claim(self, member: str, claim: Resource | None) -> bool:
        """Create the volume claim of a member that is to begin.

        Return True if the member can begin.

        A claim that was made from another template is made anew, since there is no state to
        continue from.
        """
        if claim is None:
            return True
        key = _CLAIM, claim["metadata"]["name"]
        live = self._owned.get(key)
        if live is None:
            return self._ensure(claim)
        if not live["metadata"].get("deletionTimestamp"):
            if annotation(live, names.HASH) == annotation(claim, names.HASH):
                return True
            self._delete(*key)
        self._awaited[member] = f"the {_CLAIM} {key[1]!r} of the one before has still to go"
        return False

    def _template_of(self, member: str, live: Resource | None) -> str | None:
        """Return the template of a MiniCluster, which may be gone after its end."""
        if live is not None:
            return annotation(live, names.TEMPLATE)
        known = self._before.get("members") or ()
        return next((end.get("template") for end in known if end["name"] == member), None)

    def _is_awaited(self, member: str, name: str) -> bool:
        """Return True if remains of an earlier MiniCluster of the name still exist.

        The Flux Operator would take the old Job for that of the new MiniCluster, and the old
        entrypoint for the new one. Old pods that still run would do the same work as the new ones
        at the same time.
        """
        for kind, made in (
            (("batch/v1", "Job"), name),
            (("v1", "ConfigMap"), names.entrypoint(name)),
        ):
            found = self._cluster.get(*kind, self._namespace, made)
            if found is None:
                continue
            owners = found["metadata"].get("ownerReferences") or ()
            if any(owner["kind"] == "MiniCluster" for owner in owners):
                said = f"the {kind[1]} {made!r} of the one before has still to go"
                self._awaited[member] = said
            else:
                self._problems.append(names.foreign(kind[1], made))
            return True
        pods = self._cluster.list("v1", "Pod", self._namespace, labels=names.of_job(name))
        for pod in pods:
            if not has_ended(pod):
                own = pod["metadata"]["name"]
                self._awaited[member] = f"the pod {own!r} of the one before has still to end"
                return True
        return False

    def _mend(self, manifest: Resource, live: Resource) -> Resource:
        sizeless = copy.deepcopy(manifest)
        del sizeless["spec"]["size"]
        same = annotation(manifest, names.RELEASE) == annotation(live, names.RELEASE)
        if not same or not self._settled.differs(sizeless, live):
            # A MiniCluster made by another release continues as it was made.
            return live
        log.info("%s: mend MiniCluster %s", self._label(), manifest["metadata"]["name"])
        mended = self._cluster.apply(sizeless, live, without=[("spec", "size")])
        self._settled.note(sizeless, mended)
        return mended

    def _bound(self, member: str, live: Resource) -> None:
        """Correct a size out of bounds, with which the Flux Operator would stop working."""
        spec, status = live["spec"], live.get("status") or {}
        low, size = spec.get("minSize") or 1, spec.get("size", 1)
        tops = [top for top in (spec.get("maxSize"), status.get("maximumSize")) if top]
        bounded = max(low, min([size, *tops]))
        if bounded == size:
            return
        high = min(tops, default=size)
        self._cluster.resize(live, bounded)
        self._tell(
            "SizeOutOfBounds",
            f"member {member!r}: somebody set a size of {size}, which is not within {low} to "
            f"{high}: it is {bounded} again",
            warning=True,
        )

    # -- the status --------------------------------------------------------------------

    def _write_status(self, failure: str) -> Mapping[str, Any]:
        observer = Observer(self._cluster, self._ensemble, self._owned)
        members, service = [], statuses.known_service(self._before)
        if self._looked:
            service = observer.service()
        ended = self._ended()
        for member in self._members():
            known = observer.known(member) or observer.unknown(member)
            if member["name"] in ended:
                known.pop("flux", None)
                members.append({**known, "size": 0})
                continue
            if not self._looked:
                members.append(known)
                continue
            try:
                members.append(observer.member(member))
            except ClusterFailure as exc:
                failure = failure or str(exc)
                members.append(known)
            if reason := self._awaited.get(member["name"]):
                members[-1]["reason"] = reason
        self._awaits_kueue = observer.awaits_kueue
        view = StatusFacts(
            generation=self._ensemble["metadata"].get("generation", 0),
            problems=self._problems,
            refused=self._refused,
            waits=self._waits,
            checked=self._checked,
            failure=failure,
            suspended=self._suspended(),
            service=service,
            members=members,
        )
        now = self._now.strftime("%Y-%m-%dT%H:%M:%SZ")
        status = statuses.status(view, self._before, now)
        changed = status != self._before
        if changed:
            self._events += statuses.events(self._before, status)
        # Written first: an operator that is killed in between would never report the events.
        for event in self._events:
            self._post(event)
        if changed:
            self._ensemble = self._cluster.write_status(self._ensemble, status)
        self._metrics.seen(self._namespace, self._name(), status)
        return status

    def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._events.append(Event(reason, message, warning))

    def _post(self, event: Event) -> None:
        """Write an event; a lost event is no failure.

        Its name is derived from its contents, so that it is written once, however often that is
        tried.
        """
        manifest = event_of(
            self._ensemble,
            event.reason,
            event.message,
            component=names.MANAGER,
            now=self._now,
            warning=event.warning,
        )
        metadata = self._ensemble["metadata"]
        said = [metadata["uid"], metadata["resourceVersion"], event.reason, event.message]
        manifest["metadata"]["name"] = f"{metadata['name']}.{digest(said)}"
        try:
            self._cluster.create(manifest)
        except ClusterFailure as failure:
            if failure.code == 409:
                return
            log.warning("%s: an event was not written: %s", self._label(), failure)

    # -- afterwards --------------------------------------------------------------------

    def _finish(self, status: Mapping[str, Any]) -> float | None:
        """Delete the Ensemble when its time is up; return the seconds until the next call."""
        now = self._now.timestamp()
        after = [self._certificates.t_renew - now] if self._certificates.t_renew else []
        if not statuses.over(status):
            after += self._next(status)
        keep = self._ensemble["spec"].get("ttlSecondsAfterFinished")
        if keep is not None and "completionTime" in status:
            ended = datetime.datetime.fromisoformat(status["completionTime"]).timestamp()
            if now >= ended + keep:
                log.info("%s: delete it, %s s after its end", self._label(), keep)
                # Somebody who has changed it meanwhile may want to keep it.
                self._cluster.delete(self._ensemble, unchanged=True)
                return None
            after.append(ended + keep - now)
        return max(0.0, min(after)) if after else None

    def _next(self, status: Mapping[str, Any]) -> list[float]:
        """Return when to call again for an Ensemble that has not ended, for what is not watched."""
        if self._is_forgotten_first():
            return [_VERY_SOON]
        if self._waits or self._awaited or self._awaits_kueue:
            return [_SOON]
        refers = any("ensembleFrom" in member for member in self._members())
        # What Kueue says of a member that waits in a queue is not watched.
        queued = any(member.get("admitted") is False for member in status["members"])
        return [_LATER] if self._problems or refers or queued else []

    def _minicluster(self, found: Resource) -> str:
        """Return the name of the MiniCluster of the member that an object belongs to."""
        return names.member(self._name(), _member(found))

    def _name(self) -> str:
        name: str = self._ensemble["metadata"]["name"]
        return name

    def _label(self) -> str:
        return f"{self._namespace}/{self._name()}"


def _member(manifest: Mapping[str, Any]) -> str:
    """Return the member that an object belongs to, by its label; "" if there is none."""
    return str(manifest["metadata"].get("labels", {}).get(names.MEMBER_LABEL, ""))


def _is_cluster(manifest: Mapping[str, Any]) -> bool:
    return bool(manifest["kind"] == "MiniCluster")
