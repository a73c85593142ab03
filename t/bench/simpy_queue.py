"""The queue of the benchmark `simulate` as a bare SimPy model: jobs, nodes, durations, no rules."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def run(jobs: int, active: int, cores: int, median: float, sigma: float) -> float:
    """Simulate so many jobs of one core.

    Args:
        jobs: how many.
        active: how many are in the queue at once.
        cores: how many there are.
        median, sigma: of the lognormal durations, in seconds.

    Returns:
        Seconds of processor time.
    """
    # In the extra `bench`; not needed by those who read results.
    simpy: Any = import_module("simpy")

    begin = time.process_time()
    environment = simpy.Environment()
    room = simpy.Resource(environment, capacity=active)
    free = simpy.Container(environment, capacity=cores, init=cores)
    dice = random.Random(1)
    ended: list[tuple[float, float, float]] = []

    def job(place: Any) -> Iterator[Any]:
        submitted = environment.now
        yield free.get(1)
        started = environment.now
        yield environment.timeout(median * dice.lognormvariate(0.0, sigma))
        yield free.put(1)
        room.release(place)
        ended.append((submitted, started, environment.now))

    def source() -> Iterator[Any]:
        for _ in range(jobs):
            place = room.request()
            yield place
            environment.process(job(place))

    environment.process(source())
    environment.run()
    assert len(ended) == jobs
    return time.process_time() - begin
