"""The parts of the responses to `list` and `status` that others than the owner see (docs/rpc.md).

These are guests of the instance, where a site allows it, and clients of the gRPC service that do
not say who they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Payload = Mapping[str, Any]

#: Keys of an ensemble: nothing that a document, a job or a path of the owner is part of.
_ENSEMBLE = ("name", "state", "t_start", "t_end")
_LISTED = (*_ENSEMBLE, "active", "waiting", "finished", "failed")
_STATUS = (*_ENSEMBLE, "groups", "jobs")


def listed_for_guests(listed: Iterable[Payload]) -> list[Payload]:
    """Return the ensembles of `list` as guests see them.

    >>> counts = {"t_start": 1.0, "t_end": None, "active": 2, "waiting": 0, "finished": 5}
    >>> listed = [{"name": "demo", "state": "running", "reason": "a path", **counts}]
    >>> ["reason" in one for one in listed_for_guests(listed)]
    [False]
    """
    return _cut(listed, _LISTED)


def status_for_guests(answer: Payload) -> dict[str, Any]:
    """Return the response to `status` as guests see it.

    >>> service = {"version": "0.2.0", "t_start": 1.0}
    >>> answer = {"nodes": {}, "queue": {}, "service": service, "ensembles": []}
    >>> status_for_guests(answer)["service"]
    {'version': '0.2.0'}
    """
    return {
        "nodes": answer["nodes"],
        "queue": answer["queue"],
        "service": {"version": answer["service"]["version"]},
        "ensembles": _cut(answer["ensembles"], _STATUS),
    }


def _cut(listed: Iterable[Payload], keys: Iterable[str]) -> list[Payload]:
    return [{key: one[key] for key in keys if key in one} for one in listed]
