"""The hosts of ensembles: the service of a Flux instance, and the local runs of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.client import Client
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed

if TYPE_CHECKING:
    from flux_ensemble.client.responses import MemberStatus

#: The host to which requests are sent.
Target = Client | LocalClient


def members_of(status: Mapping[str, Any]) -> list[MemberStatus]:
    """Return the members of an ensemble that have not ended."""
    return [member for pool in status.get("pools", {}).values() for member in pool["members"]]


def keys_of(jobs: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the names that users chose for values of jobs.

    Returns:
        {"params", "memo"}: the parameters, and the keys of memos.

    >>> keys_of([{"params": {"t": 300}, "memo": {}}, {"params": {}, "memo": {"loss": 0.5}}])
    {'params': {'t'}, 'memo': {'loss'}}
    """
    keys: dict[str, set[str]] = {"params": set(), "memo": set()}
    for job in jobs:
        for kind, names in keys.items():
            # Guests see no memos.
            names.update(job.get(kind) or ())
    return keys


def unknown_keys(
    fields: Iterable[str], jobs: Callable[[], Iterable[Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield a sentence for each parameter and key of a memo that no job has.

    Args:
        fields: such as "params.t" and "memo.loss".
        jobs: returns all jobs; it is called only if there are fields.

    >>> list(unknown_keys(["params.T"], lambda: [{"params": {"t": 300}, "memo": {}}]))
    ["no job has 'params.T' (did you mean 'params.t'? parameters: t)"]
    """
    if not fields:
        return
    known = keys_of(jobs())
    for field in sorted(fields):
        kind, _, key = field.partition(".")
        if key not in known[kind] and any(known.values()):
            have = "parameters" if kind == "params" else "jobs have published"
            names = listed(sorted(known[kind])) if known[kind] else "nothing"
            near = hint(field, [f"{kind}.{one}" for one in known[kind]])
            yield f"no job has {field!r} ({near}{have}: {names})"


def runs_of(status: Mapping[str, Any]) -> dict[str, str]:
    """Return what the jobs of each of these members are: "jobs" of Flux, or "tasks".

    >>> pool = {"runs": "tasks", "members": [{"name": "pool.0"}]}
    >>> runs_of({"pools": {"pool": pool}})
    {'pool.0': 'tasks'}
    """
    return {
        member["name"]: pool.get("runs", "jobs")  # services of older versions do not send it
        for pool in status.get("pools", {}).values()
        for member in pool["members"]
    }
