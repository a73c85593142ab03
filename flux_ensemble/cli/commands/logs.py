"""The commands that read an ensemble's eventlog: log, and wait, which waits for its end."""

from __future__ import annotations

import errno
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble import eventlog
from flux_ensemble.cli.common import (
    CANCELED,
    EXIT_CODES,
    FAILED,
    OK,
    TIMED_OUT,
    Duration,
    Failure,
    Since,
    drop_output,
    print_error,
)
from flux_ensemble.cli.display.formats import print_json
from flux_ensemble.cli.display.troubles import FAIL_ON_OPTION, exit_code
from flux_ensemble.cli.display.views import make_lines
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.log_reader import LogReader
from flux_ensemble.cli.session.target import targeted
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.client.reconnect import Received
from flux_ensemble.client.troubles import sentence
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.results.hosts import Target
from flux_ensemble.results.log_lines import explain, explain_several
from flux_ensemble.words import STATE_STYLES, Line, Span

if TYPE_CHECKING:
    from flux_ensemble.client.responses import Ended, Entry


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.option("--follow", "-f", is_flag=True, help="Go on with new entries until its end.")
@click.option(
    "--rule", shell_complete=completion.rules, metavar="RULE", help="Only what is about this rule."
)
@click.option(
    "--group",
    shell_complete=completion.groups,
    metavar="GROUP",
    help="Only what is about this job group.",
)
@click.option(
    "--since", type=Since(), metavar="WHEN", help="Only since then: 10m (ago), or a date."
)
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N of these entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print each entry as a line of JSON.")
@targeted
def log(
    name: str,
    follow: bool,
    rule: str | None,
    group: str | None,
    since: float | None,
    tail: int | None,
    as_json: bool,
    target: Target,
) -> int:
    """Print what ensemble NAME did: when, what, why, and how it went."""
    wanted = _Wanted(rule, group, -math.inf if since is None else since)
    printer = _Printer(wanted, tail, as_json, follow, target.label)
    try:
        if isinstance(target, LocalClient):
            _read_local(target, name, follow, printer)
        else:
            _read(target, name, follow, printer)
    finally:
        printer.go_on()
    if not printer.shown:
        _check_names(target, name, rule, group)
    if follow and (status := target.interrupted(name)) is not None:
        raise Failure(f"{name}: {status['reason']}")
    return OK


@dataclass(frozen=True)
class _Wanted:
    """The choice of entries that `log` prints."""

    rule: str | None
    group: str | None
    t_first: float

    def __call__(self, entry: Entry) -> bool:
        if entry["timestamp"] < self.t_first:
            return False
        read = eventlog.read(entry)
        return (self.rule is None or self.rule == getattr(read, "rule", None)) and (
            self.group is None or self.group in read.job_groups
        )


class _Printer:
    """Prints the wanted entries.

    Args:
        wanted: the choice of entries.
        tail: how many of the entries before `go_on` are printed; None is all.
        as_json: print them as JSON.
        follow: each entry is printed at once, so that none waits for others to be joined with.
        label: returns the text of a job id.

    Attributes:
        shown: number of entries printed.
    """

    def __init__(
        self,
        wanted: _Wanted,
        tail: int | None,
        as_json: bool,
        follow: bool,
        label: Callable[[int], str],
    ) -> None:
        self._wanted = wanted
        self._kept: deque[Entry] | None = None if tail is None else deque(maxlen=tail)
        self._as_json = as_json
        self._label = label
        self._line = make_lines()
        self._t_start: float | None = None
        self._together: _Together | None = None if as_json or follow else _Together()
        self.shown = 0

    @property
    def keeps(self) -> bool:
        """Entries are held back."""
        return self._kept is not None

    def take(self, entry: Entry) -> None:
        """Process the next entry."""
        if self._t_start is None:
            self._t_start = entry["timestamp"]
        if not self._wanted(entry):
            return
        self.shown += 1
        if self._kept is None:
            self._show(entry, self._t_start)
        else:
            self._kept.append(entry)

    def go_on(self) -> None:
        """Print the entries held back; entries from now on are new."""
        kept, self._kept = self._kept, None
        for entry in kept or ():
            self._show(entry, self._t_start or 0.0)
        if self._together is not None:
            self._print_kept(self._together, self._t_start or 0.0)

    def _show(self, entry: Entry, t_start: float) -> None:
        if self._as_json:
            print_json(entry)
        elif self._together is None:
            self._line(explain(entry, t_start, self._label))
        elif not self._together.takes(entry):
            self._print_kept(self._together, t_start)
            if not self._together.takes(entry):
                self._line(explain(entry, t_start, self._label))

    def _print_kept(self, together: _Together, t_start: float) -> None:
        for line in together.lines(t_start, self._label):
            self._line(line)


class _Together:
    """Entries of jobs that were interrupted at once, which are printed as one line.

    The end of an allocation, or of a member, interrupts all jobs that run there. Each job has an
    entry about that, another one when it runs again, and one about the submission.
    """

    def __init__(self) -> None:
        #: Entries that differ only in their jobs, by what is alike: each as stored, and as read.
        self._alike: dict[tuple[Any, ...], list[tuple[Entry, eventlog.Interrupted]]] = {}
        #: The entries about the retry of a job, by the job; [] before they arrive.
        self._retries: dict[tuple[Any, ...], list[Entry]] = {}
        #: The same, by the number of the retry, before its outcome arrives.
        self._begun: dict[int, list[Entry]] = {}

    def takes(self, entry: Entry) -> bool:
        """Keep an entry if it is about interrupted jobs; return True if it was kept."""
        match read := eventlog.read(entry):
            case eventlog.Interrupted() if (job := _job_of(read)) not in self._retries:
                alike = read.group, read.member, read.reason, read.fate
                self._alike.setdefault(alike, []).append((entry, read))
                self._retries[job] = []
                return True
            case eventlog.Retry() if (known := self._retries.get(_job_of(read))) == []:
                known.append(entry)
                self._begun[read.retry] = known
                return True
            case eventlog.Outcome(rule="retry", firing=int(number), ok=True):  # RETRY_RULE
                if (known := self._begun.pop(number, None)) is not None:
                    known.append(entry)
                    return True
        return False

    def lines(self, t_start: float, jobid: eventlog.JobId) -> Iterator[Line]:
        """Yield the lines of the kept entries, and keep none any more."""
        alike, retries = self._alike, self._retries
        self._alike, self._retries, self._begun = {}, {}, {}
        for entries in alike.values():
            stored, first = entries[0]
            if len(entries) > 1:
                yield explain_several(stored, [entry for _, entry in entries], t_start)
                continue
            for entry in (stored, *retries[_job_of(first)]):
                yield explain(entry, t_start, jobid)


