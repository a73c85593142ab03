"""The command that predicts a run: simulate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.cli.common import (
    EXIT_CODES,
    FAILED,
    FILE,
    MOST,
    OK,
    TIMED_OUT,
    USAGE,
    Assignment,
    Duration,
    Failure,
    first_problems,
    own_cores,
    read_document,
    recorded,
    say,
    understood,
)
from flux_ensemble.cli.display.formats import print_json
from flux_ensemble.cli.display.views import make_view, summarize
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.target import here, trials_of
from flux_ensemble.document.keys.members import MAX_MEMBERS
from flux_ensemble.eventlog import MemberUp
from flux_ensemble.results.log_lines import explain
from flux_ensemble.words import Line, Span, in_words

if TYPE_CHECKING:
    from flux_ensemble.client.responses import Entry
    from flux_ensemble.document.distributions import Simulated
    from flux_ensemble.document.model import Spec
    from flux_ensemble.engine.commands import Command
    from flux_ensemble.engine.events import Event
    from flux_ensemble.queues.simulation.simulation import Prediction, Simulation
    from flux_ensemble.report.recording_source import RecordingTap
    from flux_ensemble.report.source import Source
    from flux_ensemble.runtime.ports import Tap

#: Number of entries of the time line that are printed, of its beginning and of its end.
HEAD, TAIL = 30, 10

#: Number of members that come up at once from which they are joined in one line.
MANY = 5

_BARS = " ▁▂▃▄▅▆▇█"


class PoolSize(click.ParamType):
    """`N` or `POOL=N`: the pool or None, and the number of members."""

    name = "members"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, int]:
        """Parse the value."""
        if isinstance(value, tuple):
            return value
        pool, equals, number = str(value).rpartition("=")
        if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= MAX_MEMBERS:
            self.fail(f"expected a number from 1 to {MAX_MEMBERS}, or POOL=N, not {value!r}")
        return (pool if equals else None), int(number)


@click.command
@click.argument("file", shell_complete=completion.files)
@click.option("--name", metavar="NAME", help="The ensemble's name, instead of the document's.")
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST),
    default=4,
    show_default=True,
    help="Nodes of the cluster.",
)
@click.option(
    "--cores",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Cores of a node (default: those of this machine, as for a local run).",
)
@click.option(
    "--gpus", type=click.IntRange(0, MOST), default=0, show_default=True, help="GPUs of a node."
)
@click.option(
    "--members",
    type=PoolSize(),
    multiple=True,
    metavar="[POOL=]N",
    help="How many members there are, of the document's only pool or of POOL.",
)
@click.option("--seed", type=int, help="What is drawn with, instead of the document's seed.")
@click.option(
    "--until",
    type=Duration(),
    default="30d",
    show_default=True,
    metavar="DURATION",
    help="Stop after so long in virtual time, and exit 124.",
)
@click.option(
    "--duration",
    "durations",
    type=Assignment(),
    multiple=True,
    metavar="GROUP=DURATION",
    help="How long jobs of a group take, as in the document: 30s, [10, 20], "
    '"{normal: {mean: 60, sigma: 5}}".',
)
@click.option(
    "--from-log",
    metavar="FILE",
    help="A recording; groups of which nothing else says so take as long as in it.",
)
@click.option("--record", metavar="FILE", help='Record every event in FILE, for "replay".')
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help='Write a report to FILE, as "flux ensemble report" does of a run.',
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    file: str,
    name: str | None,
    nodes: int,
    cores: int | None,
    gpus: int,
    members: tuple[tuple[str | None, int], ...],
    seed: int | None,
    until: float,
    durations: tuple[tuple[str, Any], ...],
    from_log: str | None,
    record: str | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Predict what document FILE ("-": standard input) would do on a cluster.

    No job runs and no time passes. The document's section "simulate" says how long the jobs
    of each group take. Exits 0 if the ensemble completes, 1 if it fails or never ends, 3 if
    it is canceled, 124 if it has not ended by --until.
    """
    from flux_ensemble.queues.simulation.simulation import Simulation, SimulationError, resolve
    from flux_ensemble.queues.virtual.cluster import UnsatisfiableError, VirtualCluster
    from flux_ensemble.runtime.recording import Recorder, RecordingError

    text, label = read_document(file)
    spec = _with_members(_check(text, label, name), members)
    text = understood(spec, text)
    assumed, cores = cores is None, cores or own_cores()
    try:
        behaviour = resolve(spec, _behaviour(spec, durations), from_log)
        recorder = None if record is None else Recorder(record, spec, text)
        taps: list[Tap] = [] if recorder is None else [recorder]
        simulation = Simulation(
            spec,
            VirtualCluster(nodes, cores, gpus),
            behaviour,
            seed=spec.seed if seed is None else seed,
            tap=partial(_tell, taps) if taps or report else None,
        )
        keeper = None if report is None else _keep(simulation, text)
        if keeper is not None:
            taps.append(keeper)
    except (RecordingError, SimulationError, UnsatisfiableError) as error:
        raise Failure(str(error), USAGE) from None
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}", USAGE) from None
    if assumed:
        say(f"simulating {_cluster(spec, nodes, cores)}")
    try:
        prediction = simulation.run(until or math.inf)
    except SimulationError as error:
        raise Failure(str(error)) from None
    finally:
        if recorder is not None:
            recorder.close()
    if as_json:
        print_json(asdict(prediction))
    else:
        _show(prediction)
    if keeper is not None and report is not None:
        size = None if spec.members else (nodes, cores)
        _report(keeper.source(prediction.makespan, "simulation", size), report)
    return recorded(_exit_code(prediction), recorder)


