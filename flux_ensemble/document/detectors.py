"""Reads the detectors of rules on `drift` and `anomaly`, and what they watch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from flux_ensemble.document.keys.detectors import EXAMPLES, KINDS
from flux_ensemble.document.keys.forms import Key, table
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.metrics.by_value import ByValue, parse_variable
from flux_ensemble.metrics.detector import DETECTORS, MAX_WINDOW, Detector
from flux_ensemble.metrics.names import GAUGES
from flux_ensemble.metrics.paths import parse_path, split_stream
from flux_ensemble.texts import shown

#: Most detectors of a document, and most values in the windows of all of them.
MAX_DETECTORS = 1000
MAX_WINDOWS = 1_000_000

#: The window of a quantile has so many values beyond it, unless it is given.
_BEYOND = 10

_ARGUMENTS = {kind.name: table(kind.form) for kind in KINDS}


def _default(key: Key) -> Any:
    is_number = key.form.get("type") == "number"
    return float(key.default) if is_number else key.default


class DetectorReader:
    """Reads the detectors of the rules of one document.

    Args:
        groups: the names of the job groups.
        statistics: the names of the statistics that are kept.
        by: the metrics that are kept by value.
        problems: collects the problems.

    >>> reader = DetectorReader(["md"], ["mean"], (), Problems())
    >>> reader.read("drift", {"name": "md-error", "detector": {"page-hinkley": {}}}, ())
    Detector(group='md', variable='error', kind='page-hinkley', arguments={...})
    """

    def __init__(
        self,
        groups: Collection[str],
        statistics: Collection[str],
        by: Collection[ByValue],
        problems: Problems,
    ) -> None:
        self._groups = groups
        self._statistics = statistics
        self._by = by
        self._problems = problems
        self._read = 0
        self._windows = 0

    def read(self, trigger: str, entry: Mapping[str, Any], at: Path) -> Detector | None:
        """The detector of a rule; None if it has problems.

        Args:
            trigger: of the rule, one of `DETECTORS`.
            entry: the valid part of the rule.
            at: where the document has it.
        """
        add, blames = self._problems.add, self._problems.blames
        stream = None
        if "name" in entry:
            stream = self._stream(entry["name"], (*at, "name"))
        elif not blames((*at, "name")):
            add(
                at,
                f"the trigger {trigger!r} needs 'name', the values that it watches, such as "
                "'name: GROUP-KEY' for a memo key",
            )
        if "detector" not in entry:
            if not blames((*at, "detector")):
                example = EXAMPLES[trigger]
                add(at, f"the trigger {trigger!r} needs 'detector', such as 'detector: {example}'")
            return None
        if not entry["detector"]:
            # The kind that was there has its own problem.
            return None
        ((kind, given),) = entry["detector"].items()
        if kind not in DETECTORS[trigger]:
            add(
                (*at, "detector"),
                f"the trigger {trigger!r} has no detector {kind!r}; give one such as "
                f"{EXAMPLES[trigger]}",
            )
            return None
        arguments = {name: _default(key) for name, key in _ARGUMENTS[kind].items()}
        arguments |= given
        here: Path = (*at, "detector", kind)
        if kind == "quantile":
            self._window(arguments, here)
        self._read += 1
        if self._read > MAX_DETECTORS:
            self._problems.give_up(at, f"expected at most {MAX_DETECTORS} rules with a detector")
        if stream is None or blames(here):
            return None
        return Detector(*stream, kind, arguments)

    def _stream(self, name: str, at: Path) -> tuple[str, str] | None:
        try:
            group, variable = split_stream(name, self._groups)
            if variable in GAUGES:
                raise ValueError(
                    f"{name!r} is computed at each heartbeat, so there are no values to watch"
                )
            return group, parse_variable(group, variable, self._by)
        except ValueError as error:
            message = str(error)
            with suppress(ValueError):
                path = parse_path(name, self._groups, self._statistics, self._by)
                if path.statistic in self._statistics:
                    message = (
                        f"a detector watches values, and no statistic of them: write "
                        f"{f'{path.group}-{path.variable}'!r}, not {shown(name)}"
                    )
            self._problems.add(at, message)
        return None

    def _window(self, arguments: dict[str, Any], at: Path) -> None:
        warm_up, window = arguments["warm-up"], arguments["window"]
        if window is None:
            window = max(warm_up, min(MAX_WINDOW, round(_BEYOND / (1 - arguments["q"]))))
            arguments["window"] = window
        if window < warm_up:
            self._problems.add(
                (*at, "window"), f"expected at least {warm_up}, which is 'warm-up', not {window}"
            )
        self._windows += window
        if self._windows > MAX_WINDOWS:
            self._problems.give_up(
                at, f"expected at most {MAX_WINDOWS} values in the windows of all detectors"
            )
