"""When the allocation of a member ends, which can be changed while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from flux_ensemble.members.flux.steps import run
from flux_ensemble.members.nested.attached import Followed
from flux_ensemble.members.nested.timers import Timers

#: Seconds before its walltime at which a member's queue is stopped, at least.
STOP_SECONDS = 5.0

#: Seconds between two looks at when its allocation expires.
LOOK_SECONDS = 30.0


class Walltime:
    """Has a member drained some time before its allocation ends.

    Args:
        timers: of the member.
        drain: seconds before that, STOP_SECONDS at least.
        drained: called then, with the reason.
        told: gets when the allocation expires, also where that is no news.
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
        """Watch it from now on, until the connection is closed."""
        t_expires = instance.ends.t_expires
        self._told(t_expires)
        left = LOOK_SECONDS if t_expires is None else t_expires - self._drain - time.time()
        if left <= 0.0:
            # What runs there goes on until then, which can still be changed.
            left = LOOK_SECONDS
            self._drained("its walltime is about to end")

        def looked(error: Exception | None) -> None:
            if not instance.closed:
                self.watch(instance)

        if not instance.closed:
            look_again = min(left, LOOK_SECONDS)
            self._timers.later("walltime", look_again, lambda: run(instance.look(), looked))
