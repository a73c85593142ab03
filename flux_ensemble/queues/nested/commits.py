"""Work that waits until the commands for it are durable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

#: Calls back when all that an ensemble's log has received is durable; dropped with the log.
Durable = Callable[[Callable[[], None]], None]


class Commits:
    """Work that waits for commits: all that is added meanwhile waits for one commit.

    Args:
        durable: waits for a commit, `WriteAheadLog.barrier`.
    """

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._waiting: list[Callable[[], None]] = []
        self._asked = False

    def then(self, work: Callable[[], None]) -> None:
        """Do work when all that the log has received so far is durable."""
        self._waiting.append(work)
        self._ask()

    def step(self, resume: Callable[[None], None]) -> None:
        """Wait for a commit, as a step of a sequence (`queues.flux.steps`)."""
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
