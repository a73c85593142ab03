"""The commands that steer an ensemble, such as submit, pause, enable and cancel."""

from __future__ import annotations

from typing import Any

import click

from flux_ensemble.cli.common import Assignment, Mapped, job_id, naming
from flux_ensemble.client import Client
from flux_ensemble.client.responses import State


@click.command
@click.argument("name")
@click.argument("group")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs for each combination of parameters, instead of the document's count.",
)
@click.option(
    "--param",
    "params",
    type=Assignment(),
    multiple=True,
    metavar="KEY=VALUE",
    help='A parameter\'s value or values, as in "x=7" or "x=[1, 2]"; may be repeated.',
)
@click.option(
    "--set",
    "overrides",
    type=Assignment(),
    multiple=True,
    metavar="KEY=VALUE",
    help='A value in place of the group\'s, as in "nodes=4" or "duration=2h"; may be repeated.',
)
def submit(
    name: str,
    group: str,
    count: int | None,
    params: tuple[tuple[str, Any], ...],
    overrides: tuple[tuple[str, Any], ...],
) -> None:
    """Submit job group GROUP of ensemble NAME once more and print the job ids."""
    client = Client()
    with naming(client, name, group):
        ids = client.submit(
            name,
            group,
            count=count,
            params=dict(params) or None,
            overrides=dict(overrides) or None,
        )
    for job in ids:
        click.echo(job_id(job))


@click.command
@click.argument("name")
def pause(name: str) -> None:
    """Keep the rules of ensemble NAME from firing; its jobs go on."""
    client = Client()
    with naming(client, name):
        _say(name, client.pause(name))


@click.command
@click.argument("name")
def resume(name: str) -> None:
    """Let the paused ensemble NAME go on."""
    client = Client()
    with naming(client, name):
        _say(name, client.resume(name))


@click.command
@click.argument("name")
@click.option("--cancel", is_flag=True, help="Also cancel its jobs.")
def terminate(name: str, cancel: bool) -> None:
    """End ensemble NAME; the queue keeps its jobs unless --cancel is given."""
    client = Client()
    with naming(client, name):
        _say(name, client.terminate(name, cancel=cancel))


@click.command
@click.argument("name")
@click.argument("group", required=False)
def cancel(name: str, group: str | None) -> None:
    """Cancel ensemble NAME and its jobs; with GROUP, only the active jobs of that group."""
    client = Client()
    with naming(client, name, group):
        _say(name, client.cancel(name, group))


@click.command
@click.argument("name")
@click.argument("rule")
def enable(name: str, rule: str) -> None:
    """Turn rule RULE of ensemble NAME on."""
    _set_rule(name, rule, enabled=True)


@click.command
@click.argument("name")
@click.argument("rule")
def disable(name: str, rule: str) -> None:
    """Turn rule RULE of ensemble NAME off: it does not fire until it is enabled."""
    _set_rule(name, rule, enabled=False)


def _set_rule(name: str, rule: str, *, enabled: bool) -> None:
    client = Client()
    with naming(client, name, rule=rule):
        client.set_rule(name, rule, enabled=enabled)
    click.echo(f"{name}: rule {rule} {'enabled' if enabled else 'disabled'}")


@click.command
@click.argument("name")
@click.argument("action", type=Mapped())
def action(name: str, action: dict[str, Any]) -> None:
    """Perform ACTION in ensemble NAME now, and print the ids of jobs that it submits.

    ACTION is written as in a document: '{name: submit, label: echo, count: 2}'.
    """
    client = Client()
    with naming(client, name):
        done = client.action(name, action)
    for job in done.get("ids", ()):
        click.echo(job_id(job))


@click.command
@click.argument("name")
def unload(name: str) -> None:
    """Forget ensemble NAME, which has ended, with its log."""
    client = Client()
    with naming(client, name):
        client.unload(name)
    click.echo(f"{name}: unloaded")


def _say(name: str, answer: State) -> None:
    click.echo(f"{name}: {answer['state']}")


COMMANDS = (submit, pause, resume, terminate, cancel, enable, disable, action, unload)
