"""Tables in Flux's OutputFormat idiom: `-o FORMAT`, `-n`, and named formats of the user.

A user's own formats come from `flux-ensemble.toml` (or .json, .yaml) in Flux's
configuration path, as for flux-jobs(1):

    [list.formats.short]
    description = "names and states"
    format = "{name:<12} {state}"

`-o help` lists the formats of a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import click

from flux_ensemble.texts import printable


@dataclass(frozen=True)
class Table:
    """A kind of table: `name` in configuration files, its columns and its formats.

    Args:
        name, headings, formats: those.
        families: columns of which there can be any number, such as `params.NAME`, for errors.
    """

    name: str
    headings: Mapping[str, str]
    formats: Mapping[str, Mapping[str, str]]
    families: tuple[str, ...] = ()

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
            items = [_item(row) for row in rows]
            output.print_items(items, no_header=no_header)
        except (ValueError, KeyError, AttributeError) as exc:
            reason = str(exc).removeprefix("--format: ")
            if reason.startswith("Unknown format field"):
                fields = [field for field in self.headings if not field.startswith("color_")]
                reason += f" (fields: {', '.join([*fields, *self.families])})"
            raise click.UsageError(f"--format: {reason}") from exc

    def _show_plainly(self, rows: Iterable[Mapping[str, Any]], fmt: str, no_header: bool) -> None:
        from flux_ensemble.cli.display.plain_tables import print_rows

        if fmt == "help":
            for name, named in self.formats.items():
                click.echo(f"{name:<10} {named['description']}")
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

        initial = {
            self.name: {"formats": {name: dict(named) for name, named in self.formats.items()}}
        }
        config = Config(name="flux-ensemble", subcommand=self.name, initial_dict=initial)
        text: str = config.load().get_format_string(fmt)
        return text


class _Text(str):
    """Text with fields of its own: `{params}` and `{params.t}`."""


def _item(row: Mapping[str, Any]) -> SimpleNamespace:
    """A row as the object that Flux formats; `a.b` is field b of its field a."""
    item = SimpleNamespace(**{field: value for field, value in row.items() if "." not in field})
    for field, value in row.items():
        owner, dot, name = field.partition(".")
        if dot:
            if not hasattr(getattr(item, owner, None), "__dict__"):
                setattr(item, owner, _Text(getattr(item, owner, "")))
            setattr(getattr(item, owner), name, value)
    return item


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


_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Output:
    """How a command is to print a table: the options `-o`, `-n` and `--json`."""

    fmt: str
    no_header: bool
    as_json: bool

    @property
    def is_default(self) -> bool:
        """No format is asked for."""
        return self.fmt == "default"

    def show(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Prints a table so."""
        table.show(rows, self.fmt, self.no_header)


def table_options(command: _Command) -> Callable[..., Any]:
    """Adds `-o`, `-n` and `--json`, and gives the command an `Output` as `output`."""

    @wraps(command)
    def printing(*, fmt: str, no_header: bool, as_json: bool, **options: Any) -> Any:
        return command(output=Output(fmt, no_header, as_json), **options)

    made: Callable[..., Any] = printing
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
        made = option(made)
    return made


def print_json(value: Any) -> None:
    """Prints one line of JSON."""
    click.echo(json.dumps(value))
