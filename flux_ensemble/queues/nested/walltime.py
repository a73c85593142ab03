"""The end of a member's allocation, which can change while the member runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from flux_ensemble.queues.flux.steps import Resume, Steps, run
from flux_ensemble.queues.nested.service_handle import Followed
from flux_ensemble.queues.nested.timers import Timers

#: Least seconds before its walltime at which a member's queue is stopped.
STOP_SECONDS = 5.0

#: Seconds between two requests for the expiration of its allocation.
LOOK_SECONDS = 30.0


class Walltime:
    """A timer that drains a member some time before its allocation ends.

    Args:
        timers: of the member.
        drain: seconds before the end, STOP_SECONDS at least.
        drained: called at that time, with the reason.
        told: receives the expiration of the allocation, even if that has not changed.
    """

    def __init__(
        self,
        timers: Timers,
        drain: float,
        drained: Callable[[str], None],
        told: Callable[[float | None], None],
    ) -> None:
        self._timers = timers
        self._drain = max(drain, STOP_SECONDS)
        self._drained = drained
        self._told = told

    def watch(self, instance: Followed) -> None:
        """Watch a member from now on, until the connection is closed."""
        run(self._watch(instance), over=lambda: instance.closed)

    def _watch(self, instance: Followed) -> Steps:
        while True:
            t_expires = instance.ends.t_expires
            self._told(t_expires)
            left = LOOK_SECONDS if t_expires is None else t_expires - self._drain - time.time()
            if left <= 0.0:
                # The jobs there go on until the end, which can still be changed.
                left = LOOK_SECONDS
                self._drained("its walltime is about to end")
            if instance.closed:
                return
            yield partial(self._pause, min(left, LOOK_SECONDS))
            with suppress(Exception):
                # A request that fails is repeated the next time.
                yield from instance.look()

    def _pause(self, seconds: float, resume: Resume) -> None:
        self._timers.later("walltime", seconds, partial(resume, None))
