"""The tables of metrics: the statistics of an ensemble, and the closing table of `run`.

Their columns depend on the available statistics and on the values that jobs published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.display.formats import Table
from flux_ensemble.cli.display.tables import GROUPS, group_rows
from flux_ensemble.metrics.units import with_unit
from flux_ensemble.results.statistics import ignored_of, number, split_stream, statistics_of

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus


#: The statistics for which there is no room first.
_LEAST = ("mad", "iqr", "variance", "n")


def metrics_table(metrics: Mapping[str, Mapping[str, Any]], *, units: bool = False) -> Table:
    """Return the table of an ensemble's metrics, with a column for each of its statistics.

    If values of memos were ignored, a column has their number; with `units` one has these.
    """
    statistics = statistics_of(metrics)
    others = [name for name in statistics if name not in (*_LEAST, "mean")]
    columns = " ".join(f"+:{{{name}:>10}}" for name in statistics)
    if ignored_of(metrics):
        columns += " {ignored:>7}"
    return Table(
        "metrics",
        {
            "group": "GROUP",
            "variable": "VARIABLE",
            "unit": "UNIT",
            **{name: name.upper() for name in statistics},
            "ignored": "IGNORED",
        },
        {
            "default": {
                "description": "every statistic of every stream",
                "format": "+:{group:<8} +:{variable:<8} " + "+:{unit:<4} " * units + columns,
            }
        },
        yields=("variable", "group"),
        drops=(*(name for name in _LEAST if name in statistics), *reversed(others)),
    )


def summary_table(
    metrics: Mapping[str, Mapping[str, Any]], status: Mapping[str, Any] | None = None
) -> Table:
    """Return the closing table of `run`: counts, times, and means of published values.

    Args:
        metrics: of the ensemble.
        status: of it, which has the units; None for none.
    """
    published = _published(metrics)
    columns = "".join(f" +:{{{_field(variable)}:>10}}" for variable in published)
    return Table(
        "summary",
        {
            **GROUPS.headings,
            "mean_pending": "PENDING",
            "mean_duration": "DURATION",
            "min_duration": "MIN",
            "max_duration": "MAX",
            **{
                _field(variable): with_unit(status or {}, groups, variable, variable.upper())
                for variable, groups in published.items()
            },
        },
        {
            "default": {
                "description": "jobs of each group by outcome, and mean times",
                "format": "+:{group:<8} {submitted:>9} {color_success}{success:>7}{color_off} "
                "{color_failed}{failed:>6}{color_off} {canceled:>8} {timeout:>7} "
                "?:{interrupted:>11} {mean_pending!F:>8h} {mean_duration!F:>8h} "
                "{min_duration!F:>8h} {max_duration!F:>8h}" + columns,
            }
        },
        yields=("group",),
        drops=(
            "timeout",
            "canceled",
            "interrupted",
            "min_duration",
            "max_duration",
            "mean_pending",
            *map(_field, reversed(published)),
            "mean_duration",
        ),
    )


def summary_rows(
    status: EnsembleStatus, metrics: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of `summary_table`: the groups that had jobs."""

    def value(statistic: str, path: str) -> Any:
        seconds = metrics[statistic].get(path)
        # Flux has a hyphen for less than a millisecond, as if there were no value.
        return "" if seconds is None else max(seconds, 0.001) if seconds > 0 else seconds

    return [
        {
            **row,
            **{
                f"{statistic}_{variable}": value(statistic, f"{row['group']}-{variable}")
                for statistic, variable in (
                    ("mean", "pending"),
                    ("mean", "duration"),
                    ("min", "duration"),
                    ("max", "duration"),
                )
            },
            **{
                _field(variable): number(metrics["mean"].get(f"{row['group']}-{variable}"))
                for variable in _published(metrics)
            },
        }
        for row in group_rows(status)
        if row["submitted"] or row["finished"]
    ]


def attempts_left_out(status: Mapping[str, Any]) -> int:
    """Return how many attempts that a `rerun` ran again are submitted, and among no outcome.

    Args:
        status: of an ensemble none of whose jobs is active.

    >>> group = {"submitted": 9, "attempts": 6}
    >>> attempts_left_out({"absences": [{"over": True}], "groups": {"a": group}})
    3
    >>> attempts_left_out({"groups": {"a": group}})
    0
    """
    if not any(span.get("over") for span in status.get("absences", ())):
        return 0
    return sum(
        max(0, group["submitted"] - group["attempts"]) for group in status["groups"].values()
    )


def _published(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the variables that jobs published, with their groups; no streams by value."""
    from flux_ensemble.metrics.by_value import unsplit

    groups = list(metrics["count"])
    known = ("duration", "pending", "waiting", "running")
    found: dict[str, list[str]] = {}
    for path in metrics["mean"]:
        group, variable = split_stream(path, groups)
        if variable not in known and unsplit(variable) == variable:
            found.setdefault(variable, []).append(group)
    return found


def _field(variable: str) -> str:
    """Return the column of a variable's mean: a memo's key can hold what a format cannot."""
    return "mean_" + "".join(char if char.isalnum() else "_" for char in variable)
