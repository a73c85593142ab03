"""A simulation of one ensemble: its engine on a virtual queue in virtual time.

    Spec ──► Simulation.run ──► Prediction

It is the host of its driver, and keeps what a prediction needs: the first and the last entries of
the log, the use of the cluster, and causes for warnings.
"""

from __future__ import annotations

import gc
import json
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flux_ensemble.document.distributions import Empirical, FromLog, Simulated
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Finish, Record, Reply
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import Event, Started
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.status import status
from flux_ensemble.eventlog import of
from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.by_value import unsplit
from flux_ensemble.metrics.names import GAUGES, STREAMS, as_named
from flux_ensemble.metrics.paths import BEST
from flux_ensemble.queues.simulation.durations import durations
from flux_ensemble.queues.simulation.fleet import SimulatedFleet
from flux_ensemble.queues.simulation.functions import Caller
from flux_ensemble.queues.simulation.runner import (
    DEFAULT_DURATION,
    UNKNOWN,
    SimulationError,
    VirtualLoop,
)
from flux_ensemble.queues.simulation.single import Single, World
from flux_ensemble.queues.simulation.uniforms import Uniforms
from flux_ensemble.queues.virtual.cluster import Capacity, VirtualCluster
from flux_ensemble.queues.virtual.shapes import Shapes
from flux_ensemble.runtime.driver import Driver
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.ports import Queue, Tap
from flux_ensemble.texts import listed
from flux_ensemble.words import counted, in_words

#: The course over time has at most twice this many points; and at least this many, after the start.
POINTS = 40

#: Initial seconds of a point; a power of two, so that doubling it is exact.
FIRST_LENGTH = 2.0**-10


class Usage:
    """Sums of the nodes and cores in use, in points of equal length.

    The length of the simulation is not known in advance, so the points become twice as long, and
    half as many, whenever they are too many.

    Args:
        cluster: the cluster.

    Attributes:
        length: seconds of one point.
        cores: core-seconds in use in each point.
        node_seconds, core_seconds: the totals.
    """

    def __init__(self, cluster: Capacity) -> None:
        self._cluster = cluster
        self.length = FIRST_LENGTH
        self._covered = 2 * POINTS * self.length
        self.cores: list[float] = []
        self.node_seconds = 0.0
        self.core_seconds = 0.0

    def advance(self, before: float, after: float) -> None:
        """Add the present use for the time from `before` to `after`, in seconds from 0."""
        cluster, seconds = self._cluster, after - before
        used = cluster.busy_cores * seconds
        self.node_seconds += cluster.busy_nodes * seconds
        self.core_seconds += used
        while after > self._covered:
            self._coarsen()
        point = int(before / self.length)
        if point < len(self.cores) and after <= (point + 1) * self.length:
            self.cores[point] += used
            return
        while before < after:
            end = min(after, (point + 1) * self.length)
            while len(self.cores) <= point:
                self.cores.append(0.0)
            self.cores[point] += cluster.busy_cores * max(0.0, end - before)
            before = end
            point += 1

    def course(self, until: float) -> list[float]:
        """Return the share of the cores in use in each point up to the time `until`, 0 to 1."""
        shares = []
        for point, cores in enumerate(self.cores):
            length = min(self.length, until - point * self.length)
            if length > 0:
                shares.append(min(1.0, cores / length / self._total))
        return shares

    @property
    def _total(self) -> int:
        return self._cluster.nodes * self._cluster.cores

    def averages(self, until: float) -> tuple[float, float]:
        """Return the mean shares of nodes and cores in use from 0 to `until`, each 0 to 1."""
        if not until:
            return 0.0, 0.0
        return (
            self.node_seconds / until / self._cluster.nodes,
            self.core_seconds / until / self._total,
        )

    def _coarsen(self) -> None:
        pairs = self.cores + [0.0] * (len(self.cores) % 2)
        self.cores = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        self.length *= 2
        self._covered *= 2


#: Numbers of entries that are kept of the beginning, and of the end.
KEPT = 1000

