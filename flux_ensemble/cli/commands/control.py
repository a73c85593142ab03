"""The commands that steer an ensemble, such as submit, pause, enable and cancel."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from flux_ensemble.cli.common import USAGE, Assignment, Failure, Mapped, naming, say
from flux_ensemble.cli.display.job_names import submitted_names, waiting_text
from flux_ensemble.cli.display.troubles import left
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.target import targeted
from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.client.troubles import ways_on
from flux_ensemble.job_ids import JobIds
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.results.hosts import Target


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("group", shell_complete=completion.groups)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs for each combination of parameters, instead of the document's count.",
)
@click.option(
    "--param",
    "params",
    type=Assignment(written=True),
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
@targeted
def submit(
    name: str,
    group: str,
    count: int | None,
    params: tuple[tuple[str, Any], ...],
    overrides: tuple[tuple[str, Any], ...],
    target: Target,
) -> None:
    """Submit job group GROUP of ensemble NAME once more and print the job ids."""
    with naming(target, name, group):
        ids = target.submit(
            name,
            group,
            count=count,
            params=dict(params) or None,
            overrides=dict(overrides) or None,
        )
    _print_ids(ids, target)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@targeted
def pause(name: str, target: Target) -> None:
    """Keep the rules of ensemble NAME from firing; its jobs go on."""
    with naming(target, name):
        _say(name, target.pause(name)["state"])


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@targeted
def resume(name: str, target: Target) -> None:
    """Let the paused ensemble NAME go on."""
    with naming(target, name):
        _say(name, target.resume(name)["state"])


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.option("--cancel", is_flag=True, help="Also cancel its jobs.")
@targeted
def terminate(name: str, cancel: bool, target: Target) -> None:
    """End ensemble NAME; the queue keeps its jobs unless --cancel is given."""
    with naming(target, name):
        _say(name, target.terminate(name, cancel=cancel)["state"])


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("group", required=False, shell_complete=completion.groups)
@targeted
def cancel(name: str, group: str | None, target: Target) -> None:
    """Cancel ensemble NAME and its jobs; with GROUP, only the active jobs of that group."""
    with naming(target, name, group):
        answer: Any = target.cancel(name, group)
    if group is None or "jobs" not in answer:
        # A cancelled ensemble is ending or canceled; another state means that it had ended before.
        had_ended = answer["state"] in ("completed", "failed")
        _say(name, f"{answer['state']}{' (it had ended before)' if had_ended else ''}")
        _say_left(target, name, had_ended=had_ended)
        return
    jobs = answer["jobs"]
    what = f"{jobs} job{'s'[: jobs != 1]} of group {group!r} cancelled"
    _say(name, f"{answer['state']}: {what if jobs else f'no job of group {group!r} was active'}")


def _say_left(target: Target, name: str, *, had_ended: bool) -> None:
    """Print what an ensemble that was just cancelled did not run, if that is known.

    Or, of one that had ended before, what can be done about it.
    """
    # It is cancelled, whatever becomes of a further request.
    with suppress(EnsembleError):
        status, command = target.status(name)["ensembles"][0], target.command
        for sentence in [ways_on(status, command)] if had_ended else left(status, command):
            say(sentence)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("rule", shell_complete=completion.rules)
@targeted
def enable(name: str, rule: str, target: Target) -> None:
    """Turn rule RULE of ensemble NAME on."""
    _set_rule(target, name, rule, enabled=True)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("rule", shell_complete=completion.rules)
@targeted
def disable(name: str, rule: str, target: Target) -> None:
    """Turn rule RULE of ensemble NAME off: it does not fire until it is enabled."""
    _set_rule(target, name, rule, enabled=False)


def _set_rule(target: Target, name: str, rule: str, *, enabled: bool) -> None:
    with naming(target, name, rule=rule):
        target.set_rule(name, rule, enabled=enabled)
    _say(name, f"rule {rule} {'enabled' if enabled else 'disabled'}")


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("action", type=Mapped())
@targeted
def action(name: str, action: dict[str, Any], target: Target) -> None:
    """Perform ACTION in ensemble NAME now, and print the ids of jobs that it submits.

    ACTION is written as in a document: '{name: submit, label: echo, count: 2}'.
    """
    with naming(target, name):
        done = target.action(name, action)
    _print_ids(JobIds(done), target)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.option("--force", is_flag=True, help="Also a local run that was killed and could go on.")
@targeted
def unload(name: str, force: bool, target: Target) -> None:
    """Forget ensemble NAME, which has ended, with its log, as "rm" does.

    Of a local run the output of its jobs is removed, too, where the document names no file for it.
    """
    _remove(target, name, force=force)
    _say(name, "unloaded")


@click.command
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Also a local run that was interrupted.")
@targeted
def rm(names: tuple[str, ...], force: bool, target: Target) -> None:
    """Remove ensembles that have ended, each with its log and the output that was kept of its jobs.

    Files that a document names are left alone.
    """
    for name in dict.fromkeys(names):
        _remove(target, name, force=force)
        _say(name, "removed")


def _remove(target: Target, name: str, *, force: bool) -> None:
    if isinstance(target, LocalClient):
        target.unload(name, force=force)
    elif force:
        raise Failure("--force is for local runs: add --queue local", USAGE)
    else:
        with naming(target, name):
            target.unload(name)


def _print_ids(ids: Sequence[int], target: Target) -> None:
    for name in submitted_names(ids, target.label):
        click.echo(name)
    if waiting := waiting_text(ids):
        click.echo(waiting, err=True)


def _say(name: str, what: str) -> None:
    click.echo(f"{name}: {what}")


COMMANDS = (submit, pause, resume, terminate, cancel, enable, disable, action, rm, unload)
