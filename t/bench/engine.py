"""The engine alone: how fast it is, with how many rules, and what it holds after many jobs.

Hands an engine the events of jobs that one after the other are submitted, start, finish and
are clean, a thousand at a time, and measures what `Engine.handle` takes.

Every group has the same number of rules. One of them looks at each job of the group, and is
of one of four kinds: every hundredth success submits a job of the next group, a counter or a
mean is compared with a number, or an expression is evaluated. The others are about what does
not happen here, such as a job that fails: they are there, and cost nothing.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, cycle
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Command, SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, Event, JobEvent, Request, Started, Tag
from flux_ensemble.service.collector import Collector

#: How many jobs are active at once, and how many a request asks for.
ACTIVE, EACH = 1000, 10

#: Groups and rules: of a plain ensemble, of a large one, and between.
PLAIN, LARGE = (100, 100), (1000, 10_000)
BETWEEN = ((100, 1000), (1000, 1000), (100, 10_000))

#: Jobs for the rates, rounds, and jobs at each look at the memory.
JOBS, ROUNDS, LOOKS = 50_000, 3, (10_000, 100_000, 1_000_000)

#: Triggers of the rules that have nothing to do.
_QUIET = ("job-fail", "job-cancel", "job-timeout", "job-exception", "job-memo", "idle")


def document(groups: int, rules: int, jobs: int) -> dict[str, Any]:
    """An ensemble with all default statistics, whose jobs are asked for by requests."""
    return {
        "name": "bench",
        "jobs": [{"name": f"g{group}", "command": "true"} for group in range(groups)],
        "rules": [_rule(number // groups, number % groups, groups) for number in range(rules)],
        "limits": {"jobs": 2 * jobs, "active-jobs": ACTIVE},
        "finish": "never",
    }


def _rule(row: int, group: int, groups: int) -> dict[str, Any]:
    name, action = f"g{group}", {"name": "submit", "label": f"g{(group + 1) % groups}"}
    if row:
        return {"trigger": _QUIET[row % len(_QUIET)], "group": name, "action": action}
    rule: dict[str, Any] = {"action": {**action, "repetitions": "unlimited", "backoff": 99}}
    match group % 4:
        case 0:
            return {**rule, "trigger": "job-success", "group": name}
        case 1:
            return {**rule, "trigger": "metric", "name": f"count.{name}.success", "when": "> 1e9"}
        case 2:
            return {**rule, "trigger": "metric", "name": f"mean.{name}-duration", "when": "> 1e9"}
        case _:
            when = f"count.{name}.failed > 3 and mean['{name}-duration'] > 60"
            return {**rule, "trigger": "metric", "when": when}


class Load:
    """An engine, and a queue that answers it.

    Args:
        spec: made of a `document`.

    Attributes:
        events: how many events the engine has handled.
        seconds: the processor time that it took for them.
    """

    def __init__(self, spec: Spec) -> None:
        self.engine = Engine(spec)
        self.events = 0
        self.seconds = 0.0
        self._t = 0.0
        self._ids = count(1)
        self._groups = cycle(spec.groups)
        self._handle([Started(self._t)])

    def run(self, jobs: int) -> None:
        """Go on until at least so many jobs have come and gone, with those that rules ask for."""
        while self.engine.workload.total < jobs:
            wanted = [{"group": next(self._groups), "count": EACH} for _ in range(ACTIVE // EACH)]
            commands = self._handle(
                [Request(self._tick(), next(self._ids), "submit", args) for args in wanted]
            )
            while commands:
                commands = self._handle(list(self._answer(commands)))
        succeeded = sum(one["success"] for one in self.engine.stats.counts.values())
        assert succeeded == self.engine.workload.total >= jobs

    def wait(self, jobs: int) -> None:
        """Have so many jobs submitted and accepted, which then wait in the queue."""
        args = {"group": next(self._groups), "count": jobs}
        commands = self._handle([Request(self._tick(), next(self._ids), "submit", args)])
        waiting = ("submit", "validate")
        self._handle(
            [
                event
                for event in self._answer(commands)
                if not isinstance(event, JobEvent) or event.name in waiting
            ]
        )

    def _handle(self, events: Sequence[Event]) -> list[Command]:
        handle = self.engine.handle
        commands: list[Command] = []
        begin = time.process_time()
        for event in events:
            commands += handle(event)
        self.seconds += time.process_time() - begin
        self.events += len(events)
        return commands

    def _answer(self, commands: list[Command]) -> Iterator[Event]:
        """The events of all jobs of the commands; they all start before the first finishes."""
        jobs: dict[int, Tag] = {}
        for command in commands:
            if not isinstance(command, SubmitJobs):
                continue
            indices = range(command.first, command.first + command.count)
            tags = [Tag(command.group, command.rule, command.firing, one) for one in indices]
            ids = [next(self._ids) for _ in tags]
            jobs.update(zip(ids, tags, strict=True))
            yield CommandDone(self._tick(), command.id, {"ids": ids})
        for id, tag in jobs.items():
            yield JobEvent(self._tick(), id, "submit", {"urgency": 16}, tag)
            yield JobEvent(self._tick(), id, "validate")
        for id in jobs:
            yield JobEvent(self._tick(), id, "start")
        for id in jobs:
            yield JobEvent(self._tick(), id, "finish", {"status": 0})
            yield JobEvent(self._tick(), id, "clean")

    def _tick(self) -> float:
        self._t += 0.001
        return self._t


def cost(groups: int, rules: int, jobs: int) -> float:
    """Microseconds an event, with the garbage collection of the service."""
    load = Load(load_mapping(document(groups, rules, jobs)))
    Collector().calm()
    load.run(jobs)
    return 1e6 * load.seconds / load.events


def measure(smoke: bool) -> Numbers:
    """What an event costs with how many groups and rules, and what is held after many jobs."""
    shapes = [(4, 4), (8, 40)] if smoke else [PLAIN, *BETWEEN, LARGE]
    jobs, rounds, looks = (1000, 1, (1000, 2000)) if smoke else (JOBS, ROUNDS, LOOKS)
    costs: dict[tuple[int, int], list[float]] = {shape: [] for shape in shapes}
    for _ in range(rounds):
        for shape in shapes:
            costs[shape].append(round(cost(*shape, jobs), 3))
    load = Load(load_mapping(document(*shapes[0], looks[-1])))
    memory = []
    for look in looks:
        load.run(look)
        memory.append([look, held(load.engine)])
    return {
        "jobs": jobs,
        "costs": [[*shape, found] for shape, found in costs.items()],
        "memory": memory,
    }


def held(engine: Engine) -> int:
    """The bytes of all objects that an engine holds, as far as Python knows of them.

    Not counted are code and what the document holds.
    """
    seen: set[int] = set()
    _size(engine.spec, seen)
    return _size(engine, seen)


def _size(root: Any, seen: set[int]) -> int:
    """The bytes of all that `root` leads to and that has not been seen, which then has."""
    code = (type, ModuleType, FunctionType, BuiltinFunctionType)
    total, front = 0, [root]
    while front:
        one = front.pop()
        if id(one) not in seen and not isinstance(one, code):
            seen.add(id(one))
            total += sys.getsizeof(one)
            front += gc.get_referents(one)
    return total


def rows(numbers: Numbers) -> list[Row]:
    """The rate, what many rules cost, and the memory."""
    # Of several rounds the quickest: what makes others slower is not the engine.
    costs = [(groups, rules, min(found)) for groups, rules, found in numbers["costs"]]
    (groups, rules, plain), (many_groups, many_rules, large) = costs[0], costs[-1]
    (few, begin), (many, end) = numbers["memory"][0], numbers["memory"][-1]
    return [
        Row(
            f"engine alone: events/s on one core, {groups:,} groups, {rules:,} rules, all default "
            "statistics",
            1e6 / plain, ">=", 150_000, "", f"{plain:.2f} us an event",
        ),
        Row(
            f"the same with {many_rules:,} rules and {many_groups:,} groups: cost of an event "
            f"against {rules:,} rules",
            large / plain, "<=", 1.3, "x", f"{large:.2f} / {plain:.2f} us",
        ),
        Row(
            f"memory of the engine after {many:,} finished jobs against {few:,}",
            end / begin, "<=", 1.1, "x", f"{end / 1e3:,.0f} / {begin / 1e3:,.0f} kB",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """What an event costs by rules, and the memory by jobs."""
    left, right = figure.subplots(1, 2)
    values = {
        f"{groups:,} groups, {rules:,} rules": found for groups, rules, found in numbers["costs"]
    }
    plots.bars(left, values, [plots.OURS] * len(values))
    plots.goal(left, x=1e6 / 150_000, label="goal for the first")
    left.set_xlabel("us of processor time an event")
    plots.legend(left)
    jobs, sizes = zip(*numbers["memory"], strict=True)
    right.plot(jobs, [size / 1e3 for size in sizes], "o-", color=plots.OURS)
    plots.goal(right, y=1.1 * sizes[0] / 1e3, label="goal: 1.1x the first")
    right.set_xscale("log")
    right.set_ylim(0, 1.3 * max(sizes) / 1e3)
    right.set_xlabel("jobs that have finished")
    right.set_ylabel("kB that the engine holds")
    plots.legend(right)


BENCHMARK = Benchmark(
    "engine",
    "The engine alone",
    """`Engine.handle` is given the events of jobs that come and go, 1,000 active at once, and its
    processor time is measured; of three rounds the quickest counts. There is one rule on the jobs
    of each group, of four kinds, and further rules are about what does not happen. What the
    engine holds is the size of all objects that it leads to.""",
    measure,
    rows,
    plot,
)
