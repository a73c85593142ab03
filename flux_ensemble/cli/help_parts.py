"""Help of a command with many options: in parts, of which `--help-all` shows the rare ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class InParts(click.Command):
    """A command whose `--help` has its options under headings.

    Args:
        parts: heading -> names of the options' parameters. Options of no part come first.
        rare: as `parts`; `--help` leaves these out, and names `--help-all`.
    """

    def __init__(
        self,
        *args: Any,
        parts: Mapping[str, Sequence[str]],
        rare: Mapping[str, Sequence[str]],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._parts = parts
        self._rare = rare
        self._whole = False
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=self._show_all,
                help=f"Show the rare options, too: {'; '.join(rare)}.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        headed = {heading: _taken(records, names) for heading, names in self._parts.items()}
        rare = {heading: _taken(records, names) for heading, names in self._rare.items()}
        headed = {"Options": list(records.values()), **headed, **(rare if self._whole else {})}
        for heading, rows in headed.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def _show_all(self, ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            self._whole = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()


def _taken(records: dict[str, tuple[str, str]], names: Sequence[str]) -> list[tuple[str, str]]:
    """Remove options from those that have no heading so far, and return them."""
    return [records.pop(name) for name in names]
