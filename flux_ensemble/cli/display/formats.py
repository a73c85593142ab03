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
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import click

from flux_ensemble.cli.prose import fitted
from flux_ensemble.scalars import Spelled
from flux_ensemble.texts import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Table:
    """A kind of table: `name` in configuration files, its columns and its formats.

    Args:
        name, headings, formats: of the table.
        families: columns of which there can be any number, such as `params.NAME`, for errors.
        yields: the columns that are shortened if a terminal is too narrow for all, the first ones
            first.
        drops: the columns that are left out of a named format if there is no room for them, the
            first ones first; and before these, those in which there is nothing but zeros.
    """

    # Not a dataclass: most commands need no other, and importing that takes longer than a request.
    def __init__(
        self,
        name: str,
        headings: Mapping[str, str],
        formats: Mapping[str, Mapping[str, str]],
        families: tuple[str, ...] = (),
        yields: tuple[str, ...] = (),
        drops: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.headings = headings
        self.formats = formats
        self.families = families
        self.yields = yields
        self.drops = drops

    def show(
        self,
        rows: Iterable[Mapping[str, Any]],
        fmt: str = "default",
        no_header: bool = False,
        elsewhere: str = "'| less -S' shows all columns",
    ) -> bool:
        """Print the rows; return True if a column was shortened.

        On a terminal the lines fit its width, and the columns for which there is no room are named
        below them.

        Args:
            rows: a value for each heading.
            fmt: a format string, the name of a format, or "help" to list the formats.
            no_header: leave out the line of headings.
            elsewhere: what shows columns that are left out.

        Raises:
            click.UsageError: there is no such format, or it names an unknown column.
        """
        whole = [{field: _cell(field, value) for field, value in row.items()} for row in rows]
        made, dropped = whole, list[str]()
        if _is_terminal() and whole and not (fmt in _SPECIAL or fmt.startswith(GET_CONFIG)):
            fmt, dropped = self._without(whole, fmt)
            made = self._shortened(whole, fmt)
        self._show(made, fmt, no_header)
        if dropped:
            more = f": {elsewhere}" if elsewhere else ""
            click.echo(fitted(f"no room for {', '.join(dropped)}{more}"))
        return made != whole

    def _without(self, rows: list[dict[str, Any]], fmt: str) -> tuple[str, list[str]]:
        """Return a format without the columns for which there is no room, and their headings.

        Columns without values are left out first, and not named.
        """
        if fmt not in self.formats:
            return fmt, []
        short = rows
        for field in self.yields:
            short = _cut(short, field, WANTED)
        empty = {field for field in self.drops if all(row[field] in _NOTHING for row in rows)}
        dropped = []
        for field in sorted(self.drops, key=lambda field: field not in empty):
            if self._excess(short, fmt) <= 0:
                break
            fmt, found = re.subn(_COLUMN.format(re.escape(field)), "", self._text(fmt))
            if found and field not in empty:
                dropped.append(self.headings[field])
        return fmt, dropped

    def _shortened(self, rows: list[dict[str, Any]], fmt: str) -> list[dict[str, Any]]:
        """Return the rows with shorter columns, if the lines are wider than the terminal."""
        for least, field in product((WANTED, LEAST), self.yields):
            excess = self._excess(rows, fmt)
            if excess <= 0:
                break
            longest = max(len(str(row[field])) for row in rows)
            if longest > least:
                rows = _cut(rows, field, max(longest - excess, least))
        return rows

    def _excess(self, rows: list[dict[str, Any]], fmt: str) -> int:
        """Return by how many characters the lines are wider than the terminal."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self._show(rows, fmt, no_header=False)
        lines = (_ANSI.sub("", line) for line in printed.getvalue().splitlines())
        return max(map(len, lines)) - shutil.get_terminal_size().columns

    def _show(self, rows: list[dict[str, Any]], fmt: str, no_header: bool) -> None:
        try:
            if not _has_flux() or any(map(_ODD_FIELD.search, self.headings)):
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
                name = name.removeprefix("job.")
                if name in fields:
                    reason += f"; write '{{{name}}}'"
                elif "params.NAME" in self.families and "." not in name:
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
        print_rows(self._text(fmt), self.headings, rows, no_header=no_header)

    def _text(self, fmt: str) -> str:
        """Return a format of this table by its name; a format stays."""
        if _has_flux():
            return self._format(fmt)
        return self.formats[fmt]["format"] if fmt in self.formats else fmt

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


class Pairs(str):
    """Texts `name=value` in one cell; where that is shortened, those that are left are whole.

    >>> pairs = Pairs(["a=1", "length=20", "material=copper"])
    >>> pairs, pairs.cut(20)
    ('a=1 length=20 material=copper', 'a=1 length=20 ...')
    """

    parts: tuple[str, ...]

    def __new__(cls, pairs: Iterable[str]) -> Pairs:
        parts = tuple(map(one_line, pairs))
        text = super().__new__(cls, " ".join(parts))
        text.parts = parts
        return text

    def cut(self, most: int) -> str:
        """Return text of at most `most` characters."""
        if len(self) <= most:
            return self
        for kept in range(len(self.parts) - 1, 0, -1):
            short = " ".join((*self.parts[:kept], "..."))
            if len(short) <= most:
                return short
        return middle_out(self, most)


def _cut(rows: list[dict[str, Any]], field: str, most: int) -> list[dict[str, Any]]:
    """Return rows in which the cells of a column have at most `most` characters."""
    return [{**row, field: _shorter(row[field], most)} for row in rows]


def _shorter(cell: Any, most: int) -> str:
    return cell.cut(most) if isinstance(cell, Pairs) else middle_out(str(cell), most)


class _Nothing(str):
    """The cell of a row that has no value, also where a format is one of numbers."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """Return spaces.

        >>> f"{_Nothing():>4.0%}|", f"{_Nothing():6.1f}|"
        ('    |', '      |')
        """
        return format("", _NUMBER.sub("", spec))


class _Text(str):
    """Text with attributes of its own: `{params}` and `{params.t}`."""


def _item(row: Mapping[str, Any]) -> SimpleNamespace:
    """Return a row as the object that Flux formats; `a.b` is attribute b of its attribute a."""
    cells = {field: _Nothing() if value == "" else value for field, value in row.items()}
    item = SimpleNamespace(**{field: value for field, value in cells.items() if "." not in field})
    for field, value in cells.items():
        owner, dot, name = field.partition(".")
        if dot:
            if not hasattr(getattr(item, owner, None), "__dict__"):
                setattr(item, owner, _Text(getattr(item, owner, "")))
            setattr(getattr(item, owner), name, value)
    return item


def _cell(field: str, value: Any) -> Any:
    """Return a value without line breaks and control characters, except for our colours."""
    if type(value) in (Spelled, Pairs):
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


#: Fewest characters of a column that is shortened, and how many it keeps as long as other columns
#: can be left out.
LEAST, WANTED = 12, 30

#: Cells that say nothing.
_NOTHING = (0, "", "0", "-")

#: The part of a format that is only for numbers.
_NUMBER = re.compile(r"(?:\.\d+)?[bcdeEfFgGnoxX%]$")

#: A column in a format, with its colours.
_COLUMN = r" ?(?:\{{color_\w+\}})?(?:[?+]+:)?\{{{}\b[^}}]*\}}(?:\{{color_off\}})?"

#: Formats that print something other than the table.
GET_CONFIG = "get-config="
_SPECIAL = ("help",)

#: Control sequences of terminals, which in tables are only colours.
_ANSI = re.compile("\033\\[[0-9;]*m")

#: A field that Flux's formats take for a part of another one.
_ODD_FIELD = re.compile(r"\..*[.\[]")

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Output(NamedTuple):
    """The output format of a command's table: the options `-o`, `-n` and `--json`."""

    fmt: str
    no_header: bool
    as_json: bool

    @property
    def is_default(self) -> bool:
        """True if no format was requested."""
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
