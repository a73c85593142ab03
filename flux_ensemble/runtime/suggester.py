"""Who suggests the points of a search: a sampler, or a generator of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Suggesting(Protocol):
    """Answers the asks of one search."""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request: `{"points": [{"params": {...}}, ...], "seconds": x}`."""
        ...


def suggesting(search: Mapping[str, Any]) -> Suggesting:
    """What suggests the points of a search, as `asking.asker.described` gives it."""
    if "generator" in search:
        from flux_ensemble.runtime.generator import Generating

        return Generating(search)
    from flux_ensemble.runtime.samplers import Sampling

    return Sampling(search)
