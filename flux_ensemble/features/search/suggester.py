"""The source of a search's points: a sampler, or a generator of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Suggester(Protocol):
    """A source of points that answers the requests of one search."""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request: `{"points": [{"params": {...}}, ...], "seconds": x}`."""
        ...


def suggesting(search: Mapping[str, Any]) -> Suggester:
    """Make the source of points of a search, as `advisers.described` gives it."""
    if "generator" in search:
        from flux_ensemble.features.search.generator import SearchGenerator

        return SearchGenerator(search)
    from flux_ensemble.features.search.samplers import SearchSampler

    return SearchSampler(search)
