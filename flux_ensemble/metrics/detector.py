"""The detector of a rule on `drift` or `anomaly`: a stream, a kind of detector, its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Trigger on detections -> its kinds of detectors.
DETECTORS: Mapping[str, tuple[str, ...]] = {
    "drift": ("adwin", "page-hinkley"),
    "anomaly": ("quantile",),
}

#: The changes that count: rising values, falling values, or both.
UP, DOWN, BOTH = MODES = ("up", "down", "both")

#: The largest window of a detector.
MAX_WINDOW = 100_000


class Detector(NamedTuple):
    """The detector of a rule.

    Args:
        group, variable: the stream that the detector watches.
        kind: one of `DETECTORS`.
        arguments: all arguments of that kind, by their names in a document.

    >>> Detector("md", "error", "adwin", {}).stream
    'md-error'
    """

    group: str
    variable: str
    kind: str
    arguments: Mapping[str, Any]

    @property
    def stream(self) -> str:
        """The name of the stream: `GROUP-VARIABLE`."""
        return f"{self.group}-{self.variable}"
