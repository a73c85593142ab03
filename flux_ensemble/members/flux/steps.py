"""Sequences of calls that read as sequences: generators that yield what they wait for.

    def look(broker: Broker) -> Steps:
        config = yield broker.response(broker.handle.rpc("config.get"))
        yield broker.pause(0.1)
        ...

    run(look(broker), report)

What is yielded is a `Step`: it begins to wait, and calls back once. An error is raised in the
generator, where it can be caught; one that is not ends the sequence and is what it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from flux_ensemble.members.flux.delivery import Attempts, Timer
from flux_ensemble.members.flux.pipeline import Report

#: Takes what a step has come to: its result, or an exception.
Resume = Callable[[Any], None]

#: Begins to wait for something, and calls back once.
Step = Callable[[Resume], None]

Steps = Generator[Step, Any, None]


def run(steps: Steps, report: Report) -> None:
    """Run a sequence.

    Args:
        steps: the sequence.
        report: called once, with None at its end, or with the error that ended it.
    """

    def resume(result: Any) -> None:
        try:
            step = steps.throw(result) if isinstance(result, Exception) else steps.send(result)
        except StopIteration:
            report(None)
        except Exception as error:
            report(error)
        else:
            step(resume)

    resume(None)


def attempts(make: Callable[[], Steps], timer: Timer, patience: float) -> Step:
    """Run a sequence again while its outcome is unknown: see `delivery.Attempts`.

    Args:
        make: makes the sequence.
        timer: for the pauses.
        patience: seconds after which it is given up.
    """
    return lambda resume: _attempt(make, timer, patience, resume)


def _attempt(make: Callable[[], Steps], timer: Timer, patience: float, resume: Resume) -> None:
    Attempts(lambda report: run(make(), report), timer, patience, resume)
