"""The clusters of the service: their names, and the Flux instances that belong to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from grpc import StatusCode

from flux_ensemble.k8s.grpc.errors import RequestProblem

#: NAME or NAMESPACE/NAME, of letters, digits, dots, dashes and underscores; for `fullmatch`.
CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}(/[A-Za-z0-9][A-Za-z0-9._-]{0,252})?")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of the gRPC service.

    `has_flux` is True if the service may connect to its Flux instance; `uri` is the URI of that,
    and None is the instance that the service runs in.
    """

    name: str
    has_flux: bool = True
    uri: str | None = None


def parse_cluster(text: str) -> Cluster:
    """Parse NAME or NAME=URI.

    Raises:
        ValueError: the text has another form; the message is a sentence.
    """
    name, equals, uri = text.partition("=")
    if not CLUSTER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a cluster's name: expected NAME or NAMESPACE/NAME")
    if equals and not uri:
        raise ValueError(f"cluster {name!r} has an empty URI: expected NAME=URI, or NAME")
    return Cluster(name, uri=uri or None)


class Clusters:
    """The table of clusters.

    Args:
        clusters: those that are listed.
        canonical: makes a name canonical; the table has one entry for each canonical name.
        discovered: names that are not listed are clusters, too, without a Flux instance: the back
            end decides whether they exist.

    Raises:
        ValueError: two entries mean the same cluster; the text is a sentence.
    """

    def __init__(
        self, clusters: Iterable[Cluster], canonical: Callable[[str], str], *, discovered: bool
    ) -> None:
        self.canonical = canonical
        self._discovered = discovered
        self._table: dict[str, Cluster] = {}
        for cluster in clusters:
            name = canonical(cluster.name)
            if name in self._table:
                raise ValueError(f"cluster {name!r} is given twice")
            self._table[name] = Cluster(name, cluster.has_flux, cluster.uri)

    @property
    def listed(self) -> Mapping[str, Cluster]:
        """The listed clusters, by canonical name."""
        return self._table

    def name(self, text: str, named: frozenset[str] | None = None) -> str:
        """Return the canonical name of the cluster in a request; empty means the only cluster.

        Args:
            text: the name in the request.
            named: the clusters that may be revealed to the client; None is all.

        Raises:
            Problem: INVALID_ARGUMENT, it is not a name, or is empty and there are several clusters.
        """
        if text:
            if not CLUSTER_NAME.fullmatch(text):
                raise RequestProblem(
                    StatusCode.INVALID_ARGUMENT,
                    f"{text[:80]!r} is not a cluster's name: expected NAME or NAMESPACE/NAME",
                )
            return self.canonical(text)
        if len(self._table) == 1 and not self._discovered:
            return next(iter(self._table))
        raise RequestProblem(
            StatusCode.INVALID_ARGUMENT, f"the request names no cluster ({self._known(named)})"
        )

    def find(self, name: str, named: frozenset[str] | None = None) -> Cluster:
        """Return the cluster of a canonical name.

        Args:
            name: the name.
            named: the clusters that may be revealed to the client; None is all.

        Raises:
            Problem: NOT_FOUND.
        """
        cluster = self._table.get(name)
        if cluster is None and self._discovered:
            return Cluster(name, has_flux=False)
        if cluster is None:
            raise RequestProblem(
                StatusCode.NOT_FOUND, f"no cluster is named {name!r} ({self._known(named)})"
            )
        return cluster

    def _known(self, named: frozenset[str] | None) -> str:
        known = set(self._table)
        if named is not None:
            known &= set(map(self.canonical, named))
        names = ", ".join(sorted(known))
        if self._discovered:
            return f"clusters: the MiniClusters of this Kubernetes, {names}".rstrip(", ")
        return f"clusters: {names}" if names else "clusters: none that the certificate names"