#: Triggers that need no job.
_CLOCKED = frozenset({"heartbeat", "timer", "metric"})


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The results of a simulation.

    Args:
        status: of the engine (docs/rpc.md, `ensemble.status`).
        metrics: of the engine.
        first, last: entries (RFC 18) of the time line; `left_out` are between.
        makespan: seconds until the end of the last job.
        nodes, cores: mean shares in use, 0 to 1.
        course: the share of the cores in use over time, a point for each `point` seconds.
        warnings: sentences.
        timed_out: the time was up before the end.
        node_seconds: the time that the members of each pool had their nodes.
        queue_seconds: of each pool whose members waited until they began: how many did begin, and
            the mean and the longest wait.
    """

    status: dict[str, Any]
    metrics: dict[str, Any]
    first: list[dict[str, Any]]
    last: list[dict[str, Any]]
    left_out: int
    makespan: float
    nodes: float
    cores: float
    course: list[float]
    point: float
    warnings: list[str]
    timed_out: bool
    node_seconds: dict[str, float]
    queue_seconds: dict[str, dict[str, Any]]

    def __repr__(self) -> str:
        status = self.status
        state = "not over in time" if self.timed_out else status["state"]
        parts = [
            f"{state} after {in_words(self.makespan)}",
            counted(status["jobs"]["total"], "job"),
        ]
        parts += [f"{status['failed']} failed"] * bool(status["failed"])
        used = f"{self.nodes:.0%} of the nodes and {self.cores:.0%} of the cores in use"
        return f"<Prediction of {status['name']!r}: {', '.join([*parts, used])}>"


def resolve(
    spec: Spec, behaviour: Mapping[str, Simulated], default: str | None = None
) -> dict[str, Simulated]:
    """Replace each `FromLog` by the durations of earlier runs.

    Args:
        spec: the ensemble's document.
        behaviour: the behaviour of each group's jobs.
        default: a recording for groups without a duration, as far as it has jobs of theirs.

    Raises:
        RecordingError, OSError: a recording cannot be read.
        SimulationError: a recording has no job of the group.
    """
    found: dict[str, Simulated] = {}
    read: dict[str, Mapping[str, tuple[float, ...]]] = {}
    earlier = {} if default is None else durations(default)
    for group, simulated in behaviour.items():
        if isinstance(simulated.duration, FromLog):
            path = str(Path(spec.directory, simulated.duration.file))
            if path not in read:
                read[path] = durations(path)
            if group not in read[path]:
                raise SimulationError(f"{path}: no job of group {group!r} ended by itself in it")
            simulated = replace(simulated, duration=Empirical(read[path][group]))
        elif simulated.duration is None and group in earlier:
            simulated = replace(simulated, duration=Empirical(earlier[group]))
        found[group] = simulated
    return found


class Simulation:
    """A run of an ensemble in virtual time; also the `Output` of its driver.

    Args:
        spec: the ensemble's document.
        cluster: of its jobs; for a document with members it gives the form of their nodes.
        behaviour: the behaviour of each group's jobs; see `resolve`.
        seed: of all draws.
        tap: receives each event with its commands, if given.

    Raises:
        UnsatisfiableError: a group requests a form of resources that the cluster lacks.
    """

    def __init__(
        self,
        spec: Spec,
        cluster: VirtualCluster,
        behaviour: Mapping[str, Simulated],
        *,
        seed: int = 0,
        tap: Tap | None = None,
    ) -> None:
        self._spec = spec
        self._behaviour = behaviour
        self._events: list[Event] = []
        self._loop = VirtualLoop(self._advance, self._deliver)
        self._engine = Engine(spec)
        # No rule is added later: that would take a custom function.
        wants, uniforms, shapes = self._engine.wants_events, Uniforms(seed), Shapes(spec)
        post = self._events.append
        world = World(spec, self._loop, behaviour, uniforms, shapes, post, wants)
        fleet: SimulatedFleet | None = None
        member: Queue
        if spec.members:
            fleet = member = SimulatedFleet(world, cluster)
            self._queues: Single | SimulatedFleet = fleet
            self._usage = Usage(fleet.capacity)
        else:
            single = Single(world, cluster)
            self._queues = single
            member = single.member
            self._usage = Usage(cluster)
        self._calls: Counter[str] = Counter()
        self._driver = Driver(
            self._engine,
            Host(
                loop=self._loop,
                queue=member,
                custom=lambda _: Caller(spec.packaged, self._calls),
                adviser=lambda: parts("simulation")[0].adviser(spec, seed),
                fleet=fleet,
            ),
            self,
            tap,
        )
        self._ended = False
        self._error: BaseException | None = None
        self._capped = False
        self._first: list[dict[str, Any]] = []
        self._last: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._entries = 0

    @property
    def engine(self) -> Engine:
        """The engine, for a record of its jobs."""
        return self._engine

    def run(self, until: float = math.inf) -> Prediction:
        """Run the ensemble to its end, or to the time `until` in seconds.

        Raises:
            SimulationError: the simulation cannot go on.
        """
        self._driver.post(Started(0.0))
        self._deliver()
        try:
            with _rare_collections():
                in_time = self._loop.run(until)
        finally:
            # Ends the processes of generators, if the time is up.
            self._driver.close()
        if self._error is not None:
            raise self._error
        return self._predict(timed_out=not in_time, until=until)

    # -- the queue ----------------------------------------------------------------

    def _advance(self, before: float, after: float) -> None:
        self._usage.advance(before, after)

    def _deliver(self) -> None:
        """Post the queue's events.

        Not while the queue produces them, so that commands never find it in the middle of a change.
        """
        while self._events:
            events = tuple(self._events)
            self._events.clear()
            self._driver.post(*events)
        if self._ended and not self._queues.active:
            self._loop.stop()

    # -- the output ---------------------------------------------------------------

    def record(self, entry: Record) -> None:
        """Keep an entry of the eventlog."""
        if not of(entry.name, entry.context).on_timeline:
            return
        self._entries += 1
        kept = self._first if len(self._first) < KEPT else self._last
        kept.append({"timestamp": entry.t, "name": entry.name, "context": entry.context})

    def reply(self, reply: Reply) -> None:
        """Do nothing: there are no requests."""

    def finish(self, finish: Finish) -> None:
        """Note that the ensemble has ended; its jobs may still be active."""
        self._ended = True

    def settled(self) -> None:
        """Note, after an event, whether the limit of active jobs holds jobs back."""
        workload = self._engine.workload
        if not self._capped and workload.backlog and workload.room <= 0:
            self._capped = True

    def broken(self, error: BaseException) -> None:
        """Stop because of a fault of the driver."""
        self._error = error
        self._loop.stop()

    # -- the prediction -----------------------------------------------------------

    def _predict(self, *, timed_out: bool, until: float) -> Prediction:
        engine = self._engine
        report = status(engine)
        node_seconds: dict[str, float] = {}
        queue_seconds: dict[str, dict[str, Any]] = {}
        if isinstance(self._queues, SimulatedFleet):
            self._queues.settle()
            node_seconds = self._queues.node_seconds
            queue_seconds = {
                pool: {"members": len(each), "mean": math.fsum(each) / len(each), "max": max(each)}
                for pool, each in self._queues.waits.items()
                if any(each)
            }
        end = until if timed_out else max(self._queues.t_gone, engine.t_end or 0.0)
        nodes, cores = self._usage.averages(end)
        return Prediction(
            status=report,
            metrics=engine.metrics(end),
            first=self._first,
            last=list(self._last),
            left_out=self._entries - len(self._first) - len(self._last),
            makespan=end,
            nodes=nodes,
            cores=cores,
            course=self._usage.course(end),
            point=self._usage.length,
            warnings=list(self._warnings(report, timed_out)),
            timed_out=timed_out,
            node_seconds=node_seconds,
            queue_seconds=queue_seconds,
        )

    def _warnings(self, status: Mapping[str, Any], timed_out: bool) -> Iterator[str]:
        groups, rules = status["groups"], status["rules"]
        default = [
            name
            for name, counts in groups.items()
            if counts["submitted"] and self._behaviour.get(name, UNKNOWN).duration is None
        ]
        if default:
            yield f"no duration given for {_listed(default)}; assuming {DEFAULT_DURATION:g} s"
        for function, calls in sorted(self._calls.items()):
            times = f"{calls} time{'s'[: calls != 1]}"
            yield (
                f"custom function {function!r} was due {times}; a simulation calls none, "
                f"as if it returned nothing"
            )
        for group, note in self._queues.notes.items():
            yield f"jobs of group {group!r} never run: {note}"
        never = [rule["id"] for rule in rules if not rule["fired"]]
        if never:
            yield f"rule{'s'[: len(never) != 1]} that never fired: {', '.join(never)}"
        yield from self._unpublished(rules)
        if self._capped:
            yield f"jobs waited in the service because limits.active-jobs is {self._most()}"
        if timed_out:
            yield self._endless(rules)
        elif not self._ended:
            yield from self._stuck(groups)

    def _unpublished(self, rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield what rules wait for that no simulated job publishes, and how it is given."""
        missing: dict[str, dict[str, list[str]]] = {}
        for rule in rules:
            if rule["fired"] and not rule["error"]:
                continue
            for group, key in _memos_of(self._engine.rules.states[rule["id"]], self._spec):
                given = getattr(self._behaviour.get(group, UNKNOWN), "memo", {})
                if given if key is None else key in given:
                    continue
                missing.setdefault(group, {}).setdefault(key or "KEY", []).append(rule["id"])
        for group, keys in missing.items():
            ids = list(dict.fromkeys(id for waiting in keys.values() for id in waiting))
            what = ", ".join(repr(key) for key in keys if key != "KEY") or "memo"
            memo = ", ".join(
                f"{key if key.isidentifier() else json.dumps(key)}: {{uniform: {{min: 0, max: 1}}}}"
                for key in keys
            )
            yield (
                f"simulated jobs of group {group!r} publish no {what}, which "
                f"{'rule' if len(ids) == 1 else 'rules'} {listed(ids)} "
                f"{'waits' if len(ids) == 1 else 'wait'} for; write, with values of yours, "
                f"'simulate: {{{group}: {{memo: {{{memo}}}}}}}'"
            )

    def _most(self) -> str:
        """Return the limit of active jobs, with advice if the members have more cores than that."""
        most = self._spec.limits.active_jobs
        capacity = self._queues.capacity if isinstance(self._queues, SimulatedFleet) else None
        cores = 0 if capacity is None else capacity.nodes * capacity.cores
        if cores <= most:
            return str(most)
        # A member gets twice as many jobs as it has cores for.
        return (
            f"{most}, and members had {cores} cores; write 'limits: {{active-jobs: {2 * cores}}}'"
        )

    def _endless(self, rules: Sequence[Mapping[str, Any]]) -> str:
        """Explain why the time was up: rules that trigger each other, or that a clock triggers."""
        sentence = "the ensemble had not ended when the time was up"
        fired = [rule["id"] for rule in rules if rule["fired"]]
        cycles = dict.fromkeys(tuple(self._engine.rules.cycle(rule)) for rule in fired)
        chasing = [", ".join(cycle) for cycle in cycles if cycle]
        if chasing:
            return f"{sentence}; rules that fire each other: {'; '.join(chasing)}"
        states = self._engine.rules.states
        clocked = [
            rule for rule in fired if states[rule].armed and states[rule].rule.trigger in _CLOCKED
        ]
        return (
            f"{sentence}; rules that a clock fires: {', '.join(clocked)}" if clocked else sentence
        )

    def _stuck(self, groups: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        """Explain why nothing happens any more although the ensemble has not ended."""
        waiting = [name for name, counts in groups.items() if counts["pending"]]
        unplaced = [name for name, counts in groups.items() if counts["waiting"]]
        if waiting:
            yield f"jobs of {_listed(waiting)} wait for ever: nothing raises their urgency of 0"
        elif unplaced and self._spec.members:
            yield f"jobs of {_listed(unplaced)} wait for ever: no member can run them"
        elif self._engine.wants_foreign:
            yield "the ensemble waits for jobs of others, and there are none in a simulation"
        else:
            yield "nothing is left to do, and the ensemble waits for requests (finish: never)"


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often: jobs leave no cycles, and the cost grows with the active jobs."""
    before = gc.get_threshold()
    gc.set_threshold(70_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _memos_of(state: RuleState, spec: Spec) -> Iterator[tuple[str, str | None]]:
    """Yield the keys of memos that a rule reads, each with its group; None is any key."""
    rule, condition = state.rule, state.condition
    if "job-memo" in rule.triggers:
        yield from ((group, None) for group in rule.groups or spec.groups)
    paths = set(condition.paths if condition else ())
    if state.path is not None:
        paths.add(state.path)
    for filling in state.fillings:
        paths |= filling.paths if filling is not None else set()
    statistics = {statistic.name for statistic in spec.statistics}
    read = [(path.group, path.variable) for path in sorted(paths) if path.statistic in statistics]
    read += [(one.by.group, one.by.variable) for one in (condition.of_values if condition else ())]
    for path in paths:
        if path.statistic == BEST:
            best, _ = spec.bested[path.variable.partition(".")[0]]
            read.append((best.group, best.variable))
    if rule.detector is not None:
        read.append((rule.detector.group, rule.detector.variable))
    for group, variable in dict.fromkeys(read):
        key = as_named(unsplit(variable))
        if key not in STREAMS and key not in GAUGES:
            yield group, key


def _listed(groups: Sequence[str]) -> str:
    return f"group{'s'[: len(groups) != 1]} {', '.join(map(repr, groups))}"
