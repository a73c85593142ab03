"""Comparison of an object in the cluster with its manifest; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.manifests import digest

#: Number of objects kept that the API server stores otherwise than they were applied.
_MOST = 10_000


def differs(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Return True if an object has to be applied: its manifest is another, or it was changed."""
    return annotation(manifest, names.HASH) != annotation(live, names.HASH) or not _within(
        manifest, live
    )


class Settled:
    """The form that the API server has given to manifests.

    It rewrites quantities (cpu `1000m` becomes `1`), adds defaults, and drops unknown fields. An
    object that the API server has returned for a manifest counts as equal to it, until somebody
    changes it.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, str]] = {}

    def differs(self, manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Return True if an object has to be applied."""
        known = self._made.get(live["metadata"]["uid"])
        return differs(manifest, live) and known != _digests(manifest, live)

    def note(self, manifest: Mapping[str, Any], live: Mapping[str, Any]) -> None:
        """Note the object that the API server has returned for a manifest."""
        uid = live["metadata"]["uid"]
        if not differs(manifest, live):
            self._made.pop(uid, None)
            return
        if len(self._made) >= _MOST:
            self._made.clear()
        self._made[uid] = _digests(manifest, live)


def _digests(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[str, str]:
    return _digest(manifest), _digest(live)


def _digest(one: Mapping[str, Any]) -> str:
    metadata = one["metadata"]
    content = {key: value for key, value in one.items() if key not in ("metadata", "status")}
    return digest([content, metadata.get("labels"), metadata.get("annotations")])


def _within(part: Any, whole: Any) -> bool:
    """Return True if a value contains all of another one; mappings may have more keys."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            _within(value, whole.get(key)) for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list) and len(part) == len(whole) and all(map(_within, part, whole))
        )
    # In some places the API server leaves out values that are false or empty.
    return bool(part == whole or (whole is None and not part))


def annotation(resource: Mapping[str, Any], name: str) -> str | None:
    """Return the value of an annotation of an object; None if it is missing."""
    value: str | None = (resource["metadata"].get("annotations") or {}).get(name)
    return value
