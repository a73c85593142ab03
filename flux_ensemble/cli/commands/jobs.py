"""The commands on the jobs of an ensemble: jobs, failures, export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flux_ensemble.cli.common import USAGE, Failure, job_id, naming, print_error
from flux_ensemble.cli.display.formats import print_json, table_options
from flux_ensemble.cli.display.jobs_table import job_row, jobs_table
from flux_ensemble.cli.session.target import LocalStates, member_options, reach
from flux_ensemble.client import Client
from flux_ensemble.texts import printable

if TYPE_CHECKING:
    from flux_ensemble.cli.display.failures import Failures, Kind

#: How a job can end.
OUTCOMES = ("success", "failed", "canceled", "timeout")


#: Places that are shown of the jobs of a kind.
MOST_RANKS = 5

_Command = TypeVar("_Command", bound=Callable[..., Any])


def choice_options(command: _Command) -> _Command:
    """The options that choose jobs: `--filter`, `--group`, `--outcome`."""
    for option in (
        click.option("--outcome", type=click.Choice(OUTCOMES), help="Only jobs that ended so."),
        click.option("--group", metavar="GROUP", help="Only jobs of this job group."),
        click.option(
            "--filter",
            "text",
            metavar="EXPRESSION",
            help="Only jobs for which it holds, such as "
            '"job.returncode != 0 and job.params.t > 300".',
        ),
    ):
        command = option(command)
    return command


@contextmanager
def chosen(
    client: Client | LocalStates,
    name: str,
    text: str | None = None,
    group: str | None = None,
    outcome: str | None = None,
) -> Iterator[Iterable[Any]]:
    """The chosen jobs of an ensemble; it is said if the record had no room for some."""
    if isinstance(client, LocalStates):
        yield client.jobs(name, filter=text, group=group, outcome=outcome)
        return
    found = client.jobs(name, filter=text, group=group, outcome=outcome)
    with naming(client, name, group):
        yield found
    if found.dropped:
        print_error(f"{found.dropped} jobs are not in the record: it is full (limits.records)")


@click.command
@click.argument("name")
@choice_options
@table_options
@member_options
def jobs(
    name: str,
    text: str | None,
    group: str | None,
    outcome: str | None,
    fmt: str,
    no_header: bool,
    as_json: bool,
    member: str | None,
    state_dir: Path | None,
) -> None:
    """Show the jobs of ensemble NAME: those that have ended in that order, then active ones.

    In a format and in a filter, parameters are params.NAME and keys of memos memo.NAME.
    """
    client = reach(Client, member, state_dir)
    with chosen(client, name, text, group, outcome) as choice:
        found = list(choice)
    if as_json:
        print_json({"jobs": found})
        return
    table = jobs_table(fmt)
    label = str if isinstance(client, LocalStates) else job_id
    table.show([job_row(job, table, label) for job in found], fmt, no_header)


@click.command
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.option(
    "--to",
    "target",
    type=click.Choice(["otlp"]),
    help="Send the ensemble, its firings and its jobs as a trace to an OpenTelemetry collector.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    help="The collector (default: $OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318).",
)
@choice_options
@member_options
def export(
    name: str,
    file: Path | None,
    force: bool,
    target: str | None,
    endpoint: str | None,
    text: str | None,
    group: str | None,
    outcome: str | None,
    member: str | None,
    state_dir: Path | None,
) -> None:
    """Write the jobs of ensemble NAME to FILE: .csv, .jsonl, .sqlite or .parquet.

    Parameters are columns params.NAME, and keys of memos memo.NAME. The table of a SQLite file is
    called jobs. With --to otlp, to a collector instead: what has ended, as spans of one trace.
    """
    from flux_ensemble.cli.display.export import ExportError, write

    client = reach(Client, member, state_dir)
    if target is not None:
        if file is not None or text or group or outcome:
            raise Failure("--to sends all of an ensemble: no FILE, and no choice of jobs", USAGE)
        from flux_ensemble.cli.session.traces import send_trace

        click.echo(send_trace(client, name, endpoint))
        return
    if file is None:
        raise Failure("expected a FILE to write, or --to otlp", USAGE)
    if endpoint is not None:
        raise Failure("--endpoint is for --to otlp", USAGE)
    with chosen(client, name, text, group, outcome) as choice:
        try:
            written = write(file, choice, force=force)
        except ExportError as error:
            raise Failure(str(error)) from None
    click.echo(f"{written} job{'s'[: written != 1]} written to {file}")


@click.command
@click.argument("name")
@click.option("--group", metavar="GROUP", help="Only jobs of this job group.")
@member_options
def failures(name: str, group: str | None, member: str | None, state_dir: Path | None) -> None:
    """Show why jobs of ensemble NAME failed, and what those that failed have in common.

    A value of a parameter, or a rank, is shown if it is over-represented among the failed jobs: by
    its lift, its share among them divided by that among all jobs of the group that have ended.
    """
    from flux_ensemble.cli.display.failures import Failures

    client = reach(Client, member, state_dir)
    counted = Failures()
    with chosen(client, name, group=group) as choice:
        for job in choice:
            if "exception" not in job:
                raise Failure("only the owner of the instance may see why jobs failed")
            counted.add(job)
    again = f"; {counted.again} ran again" if counted.again else ""
    click.echo(f"{counted.failed} of {counted.ended} jobs failed{again}")
    for kind in counted.kinds():
        click.echo()
        for line in _about(kind, counted, name, client):
            click.echo(printable(line))


def _about(kind: Kind, counted: Failures, name: str, client: Client | LocalStates) -> Iterator[str]:
    """What is printed of a kind of failures."""
    from flux_ensemble.cli.session.job_output import tail

    local = isinstance(client, LocalStates)
    label, command = (str, "flux-ensemble") if local else (job_id, "flux ensemble")
    handle = None if isinstance(client, LocalStates) else client.handle
    yield f"{kind.group}: {kind.reason}: {kind.jobs} job{'s'[: kind.jobs != 1]}"
    if kind.ranks:
        most = kind.ranks.most_common(MOST_RANKS)
        more = ", ..." if len(kind.ranks) > MOST_RANKS else ""
        yield "  ranks: " + ", ".join(f"{ranks} ({jobs})" for ranks, jobs in most) + more
    for one in counted.lifts(kind):
        yield (
            f"  {one.name} = {one.value}: {one.failed} of {one.ended} jobs failed so "
            f"(lift {one.lift:.2g})"
        )
    if note := kind.example["exception"]["note"]:
        yield f"  {note}"
    lines = tail(kind.example, handle)
    if lines:
        yield f"  job {label(kind.example['id'])} wrote at last:"
        yield from (f"    {line}" for line in lines)
    yield f"  see: {command} jobs {name} --group {kind.group} --filter {quote(kind.expression)}"


COMMANDS = (jobs, failures, export)
