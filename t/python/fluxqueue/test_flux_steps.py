"""Sequences that are generators: what they report, and when they go no further."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from flux_ensemble.queues.flux.steps import Resume, Step, Steps, run, together


class Waits:
    """Steps that end when they are told to."""

    def __init__(self) -> None:
        self.open: dict[str, Resume] = {}

    def step(self, name: str) -> Step:
        return partial(self.open.__setitem__, name)

    def end(self, name: str, result: Any = None) -> None:
        self.open.pop(name)(result)


def adds(waits: Waits) -> Generator[Step, Any, int]:
    first = yield waits.step("first")
    second = yield waits.step("second")
    return int(first + second)


def test_a_sequence_reports_what_it_returns() -> None:
    waits, results = Waits(), list[Any]()
    run(adds(waits), results.append)
    waits.end("first", 1)
    assert results == []
    waits.end("second", 2)
    assert results == [3]


def test_an_error_is_raised_in_the_sequence_and_ends_it() -> None:
    waits, results = Waits(), list[Any]()
    run(adds(waits), results.append)
    error = OSError(5, "no")
    waits.end("first", error)
    assert results == [error]
    assert not waits.open


def test_an_error_that_nobody_takes_is_raised() -> None:
    waits = Waits()
    run(adds(waits))
    with pytest.raises(OSError, match="no"):
        waits.end("first", OSError(5, "no"))


def test_a_sequence_that_is_over_goes_no_further_and_reports_nothing() -> None:
    waits, results, over = Waits(), list[Any](), list[bool]()
    run(adds(waits), results.append, over=lambda: bool(over))
    waits.end("first", 1)
    over.append(True)
    waits.end("second", 2)
    assert results == []


def test_a_sequence_can_be_a_step_of_another() -> None:
    waits, results = Waits(), list[Any]()

    def doubles() -> Generator[Step, Any, int]:
        total = yield partial(run, adds(waits))
        return int(2 * total)

    run(doubles(), results.append)
    waits.end("first", 1)
    waits.end("second", 2)
    assert results == [6]


def both(waits: Waits, results: list[Any]) -> Steps:
    results.append((yield together(waits.step("first"), waits.step("second"))))


def test_steps_that_wait_together_have_their_results_in_order() -> None:
    waits, results = Waits(), list[Any]()
    run(both(waits, results))
    waits.end("second", 2)
    assert results == []
    waits.end("first", 1)
    assert results == [[1, 2]]


def test_of_steps_that_wait_together_an_error_comes_when_all_have_ended() -> None:
    waits, results, ends = Waits(), list[Any](), list[Any]()
    run(both(waits, results), ends.append)
    error = OSError(5, "no")
    waits.end("first", error)
    assert ends == []
    waits.end("second", 2)
    assert (results, ends) == ([], [error])
