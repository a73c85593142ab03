"""The command that prints the jobs of an ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flux_ensemble.cli.common import job_id, naming, print_error
from flux_ensemble.cli.display.formats import print_json, table_options
from flux_ensemble.cli.display.jobs_table import job_row, jobs_table
from flux_ensemble.cli.session.target import LocalStates, member_options, reach
from flux_ensemble.client import Client

#: How a job can end.
OUTCOMES = ("success", "failed", "canceled", "timeout")


@click.command
@click.argument("name")
@click.option(
    "--filter",
    "text",
    metavar="EXPRESSION",
    help='Only jobs for which it holds, such as "job.returncode != 0 and job.params.t > 300".',
)
@click.option("--group", metavar="GROUP", help="Only jobs of this job group.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only jobs that ended so.")
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
    dropped = 0
    if isinstance(client, LocalStates):
        found: list[Any] = list(client.jobs(name, filter=text, group=group, outcome=outcome))
    else:
        with naming(client, name, group):
            asked = client.jobs(name, filter=text, group=group, outcome=outcome)
            found = list(asked)
            dropped = asked.dropped
    if as_json:
        print_json({"jobs": found, "dropped": dropped})
        return
    table = jobs_table(fmt)
    label = str if isinstance(client, LocalStates) else job_id
    table.show([job_row(job, table, label) for job in found], fmt, no_header)
    if dropped:
        print_error(f"{dropped} jobs are not in the record: it is full (limits.records)")


COMMANDS = (jobs,)
