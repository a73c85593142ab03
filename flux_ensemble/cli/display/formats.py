"""Tables in Flux's OutputFormat idiom: `-o FORMAT`, `-n`, and named formats of the user.

A user's own formats come from `flux-ensemble.toml` (or .json, .yaml) in Flux's
configuration path, as for flux-jobs(1):

    [list.formats.short]
    description = "names and states"
    format = "{name:<12} {state}"

`-o help` lists the formats of a table.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import click

from flux_ensemble.scalars import Spelled
from flux_ensemble.texts import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Table:
    """A kind of table: `name` in configuration files, its columns and its formats.

    Args:
        name, headings, formats: of the table.
        families: columns of which there can be any number, such as `params.NAME`, for errors.
        yields: the column that is shortened if a terminal is too narrow for all.
    """

    # Not a dataclass: most commands need no other, and importing that takes longer than a request.
    def __init__(
        self,
        name: str,
        headings: Mapping[str, str],
        formats: Mapping[str, Mapping[str, str]],
        families: tuple[str, ...] = (),
        yields: str | None = None,
    ) -> None:
        self.name = name
        self.headings = headings
        self.formats = formats
        self.families = families
        self.yields = yields

    def show(
        self, rows: Iterable[Mapping[str, Any]], fmt: str = "default", no_header: bool = False
    ) -> bool:
        """Print the rows; return True if a column was shortened.

        Args:
            rows: a value for each heading.
            fmt: a format string, the name of a format, or "help" to list the formats.
            no_header: leave out the line of headings.

        Raises:
            click.UsageError: there is no such format, or it names an unknown column.
        """
        whole = [{field: _cell(field, value) for field, value in row.items()} for row in rows]
        made = whole
        if self.yields is not None and _is_terminal():
            made = self._fitting(whole, self.yields, fmt, no_header)
        self._show(made, fmt, no_header)
        return made != whole

    def _fitting(
        self, rows: list[dict[str, Any]], field: str, fmt: str, no_header: bool
    ) -> list[dict[str, Any]]:
        """Return the rows with a shorter column, if the lines are wider than the terminal."""
        if not rows or (fmt in _SPECIAL or fmt.startswith(GET_CONFIG)):
            return rows
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self._show(rows, fmt, no_header)
        lines = [_ANSI.sub("", line) for line in printed.getvalue().splitlines()]
        excess = max(map(len, lines), default=0) - shutil.get_terminal_size().columns
        longest = max(len(str(row[field])) for row in rows)
        if excess <= 0:
            return rows
        most = max(longest - excess, LEAST)
        return [{**row, field: middle_out(str(row[field]), most)} for row in rows]

    def _show(self, rows: list[dict[str, Any]], fmt: str, no_header: bool) -> None:
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
                name = reason.rpartition(": ")[2]
                reason += f" (fields: {', '.join([*fields, *self.families])})"
                if "params.NAME" in self.families and "." not in name:
                    reason += f"; a parameter is '{{params.{name}}}', and a value that jobs "
                    reason += f"publish '{{memo.{name}}}'"
            raise click.UsageError(f"--format: {reason}") from exc

    def _show_plainly(self, rows: Iterable[Mapping[str, Any]], fmt: str, no_header: bool) -> None:
        from flux_ensemble.cli.display.plain_tables import print_rows

        if fmt == "help":
            for name, named in self.formats.items():
                click.echo(f"{name:<10} {named['description']}")
            return
        if fmt.startswith(GET_CONFIG):
            name = fmt.removeprefix(GET_CONFIG)
            if name in self.formats:
                click.echo(f"[{self.name}.formats.{name}]")
                for key, value in self.formats[name].items():
                    click.echo(f'{key} = "{value}"')
                return
            fmt = name
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


def middle_out(text: str, most: int) -> str:
    """Return text of at most `most` characters, without its middle if it is longer.

    >>> middle_out("nothing is active and no rule can fire", 20)
    'nothing i...can fire'
    """
    if len(text) <= most:
        return text
    kept = max(0, most - 3)
    tail = kept // 2
    return f"{text[: kept - tail]}...{text[len(text) - tail :]}"


class _Text(str):
    """Text with attributes of its own: `{params}` and `{params.t}`."""


def _item(row: Mapping[str, Any]) -> SimpleNamespace:
    """Return a row as the object that Flux formats; `a.b` is attribute b of its attribute a."""
    item = SimpleNamespace(**{field: value for field, value in row.items() if "." not in field})
    for field, value in row.items():
        owner, dot, name = field.partition(".")
        if dot:
            if not hasattr(getattr(item, owner, None), "__dict__"):
                setattr(item, owner, _Text(getattr(item, owner, "")))
            setattr(getattr(item, owner), name, value)
    return item


def _cell(field: str, value: Any) -> Any:
    """Return a value without line breaks and control characters, except for our colours."""
    if type(value) is Spelled:
        return value
    if isinstance(value, str) and not field.startswith("color_"):
        return one_line(value)
    return value


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _has_flux() -> bool:
    """Return True if Flux's Python bindings can be imported."""
    try:
        import flux.util  # noqa: F401
    except ImportError:
        return False
    return True


#: Fewest characters of a column that is shortened.
LEAST = 12

#: Formats that print something other than the table.
GET_CONFIG = "get-config="
_SPECIAL = ("help",)

#: Control sequences of terminals, which in tables are only colours.
_ANSI = re.compile("\033\\[[0-9;]*m")

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Output(NamedTuple):
    """The output format of a command's table: the options `-o`, `-n` and `--json`."""

    fmt: str
    no_header: bool
    as_json: bool

    @property
    def is_default(self) -> bool:
        """No format was requested."""
        return self.fmt == "default"

    def show(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> bool:
        """Print a table in this format; return True if a column was shortened."""
        return table.show(rows, self.fmt, self.no_header)


def table_options(*tables: Table) -> Callable[[_Command], Callable[..., Any]]:
    """Add `-o`, `-n` and `--json`, and pass the command an `Output` as `output`.

    Args:
        tables: of the command; a shell completes the names of their formats.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = {
            name: named["description"] for table in tables for name, named in table.formats.items()
        }
        names = {"default": "", **names, "help": "list the formats"}
        return [
            CompletionItem(name, help=about or None)
            for name, about in names.items()
            if name.startswith(incomplete)
        ]

    def decorate(command: _Command) -> Callable[..., Any]:
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
                shell_complete=complete,
                help='Output format, or the name of one ("help" lists them).',
            ),
        ):
            made = option(made)
        return made

    return decorate


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(json.dumps(value))
