"""The commands on the jobs of an ensemble: jobs, failures, output, export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flux_ensemble.cli.common import FILE, USAGE, Failure, naming, print_error
from flux_ensemble.cli.display.formats import Output, print_json, table_options
from flux_ensemble.cli.display.jobs_table import job_row, jobs_table
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.job_choice import named_jobs
from flux_ensemble.cli.session.target import (
    LocalStates,
    Target,
    command_of,
    label_of,
    targeted,
)
from flux_ensemble.engine.job_keys import shown
from flux_ensemble.report.texts import plural
from flux_ensemble.texts import printable

if TYPE_CHECKING:
    from flux_ensemble.cli.display.failures import Failures, Kind
    from flux_ensemble.cli.session.job_output import Outputs

#: How a job can end.
OUTCOMES = ("success", "failed", "canceled", "timeout", "interrupted")


#: Places that are shown of the jobs of a kind.
MOST_RANKS = 5

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Choice:
    """Which jobs: the options `--filter`, `--group` and `--outcome`."""

    filter: str | None = None
    group: str | None = None
    outcome: str | None = None


def choice_options(command: _Command) -> Callable[..., Any]:
    """Adds `--filter`, `--group` and `--outcome`, and gives the command a `Choice` as `choice`."""

    @wraps(command)
    def choosing(
        *, text: str | None, group: str | None, outcome: str | None, **options: Any
    ) -> Any:
        return command(choice=Choice(text, group, outcome), **options)

    made: Callable[..., Any] = choosing
    for option in (
        click.option("--outcome", type=click.Choice(OUTCOMES), help="Only jobs that ended so."),
        click.option(
            "--group",
            shell_complete=completion.groups,
            metavar="GROUP",
            help="Only jobs of this job group.",
        ),
        click.option(
            "--filter",
            "text",
            metavar="EXPRESSION",
            help="Only jobs for which it holds, such as "
            '"job.returncode != 0 and job.params.t > 300".',
        ),
    ):
        made = option(made)
    return made


@contextmanager
def chosen(target: Target, name: str, choice: Choice) -> Iterator[Iterable[Any]]:
    """The chosen jobs of an ensemble; it is said if the record had no room for some."""
    if isinstance(target, LocalStates):
        yield target.jobs(name, **asdict(choice))
        return
    found = target.jobs(name, **asdict(choice))
    with naming(target, name, choice.group):
        yield found
    if found.dropped:
        print_error(f"{found.dropped} jobs are not in the record: it is full (limits.records)")


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("which", nargs=-1, metavar="[JOB]...")
@choice_options
@table_options(jobs_table("default"))
@targeted
def jobs(name: str, which: tuple[str, ...], choice: Choice, output: Output, target: Target) -> None:
    """Show the jobs of ensemble NAME: those that have ended in that order, then active ones.

    Or each JOB, by its id, after its member and a colon where there are members. In a format and in
    a filter, parameters are params.NAME and keys of memos memo.NAME.
    """
    if which and choice != Choice():
        raise Failure("name jobs, or choose them by options, not both", USAGE)
    if which:
        with naming(target, name):
            rows = list(named_jobs(target, name, which))
    else:
        with chosen(target, name, choice) as found:
            rows = list(found)
    if output.as_json:
        print_json({"jobs": rows})
        return
    table = jobs_table(output.fmt)
    output.show(table, [job_row(job, table, label_of(target)) for job in rows])


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("file", type=FILE, required=False)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.option(
    "--to",
    type=click.Choice(["otlp", "optuna"]),
    help="otlp: send the ensemble, its firings and its jobs as a trace to an OpenTelemetry "
    "collector. optuna: write its searches as studies of Optuna.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    help="The collector (default: $OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318).",
)
@choice_options
@targeted
def export(
    name: str,
    file: Path | None,
    force: bool,
    to: str | None,
    endpoint: str | None,
    choice: Choice,
    target: Target,
) -> None:
    """Write the jobs of ensemble NAME to FILE: .csv, .jsonl, .sqlite or .parquet.

    Parameters are columns params.NAME, and keys of memos memo.NAME. The table of a SQLite file is
    called jobs. With --to otlp, to a collector instead: what has ended, as spans of one trace.
    With --to optuna FILE has a study of each search, for optuna-dashboard: .journal or .db.
    """
    from flux_ensemble.cli.display.export import ExportError, write

    if to == "optuna":
        if file is None or choice != Choice() or endpoint is not None:
            said = "--to optuna writes all trials to a FILE: give that, and no choice of jobs"
            raise Failure(said, USAGE)
        from flux_ensemble.cli.session.studies import write_studies

        click.echo(write_studies(target, name, file, force=force))
        return
    if to is not None:
        if file is not None or choice != Choice():
            raise Failure("--to sends all of an ensemble: no FILE, and no choice of jobs", USAGE)
        from flux_ensemble.cli.session.traces import send_trace

        click.echo(send_trace(target, name, endpoint))
        return
    if file is None:
        raise Failure("expected a FILE to write, or --to otlp", USAGE)
    if endpoint is not None:
        raise Failure("--endpoint is for --to otlp", USAGE)
    with chosen(target, name, choice) as found:
        try:
            written = write(file, found, force=force)
        except ExportError as error:
            raise Failure(str(error)) from None
    click.echo(f"{written} job{'s'[: written != 1]} written to {file}")


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.option(
    "--group",
    shell_complete=completion.groups,
    metavar="GROUP",
    help="Only jobs of this job group.",
)
@targeted
def failures(name: str, group: str | None, target: Target) -> None:
    """Show why jobs of ensemble NAME failed, and what those that failed have in common.

    A value of a parameter, or a rank, is shown if it is over-represented among the failed jobs: by
    its lift, its share among them divided by that among all jobs of the group that have ended.
    """
    from flux_ensemble.cli.display.failures import Failures
    from flux_ensemble.cli.session.job_output import Outputs

    counted = Failures()
    with chosen(target, name, Choice(group=group)) as found:
        for job in found:
            if "exception" not in job:
                raise Failure("only the owner of the instance may see why jobs failed")
            counted.add(job)
    click.echo(counted.said)
    outputs = Outputs() if isinstance(target, LocalStates) else Outputs(target, name)
    for kind in counted.kinds():
        click.echo()
        for line in _about(kind, counted, name, target, outputs):
            click.echo(printable(line))


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("job")
@targeted
def output(name: str, job: str, target: Target) -> None:
    """Print what JOB of ensemble NAME wrote, of very much the end.

    JOB is as "jobs" shows it: an id, after its member and a colon where there are members. What a
    job on a member wrote into Flux is there as long as the member; files stay.
    """
    from flux_ensemble.cli.session.job_output import Outputs

    outputs = Outputs() if isinstance(target, LocalStates) else Outputs(target, name)
    with naming(target, name):
        (found,) = named_jobs(target, name, (job,))
    if "output" not in found:
        raise Failure("only the owner of the instance may see what jobs wrote")
    parts = [(title, text) for title, text in outputs.written(found) if text]
    if not parts:
        nothing = "it has written nothing that can be read from here"
        raise Failure(f"job {job}: {outputs.missing(found) or nothing}")
    for title, text in parts:
        if len(parts) > 1:
            click.echo(f"==> {title}", err=True)
        click.echo(text, nl=not text.endswith("\n"))


def _about(
    kind: Kind, counted: Failures, name: str, target: Target, outputs: Outputs
) -> Iterator[str]:
    """What is printed of a kind of failures."""
    yield f"{kind.group}: {kind.reason}: {plural(kind.jobs, counted.noun)}"
    if kind.ranks:
        most = kind.ranks.most_common(MOST_RANKS)
        more = ", ..." if len(kind.ranks) > MOST_RANKS else ""
        yield "  ranks: " + ", ".join(f"{ranks} ({jobs})" for ranks, jobs in most) + more
    for one in counted.lifts(kind):
        yield (
            f"  {one.name} = {one.value}: {one.failed:,} of {plural(one.ended, counted.noun)} "
            f"failed so (lift {one.lift:.2g})"
        )
    if note := kind.example["exception"]["note"]:
        yield f"  {note}"
    job = shown(kind.example["id"], kind.example, label_of(target))
    unshown = counted.unshown(kind.example)
    lines = [] if unshown else outputs.tail(kind.example)
    if lines:
        yield f"  job {job} wrote at last:"
        yield from (f"    {line}" for line in lines)
    elif missing := unshown or outputs.missing(kind.example):
        yield f"  job {job}: {missing}"
    see = f"{command_of(target)} jobs {name} --group {kind.group}"
    yield f"  see: {see} --filter {quote(kind.expression)}"


COMMANDS = (jobs, failures, output, export)
