"""Tables in Flux's OutputFormat idiom: `-o FORMAT`, `-n`, and named formats of the user.

A user's own formats come from `flux-ensemble.toml` (or .json, .yaml) in Flux's
configuration path, as for flux-jobs(1):

    [list.formats.short]
    description = "names and states"
    format = "{name:<12} {state}"

`-o help` lists the formats of a table. Colours are fields without a width
(`color_state` ... `color_off`), empty where standard output is no terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import click

from flux_ensemble.cli.display.messages import STATE_STYLES, printable
from flux_ensemble.client.responses import EnsembleStatus, RuleStatus, Summary

#: ANSI codes of the styles that tables use.
ANSI = {"action": "\033[36m", "good": "\033[32m", "warn": "\033[33m", "bad": "\033[31m"}
ANSI_OFF = "\033[0m"


@dataclass(frozen=True)
class Table:
    """A kind of table: `name` in configuration files, its columns and its formats."""

    name: str
    headings: Mapping[str, str]
    formats: Mapping[str, Mapping[str, str]]

    def show(
        self, rows: Iterable[Mapping[str, Any]], fmt: str = "default", no_header: bool = False
    ) -> None:
        """Prints the rows.

        Args:
            rows: a value for each heading.
            fmt: a format string, the name of a format, or "help" to list those there are.
            no_header: leave the line of headings out.

        Raises:
            click.UsageError: there is no such format, or it names an unknown column.
        """
        rows = [{field: _cell(field, value) for field, value in row.items()} for row in rows]
        try:
            if not _has_flux():
                self._show_plainly(rows, fmt, no_header)
                return
            from flux.util import OutputFormat

            output = OutputFormat(self._format(fmt), headings=self.headings)
            items = [SimpleNamespace(**row) for row in rows]
            output.print_items(items, no_header=no_header)
        except (ValueError, KeyError, AttributeError) as exc:
            reason = str(exc).removeprefix("--format: ")
            raise click.UsageError(f"--format: {reason}") from exc

    def _show_plainly(self, rows: Iterable[Mapping[str, Any]], fmt: str, no_header: bool) -> None:
        from flux_ensemble.cli.display.plain_tables import print_rows

        if fmt == "help":
            for name, one in self.formats.items():
                click.echo(f"{name:<10} {one['description']}")
            return
        if fmt not in self.formats and "{" not in fmt:
            raise ValueError(f"no format named {fmt!r} (formats: {', '.join(self.formats)})")
        text = self.formats[fmt]["format"] if fmt in self.formats else fmt
        print_rows(text, self.headings, rows, no_header=no_header)

    def _format(self, fmt: str) -> str:
        from flux.util import UtilConfig

        table = self

        class Config(UtilConfig):
            builtin_formats: ClassVar = {table.name: dict(table.formats)}

            def validate(self, path: str, conf: Mapping[str, Any]) -> None:
                for key, value in conf.get(table.name, {}).items():
                    if key != "formats":
                        raise ValueError(f"{path}: invalid key {table.name}.{key}")
                    self.validate_formats(path, value)

        initial = {self.name: {"formats": {name: dict(one) for name, one in self.formats.items()}}}
        config = Config(name="flux-ensemble", subcommand=self.name, initial_dict=initial)
        text: str = config.load().get_format_string(fmt)
        return text


def _cell(field: str, value: Any) -> Any:
    """A value that breaks no line and steers no terminal; colours are ours."""
    if isinstance(value, str) and not field.startswith("color_"):
        return printable(value).replace("\n", "\\n")
    return value


def _has_flux() -> bool:
    """Flux's Python bindings can be imported."""
    try:
        import flux.util  # noqa: F401
    except ImportError:
        return False
    return True


