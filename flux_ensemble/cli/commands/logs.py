"""The commands that read an ensemble's eventlog: log, and wait, which waits for its end."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from flux_ensemble.cli.common import (
    CANCELED,
    FAILED,
    OK,
    TIMED_OUT,
    USAGE,
    Duration,
    Failure,
    complain,
    job_id,
    naming,
    run_reactor,
    signals,
)
from flux_ensemble.cli.display.messages import STATE_STYLES, Span, explain
from flux_ensemble.cli.display.tables import print_json
from flux_ensemble.cli.display.views import make_lines
from flux_ensemble.cli.session.reconnect import Absence
from flux_ensemble.cli.session.target import LocalStates, member_options, reach
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.client import given_up, log_failure
from flux_ensemble.client.reconnect import LOOK_INTERVAL, LOOK_TIMEOUT, Received
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
        stream_logs(client, [name], show, follow=follow)
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
def wait(names: tuple[str, ...], timeout: float) -> int:
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

    in_time = stream_logs(client, list(left), note, follow=True, timeout=timeout)
    if not in_time:
        complain(f"the time is up and {' and '.join(map(repr, left))} had not ended")
        return TIMED_OUT
    if left:
        raise Failure(f"{' and '.join(map(repr, left))} was unloaded before it ended")
    states = {one["state"] for one in ended}
    if "failed" in states:
        return FAILED
    return CANCELED if "canceled" in states else OK


def stream_logs(
    client: Client,
    names: Collection[str],
    on_entry: Callable[[str, Entry], bool],
    *,
    follow: bool,
    timeout: float = 0.0,
) -> bool:
    """Reads the logs of some ensembles at the same time.

    Args:
        client: a client whose handle nothing else runs a reactor on.
        names: the ensembles.
        on_entry: called with a name and an entry; True if no more of that log is wanted.
        follow: go on with new entries until an ensemble's end.
        timeout: seconds to go on at most; 0 is no limit.

    Returns:
        Whether every log was read to its end, or as far as wanted, in time.

    Raises:
        EnsembleError: a request failed.
        KeyboardInterrupt: the user does not want to wait any longer.
    """
    handle = client.handle
    reading = dict.fromkeys(names)
    received = {name: Received() for name in names}
    numbers = dict.fromkeys(names, 0)
    looking = interrupted = False
    refused: list[tuple[str, OSError]] = []

    def look(*_: Any) -> None:
        nonlocal looking
        if not looking and not absence.lasts:
            looking = True
            future = client.send("status", {"name": next(iter(reading))})
            future.then(looked, timeout=LOOK_TIMEOUT)

    def looked(future: Any) -> None:
        nonlocal looking
        looking = False
        try:
            service = future.get()["service"]
        except OSError as exc:
            if reading and all(received[name].waits_after(exc) for name in reading):
                absence.begin()
        else:
            absence.heard(service)

    def begin(name: str) -> None:
        numbers[name] += 1
        request = {"name": name, "follow": follow, "skip": received[name].count or None}
        client.send("log", request, stream=True).then(take, name, numbers[name])

    def take(future: Any, name: str, number: int) -> None:
        if number != numbers[name]:
            return  # of a log that has been asked for once more
        try:
            entry = future.get()
        except OSError as exc:
            if follow and name in reading and received[name].waits_after(exc):
                absence.begin()
                return
            if exc.errno != errno.ENODATA:
                refused.append((name, exc))
            reading.pop(name, None)
        else:
            # Also of a log of which no more is wanted: it would come again otherwise.
            future.reset()
            if name in reading and received[name].take(entry) and on_entry(name, entry):
                del reading[name]
        stop_if_done()

    def stop_if_done() -> None:
        if refused or not reading:
            handle.reactor_stop()

    def back() -> None:
        for name in reading:
            received[name].begin_again()
            begin(name)

    def give_up(error: EnsembleError | None) -> None:
        refused.append((next(iter(reading)), error or given_up(*reading)))
        stop_if_done()

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        handle.reactor_stop()

    absence = Absence(client, back=back, given_up=give_up)
    with ExitStack() as stack:
        stack.enter_context(signals(handle, (signal.SIGINT,), interrupt))
        stack.callback(absence.end)
        if timeout:
            stack.enter_context(
                handle.timer_watcher_create(timeout, lambda *_: handle.reactor_stop())
            )
        for name in names:
            begin(name)
        if follow:
            stack.enter_context(handle.timer_watcher_create(LOOK_INTERVAL, look, LOOK_INTERVAL))
            look()
        run_reactor(handle)
    if interrupted:
        raise KeyboardInterrupt
    for name, exc in refused:
        error = log_failure(exc, name, received[name])
        if received[name].count:
            raise error from exc
        with naming(client, name):
            raise error from exc
    return not reading


COMMANDS = (log, wait)
