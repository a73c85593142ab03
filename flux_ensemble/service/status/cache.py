"""The latest numbers of the instance, for the status: recent, and mostly without waiting.

A busy Flux takes long to answer, and clients may request the status all the time. So an answer is
used again while it is recent, and requested again before it is old: frequent requests do not wait,
and Flux never has two requests at once. In a burst Flux answers late; then the previous answer is
used a little longer, so that not every request waits for a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from flux_ensemble.runtime.ports import Loop, Numbers
from flux_ensemble.service.status.conditions import Conditions

#: Seconds after which an answer is not used any more, and after which it is requested again.
OLD_SECONDS = 1.0
RENEW_SECONDS = 0.2

#: Seconds after which an answer is not used any more even if the next one has been requested.
BUSY_SECONDS = 5.0

#: Seconds after which a request counts as lost.
LOST_SECONDS = 10.0

#: Receives the numbers of nodes and of jobs, and the conditions that can keep jobs waiting.
Take = Callable[[Numbers, Numbers, Conditions | None], None]


class Cache:
    """The latest answer, at most `OLD_SECONDS` old, or `BUSY_SECONDS` if Flux is slow.

    Args:
        ask: requests an answer.
        loop: for the time.
    """

    def __init__(self, ask: Callable[[Take], None], loop: Loop) -> None:
        self._ask = ask
        self._loop = loop
        self._answer: tuple[Numbers, Numbers, Conditions | None] | None = None
        self._t_answer = -math.inf
        self._t_asked = -math.inf
        self._waiting: list[Take] = []

    def get(self, done: Take) -> None:
        """Call back with the answer, at once or when it arrives."""
        now = self._loop.now()
        asked = _is_within(LOST_SECONDS, self._t_asked, now)
        old = BUSY_SECONDS if asked else OLD_SECONDS
        if self._answer is not None and _is_within(old, self._t_answer, now):
            done(*self._answer)
        else:
            self._waiting.append(done)
        due = self._waiting or not _is_within(RENEW_SECONDS, self._t_answer, now)
        if due and not asked:
            self._t_asked = now
            try:
                self._ask(partial(self._answered, now))
            except Exception:
                self._t_asked = -math.inf
                # The caller receives the exception, and must not receive an answer besides.
                if done in self._waiting:
                    self._waiting.remove(done)
                    raise

    def _answered(
        self, t_asked: float, nodes: Numbers, jobs: Numbers, conditions: Conditions | None
    ) -> None:
        self._answer, self._t_answer = (nodes, jobs, conditions), t_asked
        self._t_asked = -math.inf
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            # In a turn of its own, so that an exception of one callback does not affect the others.
            self._loop.timer(0.0, partial(done, nodes, jobs, conditions))


def _is_within(seconds: float, t: float, now: float) -> bool:
    """Return True if `t` is less than so long ago; False if it is after `now` (clock set back)."""
    return 0 <= now - t < seconds
