"""Sequences of calls that read as sequences: generators that yield what they wait for.

    def look(broker: Broker) -> Steps:
        config = yield broker.response(broker.handle.rpc("config.get"))
        yield broker.pause(0.1)
        ...

    run(look(broker), report)

What is yielded is a `Step`: it begins to wait, and calls back once. An error is raised in the
generator, where it can be caught; one that is not ends the sequence and is what it reports.
A sequence is a step itself, with `partial(run, look(broker))`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from flux_ensemble.queues.flux.delivery import Attempts, Timer, ignore
from flux_ensemble.queues.flux.pipeline import Report

#: Takes what a step has come to: its result, or an exception.
Resume = Callable[[Any], None]

#: Begins to wait for something, and calls back once.
Step = Callable[[Resume], object]

Steps = Generator[Step, Any, None]


def raise_error(result: Any) -> None:
    """Raise what a sequence has come to, if that is an error: the guard of the callback gets it."""
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
        done: called once, with what it returns, or with the error that ended it.
        over: nobody waits for it any more: it goes no further, and `done` is not called.
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
    """Run a sequence again while its outcome is unknown: see `delivery.Attempts`.

    Args:
        make: makes the sequence.
        timer: for the pauses.
        patience: seconds after which it is given up.
        trouble: gets the error of each run that is followed by another one.
    """

    def attempt(report: Report) -> None:
        run(make(), report)

    return lambda done: Attempts(attempt, timer, patience, done, trouble)


def together(*steps: Step) -> Step:
    """Wait for several steps at once.

    The result is a list of theirs, or the error of the first of them that has failed; it comes
    when none is left to be waited for.
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