ENSEMBLES = Table(
    "list",
    {
        "name": "NAME",
        "state": "STATE",
        "active": "ACTIVE",
        "waiting": "WAITING",
        "finished": "FINISHED",
        "t_start": "T_START",
        "t_end": "T_END",
        "runtime": "RUNTIME",
        "reason": "REASON",
        "color_state": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "name, state and jobs",
            "format": "+:{name:<8} {color_state}{state:<9}{color_off} {waiting:>7} {active:>6} "
            "{finished:>8} {runtime!F:>8} ?:{reason}",
        },
        "long": {
            "description": "with times",
            "format": "+:{name:<8} {color_state}{state:<9}{color_off} {waiting:>7} {active:>6} "
            "{finished:>8} {runtime!F:>8} {t_start!D:<19} {t_end!D:<19} ?:{reason}",
        },
    },
)

GROUPS = Table(
    "groups",
    {
        "group": "GROUP",
        "waiting": "WAITING",
        "pending": "PENDING",
        "running": "RUNNING",
        "submitted": "SUBMITTED",
        "finished": "FINISHED",
        "success": "SUCCESS",
        "failed": "FAILED",
        "canceled": "CANCELED",
        "timeout": "TIMEOUT",
        "color_success": "",
        "color_failed": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "jobs of each group by state and outcome",
            "format": "+:{group:<8} {waiting:>7} {pending:>7} {running:>7} {finished:>8} "
            "{color_success}{success:>7}{color_off} {color_failed}{failed:>6}{color_off} "
            "{canceled:>8} {timeout:>7}",
        },
    },
)

RULES = Table(
    "rules",
    {
        "id": "RULE",
        "trigger": "TRIGGER",
        "action": "ACTION",
        "state": "STATE",
        "fired": "FIRED",
        "of": "OF",
        "color_state": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "rules and how often they ran",
            "format": "+:{id:<6} +:{trigger:<7} +:{action:<6} "
            "{color_state}{state:<8}{color_off} {fired:>5} {of:>9}",
        },
    },
)


def colour(style: str) -> str:
    """The ANSI code that begins a style; empty where standard output has no colours."""
    return ANSI.get(style, "") if use_colour() else ""


def use_colour() -> bool:
    """Whether standard output is a terminal whose user did not ask for no colours."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def ensemble_row(one: Summary, now: float) -> dict[str, Any]:
    """A row of `ENSEMBLES`; `now` is epoch seconds, for those that still run."""
    t_start, t_end = one["t_start"], one["t_end"]
    return {
        **one,
        "reason": one.get("reason", ""),  # guests do not see it
        "t_start": t_start or 0.0,
        "t_end": t_end or 0.0,
        "runtime": "" if t_start is None else (now if t_end is None else t_end) - t_start,
        "color_state": colour(STATE_STYLES.get(one["state"], "")),
        "color_off": colour_off(),
    }


def group_rows(status: EnsembleStatus) -> list[dict[str, Any]]:
    """The rows of `GROUPS`."""
    return [
        {
            "group": group,
            **counts,
            "color_success": colour("good" if counts["success"] else ""),
            "color_failed": colour("bad" if counts["failed"] else ""),
            "color_off": colour_off(),
        }
        for group, counts in status["groups"].items()
    ]


def rule_row(rule: RuleStatus) -> dict[str, Any]:
    """A row of `RULES`."""
    repetitions = rule["repetitions"]
    if rule["error"]:
        state, style = "failed", "bad"
    elif not rule["enabled"]:
        state, style = "disabled", "warn"
    elif repetitions is not None and rule["fired"] >= repetitions:
        state, style = "done", "good"
    else:
        state, style = "enabled", "action"
    return {
        "id": rule["id"],
        "trigger": rule["trigger"],
        "action": f"{rule['action']} {rule['label'] or ''}".rstrip(),
        "state": state,
        "fired": rule["fired"],
        "of": "unlimited" if repetitions is None else repetitions,
        "color_state": colour(style),
        "color_off": colour_off(),
    }


def colour_off() -> str:
    """The ANSI code that ends a style."""
    return ANSI_OFF if use_colour() else ""


def metrics_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table of an ensemble's metrics: a column for each of its statistics."""
    statistics = _statistics(metrics)
    columns = " ".join(f"{{{name}:>10}}" for name in statistics)
    return Table(
        "metrics",
        {
            "group": "GROUP",
            "variable": "VARIABLE",
            **{name: name.upper() for name in statistics},
        },
        {
            "default": {
                "description": "every statistic of every stream",
                "format": f"+:{{group:<8}} +:{{variable:<8}} {columns}",
            }
        },
    )


