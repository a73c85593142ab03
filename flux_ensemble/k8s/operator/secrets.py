"""The Secrets of an Ensemble: created, and renewed in time (`flux_ensemble.certificates`)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, MutableMapping
from typing import Any

from flux_ensemble import certificates
from flux_ensemble.k8s.grpc.tls import MEMBER_URI, OWNER_URI
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster, Resource
from flux_ensemble.k8s.operator.manifests import owned


class Certificates:
    """The certificates of one Ensemble.

    Args:
        cluster: of the Ensemble.
        ensemble: as the API server has it.
        now: the time.

    Attributes:
        problems: reasons why there are none; sentences.
        occupied: Secrets that could not be created, because their names are taken.
        t_renew: when the next certificate is to be renewed, in epoch seconds; None if unknown.
    """

    def __init__(
        self, cluster: KubernetesCluster, ensemble: Mapping[str, Any], now: datetime.datetime
    ) -> None:
        self._cluster = cluster
        self._ensemble = ensemble
        self._now = now
        self._name: str = ensemble["metadata"]["name"]
        self._namespace: str = ensemble["metadata"]["namespace"]
        self.problems: list[str] = []
        self.occupied: list[Resource] = []
        self.t_renew: float | None = None

    def names(self) -> list[str]:
        """Return the names of the Secrets that the Ensemble is to have."""
        own = [] if self._given() else [names.authority(self._name)]
        return [*own, *self._wanted()]

    def ensure(
        self, there: MutableMapping[tuple[str, str], Resource], *, members_only: bool = False
    ) -> None:
        """Create the Secrets that are missing, and renew those that are due.

        Args:
            there: the objects that the Ensemble owns, by kind and name; new ones are added.
            members_only: leave out the Secret of the service.

        Raises:
            ClusterFailure: the cluster has failed a request.
        """
        authority = self._authority(there)
        if authority is None:
            return
        for name, wanted in self._wanted().items():
            if not members_only or name != names.service_tls(self._name):
                self._ensure(there, name, authority, wanted)

    def _wanted(self) -> dict[str, certificates.CertificateRequest]:
        """Return the Secrets of the service and of each member, with their certificate requests."""
        # The last host is for `kubectl port-forward`.
        hosts = [*names.hosts(self._name, self._namespace), "localhost"]
        found = {
            names.service_tls(self._name): certificates.CertificateRequest(hosts[0], hosts=hosts)
        }
        # If others provide the authority, an earlier Ensemble of this name may have had the same
        # one.
        owner = f"{OWNER_URI}{self._ensemble['metadata']['uid']}"
        for member in self._ensemble["spec"]["members"]:
            name = names.member(self._name, member["name"])
            uris = f"{MEMBER_URI}{self._namespace}/{name}", owner
            found[names.member_tls(self._name, member["name"])] = certificates.CertificateRequest(
                name, uris=uris
            )
        return found

    def _given(self) -> str | None:
        """Return the name of the Secret of an authority that somebody else provides, or None."""
        given = (self._ensemble["spec"].get("service") or {}).get("tls") or {}
        name: str | None = given.get("authoritySecret")
        return name

    def _authority(
        self, there: MutableMapping[tuple[str, str], Resource]
    ) -> certificates.Authority | None:
        given = self._given()
        if given is not None:
            found = self._cluster.get("v1", "Secret", self._namespace, given)
            if found is None:
                self.problems.append(f"service.tls.authoritySecret: there is no Secret {given!r}")
                return None
            try:
                return certificates.read_authority(
                    certificates.decoded(found.get("data")), self._now
                )
            except certificates.UnusableAuthority as exc:
                self.problems.append(f"service.tls.authoritySecret: Secret {given!r}: {exc}")
                return None
        name = names.authority(self._name)
        live = there.get(("Secret", name))
        before = None
        if live is not None:
            try:
                before = certificates.read_authority(
                    certificates.decoded(live.get("data")), self._now
                )
            except certificates.UnusableAuthority:
                # It was damaged, or has expired while no operator ran: make another one, and new
                # certificates from it.
                before = None
            if before is not None and self._now.timestamp() < certificates.t_renew(
                before.certificate
            ):
                self._due(before.certificate)
                return before
        made = certificates.new_authority(f"{self._namespace}/{self._name}", self._now, before)
        if not self._put(there, name, made.data(), live):
            return None
        self._due(made.certificate)
        return made

    def _ensure(
        self,
        there: MutableMapping[tuple[str, str], Resource],
        name: str,
        authority: certificates.Authority,
        wanted: certificates.CertificateRequest,
    ) -> None:
        live = there.get(("Secret", name))
        data = certificates.decoded(live.get("data")) if live is not None else {}
        if not certificates.is_current(data, wanted, authority, self._now):
            data = certificates.issue(authority, wanted, self._now)
            if not self._put(there, name, data, live):
                return
        self._due(certificates.certificate_of(data), authority)

    def _put(
        self,
        there: MutableMapping[tuple[str, str], Resource],
        name: str,
        data: Mapping[str, bytes],
        live: Resource | None,
    ) -> bool:
        manifest = owned(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "Opaque",
                "metadata": {
                    "name": name,
                    "namespace": self._namespace,
                    "labels": names.labels(self._name, "tls"),
                },
                "data": certificates.encoded(data),
            },
            self._ensemble,
        )
        if live is not None:
            # During a change of leader, two operators must not mix two pairs.
            version = live["metadata"]["resourceVersion"]
            manifest["metadata"]["resourceVersion"] = version
            there["Secret", name] = self._cluster.replace(manifest)
            return True
        try:
            there["Secret", name] = self._cluster.create(manifest)
        except ClusterFailure as failure:
            if failure.code != 409:
                raise
            self.occupied.append(manifest)
            return False
        return True

    def _due(self, certificate: Any, authority: certificates.Authority | None = None) -> None:
        due = certificates.t_renew(certificate, authority)
        self.t_renew = due if self.t_renew is None else min(self.t_renew, due)
