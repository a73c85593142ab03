"""Whether an object in the cluster is as it is to be; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.operator import names
from flux_ensemble.operator.manifests import digest

#: How many objects are known that the API server keeps otherwise than they were applied.
_MOST = 10_000


def differs(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether an object has to be applied: it was made of something else, or has been changed."""
    return annotation(manifest, names.HASH) != annotation(live, names.HASH) or not _within(
        manifest, live
    )


class Settled:
    """What the API server has made of manifests: it writes quantities anew (cpu `1000m` is `1`),
    fills in what is missing and drops what it does not know. What it has made of a manifest once is
    as that manifest says, until somebody changes it.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[str, str]] = {}

    def differs(self, manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Whether an object has to be applied."""
        known = self._made.get(live["metadata"]["uid"])
        return differs(manifest, live) and known != _digests(manifest, live)

    def note(self, manifest: Mapping[str, Any], live: Mapping[str, Any]) -> None:
        """Note what the API server has answered to a manifest."""
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
    """Whether all that is in one value is in another, which may have more keys."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            _within(value, whole.get(key)) for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list) and len(part) == len(whole) and all(map(_within, part, whole))
        )
    # The API server leaves out what is false, or empty, in some places.
    return bool(part == whole or (whole is None and not part))


def annotation(resource: Mapping[str, Any], name: str) -> str | None:
    """The value of an annotation of an object; None if it has none of the name."""
    value: str | None = (resource["metadata"].get("annotations") or {}).get(name)
    return value