def metrics_rows(metrics: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `metrics_table`: one for each stream, in the order of the groups."""
    groups = list(metrics["count"])
    statistics = _statistics(metrics)
    streams: dict[tuple[str, str], dict[str, Any]] = {}
    for name in statistics:
        for path, value in metrics[name].items():
            key = split_stream(path, groups)
            streams.setdefault(key, {})[name] = number(value)
    blank = dict.fromkeys(statistics, "-")
    order = {group: position for position, group in enumerate(groups)}
    return [
        {"group": group, "variable": variable, **blank, **values}
        for (group, variable), values in sorted(
            streams.items(), key=lambda item: order.get(item[0][0], len(order))
        )
    ]


def _statistics(metrics: Mapping[str, Any]) -> list[str]:
    """The statistics in an ensemble's metrics, which has counts and the member's besides."""
    # Here, because the form of documents is nothing to the tables that have no metrics.
    from flux_ensemble.metrics.names import MEMBER_METRICS

    return [name for name in metrics if name not in ("count", *MEMBER_METRICS)]


def summary_table(metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """The closing table of `run`: counts, times, and the means of what jobs published."""
    published = _published(metrics)
    columns = "".join(f" {{{_field(variable)}:>10}}" for variable in published)
    return Table(
        "summary",
        {
            **GROUPS.headings,
            "mean_pending": "PENDING",
            "mean_duration": "DURATION",
            "min_duration": "MIN",
            "max_duration": "MAX",
            **{_field(variable): variable.upper() for variable in published},
        },
        {
            "default": {
                "description": "jobs of each group by outcome, and mean times",
                "format": "+:{group:<8} {submitted:>9} {color_success}{success:>7}{color_off} "
                "{color_failed}{failed:>6}{color_off} {canceled:>8} {timeout:>7} "
                "{mean_pending!F:>8h} {mean_duration!F:>8h} {min_duration!F:>8h} "
                "{max_duration!F:>8h}" + columns,
            }
        },
    )


def summary_rows(
    status: EnsembleStatus, metrics: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of `summary_table`: the groups that had jobs."""

    def value(statistic: str, path: str) -> Any:
        found = metrics[statistic].get(path)
        return "" if found is None else found

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


def _published(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The variables that jobs published, in order of appearance."""
    groups = list(metrics["count"])
    variables = (split_stream(path, groups)[1] for path in metrics["mean"])
    known = ("duration", "pending", "waiting", "running")
    return [variable for variable in dict.fromkeys(variables) if variable not in known]


def split_stream(path: str, groups: Sequence[str]) -> tuple[str, str]:
    """The group and the variable of "GROUP-VARIABLE"; the longest group name wins."""
    fitting = [group for group in groups if path.startswith(f"{group}-")]
    group = max(fitting, key=len, default="")
    return group, path[len(group) + 1 :] if group else path


def number(value: float | None) -> str:
    """A number in five digits, and a dash for a statistic that has seen no value."""
    return "-" if value is None else f"{value:.5g}"


def _field(variable: str) -> str:
    """The column of a variable's mean: a memo's key can hold what a format cannot."""
    return "mean_" + "".join(char if char.isalnum() else "_" for char in variable)


_Command = TypeVar("_Command", bound=Callable[..., Any])


def table_options(command: _Command) -> _Command:
    """The options of a command that prints a table: `-o`, `-n`, `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the service's JSON."),
        click.option("-n", "--no-header", is_flag=True, help="Leave out the line of headings."),
        click.option(
            "-o",
            "--format",
            "fmt",
            metavar="FORMAT",
            default="default",
            help='Output format, or the name of one ("help" lists them).',
        ),
    ):
        command = option(command)
    return command


def print_json(value: Any) -> None:
    """Prints one line of JSON."""
    click.echo(json.dumps(value))
