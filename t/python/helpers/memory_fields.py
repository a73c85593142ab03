"""Server-side apply and `metadata.managedFields` for the API in memory.

The fields of a write are a tree as in FieldsV1: `f:KEY` for keys, `k:{...}` for the items of lists
whose items have keys. All other lists are one field.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

#: By which keys the items of a list are told apart, in kinds that Kubernetes brings.
KEYS = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "ports": ("containerPort", "port", "protocol"),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
}

#: Of `metadata`, what nobody applies.
_NOBODYS = ("name", "namespace", "uid", "resourceVersion", "generation", "managedFields")
_META = (*_NOBODYS, "creationTimestamp", "ownerReferences")


def fields_of(one: Object) -> Object:
    """The fields of an object that somebody writes."""
    return _fields(_content(one), _keyed(one))


def _keyed(one: Object) -> bool:
    """Whether it is of Kubernetes itself; lists of other kinds are one field."""
    group = one["apiVersion"].rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io")


def _content(one: Object) -> Object:
    metadata = {key: value for key, value in one["metadata"].items() if key not in _META}
    apart = ("apiVersion", "kind", "status", "metadata")
    return {**{key: value for key, value in one.items() if key not in apart}, "metadata": metadata}


def _fields(value: Any, keyed: bool, name: str = "") -> Object:
    if isinstance(value, dict):
        return {f"f:{key}": _fields(inner, keyed, key) for key, inner in value.items()}
    if isinstance(value, list) and keyed and name in KEYS:
        return {_key(item, name): _fields(item, keyed) for item in value}
    return {}


def _key(item: Mapping[str, Any], name: str) -> str:
    return "k:" + json.dumps({key: item[key] for key in KEYS[name] if key in item})


def entry_of(one: Object, manager: str, operation: str) -> Object:
    """The entry of one who has written an object."""
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": one["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": fields_of(one),
    }


def updated(live: Object, new: Object, manager: str) -> list[Object]:
    """`managedFields` after an update: what has changed is the writer's, and nobody else's."""
    given = new["metadata"].get("managedFields")
    if given is not None and given != live["metadata"].get("managedFields"):
        return copy.deepcopy(list(given))
    entries = copy.deepcopy(live["metadata"].get("managedFields") or [])
    changed = _changed(_content(live), _content(new), _keyed(new))
    there = fields_of(new)
    for entry in entries:
        entry["fieldsV1"] = _common(_minus(entry["fieldsV1"], changed), there)
    own = _common(changed, there)
    if own:
        writers = {(entry["manager"], entry["operation"]): entry for entry in entries}
        old = writers.get((manager, "Update"))
        if old is None:
            entries.append({**entry_of(new, manager, "Update"), "fieldsV1": own})
        else:
            old["fieldsV1"] = _plus(old["fieldsV1"], own)
    return [entry for entry in entries if entry["fieldsV1"]]


def applied(live: Object, body: Object, manager: str) -> Object:
    """An object after a forced apply."""
    entries = copy.deepcopy(live["metadata"].get("managedFields") or [])
    is_own = [(e["manager"], e["operation"]) == (manager, "Apply") for e in entries]
    before: Object = {}
    for own, entry in zip(is_own, entries, strict=True):
        before = entry["fieldsV1"] if own else before
    now = fields_of(body)
    others = [entry for own, entry in zip(is_own, entries, strict=True) if not own]
    gone = _minus(before, now)
    for other in others:
        gone = _minus(gone, other["fieldsV1"])
    new = _without(copy.deepcopy(live), gone)
    new = _over(new, body, _keyed(body))
    changed = _changed(_content(live), _content(new), _keyed(new))
    for other in others:
        other["fieldsV1"] = _minus(other["fieldsV1"], changed)
    own_entry = {**entry_of(new, manager, "Apply"), "fieldsV1": now}
    new["metadata"]["managedFields"] = [*(e for e in others if e["fieldsV1"]), own_entry]
    return new


def _changed(old: Any, new: Any, keyed: bool, name: str = "") -> Object:
    """The fields whose values differ."""
    found: Object = {}
    if isinstance(new, dict):
        old = old if isinstance(old, dict) else {}
        for key in {**old, **new}:
            if key not in new or old.get(key) != new[key]:
                found[f"f:{key}"] = _changed(old.get(key), new.get(key), keyed, key)
    elif isinstance(new, list) and keyed and name in KEYS:
        before = {_key(item, name): item for item in old or ()}
        after = {_key(item, name): item for item in new}
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                found[key] = _changed(before.get(key), after.get(key), keyed)
    return found


def _minus(one: Object, other: Object) -> Object:
    """Fields without those of another tree."""
    left: Object = {}
    for key, inner in one.items():
        if key not in other:
            left[key] = inner
        elif inner:
            rest = _minus(inner, other[key])
            if rest:
                left[key] = rest
    return left


def _common(one: Object, other: Object) -> Object:
    return {key: _common(inner, other[key]) for key, inner in one.items() if key in other}


def _plus(one: Object, other: Object) -> Object:
    return {key: _plus(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}


def _without(value: Any, gone: Object) -> Any:
    """A value without fields."""
    for key, inner in gone.items():
        if key.startswith("k:"):
            chosen = json.loads(key[2:])
            item = next((i for i in value if all(i.get(k) == v for k, v in chosen.items())), None)
            if item is not None and (not inner or set(item) <= {k[2:] for k in inner}):
                value.remove(item)
            elif item is not None:
                _without(item, inner)
        elif isinstance(value, dict) and key[2:] in value:
            if inner and isinstance(value[key[2:]], (dict, list)):
                _without(value[key[2:]], inner)
                if value[key[2:]] in ({}, []):
                    del value[key[2:]]
            else:
                del value[key[2:]]
    return value


def _over(old: Any, new: Any, keyed: bool, name: str = "") -> Any:
    """What is applied, over what is there."""
    if isinstance(new, dict):
        old = old if isinstance(old, dict) else {}
        return old | {key: _over(old.get(key), value, keyed, key) for key, value in new.items()}
    if isinstance(new, list) and isinstance(old, list) and keyed and name in KEYS:
        before = {_key(item, name): item for item in old}
        after = {_key(item, name): item for item in new}
        kept = [item for key, item in before.items() if key not in after]
        return kept + [_over(before.get(key), item, keyed) for key, item in after.items()]
    return copy.deepcopy(new)
