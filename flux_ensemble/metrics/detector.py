"""What a rule on `drift` or `anomaly` has: a stream, and a kind of detector with its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Triggers on detections -> the kinds of detectors that they have.
DETECTORS: Mapping[str, tuple[str, ...]] = {
    "drift": ("adwin", "page-hinkley"),
    "anomaly": ("quantile",),
}

#: Which changes count: values that rise, values that fall, or both.
UP, DOWN, BOTH = MODES = ("up", "down", "both")

#: Largest window of a detector.
MAX_WINDOW = 100_000


class Detector(NamedTuple):
    """The detector of a rule.

    Args:
        group, variable: the stream that it watches.
        kind: one of `DETECTORS`.
        arguments: of that kind, all of them, by their names in a document.

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
