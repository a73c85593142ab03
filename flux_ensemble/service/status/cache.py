"""The latest numbers of the instance, for the status: new enough, and mostly at once.

A busy Flux takes long to answer, and somebody may ask for the status all the time. So an answer
is used again while it is new, and asked for again before it is old: who asks often does not
wait, and Flux is never asked twice at once. In a burst Flux takes its time; then the answer before
is used a little longer, rather than have everybody wait for a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from flux_ensemble.runtime.ports import Loop, Numbers
from flux_ensemble.service.status.conditions import Conditions

#: Seconds after which an answer is not used any more, and after which it is asked for again.
OLD_SECONDS = 1.0
RENEW_SECONDS = 0.2

#: Seconds after which it is not used any more even if the next one is on its way.
BUSY_SECONDS = 5.0

#: Seconds after which a request counts as lost.
LOST_SECONDS = 10.0

#: Gets the numbers of nodes and of jobs, and what can keep jobs waiting.
Take = Callable[[Numbers, Numbers, Conditions | None], None]


class Cache:
    """The latest answer, as of up to `OLD_SECONDS` ago, or `BUSY_SECONDS` where Flux is slow.

    Args:
        ask: asks for an answer.
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
        """Get it at once, or when it is there."""
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
                # Who waits gets the exception, and no answer besides.
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
            # In a turn of its own, so that an exception of one is nobody else's.
            self._loop.timer(0.0, partial(done, nodes, jobs, conditions))


def _is_within(seconds: float, t: float, now: float) -> bool:
    """Time `t` is less than so long ago; after `now` it is not, the clock was set back then."""
    return 0 <= now - t < seconds
