"""What waits until it is durable that it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

#: Calls back when all that an ensemble's log was given is durable; dropped with the log.
Durable = Callable[[Callable[[], None]], None]


class Commits:
    """Waits for commits, once for all that comes meanwhile.

    Args:
        durable: waits for one, `WriteAheadLog.barrier`.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._waiting: list[Callable[[], None]] = []
        self._asked = False

    def then(self, work: Callable[[], None]) -> None:
        """Do something when all that was given until now is durable."""
        self._waiting.append(work)
        self._ask()

    def step(self, resume: Callable[[None], None]) -> None:
        """Wait for that, as a step of a sequence (`queues.flux.steps`)."""
        self.then(partial(resume, None))

    def _ask(self) -> None:
        if self._waiting and not self._asked:
            self._asked = True
            waiting, self._waiting = self._waiting, []

            def durable() -> None:
                self._asked = False
                for work in waiting:
                    work()
                self._ask()

            self._durable(durable)
