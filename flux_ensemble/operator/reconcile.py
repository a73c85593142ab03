"""Makes a cluster have what an Ensemble says, and the Ensemble's status say what the cluster has.

    Reconciler(cluster, settings).reconcile(namespace, name)

It may be called at any time and any number of times: it looks, writes what differs, and a second
call writes nothing. An Ensemble with an error changes nothing in the cluster but its own status.
What it owns is told by label and owner; an object of another owner is never touched.

A MiniCluster is made with its size, and applied without it afterwards: the size is the gRPC
service's then, and a server-side apply that had it once and does not any more would reset it.
"""

from __future__ import annotations

import copy
import datetime
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flux_ensemble.gateway.backends.kubernetes_events import event as event_of
from flux_ensemble.operator import names
from flux_ensemble.operator import status as statuses
from flux_ensemble.operator.check import check
from flux_ensemble.operator.cluster import ClusterFailure, KubernetesCluster, Resource
from flux_ensemble.operator.differences import Settled, annotation
from flux_ensemble.operator.documents import documents
from flux_ensemble.operator.manifests import digest, owned, port_of
from flux_ensemble.operator.members import OVER, has_ended, kind_of
from flux_ensemble.operator.metrics import OperatorMetrics
from flux_ensemble.operator.minicluster import numbered
from flux_ensemble.operator.observer import Observer
from flux_ensemble.operator.queue import LAST
from flux_ensemble.operator.render import Settings, render
from flux_ensemble.operator.secrets import Certificates
from flux_ensemble.operator.status import Event, StatusFacts

log = logging.getLogger(__name__)

#: HTTP statuses by which the API server says that a manifest is wrong, whoever sends it.
_WRONG = (400, 422)

#: What keeps the state of a member.
_CLAIM = "PersistentVolumeClaim"

#: When to look again, in seconds: at one whose status is to be written before the next step; at one
#: that waits for somebody else's object to go, which is not watched; and at one that refers to what
#: is not watched either.
_VERY_SOON = 1.0
_SOON = 10.0
_LATER = 60.0


