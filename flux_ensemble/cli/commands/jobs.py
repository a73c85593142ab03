"""The commands on the jobs of an ensemble: jobs, failures, output, export."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import wraps
from operator import itemgetter
from typing import Any, TypeVar

import click

from flux_ensemble.cli.common import (
    FAILED,
    OK,
    USAGE,
    Failure,
    Since,
    naming,
    print_error,
    say,
)
from flux_ensemble.cli.display.formats import Output, print_json, table_options
from flux_ensemble.cli.display.jobs_table import (
    dotted_format,
    job_row,
    jobs_table,
    nested_fields,
    sorted_format,
)
from flux_ensemble.cli.prose import fitted
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.results import Export, ExportFile
from flux_ensemble.cli.session.target import targeted
from flux_ensemble.client.tables import left_out
from flux_ensemble.job_ids import shown
from flux_ensemble.metrics.job_row import dotted
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES
from flux_ensemble.queues.local.continuation import clause_of
from flux_ensemble.results.hosts import (
    Target,
    members_of,
    unknown_keys,
)
from flux_ensemble.scalars import number
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, one_line, printable
from flux_ensemble.words import counted

_Job = Mapping[str, Any]

#: Names for `-f`, as in flux-jobs(1), with expressions for the jobs.
STATES = {
    "active": 'state != "inactive"',
    "pending": 'state == "pending"',
    "running": 'state == "running"',
    "inactive": 'state == "inactive"',
    "completed": 'outcome == "success"',
    **{outcome: f'outcome == "{outcome}"' for outcome in ATTEMPT_OUTCOMES},
}

#: The beginnings of fields whose names users choose.
_NAMED = ("params.", "memo.")

#: Ids of jobs that a sentence names.
_MOST_IDS = 5

#: Default number of jobs in a table.
MOST_JOBS = 1000


_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Choice:
    """A choice of jobs: the options `--filter`, `--group`, `--outcome`, `-f` and `--since`.

    Args:
        filter: an expression over the fields of a job, or None.
        group, outcome: of the jobs, or None.
        interrupted: include earlier attempts of jobs that were interrupted or run again.
    """

    filter: str | None = None
    group: str | None = None
    outcome: str | None = None
    interrupted: bool = False


class States(click.ParamType):
    """Names of states or results, separated by commas, converted to an expression."""

    name = "states"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = str(value).split(",")
        for name in names:
            if name not in STATES:
                from flux_ensemble.suggestions import hint

                self.fail(
                    f"no such state: {name!r} ({hint(name, STATES)}states: {', '.join(STATES)})",
                    param,
                    ctx,
                )
        return " or ".join(STATES[name] for name in names)


def choice_options(command: _Command) -> Callable[..., Any]:
    """Add the options that choose jobs, and pass the command a `Choice` as `choice`."""

    @wraps(command)
    def choosing(
        *,
        text: str | None,
        group: str | None,
        outcome: str | None,
        states: str | None,
        since: float | None,
        **options: Any,
    ) -> Any:
        ended = None if since is None else f't_end >= {since:.6f} or state != "inactive"'
        parts = [part for part in (text, states, ended) if part is not None]
        whole = parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
        return command(choice=Choice(whole or None, group, outcome), **options)

    made: Callable[..., Any] = choosing
    for option in (
        click.option(
            "--since",
            type=Since(),
            metavar="WHEN",
            help="Only jobs that have ended since, and active ones: 1h (ago), or a date.",
        ),
        click.option(
            "--outcome", type=click.Choice(ATTEMPT_OUTCOMES), help="Only jobs that ended so."
        ),
        click.option(
            "-f",
            "states",
            type=States(),
            metavar="STATE,...",
            help="Only jobs in these states or with these results, as for flux-jobs(1): "
            f"{', '.join(STATES)}.",
        ),
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


#: Adds the option `--interrupted`.
_interrupted_option = click.option(
    "--interrupted",
    is_flag=True,
    help='Also earlier attempts of jobs that were interrupted, or run again by "rerun".',
)


def order_options(command: _Command) -> Callable[..., Any]:
    """Add `--sort` and `--count`, and pass the command an `Order` as `order`."""

    @wraps(command)
    def ordering(*, sort: str | None, count: int | None, **options: Any) -> Any:
        return command(order=Order(sort, count), **options)

    made: Callable[..., Any] = ordering
    for option in (
        click.option(
            "-c",
            "--count",
            "--limit",
            "count",
            type=click.IntRange(min=0),
            metavar="N",
            help="The last N jobs, with --sort the first N; 0 for all (default: all, but "
            f"{MOST_JOBS:,} in a table).",
        ),
        click.option(
            "--sort",
            metavar="FIELD,...",
            help='By these fields, such as "group,-runtime": with "-" the largest first.',
        ),
    ):
        made = option(made)
    return made


#: A comma that is not within a name in brackets.
_COMMA = re.compile(r""",(?![^"']*["']\])""")


@dataclass(frozen=True)
class Order:
    """The order and the number of jobs: the options `--sort` and `--count`.

    Args:
        sort: names of fields separated by commas, or None.
        count: number of jobs; 0 for all, None if not given.
    """

    sort: str | None = None
    count: int | None = None

    @property
    def fields(self) -> list[str]:
        """The fields that `sort` names."""
        return [key.removeprefix("-") for key in self._keys()]

    def _keys(self) -> list[str]:
        """Return the fields, with a hyphen for those whose largest values come first."""
        keys = () if self.sort is None else _COMMA.split(self.sort)
        fields = ((key.strip(), key.strip().removeprefix("-")) for key in keys)
        return [
            f"{'-' * (field != key)}{dotted(field.removeprefix('job.'))}" for key, field in fields
        ]

    def take(self, jobs: Iterable[Any], most: int = 0) -> tuple[list[Any], int]:
        """Sort jobs, and drop those beyond the number.

        Args:
            jobs: of an ensemble, in the order in which they ended.
            most: the number without `--count`; 0 for all.

        Returns:
            The remaining jobs, and the number of all.

        Raises:
            Failure: `--sort` names no field of jobs.
        """
        count = most if self.count is None else self.count
        if self.sort is None:
            kept: deque[Any] = deque(maxlen=count or None)
            total = 0
            for job in jobs:
                kept.append(job)
                total += 1
            return list(kept), total
        rows = list(jobs)
        total = len(rows)
        for key in reversed(self._keys()):
            rows = _sorted(rows, key.removeprefix("-"), reverse=key.startswith("-"))
        return rows[: count or None], total


def _sorted(rows: list[Any], field: str, *, reverse: bool) -> list[Any]:
    """Sort jobs by a field. Texts follow numbers; jobs without a value, or with NaN, come last."""
    from flux_ensemble.metrics.job_filter import value_of

    try:
        value = value_of(field)
    except ValueError as error:
        raise Failure(f"--sort: {error}", USAGE) from None
    numbers: list[tuple[Any, Any]] = []
    texts: list[tuple[Any, Any]] = []
    others: list[tuple[Any, Any]] = []
    for row in rows:
        item = number(value(row))
        is_none = item is None or item != item
        kind = others if is_none else texts if isinstance(item, str) else numbers
        kind.append((item, row))
    for kind in (numbers, texts):
        kind.sort(key=itemgetter(0), reverse=reverse)
    return [row for _, row in (*numbers, *texts, *others)]


@contextmanager
def chosen(target: Target, name: str, choice: Choice) -> Iterator[Iterable[Any]]:
    """Yield the chosen jobs of an ensemble; afterwards, report those that are missing.

    Those are interrupted attempts that are left out, and jobs that the record dropped. If there
    are none, report what the filter names and no job has.
    """
    found = target.jobs(name, **asdict(choice))
    empty = True

    def noted() -> Iterator[Any]:
        nonlocal empty
        for job in found:
            empty = False
            yield job

    with naming(target, name, choice.group):
        yield noted()
        if empty and choice.filter is not None:
            from flux_ensemble.metrics.job_filter import keys_in

            report_unknown(target, name, keys_in(choice.filter))
        _say_missing(target, name, found)


def _say_missing(target: Target, name: str, found: Any) -> None:
    """Report the jobs that are missing in a table of jobs of an ensemble that was read."""
    status = target.interrupted(name)
    if status is not None and (waiting := status["jobs"]["waiting"]):
        have = "has" if waiting == 1 else "have"
        clause = clause_of(status.get("again"))
        say(f"{counted(waiting, 'job')} {have} not ended: its run was interrupted, and {clause}")
    if number := getattr(found, "left_out", 0):
        say(left_out(number, "--interrupted"))
    if dropped := getattr(found, "dropped", 0):
        print_error(f"{dropped} jobs are not in the record: it is full (limits.records)")


def report_unknown(target: Target, name: str, fields: Collection[str]) -> None:
    """Report the parameters and keys of memos that no job of an ensemble has.

    Args:
        target: has the ensemble.
        name: of it.
        fields: such as "params.t" and "memo.loss".
    """
    for sentence in unknown_keys(fields, lambda: target.jobs(name)):
        say(sentence)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("which", nargs=-1, metavar="[JOB]...")
@choice_options
@_interrupted_option
@order_options
@table_options(jobs_table("default"))
@targeted
def jobs(
    name: str,
    which: tuple[str, ...],
    choice: Choice,
    interrupted: bool,
    order: Order,
    output: Output,
    target: Target,
) -> None:
    """Show the jobs of ensemble NAME: those that have ended in that order, then active ones.

    Or each JOB, by its id, after its member and a colon where there are members. In a format, a
    filter and --sort, parameters are params.NAME and keys of memos memo.NAME; a name with other
    characters than letters, digits and "_" is in brackets: memo["a-name"].
    """
    if which and choice != Choice():
        raise Failure("name jobs, or choose them by options, not both", USAGE)
    if which:
        if output.no_header and output.is_default and not output.as_json:
            _say_number(target, name, which)
        with naming(target, name):
            rows = list(named_jobs(target, name, which))
        _show(target, name, rows, order, output)
        return
    most = 0 if output.as_json else MOST_JOBS
    if order.count is not None:
        most = order.count
    if most and order.sort is None and choice == Choice():
        # Not all of them are read.
        with naming(target, name):
            page = target.jobs(name, interrupted=interrupted, last=most)
            rows = list(page)
        _show_last(target, name, rows, page.total, order, output)
        with naming(target, name):
            _say_missing(target, name, page)
        return
    with chosen(target, name, replace(choice, interrupted=interrupted)) as found:
        rows, total = order.take(found, most)
        _show_last(target, name, rows, total, order, output)


def _say_number(target: Target, name: str, which: tuple[str, ...]) -> None:
    """Print what shows a number of jobs, if a number follows `-n`, as it does of head(1)."""
    if len(which) == 1 and which[0].isdigit():
        so_many = target.command("jobs", name, "-c", which[0])
        say(
            f"-n leaves out the headings, so that {which[0]} is the id of a job: '{so_many}' "
            "shows so many jobs"
        )


def _show_last(
    target: Target, name: str, rows: list[Any], total: int, order: Order, output: Output
) -> None:
    """Print jobs, after a line that says how many there are besides."""
    if order.count is None and len(rows) < total:
        which_ones = "last" if order.sort is None else "first"
        say(f"the {which_ones} {len(rows):,} of {total:,} jobs; -c 0 shows all")
    _show(target, name, rows, order, output)


def _show(target: Target, name: str, rows: list[Any], order: Order, output: Output) -> None:
    """Print jobs as JSON or as a table."""
    if output.as_json:
        print_json({"jobs": rows})
        return
    if output.is_default and order.sort is not None:
        output = output._replace(fmt=sorted_format(order.fields))
    output = output._replace(fmt=dotted_format(output.fmt))
    table = jobs_table(output.fmt)
    output.show(table, [job_row(job, table, target.label) for job in rows])
    if rows:
        sorting = (field for field in order.fields if field.startswith(_NAMED))
        named = {*nested_fields(output.fmt), *sorting}
        report_unknown(target, name, {field for field in named if not _any_has(rows, field)})


def _any_has(rows: Iterable[_Job], field: str) -> bool:
    kind, _, key = field.partition(".")
    return any(key in row.get(kind, ()) for row in rows)


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("file", type=ExportFile(), required=False, metavar="[best:]FILE")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.option(
    "--raw",
    is_flag=True,
    help="Leave texts in CSV as they are that a spreadsheet would take for formulas; otherwise "
    "these get an apostrophe, which is taken off where the file is read as values of parameters.",
)
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
@_interrupted_option
@order_options
@targeted
def export(
    name: str,
    file: Export | None,
    force: bool,
    raw: bool,
    to: str | None,
    endpoint: str | None,
    choice: Choice,
    interrupted: bool,
    order: Order,
    target: Target,
) -> None:
    """Write the jobs of ensemble NAME to FILE: .csv, .json, .jsonl, .sqlite or .parquet.

    best:FILE has the best jobs only: those that "best" shows, and the best trials of searches.

    Parameters are columns params.NAME, and keys of memos memo.NAME. The table of a SQLite file is
    called jobs. With --to otlp, to a collector instead: what has ended, as spans of one trace.
    With --to optuna FILE has a study of each search, for optuna-dashboard: .journal or .db.
    """
    from flux_ensemble.results.export import ExportError, write, write_best

    choice = replace(choice, interrupted=interrupted)
    if to == "optuna":
        if file is None or (choice, order) != (Choice(), Order()) or endpoint is not None:
            said = "--to optuna writes all trials to a FILE: give that, and no choice of jobs"
            raise Failure(said, USAGE)
        from flux_ensemble.cli.session.exports import write_studies

        click.echo(write_studies(target, name, file.path, force=force))
        return
    if to is not None:
        if file is not None or (choice, order) != (Choice(), Order()):
            raise Failure("--to sends all of an ensemble: no FILE, and no choice of jobs", USAGE)
        from flux_ensemble.cli.session.exports import send_trace

        click.echo(send_trace(target, name, endpoint))
        return
    if file is None:
        raise Failure(f"expected a FILE to write, such as {name}.csv, or --to otlp", USAGE)
    if endpoint is not None:
        raise Failure("--endpoint is for --to otlp", USAGE)
    try:
        if file.best:
            if (choice, order) != (Choice(), Order()):
                raise Failure("best:FILE has all best jobs: give no choice of jobs", USAGE)
            with naming(target, name):
                written = write_best(target, name, file.path, force=force)
        else:
            with chosen(target, name, choice) as found:
                wanted = found if order == Order() else order.take(found)[0]
                written = write(file.path, wanted, force=force, raw=raw)
    except ExportError as error:
        target.status(name)  # of an unknown ensemble, the words may be in another order
        raise Failure(str(error)) from None
    noun = "best job" if file.best else "job"
    click.echo(f"{written} {noun}{'s'[: written != 1]} written to {file.path}")


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
    from flux_ensemble.results.failures import failures_of

    with chosen(target, name, Choice(group=group, interrupted=True)) as found:
        why = failures_of(target, name, found, group=group)
    for line in why.lines():
        # What jobs wrote stays as it is.
        click.echo(line if line.startswith(" " * 4) else fitted(line))


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("which", nargs=-1, metavar="[JOB]...")
@choice_options
@click.option(
    "--raw", is_flag=True, help="Print it as it is on a terminal too, with what steers one."
)
@targeted
def output(name: str, which: tuple[str, ...], choice: Choice, raw: bool, target: Target) -> int:
    """Print what each JOB of ensemble NAME wrote (the end, if it is long).

    Without JOB, print what the jobs of a group wrote (--group), or those that other options choose.
    JOB is as "jobs" shows it: an id, after its member and a colon where there are members. What a
    job on a member wrote into Flux is there as long as the member; files stay.

    On a terminal, what would steer it is escaped.
    """
    from flux_ensemble.results.job_output import Outputs

    if bool(which) == (choice != Choice()):
        raise Failure(
            "name jobs, or choose them by options such as --group or --outcome failed", USAGE
        )
    outputs = Outputs(target, name)
    label = target.label
    if which:
        with naming(target, name):
            found = list(named_jobs(target, name, which))
    else:
        with chosen(target, name, replace(choice, interrupted=True)) as those:
            found = list(those)
    if any("output" not in job for job in found):
        raise Failure("only the owner of the instance may see what jobs wrote")
    files = outputs.shared(found)
    code = OK
    for job in found:
        id = shown(job["id"], job, label)
        parts = [(title, text) for title, text in outputs.written(job) if text]
        if which and not parts:
            code = FAILED
            print_error(f"job {id}: {outputs.missing(job) or outputs.nothing(job)}")
        elif not parts and (missing := outputs.missing(job)):
            say(f"job {id}: {missing}")
        if parts and (note := files.note(job) or outputs.rewritten(job)):
            say(f"job {id}: {note}")
        for title, text in parts:
            if len(found) > 1 or len(parts) > 1:
                of_job = f"job {id}: " if len(found) > 1 else ""
                # Which job wrote what is part of a file with the output of several.
                click.echo(f"==> {of_job}{one_line(title)}", err=len(found) == 1)
            ended = text.endswith(b"\n")
            if raw or not sys.stdout.isatty():
                click.echo(text, nl=not ended)
            else:
                lines = text.decode(errors="replace").replace("\r\n", "\n")
                click.echo(printable(lines), nl=not ended)
    return code


def named_jobs(target: Target, name: str, texts: Iterable[str]) -> Iterator[_Job]:
    """Yield the jobs of an ensemble that are named.

    Args:
        target: the host that has them.
        name: the ensemble.
        texts: the jobs, each in a form of Flux (RFC 19), after the name of its member and a colon
            if the ensemble has members. Without a member a job is found if no other has its id.

    Raises:
        Failure: a job is missing or ambiguous, or a text is no name of a job.
    """
    for text in texts:
        member, _, id = text.rpartition(":")
        number = _number(target, name, id, text)
        found = [
            job
            for job in target.jobs(name, filter=f"id == {number}", interrupted=True)
            if not member or job.get("member") == member
        ]
        if len(found) == 1:
            yield found[0]
        elif found:
            label = target.label
            names = listed([shown(job["id"], job, label) for job in found])
            raise Failure(f"{len(found)} jobs have the id {id}: say which ({names})", USAGE)
        else:
            raise Failure(_unknown(target, name, member, text))


def _number(target: Target, name: str, id: str, text: str) -> int:
    try:
        return target.job_id(id)
    except ValueError:
        target.status(name)  # of an unknown ensemble, the words may be in another order
        raise Failure(
            f"expected a job such as {target.EXAMPLE}, or "
            f"pool.3:ƒ2Hu4Rn where there are members, not {text!r}",
            USAGE,
        ) from None


def _unknown(target: Target, name: str, member: str, text: str) -> str:
    """Return why there is no job of the name."""
    nothing, jobs = f"ensemble {name!r} has no job {text} in its record", []
    if member:
        (status,) = target.status(name)["ensembles"]
        if "pools" not in status:
            return f"ensemble {name!r} has no members: name a job of it by its id alone"
    jobs = list(target.jobs(name, interrupted=True))
    known = {one["name"] for one in members_of(status)} if member else set()
    known.update(job["member"] for job in jobs if member)
    if not member or member in known:
        ids = [shown(job["id"], job, target.label) for job in jobs]
        most = [*ids[:_MOST_IDS], f"and {len(ids) - _MOST_IDS:,} more"][: len(ids)]
        return f"{nothing} (jobs: {', '.join(most)})" if ids else f"{nothing}, which is empty"
    names = listed(sorted(known))
    return f"no member of {name!r} is called {member!r} ({hint(member, known)}members: {names})"


COMMANDS = (jobs, failures, output, export)