def _cluster(spec: Spec, nodes: int, cores: int) -> str:
    """Return the simulated cluster in words."""
    of_cores = f"of {cores} core{'s'[: cores != 1]}"
    if spec.members:
        return f"members with nodes {of_cores}"
    return f"{nodes} node{'s'[: nodes != 1]} {of_cores}"


def _with_members(spec: Spec, sizes: tuple[tuple[str | None, int], ...]) -> Spec:
    """Return the document with other numbers of members.

    Raises:
        Failure: it has no such pool.
    """
    pools = {pool.name: pool for pool in spec.members}
    for name, size in sizes:
        known = ", ".join(pools)
        if not pools:
            raise Failure("--members: the document has no 'members'", USAGE)
        if name is None and len(pools) > 1:
            first = next(iter(pools))
            raise Failure(f"--members: say which, such as {first}=4 (pools: {known})", USAGE)
        name = next(iter(pools)) if name is None else name
        if name not in pools:
            raise Failure(f"--members: no member named {name!r} (members: {known})", USAGE)
        if pools[name].uri is not None:
            raise Failure(f"--members: {name!r} is one instance, which its 'uri' names", USAGE)
        pools[name] = replace(pools[name], low=size, high=max(size, pools[name].high))
    return replace(spec, members=tuple(pools.values())) if sizes else spec


def _tell(taps: Sequence[Tap], event: Event, commands: list[Command]) -> None:
    for tap in taps:
        tap(event, commands)


def _keep(simulation: Simulation, text: str) -> RecordingTap:
    from flux_ensemble.report.recording_source import RecordingTap

    return RecordingTap(simulation.engine, text)


def _report(source: Source, file: Path) -> None:
    """Write a report, and print that on standard error, since standard output can be JSON."""
    from flux_ensemble.cli.display.reports import written
    from flux_ensemble.results.report import describe

    written(file, [describe(source, environment=False)], force=False)


def _check(text: str, file: str | None, name: str | None) -> Spec:
    """Read a document for a queue of fixed size.

    Raises:
        Failure: it has errors; all of them, one per line. Or a package for it is missing here.
    """
    from flux_ensemble.document.feature import objection
    from flux_ensemble.document.loading import DocumentError, load_text

    directory = str(Path(file or "-").parent)
    try:
        where: Any = {"name": name, "file": file, "directory": directory}
        spec = load_text(text, **where, elastic=False, jobs=trials_of(here))
    except DocumentError as error:
        raise Failure(first_problems(str(error), file), USAGE) from None
    if (reason := objection(spec, file)) is not None:
        raise Failure(reason, USAGE)
    return spec


def _behaviour(spec: Spec, durations: tuple[tuple[str, Any], ...]) -> dict[str, Simulated]:
    """Return how each group behaves, from the document, overridden by the options."""
    from flux_ensemble.document.behaviour import override_duration
    from flux_ensemble.document.distributions import Simulated

    behaviour = {name: spec.simulate.get(name, Simulated()) for name in spec.groups}
    for name, value in durations:
        if name not in behaviour:
            known = ", ".join(sorted(behaviour)) or "none"
            raise Failure(f"--duration: no job group named {name!r} (groups: {known})", USAGE)
        try:
            behaviour[name] = override_duration(behaviour[name], value, spec.groups[name])
        except ValueError as error:
            raise Failure(f"--duration: {name}: {error}", USAGE) from None
    return behaviour


