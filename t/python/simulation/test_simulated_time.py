"""Virtual time: things happen in their order, and the clock jumps between them."""

from __future__ import annotations

import math

from flux_ensemble.queues.simulation.runner import VirtualLoop


def test_things_happen_in_the_order_of_their_times_and_then_of_their_asking() -> None:
    loop, seen = VirtualLoop(), list[tuple[float, str]]()
    for after, name in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        loop.timer(after, lambda name=name: seen.append((loop.now(), name)))  # type: ignore[misc]
    assert loop.run(math.inf)
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]


def test_what_is_to_happen_soon_happens_after_all_else_of_that_time() -> None:
    loop, seen = VirtualLoop(), list[str]()
    loop.soon(lambda: seen.append("soon"))
    loop.timer(0.0, lambda: seen.append("timer"))
    loop.run(math.inf)
    assert seen == ["timer", "soon"]


def test_a_timer_repeats_until_it_is_cancelled() -> None:
    loop, seen = VirtualLoop(), list[float]()

    def tick() -> None:
        seen.append(loop.now())
        if len(seen) == 3:
            timer.cancel()
            timer.cancel()

    timer = loop.timer(1.0, tick, every=2.0)
    assert loop.run(math.inf)
    assert seen == [1.0, 3.0, 5.0]


def test_the_run_ends_at_the_time_that_it_is_given() -> None:
    steps: list[tuple[float, float]] = []
    loop = VirtualLoop(lambda before, after: steps.append((before, after)))
    loop.timer(1.0, lambda: None, every=1.0)
    assert not loop.run(2.5)
    assert loop.now() == 2.5
    assert steps == [(0.0, 1.0), (1.0, 2.0), (2.0, 2.5)]


def test_a_loop_that_is_stopped_lets_nothing_happen() -> None:
    loop, seen = VirtualLoop(), list[str]()
    loop.timer(1.0, loop.stop)
    loop.timer(2.0, lambda: seen.append("late"))
    assert loop.run(math.inf)
    assert loop.now() == 1.0
    assert not seen