def _job_of(entry: eventlog.Interrupted | eventlog.Retry) -> tuple[Any, ...]:
    return entry.rule, entry.firing, entry.index


def _read(client: Client, name: str, follow: bool, printer: _Printer) -> None:
    received = Received()

    def take(_name: str, entry: Entry) -> bool:
        if received.take(entry):
            printer.take(entry)
        return False

    kept = printer.keeps
    if kept:
        LogReader(client, [name], take, follow=False).read()
        printer.go_on()
        received.begin_again()
    if follow or not kept:
        LogReader(client, [name], take, follow=follow).read()


def _read_local(local: LocalClient, name: str, follow: bool, printer: _Printer) -> None:
    entries = local.follow(name) if follow else local.log(name)
    for number, entry in enumerate(entries, start=1):
        if entry is None:
            printer.go_on()
            continue
        try:
            printer.take(entry)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise Failure(f"entry {number} of the log of {name!r} is none of ours") from None


def _check_names(target: Target, name: str, rule: str | None, group: str | None) -> None:
    """Refuse a filter by a rule or group that the ensemble does not have.

    Raises:
        EnsembleError: it has no such rule, or no such job group.
    """
    from flux_ensemble.suggestions import hint
    from flux_ensemble.texts import listed

    (status,) = target.status(name)["ensembles"]
    for what, plural, given, known in (
        ("rule with id", "rules", rule, [one["id"] for one in status.get("rules", ())]),
        ("job group named", "groups", group, list(status.get("groups", ()))),
    ):
        if given is not None and given not in known:
            names = f"{hint(given, known)}{plural}: {listed(known)}"
            raise EnsembleError(errno.ENOENT, f"no {what} {given!r} ({names})")


@click.command
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME...",
    shell_complete=completion.ensembles,
)
@click.option(
    "--timeout",
    type=Duration(),
    default=0.0,
    metavar="DURATION",
    help="Wait no longer than so long (30s, 2m, 1.5h), and exit 124.",
)
@FAIL_ON_OPTION
@targeted
def wait(names: tuple[str, ...], timeout: float, fail_on: frozenset[str], target: Target) -> int:
    """Wait until each ensemble NAME has ended, and exit as the worst of them did."""
    waiting = _Waiting(names)
    if isinstance(target, LocalClient):
        in_time = _wait_local(target, waiting, timeout)
    else:
        in_time = LogReader(target, list(waiting.left), waiting.note, follow=True).read(timeout)
    left = " and ".join(map(repr, waiting.left))
    if not in_time:
        print_error(f"the time is up and {left} had not ended")
        return TIMED_OUT
    if left:
        raise Failure(f"{left} was unloaded before it ended")
    codes = set()
    for ensemble in waiting.ended:
        name = ensemble["name"]
        try:
            (status,) = target.status(name)["ensembles"]
        except EnsembleError as exc:
            # The ensemble has ended, so the result stays valid without this.
            print_error(f"{exc}: what went wrong in {name!r} is not known")
            codes.add(EXIT_CODES[ensemble["state"]] or (FAILED if fail_on else OK))
            continue
        if trouble := sentence(status):
            waiting.line((Span(f"{name}: {trouble}", "bad"),))
        codes.add(exit_code(ensemble["state"], status, fail_on))
    return next((code for code in (FAILED, CANCELED) if code in codes), OK)


class _Waiting:
    """The ensembles that are waited for.

    Attributes:
        left: those that have not ended, in order.
        ended: the others.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.left = dict.fromkeys(names)
        self.ended: list[Ended] = []
        self._line = make_lines()

    def note(self, name: str, entry: Entry) -> bool:
        """Process an entry of a log; return True if it ends the ensemble."""
        read = eventlog.read(entry)
        if not isinstance(read, eventlog.Finish) or read.reopened:
            return False
        self.end(name, read.state, read.reason)
        return True

    def end(self, name: str, state: str, reason: str) -> None:
        """Note that an ensemble has ended, and print that."""
        self.ended.append({"name": name, "state": state, "reason": reason})
        del self.left[name]
        self.line(
            (Span(f"{name}: "), Span(state, STATE_STYLES.get(state, "")), Span(f": {reason}"))
        )

    def line(self, line: Line) -> None:
        """Print a line, if anybody reads it: the exit code has the same information."""
        try:
            self._line(line)
        except BrokenPipeError:
            drop_output()


def _wait_local(local: LocalClient, waiting: _Waiting, timeout: float) -> bool:
    """Wait for local runs; return False if the time is up."""
    give_up = time.monotonic() + timeout
    for name in list(waiting.left):
        try:
            ended = local.wait(name, give_up - time.monotonic() if timeout else None)
        except TimeoutError:
            return False
        waiting.end(**ended)
    return True


COMMANDS = (log, wait)
