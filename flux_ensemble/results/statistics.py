"""The statistics of an ensemble as rows of text, one for each stream of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def metrics_rows(
    metrics: Mapping[str, Mapping[str, Any]], units: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of `metrics_table`: one for each stream, in the order of the groups.

    A key of memos whose values were all ignored has a row, too. With units of its document each row
    has one, and that of times is "s".
    """
    from flux_ensemble.metrics.by_value import unsplit
    from flux_ensemble.metrics.names import GAUGES, STREAMS
    from flux_ensemble.metrics.units import unit_of

    def unit(group: str, variable: str) -> str:
        times = unsplit(variable) in (*STREAMS, *GAUGES)
        return "s" if times else unit_of(units or {}, group, variable)

    groups = list(metrics["count"])
    statistics = statistics_of(metrics)
    streams: dict[tuple[str, str], dict[str, Any]] = {}
    for name in statistics:
        for path, value in metrics[name].items():
            key = split_stream(path, groups)
            exact = name == "n" and type(value) is int
            streams.setdefault(key, {})[name] = str(value) if exact else number(value)
    for group, keys in ignored_of(metrics).items():
        for variable, count in keys.items():
            streams.setdefault((group, variable), {})["ignored"] = str(count)
    blank = {**dict.fromkeys(statistics, "-"), "ignored": "0"}
    order = {group: position for position, group in enumerate(groups)}
    return [
        {
            "group": group,
            "variable": variable,
            **({"unit": unit(group, variable)} if units else {}),
            **blank,
            **values,
        }
        for (group, variable), values in sorted(
            streams.items(), key=lambda item: order.get(item[0][0], len(order))
        )
    ]


def statistics_of(metrics: Mapping[str, Any]) -> list[str]:
    """Return the statistics in an ensemble's metrics, without counts and metrics of members."""
    # Imported here, because tables without metrics do not need the modules of documents.
    from flux_ensemble.metrics.names import IGNORED, MEMBER_METRICS, RATE
    from flux_ensemble.metrics.paths import OF_NAMES

    others = ("count", RATE, "best", IGNORED, *MEMBER_METRICS)
    return [
        name
        for name, values in metrics.items()
        # Without entries of that feature, a statistic may have that name.
        if name not in others and not (name in OF_NAMES and _nested(values))
    ]


def _nested(values: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Mapping) for value in values.values())


def ignored_of(metrics: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    """Return the number of values of memos without statistics, by group and key."""
    from flux_ensemble.metrics.names import IGNORED

    return metrics.get(IGNORED, {})


def split_stream(path: str, groups: Sequence[str]) -> tuple[str, str]:
    """Split "GROUP-VARIABLE" into group and variable; the longest group name wins."""
    fitting = [group for group in groups if path.startswith(f"{group}-")]
    group = max(fitting, key=len, default="")
    return group, path[len(group) + 1 :] if group else path


def number(value: float | None) -> str:
    """Return a number in five digits, or a dash for a statistic without values."""
    return "-" if value is None else f"{value:.5g}"
