"""The detectors of rules on `drift` and `anomaly`: as documents name them, and at run time.

    Metrics.observe ──► Watch.take ──► a class of River ──► True if the rule is triggered

A detector depends only on the values of one stream, in their order, for one rule. So the same
values give the same detections, and a restored engine, whose streams are fed again, continues as
the one that was dumped.

River's detectors of drift are loaded from their own modules: the package `river.drift` imports most
of River, which takes seconds of processor time. River itself is imported when there is a detector.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from flux_ensemble.metrics.numbers import Number

#: Trigger on detections -> its kinds of detectors.
DETECTORS: Mapping[str, tuple[str, ...]] = {
    "drift": ("adwin", "page-hinkley"),
    "anomaly": ("quantile",),
}

#: The changes that count: rising values, falling values, or both.
UP, DOWN, BOTH = MODES = ("up", "down", "both")

#: The largest window of a detector.
MAX_WINDOW = 100_000

#: Values farther from 0 are clipped to this one, whose square, and sums of that, are finite.
FARTHEST = 1e100


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


class Watch:
    """A detector at run time.

    Attributes:
        rule: the id of the detector's rule.
        since: the number of values that the stream had when the rule was added; the detector does
            not receive these.

    >>> arguments = {"q": 0.9, "warm-up": 3, "window": 10, "mode": "up"}
    >>> watch = Watch("hot", Detector("md", "energy", "quantile", arguments))
    >>> [watch.take(n, energy) for n, energy in enumerate([1.0, 2.0, 1.0, 1.5, 30.0], 1)]
    [False, False, False, False, True]
    """

    __slots__ = ("_detector", "_taker", "rule", "since")

    def __init__(self, rule: str, detector: Detector, since: int = 0) -> None:
        self.rule = rule
        self.since = since
        self._detector = detector
        self._taker = _made(detector)

    @property
    def warm_up(self) -> int:
        """The number of values that the detector needs before it detects anything."""
        return self._taker.warm_up

    def take(self, number: int, value: Number) -> bool:
        """Take in a value.

        Args:
            number: the number of values of the stream, with this one.
            value: the value.

        Returns:
            True if the value is an anomaly, or if a drift is detected with it.
        """
        if number <= self.since:
            return False
        return self._taker.take(max(-FARTHEST, min(FARTHEST, float(value))))

    def restart(self) -> None:
        """Forget all values."""
        self._taker = _made(self._detector)


class _Taker(Protocol):
    warm_up: int

    def take(self, value: float) -> bool: ...


def _made(detector: Detector) -> _Taker:
    arguments = {key.replace("-", "_"): value for key, value in detector.arguments.items()}
    made: _Taker = _KINDS[detector.kind](**arguments)
    return made


@cache
def _river(name: str) -> ModuleType:
    """Return a module of `river.drift`, without importing that package."""
    import river

    path = Path(river.__file__).parent / "drift" / f"{name}.py"
    spec = spec_from_file_location(f"river.drift.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Adwin:
    """River's ADWIN: a window that is cut when its two parts have different means."""

    def __init__(self, *, mode: str, **arguments: Any) -> None:
        self._adwin = _river("adwin").ADWIN(**arguments)
        self._mode = mode
        self.warm_up = arguments["grace_period"]

    def take(self, value: float) -> bool:
        before = self._adwin.estimation
        self._adwin.update(value)
        if not self._adwin.drift_detected:
            return False
        rose = bool(self._adwin.estimation > before)
        return self._mode == BOTH or rose == (self._mode == UP)


class _PageHinkley:
    """River's Page-Hinkley test: the sum of deviations from the mean exceeds a bound."""

    def __init__(self, **arguments: Any) -> None:
        self._test = _river("page_hinkley").PageHinkley(**arguments)
        self.warm_up = arguments["min_instances"]

    def take(self, value: float) -> bool:
        self._test.update(value)
        return bool(self._test.drift_detected)


class _Quantile:
    """A test for values beyond a quantile of the latest values before.

    An anomalous value is clipped before it enters the window: its distance beyond the quantile is
    at most that of the quantile from the median. So frequent values stop being anomalies, and yet
    one extreme value cannot hide later ones.
    """

    def __init__(self, *, q: float, warm_up: int, window: int, mode: str) -> None:
        from river.stats import RollingQuantile

        self.warm_up = warm_up
        self._number = 0
        self._median: Any = RollingQuantile(0.5, window)
        self._high: Any = RollingQuantile(q, window) if mode != DOWN else None
        self._low: Any = RollingQuantile(1 - q, window) if mode != UP else None

    def take(self, value: float) -> bool:
        anomaly, taken = False, value
        if self._number >= self.warm_up:
            median = self._median.get()
            if self._high is not None and value > (high := self._high.get()):
                anomaly, taken = True, min(value, 2 * high - median)
            if self._low is not None and value < (low := self._low.get()):
                anomaly, taken = True, max(value, 2 * low - median)
        self._number += 1
        for quantile in (self._median, self._high, self._low):
            if quantile is not None:
                quantile.update(taken)
        return anomaly


_KINDS: Mapping[str, Any] = {
    "adwin": _Adwin,
    "page-hinkley": _PageHinkley,
    "quantile": _Quantile,
}