def _show(prediction: Prediction) -> None:
    """Print the time line, the table of groups, the use of the cluster, and warnings."""
    view = make_view()
    for line in _time_line(prediction):
        view.line(line)
    summarize(view, prediction.status, prediction.metrics)  # type: ignore[arg-type]
    for line in _usage(prediction):
        view.line(line)
    for text in _members(prediction):
        view.line((Span(text),))
    for warning in prediction.warnings:
        view.line((Span("warning: ", "warn"), Span(warning)))


def _time_line(prediction: Prediction) -> Iterator[Line]:
    first, last, left_out = prediction.first, prediction.last, prediction.left_out
    # If entries were left out, they lie between the first and the last ones.
    head, tail = _joined(first if left_out else [*first, *last]), _joined(last if left_out else [])
    if left_out or len(head) > HEAD + TAIL + 1:
        rest = head[HEAD:] + tail
        head = head[:HEAD]
        tail = rest[len(head) - HEAD - TAIL :]
        left_out += sum(number for _, number in rest[: len(rest) - len(tail)])
    for entry, _ in head:
        yield explain(entry, 0.0, str)
    if left_out:
        yield (Span(f"{'...':>12}  {left_out} more", "detail"),)
    for entry, _ in tail:
        yield explain(entry, 0.0, str)


def _joined(entries: Sequence[Mapping[str, Any]]) -> list[tuple[Entry, int]]:
    """Join entries of members that come up at once; return each with its number of entries."""
    joined: list[tuple[Any, int]] = []
    for _, run in groupby(enumerate(entries), _of_run):
        alike = [entry for _, entry in run]
        if len(alike) < MANY:
            joined += [(entry, 1) for entry in alike]
            continue
        first, last = (alike[end]["context"]["member"] for end in (0, -1))
        context = {**alike[0]["context"], "member": f"each of {first} to {last}"}
        joined.append(({**alike[0], "context": context}, len(alike)))
    return joined


def _of_run(numbered: tuple[int, Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return a key that is equal for alike members that come up at once, one after the other."""
    index, entry = numbered
    if entry["name"] != MemberUp.tag:
        return (index,)
    pool, _, number = entry["context"]["member"].rpartition(".")
    facts = {**entry["context"], "member": pool, "ordinal": None}
    return entry["timestamp"], int(number) - index, facts


def _usage(prediction: Prediction) -> Iterator[Line]:
    yield (Span(f"makespan  {_span(prediction.makespan)}"),)
    yield (Span(f"nodes     {prediction.nodes:.1%} in use on average"),)
    course = "".join(_BARS[math.ceil(share * (len(_BARS) - 1))] for share in prediction.course)
    yield (
        Span(f"cores     {prediction.cores:.1%} in use on average"),
        Span(f"  |{course}|", "detail"),
    )


def _members(prediction: Prediction) -> Iterator[str]:
    """Yield a line for each pool: the ends of its members, their waits, and its node-hours."""
    for name, pool in prediction.status.get("pools", {}).items():
        ended, lost, left = pool["ended"], pool["lost"], len(pool["members"])
        parts = [f"{left} at the end"]
        if ended or lost:
            parts.append(f"{ended} ended before, {lost} of the {ended + left} were lost")
        waits = prediction.queue_seconds.get(name)
        if waits is not None:
            parts.append(
                f"waited {in_words(waits['mean'])} on average, {in_words(waits['max'])} at most"
            )
        hours = prediction.node_seconds[name] / 3600
        parts.append(f"{hours:.3g} node-hours" if hours < 100 else f"{hours:,.0f} node-hours")
        yield f"members   {name}: {'; '.join(parts)}"


def _span(seconds: float) -> str:
    """Return seconds in common units: 93784.5 is "1d 2h 3m 4.5s"."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
    return " ".join([*parts, f"{seconds:.4g}s"] if seconds or not parts else parts)


def _exit_code(prediction: Prediction) -> int:
    if prediction.timed_out:
        return TIMED_OUT
    status: Mapping[str, Any] = prediction.status
    waits = status["finish"] == "never" and not any(
        status["jobs"][key] for key in ("waiting", "active")
    )
    return EXIT_CODES.get(status["state"], OK if waits else FAILED)


COMMANDS = (simulate,)
