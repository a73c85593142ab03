"""The engine alone: `make bench`, or python t/bench/engine.py [GROUPS RULES JOBS].

Hands an engine the events of jobs that one after the other are submitted, start, finish and
are clean, a thousand at a time, and measures what `Engine.handle` takes. Without arguments it
prints each goal with what was reached, and exits 1 where one is missed.

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

from flux_ensemble.engine.commands import Command, SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import CommandDone, Event, JobEvent, Request, Started, Tag
from flux_ensemble.spec.loading import load_mapping
from flux_ensemble.spec.model import Spec

#: How many jobs are active at once, and how many a request asks for.
ACTIVE, EACH = 1000, 10

#: Groups and rules of a plain ensemble, and of a large one.
PLAIN, LARGE = (100, 100), (1000, 10_000)

#: Jobs for the rates, and for the two looks at the memory.
JOBS, FEW, MANY = 100_000, 10_000, 1_000_000

#: The goals: events a second; what an event costs with the large ensemble, and what memory
#: is held after many jobs, as multiples of the plain ensemble and of few jobs.
LEAST_RATE, MOST_COST, MOST_MEMORY = 150_000.0, 1.3, 1.1

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

    Attributes:
        events: how many events the engine has handled.
        seconds: the processor time that it took for them.
    """

    def __init__(self, spec: Spec, jobs: int) -> None:
        self.engine = Engine(spec)
        self.events = 0
        self.seconds = 0.0
        self._t = 0.0
        self._ids = count(1)
        self._jobs = jobs

    def run(self) -> None:
        """Have at least so many jobs come and go, with those that rules ask for."""
        self._handle([Started(self._t)])
        groups = cycle(self.engine.spec.groups)
        while self.engine.workload.total < self._jobs:
            wanted = [{"group": next(groups), "count": EACH} for _ in range(ACTIVE // EACH)]
            commands = self._handle(
                [Request(self._tick(), next(self._ids), "submit", args) for args in wanted]
            )
            while commands:
                commands = self._handle(list(self._answer(commands)))
        succeeded = sum(one["success"] for one in self.engine.stats.counts.values())
        assert succeeded == self.engine.workload.total >= self._jobs

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


def measure(groups: int, rules: int, jobs: int) -> Load:
    """Run one load, and print what an event took."""
    spec = load_mapping(document(groups, rules, jobs))
    gc.collect()
    load = Load(spec, jobs)
    load.run()
    rate = load.events / load.seconds
    print(
        f"{groups:5} groups, {rules:6} rules, {jobs:8} jobs: {rate:7.0f} events/s, "
        f"{1e6 / rate:5.2f} us an event",
        flush=True,
    )
    return load


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


def main(arguments: list[str]) -> int:
    """Measure, and compare with the goals unless the user says what."""
    if arguments:
        groups, rules, jobs = map(int, arguments)
        measure(groups, rules, jobs)
        return 0
    plain = min((measure(*PLAIN, JOBS) for _ in range(3)), key=_cost)
    large = min((measure(*LARGE, JOBS) for _ in range(3)), key=_cost)
    few, many = (held(measure(*PLAIN, jobs).engine) for jobs in (FEW, MANY))
    rate, cost, memory = 1 / _cost(plain), _cost(large) / _cost(plain), many / few
    found = (
        ("events a second", ">=", LEAST_RATE, rate, rate >= LEAST_RATE),
        (f"cost of an event with {LARGE[1]} rules", "<=", MOST_COST, cost, cost <= MOST_COST),
        (f"memory after {MANY} jobs", "<=", MOST_MEMORY, memory, memory <= MOST_MEMORY),
    )
    print(f"\n{'':36} {'goal':>10} {'reached':>8}")
    for name, sign, goal, reached, met in found:
        print(f"{name:36} {sign} {goal:7g} {reached:8.6g}{'' if met else '  missed'}")
    met = all(one[-1] for one in found)
    print("goals met" if met else "goals missed")
    return 0 if met else 1


def _cost(load: Load) -> float:
    """Seconds an event."""
    return load.seconds / load.events


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
