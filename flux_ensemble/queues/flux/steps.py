"""Sequences of calls, written as sequences: generators that yield what they wait for.

    def look(broker: Broker) -> Steps:
        config = yield broker.response(broker.handle.rpc("config.get"))
        yield broker.pause(0.1)
        ...

    run(look(broker), report)

A generator yields a `Step`, which begins to wait, and calls back once. An error is raised in the
generator, where it can be caught; an uncaught one ends the sequence and is its result. A sequence
is itself a step, as `partial(run, look(broker))`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from flux_ensemble.queues.flux.delivery import Attempts, Timer, ignore
from flux_ensemble.queues.flux.pipeline import Report

#: Receives the result of a step, or an exception.
Resume = Callable[[Any], None]

#: Begins to wait for something, and calls back once.
Step = Callable[[Resume], object]

Steps = Generator[Step, Any, None]


def raise_error(result: Any) -> None:
    """Raise the result of a sequence if it is an error, for the guard of the callback."""
    if isinstance(result, Exception):
        raise result


def _never() -> bool:
    return False


def run(
    steps: Generator[Step, Any, Any],
    done: Resume = raise_error,
    *,
    over: Callable[[], bool] = _never,
) -> None:
    """Run a sequence.

    Args:
        steps: the sequence.
        done: called once, with the return value of the sequence, or with the error that ended it.
        over: returns True if the result is needed no more: the sequence stops, and `done` is
            not called.
    """

    def resume(result: Any) -> None:
        if over():
            return
        try:
            step = steps.throw(result) if isinstance(result, Exception) else steps.send(result)
        except StopIteration as end:
            done(end.value)
        except Exception as error:
            done(error)
        else:
            step(resume)

    resume(None)


def attempts(
    make: Callable[[], Steps],
    timer: Timer,
    patience: float,
    trouble: Callable[[Exception], None] = ignore,
) -> Step:
    """Return a step that repeats a sequence while its outcome is unknown: `delivery.Attempts`.

    Args:
        make: makes the sequence.
        timer: for the pauses.
        patience: seconds after which it is given up.
        trouble: receives the error of each run that is followed by another one.
    """

    def attempt(report: Report) -> None:
        run(make(), report)

    return lambda done: Attempts(attempt, timer, patience, done, trouble)


def together(*steps: Step) -> Step:
    """Return a step that waits for several steps at once.

    Its result is the list of theirs, or the error of the first of them in order that failed; it
    comes when all have called back.
    """
    return partial(_Together, steps)


class _Together:
    def __init__(self, steps: tuple[Step, ...], resume: Resume) -> None:
        self._resume = resume
        self._results: dict[int, Any] = {}
        self._count = len(steps)
        for place, step in enumerate(steps):
            step(partial(self._take, place))

    def _take(self, place: int, result: Any) -> None:
        self._results[place] = result
        if len(self._results) == self._count:
            results = [self._results[place] for place in range(self._count)]
            errors = (result for result in results if isinstance(result, Exception))
            self._resume(next(errors, results))
