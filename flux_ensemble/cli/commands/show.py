"""The commands that display ensembles: list, status, metrics, why."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.cli.common import EXIT_CODES, naming, say
from flux_ensemble.cli.display.formats import Output, print_json, table_options
from flux_ensemble.cli.display.tables import (
    BESTS,
    ENSEMBLES,
    GROUPS,
    MEMBERS,
    RULES,
    best_rows,
    ensemble_row,
    group_rows,
    member_rows,
    rule_row,
)
from flux_ensemble.cli.display.troubles import left
from flux_ensemble.cli.prose import fitted
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.target import targeted
from flux_ensemble.queues.local.client import summary_of
from flux_ensemble.results.hosts import Target
from flux_ensemble.texts import hanging
from flux_ensemble.words import STATE_STYLES, all_undone, counted, shown_state

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus, Status, Summary

#: The most reasons that follow a table without room for them.
_MOST_REASONS = 5


class EnsembleStates(click.ParamType):
    """Names of states of ensembles, separated by commas."""

    name = "states"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        names = str(value).split(",")
        for name in names:
            if name not in STATE_STYLES:
                from flux_ensemble.suggestions import hint

                known = ", ".join(STATE_STYLES)
                near = hint(name, STATE_STYLES)
                self.fail(f"no such state: {name!r} ({near}states: {known})", param, ctx)
        return frozenset(names)


@click.command("list")
@click.option(
    "-f",
    "--filter",
    "states",
    type=EnsembleStates(),
    metavar="STATE,...",
    help=f"Only ensembles in these states: {', '.join(STATE_STYLES)}.",
)
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="The latest N ensembles (default: all).",
)
@table_options(ENSEMBLES)
@targeted
def list_ensembles(
    states: frozenset[str] | None, count: int, output: Output, target: Target
) -> None:
    """List the ensembles that the service holds, ended ones included, the latest at the end."""
    ensembles = [one for one in target.list() if states is None or shown_state(one) in states]
    ensembles = ensembles[-count:]
    if output.as_json:
        print_json({"ensembles": ensembles})
    else:
        _print_ensembles(ensembles, output)


def _print_ensembles(summaries: Sequence[Summary], output: Output) -> None:
    """Print a table; what it has no column for follows: results that a crash undid, and reasons.

    Reasons follow if there is no room for them, but for those of every day.
    """
    now = time.time()
    rows = [ensemble_row(summary, now) for summary in summaries]
    narrow = output.show(ENSEMBLES, rows)
    if not output.is_default:
        return
    told: list[tuple[str, str]] = []
    for row, summary in zip(rows, summaries, strict=True):
        if narrow and row["reason"] and row["state"] not in ("running", "completed"):
            told.append((row["name"], row["reason"]))
        told += [(row["name"], text) for text in all_undone(summary)]
    for number, (name, text) in enumerate(told[-_MOST_REASONS:]):
        click.echo("\n" * (not number) + fitted(hanging(f"{name}: {text}")))


@click.command
@click.argument("name", required=False, shell_complete=completion.ensembles)
@table_options(ENSEMBLES, GROUPS)
@targeted
def status(name: str | None, output: Output, target: Target) -> None:
    """Show the service, the nodes and the queue, and the ensembles; or ensemble NAME.

    With NAME also its job groups, its rules, and the errors of its custom functions; on a terminal
    there are bars, with the time that has passed and the time that is left, at the rate so far, or
    as predicted where a group has "predict". With -o only the table of ensembles is printed, or
    with NAME that of the job groups.
    """
    answer: Any
    if name is None:
        answer = target.status()
    else:
        with naming(target, name):
            answer = target.status(name)
    if output.as_json:
        print_json(answer)
        return
    if output.is_default and "service" in answer:
        _print_service(answer)
    if output.is_default:
        unreadable = answer.get("service", answer).get("unreadable", {})
        for one, why in unreadable.items():
            click.echo(fitted(f"unreadable {hanging(one)}: {hanging(why)}"))
    if name is None:
        ensembles = answer["ensembles"]
        _print_ensembles([summary_of(one) for one in ensembles], output)
        return
    from flux_ensemble.cli.display.progress import is_terminal, show_progress
    from flux_ensemble.words import in_words

    ensemble = answer["ensembles"][0]
    if output.is_default:
        _print_ensembles([summary_of(ensemble)], output)
        click.echo()
        if is_terminal():
            show_progress(ensemble)
        elif "t_predicted" in ensemble:
            rest = in_words(ensemble["t_predicted"] - time.time())
            click.echo(f"{rest} left as predicted\n")
    output.show(GROUPS, group_rows(ensemble))
    if output.is_default:
        _print_best(ensemble, target, output.no_header)
        waits = [wait["text"] for wait in ensemble.get("waits", ())]
        for text in [*waits, *left(ensemble, target.command)]:
            click.echo(f"\n{fitted(hanging(text))}")
        members = member_rows(ensemble, time.time())
        if members:
            click.echo()
            MEMBERS.show(members, no_header=output.no_header)
        _print_rules(ensemble, output.no_header)


def _print_best(status: EnsembleStatus, target: Target, no_header: bool) -> None:
    bests = best_rows(status, target.label)
    if bests:
        click.echo()
        BESTS.show(bests, no_header=no_header)


def _print_service(answer: Status) -> None:
    from flux_ensemble.cli.display.plain_tables import fsd

    service, nodes, queue = answer["service"], answer["nodes"], answer["queue"]
    words = f"flux-ensemble {service['version']}"
    if "pid" in service:  # guests see the version only
        words += (
            f", {service['mode']} (pid {service['pid']}), Python {service['python']}, "
            f"up {fsd(time.time() - service['t_start'])}, {service['events']} events, "
            f"{counted(service['firings'], 'firing')}"
        )
    if service.get("state", "ready") != "ready":
        words += f", {service['state']}"
    click.echo(fitted(f"service: {words}"))
    for name, far in service.get("recovering", {}).items():
        click.echo(fitted(f"recovering {hanging(name)}: {far}"))
    click.echo(
        f"nodes:   {nodes['node_up_count']} up, {nodes['node_free_count']} free; "
        f"cores: {nodes['node_cores_up']} up, {nodes['node_cores_free']} free"
    )
    click.echo("queue:   " + ", ".join(f"{count} {state}" for state, count in queue.items()))
    if "instance" in answer:
        for line in _scaling(answer["instance"]):
            click.echo(fitted(f"scaling: {line}"))
    click.echo()


def _scaling(instance: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about how the instance changes its nodes."""
    scaler = instance["scaler"]
    if scaler is None:
        return
    to = scaler["changing_to"]
    size = "unknown" if instance["nodes"] is None else counted(instance["nodes"], "node")
    yield (
        f"{size}, {scaler['low']} to {scaler['high']} possible"
        + (f", changing to {to}" if to is not None else "")
        + _granted(scaler, instance["nodes"])
        + f" ({scaler['kind']})"
    )
    for request in instance["requests"]:
        firing = f"{request['rule']} #{request['firing']}"
        yield f"{request['ensemble']}: {firing} asks for a size of {request['to']}"
    if scaler["trouble"] is not None:
        yield scaler["trouble"]
    if instance["failure"] is not None:
        yield f"failed: {instance['failure']}"
    if scaler.get("t_expires") is not None:
        left = scaler["t_expires"] - time.time()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(scaler["t_expires"]))
        yield f"the certificate {'expires' if left > 0 else 'has expired'} at {when}"


