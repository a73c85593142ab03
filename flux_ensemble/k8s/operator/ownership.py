"""Ownership of the fields of an object: fields of a write become applied fields; pure.

An object is created by POST, which fails if another one has its name; a server-side apply would
take that other one over. The API server then lists the fields as updated by the operator, not as
applied, and a later apply without such a field leaves the field in place. So before the first
apply, the entry in `metadata.managedFields` is changed, as client-go does in `csaupgrade`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: An entry of `metadata.managedFields`.
Entry = dict[str, Any]


def as_applied(
    entries: Sequence[Entry], manager: str, without: Iterable[Sequence[str]] = ()
) -> list[Entry] | None:
    """Return the entries, with the fields that a manager has updated marked as applied by it.

    Args:
        entries: `metadata.managedFields` of an object.
        manager: the one whose entries change. Those of subresources do not.
        without: paths of fields that the manager gives up: ("spec", "size").
    Returns:
        All entries; None if there is nothing to change.

    >>> made = {"manager": "me", "operation": "Update", "apiVersion": "v1",
    ...         "fieldsV1": {"f:spec": {"f:size": {}, "f:image": {}}}}
    >>> as_applied([made], "me", [("spec", "size")])[0]["operation"]
    'Apply'
    >>> as_applied([made], "other") is None
    True
    """
    updated = [entry for entry in entries if _is_own(entry, manager, "Update")]
    if not updated:
        return None
    applied = [entry for entry in entries if _is_own(entry, manager, "Apply")]
    fields: dict[str, Any] = {}
    for entry in (*applied, *updated):
        fields = _union(fields, entry.get("fieldsV1") or {})
    for path in without:
        _take_out(fields, [f"f:{key}" for key in path])
    entry = copy.deepcopy(applied[-1] if applied else updated[-1])
    entry |= {"operation": "Apply", "fieldsV1": fields}
    return [*(other for other in entries if other not in updated + applied), entry]


def _is_own(entry: Entry, manager: str, operation: str) -> bool:
    said = entry.get("manager"), entry.get("operation"), entry.get("subresource") or ""
    return said == (manager, operation, "")


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    keys = {**one, **other}
    return {key: _union(one.get(key) or {}, other.get(key) or {}) for key in keys}


def _take_out(fields: dict[str, Any], path: Sequence[str]) -> None:
    for key in path[:-1]:
        fields = fields.get(key) or {}
    fields.pop(path[-1], None)
