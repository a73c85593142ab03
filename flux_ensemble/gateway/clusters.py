"""The members of the service: their names, and the Flux instances that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from grpc import StatusCode

from flux_ensemble.gateway.errors import RequestProblem
from flux_ensemble.gateway.names import MEMBER_NAME


@dataclass(frozen=True, slots=True)
class Cluster:
    """One member.

    `has_flux` tells whether the service may talk to its Flux instance; `uri` is where that
    is, and None is the instance that the service runs in.
    """

    name: str
    has_flux: bool = True
    uri: str | None = None


def parse_member(text: str) -> Cluster:
    """Reads NAME or NAME=URI.

    Raises:
        ValueError: the text has another form; the message is a sentence.
    """
    name, equals, uri = text.partition("=")
    if not MEMBER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a member's name: expected NAME or NAMESPACE/NAME")
    if equals and not uri:
        raise ValueError(f"member {name!r} has an empty URI: expected NAME=URI, or NAME")
    return Cluster(name, uri=uri or None)


class Clusters:
    """The table of members.

    Args:
        members: those that are listed.
        canonical: makes a name canonical; the table has one entry for each canonical name.
        discovered: names that are not listed are members too, without a Flux instance: the
            back end says whether they exist.

    Raises:
        ValueError: two entries mean the same member; the text is a sentence.
    """

    def __init__(
        self, members: Iterable[Cluster], canonical: Callable[[str], str], *, discovered: bool
    ) -> None:
        self.canonical = canonical
        self._discovered = discovered
        self._table: dict[str, Cluster] = {}
        for member in members:
            name = canonical(member.name)
            if name in self._table:
                raise ValueError(f"member {name!r} is given twice")
            self._table[name] = Cluster(name, member.has_flux, member.uri)

    @property
    def listed(self) -> Mapping[str, Cluster]:
        """The members that are listed, by canonical name."""
        return self._table

    def name(self, text: str, named: frozenset[str] | None = None) -> str:
        """The canonical name of the member in a request; empty means the only member.

        Args:
            text: the name in the request.
            named: the members that the client may be told of; None is all.

        Raises:
            Problem: INVALID_ARGUMENT, it is not a name, or is empty and there are several members.
        """
        if text:
            if not MEMBER_NAME.fullmatch(text):
                raise RequestProblem(
                    StatusCode.INVALID_ARGUMENT,
                    f"{text[:80]!r} is not a member's name: expected NAME or NAMESPACE/NAME",
                )
            return self.canonical(text)
        if len(self._table) == 1 and not self._discovered:
            return next(iter(self._table))
        raise RequestProblem(
            StatusCode.INVALID_ARGUMENT, f"the request names no member ({self._known(named)})"
        )

    def find(self, name: str, named: frozenset[str] | None = None) -> Cluster:
        """The member of a canonical name.

        Args:
            name: the name.
            named: the members that the client may be told of; None is all.

        Raises:
            Problem: NOT_FOUND.
        """
        member = self._table.get(name)
        if member is None and self._discovered:
            return Cluster(name, has_flux=False)
        if member is None:
            raise RequestProblem(
                StatusCode.NOT_FOUND, f"no member is named {name!r} ({self._known(named)})"
            )
        return member

    def _known(self, named: frozenset[str] | None) -> str:
        known = set(self._table)
        if named is not None:
            known &= set(map(self.canonical, named))
        names = ", ".join(sorted(known))
        if self._discovered:
            return f"members: the MiniClusters of the cluster, {names}".rstrip(", ")
        return f"members: {names}" if names else "members: none that the certificate names"
