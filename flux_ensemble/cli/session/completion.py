"""Completion in a shell: names of ensembles, groups, rules, templates and keys.

After an error nothing is completed, since a shell has no place for errors. A service that does not
answer at once is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Seconds to wait for the service.
PATIENCE = 1.0

Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completer(names: Callable[[click.Context], Iterable[tuple[str, str]]]) -> Completer:
    """Return a completer of names that begin with the given text, each with its description."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            found = list(names(ctx))
        except (Exception, SystemExit):
            return []
        return [
            CompletionItem(name, help=about or None)
            for name, about in found
            if name.startswith(incomplete)
        ]

    return complete


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Make the shell complete files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _status(ctx: click.Context, name: str | None) -> list[Mapping[str, Any]]:
    """Return the status of ensembles, from the service or of local runs."""
    from flux_ensemble.cli.session.target import reach
    from flux_ensemble.client import Client
    from flux_ensemble.queues.local.client import LocalClient

    target = reach(Client, ctx.params.get("queue"), ctx.params.get("state_dir"))
    answer: Any
    if isinstance(target, LocalClient):
        answer = target.status(name)
    else:
        future = target.send("status", {"name": name})
        future.wait_for(PATIENCE)
        answer = future.get()
    ensembles: list[Mapping[str, Any]] = answer["ensembles"]
    return ensembles


def _names(ctx: click.Context) -> Iterable[tuple[str, str]]:
    given = ctx.params.get("names") or ()
    for one in _status(ctx, None):
        if one["name"] not in given:
            yield one["name"], one["state"]


def _ensemble(ctx: click.Context) -> Mapping[str, Any]:
    (status,) = _status(ctx, ctx.params["name"])
    return status


def _groups(ctx: click.Context) -> Iterable[tuple[str, str]]:
    for group, counts in _ensemble(ctx)["groups"].items():
        yield group, f"{counts['finished']} finished"


def _rules(ctx: click.Context) -> Iterable[tuple[str, str]]:
    for rule in _ensemble(ctx)["rules"]:
        yield rule["id"], f"{', '.join(rule['actions'])} on {rule['trigger']}"


def _templates(ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flux_ensemble.document.starters import Starters

    starters = Starters()
    return ((name, starters.summary(name)) for name in starters.names())


def _keys(ctx: click.Context) -> Iterable[tuple[str, str]]:
    from flux_ensemble.document.keys.document import KEYS

    return ((path, key.text) for path, key in KEYS.items())


ensembles = _completer(_names)
groups = _completer(_groups)
rules = _completer(_rules)
templates = _completer(_templates)
keys = _completer(_keys)