def _granted(scaler: Mapping[str, Any], size: int | None) -> str:
    """Return the granted size of the MiniCluster, if it differs from the one in use."""
    granted = scaler.get("granted")
    return "" if granted in (None, size) else f", {granted} granted"


def _print_rules(status: EnsembleStatus, no_header: bool) -> None:
    rules = status.get("rules", [])
    if rules:
        click.echo()
        RULES.show([rule_row(rule) for rule in rules], no_header=no_header)
    wrong = [f"{rule['id']}: {rule['error']}" for rule in rules if rule["error"]]
    wrong += [one["trouble"] for one in status.get("searches", ()) if one["trouble"]]
    for text in [*wrong, *status.get("errors", [])]:
        click.echo()
        click.echo(fitted(hanging(text)))


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@table_options()
@targeted
def metrics(name: str, output: Output, target: Target) -> None:
    """Show the statistics of every job group and variable of ensemble NAME."""
    from flux_ensemble.cli.display.metrics_tables import metrics_table
    from flux_ensemble.metrics.statistics import ESTIMATED, ESTIMATES
    from flux_ensemble.results.statistics import metrics_rows

    with naming(target, name):
        answer = target.metrics(name)
    if output.as_json:
        print_json(answer)
    else:
        (ensemble,) = target.status(name)["ensembles"]
        units = ensemble.get("units", {})
        table = metrics_table(answer, units=bool(units))
        output.show(table, metrics_rows(answer, units))
        if output.is_default and not table.headings.keys().isdisjoint(ESTIMATED):
            say(ESTIMATES)
        if output.is_default and ("best" in answer or "search" in answer):
            _print_best(ensemble, target, output.no_header)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("rule", required=False, shell_complete=completion.rules)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@targeted
def why(name: str, rule: str | None, as_json: bool, target: Target) -> None:
    """Show why the rules of ensemble NAME, or RULE alone, fire or do not.

    For each rule: how often it has fired, each term of its condition with the values now, what it
    waits for, and why it cannot fire any more, if that is so. Of an ensemble that has ended: how
    and why it did, and which rules never fired.
    """
    from flux_ensemble.cli.display.reasons import ending, reasons

    with naming(target, name, rule=rule):
        answer: Any = target.why(name, rule)
    if as_json:
        print_json(answer)
        return
    ended = answer["state"] in EXIT_CODES
    if ended:
        for line in ending(name, answer):
            click.echo(fitted(line))
        if rule is None and answer["state"] != "completed":
            with naming(target, name):
                (ensemble,) = target.status(name)["ensembles"]
            for text in left(ensemble, target.command):
                click.echo(fitted(hanging(text)))
        click.echo()
    elif answer["state"] != "running":
        click.echo(fitted(f"{name} is {answer['state']}: {hanging(answer['reason'])}\n"))
    for wait in answer.get("waits", ()):
        click.echo(fitted(f"{hanging(wait['text'])}\n"))
    for line in reasons(answer, ended=ended):
        click.echo(fitted(line))


COMMANDS = (list_ensembles, status, metrics, why)
