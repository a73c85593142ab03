"""The commands that read an ensemble's eventlog: log, and wait, which waits for its end."""

from __future__ import annotations

from pathlib import Path

import click

from flux_ensemble.cli.common import (
    CANCELED,
    FAILED,
    OK,
    TIMED_OUT,
    USAGE,
    Duration,
    Failure,
    job_id,
    print_error,
)
from flux_ensemble.cli.display.formats import print_json
from flux_ensemble.cli.display.messages import STATE_STYLES, Span, explain
from flux_ensemble.cli.display.troubles import FAIL_ON_OPTION, fails, sentence
from flux_ensemble.cli.display.views import make_lines
from flux_ensemble.cli.session.log_reader import LogReader
from flux_ensemble.cli.session.target import LocalStates, member_options, reach
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.responses import Ended, Entry


@click.command
@click.argument("name")
@click.option("--follow", "-f", is_flag=True, help="Go on with new entries until its end.")
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a line of JSON.")
@member_options
def log(name: str, follow: bool, as_json: bool, member: str | None, state_dir: Path | None) -> None:
    """Print what ensemble NAME did: when, what, why, and how it went."""
    client = reach(Client, member, state_dir)
    line = make_lines()
    jobid = str if isinstance(client, LocalStates) else job_id
    t_start: float | None = None

    def show(_name: str, entry: Entry) -> bool:
        nonlocal t_start
        if t_start is None:
            t_start = entry["timestamp"]
        if as_json:
            print_json(entry)
        else:
            line(explain(entry, t_start, jobid))
        return False

    if not isinstance(client, LocalStates):
        LogReader(client, [name], show, follow=follow).read()
    elif follow:
        raise Failure("--follow is for Flux: a local run follows itself", USAGE)
    else:
        for number, entry in enumerate(client.log(name), start=1):
            try:
                show(name, entry)
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
                raise Failure(f"entry {number} of the log of {name!r} is none of ours") from None


@click.command
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--timeout",
    type=Duration(),
    default=0.0,
    metavar="DURATION",
    help="Wait no longer than so long (30s, 2m, 1.5h), and exit 124.",
)
@FAIL_ON_OPTION
def wait(names: tuple[str, ...], timeout: float, fail_on: frozenset[str]) -> int:
    """Wait until each ensemble NAME has ended, and exit as the worst of them did."""
    client = Client()
    line = make_lines()
    left = dict.fromkeys(names)
    ended: list[Ended] = []

    def note(name: str, entry: Entry) -> bool:
        if entry["name"] != "finish":
            return False
        context = entry["context"]
        ended.append({"name": name, "state": context["state"], "reason": context["reason"]})
        del left[name]
        style = STATE_STYLES.get(context["state"], "")
        line((Span(f"{name}: "), Span(context["state"], style), Span(f": {context['reason']}")))
        return True

    in_time = LogReader(client, list(left), note, follow=True).read(timeout)
    if not in_time:
        print_error(f"the time is up and {' and '.join(map(repr, left))} had not ended")
        return TIMED_OUT
    if left:
        raise Failure(f"{' and '.join(map(repr, left))} was unloaded before it ended")
    states = {ensemble["state"] for ensemble in ended}
    wrong = False
    for ensemble in ended:
        name = ensemble["name"]
        try:
            (status,) = client.status(name)["ensembles"]
        except EnsembleError as exc:
            # It has ended, so nothing is at stake any more.
            print_error(f"{exc}: what went wrong in {name!r} is not known")
            wrong = wrong or bool(fail_on)
            continue
        if trouble := sentence(status):
            line((Span(f"{name}: {trouble}", "bad"),))
        wrong = wrong or fails(status, fail_on)
    if "failed" in states or wrong:
        return FAILED
    return CANCELED if "canceled" in states else OK


COMMANDS = (log, wait)