class Reconciler:
    """Reconciles Ensembles, each by a call.

    Args:
        cluster: where they are.
        settings: of the operator.
        metrics: counts.
        now: the time.
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
        """Look at one Ensemble, and do what is to be done.

        Returns:
            Seconds after which it is to be looked at again, at the latest; None if that is
            as for all; `queue.LAST` if its MiniClusters are made, and what else it consists of
            may wait for the MiniClusters of others.

        Raises:
            ClusterFailure: the cluster did not do it all; its status says so, if that can be
                written. It is to be tried again.
        """
        ensemble = self._cluster.known(names.API_VERSION, names.KIND, namespace, name)
        if ensemble is None or ensemble["metadata"].get("deletionTimestamp"):
            # What it owns goes with it.
            self._metrics.forget(namespace, name)
            return None
        turn = _Turn(
            self._cluster, self._settings, self._metrics, self._settled, self._now(), ensemble
        )
        return turn.take()


class _Turn:
    """One look at one Ensemble."""

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
        self._rest_waits = False
        # What of an older MiniCluster has not left yet, by member.
        self._awaited: dict[str, str] = {}
        self._certificates = Certificates(cluster, ensemble, now)

    def take(self) -> float | None:
        failure: ClusterFailure | None = None
        try:
            self._look()
            self._looked = True
            self._problems = check(self._ensemble, documents(self._cluster, self._ensemble))
            if not self._problems:
                self._write()
                if self._rest_waits:
                    return LAST
        except ClusterFailure as exc:
            failure = exc
        except Exception as exc:
            # In a way that nobody thought of: what is known is said all the same.
            log.exception("%s: an unexpected error", self._label())
            failure = ClusterFailure(f"the operator failed, as its log says: {exc!r}", None)
        # Somebody else has written at the same time: that is nothing to tell, and tried again.
        passing = failure is None or failure.code == 409
        status = self._write_status("" if passing else str(failure))
        if failure is not None:
            raise failure
        return self._finish(status)

    # -- what there is -----------------------------------------------------------------

    def _look(self) -> None:
        """Find what it owns."""
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
        """The members that have ended, and are not to begin anew.

        The end that the status tells of is that of one MiniCluster, by its uid, and of what that
        was made of. With another MiniCluster there, or another template wanted, it is of the past;
        and so it is of all members while the Ensemble is suspended.
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
        """Whether a member is to be another one than that which has ended."""
        wanted = kind_of(member).render(self._ensemble, member)
        return annotation(wanted, names.TEMPLATE) != end.get("template")

    def _recreates(self) -> bool:
        return bool(self._ensemble["spec"].get("onChange", "Refuse") == "Recreate")

    def _suspended(self) -> bool:
        return bool(self._ensemble["spec"].get("suspend"))

    def _is_forgotten_first(self) -> bool:
        """Whether there is an end that a suspension makes one of the past.

        The status is to say so before the MiniCluster is deleted: an operator that was killed in
        between would take a member that is to begin anew for one whose MiniCluster somebody else
        has deleted after its end.
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
        # MiniClusters that are not wanted go first: what they mount stays until then.
        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
        keep |= {("Secret", name) for name in self._certificates.names()}
        if suspended and not self._is_forgotten_first():
            keep -= {("MiniCluster", manifest["metadata"]["name"]) for manifest in clusters}
        self._prune(keep)
        # What the members of a new one begin with comes before its service, which they do without
        # for a while.
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
        """Make or mend Secrets and other objects; whether all of them are there."""
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
        """The manifests; the service stays at the port that members which run have been told."""
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
        """MiniClusters that stay: none where a change makes them anew."""
        if self._recreates():
            return []
        return [found for (kind, _), found in self._owned.items() if kind == "MiniCluster"]

    def _try_out(self, clusters: Iterable[Resource]) -> None:
        """Have the API server check the MiniClusters that are to be made, before anything is."""
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
                continue  # A member that runs has its volume, whatever is said of it now.
            log.info("%s: delete %s %s", self._label(), kind, name)
            self._delete(kind, name)

    def _delete(self, kind: str, name: str) -> None:
        """Delete what it owns; a MiniCluster is Ending until somebody sees that it is gone."""
        found = self._owned.pop((kind, name))
        self._cluster.delete(found)
        if kind == "MiniCluster":
            leaving = {**found["metadata"], "deletionTimestamp": self._now.isoformat()}
            self._owned[kind, name] = {**found, "metadata": leaving}

    def _ensure(self, manifest: Resource) -> bool:
        """Make an object, or mend what of it is not ours to differ; whether it was made."""
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
        """Note why an object cannot be made whose name is taken."""
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
                # Somebody has deleted it: no pod could start any more.
                self._ensure(claim)
            run = annotation(live, names.RUN)
            live = self._mend(numbered(manifest, run) if run else manifest, live)
            self._bound(member, live)

    def _has_claim(self, member: str, claim: Resource | None) -> bool:
        """Make the volume of a member that is to begin; whether it has what it needs.

        One that was made of another template is made anew: there is nothing to go on with.
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
        """What a MiniCluster was made of, which may be gone after its end."""
        if live is not None:
            return annotation(live, names.TEMPLATE)
        known = self._before.get("members") or ()
        return next((end.get("template") for end in known if end["name"] == member), None)

    def _is_awaited(self, member: str, name: str) -> bool:
        """Whether what an older MiniCluster of the name had is still there.

        The Flux Operator would take its Job for that of the new one, and what its pods were to run
        for what the new ones are; and what its pods do, the new ones would do at the same time.
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
            # One that another release has made goes on as it was made.
            return live
        log.info("%s: mend MiniCluster %s", self._label(), manifest["metadata"]["name"])
        mended = self._cluster.apply(sizeless, live, without=[("spec", "size")])
        self._settled.note(sizeless, mended)
        return mended

    def _bound(self, member: str, live: Resource) -> None:
        """Undo a size beyond its bounds: the Flux Operator would do nothing any more."""
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
        view = StatusFacts(
            generation=self._ensemble["metadata"].get("generation", 0),
            problems=self._problems,
            refused=self._refused,
            waits=self._waits,
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
        # First, for an operator that is killed in between would never tell of it.
        for event in self._events:
            self._post(event)
        if changed:
            self._ensemble = self._cluster.write_status(self._ensemble, status)
        self._metrics.seen(self._namespace, self._name(), status)
        return status

    def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._events.append(Event(reason, message, warning))

    def _post(self, event: Event) -> None:
        """Write an event; that one is lost is no failure.

        Its name is of what is told of, so that it is told once, whoever tries that again.
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
        """Delete it in its time; when to look again."""
        now = self._now.timestamp()
        after = [self._certificates.t_renew - now] if self._certificates.t_renew else []
        if not statuses.over(status):
            after += self._next()
        keep = self._ensemble["spec"].get("ttlSecondsAfterFinished")
        if keep is not None and "completionTime" in status:
            ended = datetime.datetime.fromisoformat(status["completionTime"]).timestamp()
            if now >= ended + keep:
                log.info("%s: delete it, %s s after its end", self._label(), keep)
                # Whoever has changed it meanwhile may want to keep it.
                self._cluster.delete(self._ensemble, unchanged=True)
                return None
            after.append(ended + keep - now)
        return max(0.0, min(after)) if after else None

    def _next(self) -> list[float]:
        """When to look again at one that has not ended, for what no watch tells of."""
        if self._is_forgotten_first():
            return [_VERY_SOON]
        if self._waits or self._awaited:
            return [_SOON]
        refers = any("ensembleFrom" in member for member in self._members())
        return [_LATER] if self._problems or refers else []

    def _minicluster(self, found: Resource) -> str:
        """The name of the MiniCluster of the member that an object is of."""
        return names.member(self._name(), _member(found))

    def _name(self) -> str:
        name: str = self._ensemble["metadata"]["name"]
        return name

    def _label(self) -> str:
        return f"{self._namespace}/{self._name()}"


def _member(manifest: Mapping[str, Any]) -> str:
    """The member that an object is of, by its label; "" if it is of none."""
    return str(manifest["metadata"].get("labels", {}).get(names.MEMBER_LABEL, ""))


def _is_cluster(manifest: Mapping[str, Any]) -> bool:
    return bool(manifest["kind"] == "MiniCluster")
