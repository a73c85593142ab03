"""Whether an object in the cluster is as it is to be; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.operator import names


def differs(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether an object has to be applied: it was made of something else, or has been changed."""
    return annotation(manifest, names.HASH) != annotation(live, names.HASH) or not _within(
        manifest, live
    )


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
