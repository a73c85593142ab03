"""Until when the allocation of the instance lasts, and what is done when it is about to expire.

    resource.status ──look──► expires ──► told to the ensembles to which it matters
                                 └─── guard seconds before ──► the queue stops ──► ending

When an allocation expires, Flux starts the jobs that wait, one after the other, only to end each at
once by a time limit. So shortly before, the queue is stopped. The time limit can change at any
time; where it is prolonged, the queue is started again. So it is when no ensemble is left, or the
service is removed, but not when the instance shuts down.

An instance that is started with the state of an earlier one takes the resources of that from its
KVS (flux-core, `src/modules/resource/inventory.c`), time limit included. If that is over, no job
can run. Then the enclosing instance is asked for the true one, and the resource module told.

Under Slurm, Flux asks squeue for the time left. Between the limit and the kill, up to half a minute
later, squeue prints INVALID, which Flux takes for no limit. So once the guard has fired, a limit
that is gone is believed only if it stays away for some seconds before the old end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.parent_instance import expiration
from flux_ensemble.queues.flux.steps import Steps, run
from flux_ensemble.runtime.ports import Handle

#: Seconds between looks: the time limit of an instance's job can be changed. Near the end they are
#: more frequent.
SPACING_SECONDS = 30.0
GUARD_SPACING_SECONDS = 1.0

#: Seconds to wait for each response.
RESPONSE_SECONDS = 10.0

#: The guard takes at most this part of the allocation.
GUARD_SHARE = 0.05

#: For how many seconds, all before the end, the time limit has to be gone to be believed gone.
LASTING_SECONDS = 3.0

#: Why the queue is stopped, for `flux queue status`.
STOP_REASON = "the allocation is about to expire"


class Allocation:
    """Looks when the allocation expires, while that is wanted.

    Args:
        broker: of the Flux instance.
        guard: how many seconds before the end nothing is started any more; 0 for never.
        changed: called after each look.
        ending: called after each look from when the guard's time has come, with the time when the
            allocation expires.
        log_error: writes a line to the service's log.

    Attributes:
        known: it has been looked at.
        t_expires: when it expires; None where it has no limit, or before it is known.
    """

    def __init__(
        self,
        broker: Broker,
        guard: float,
        changed: Callable[[], None],
        ending: Callable[[float], None],
        log_error: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._guard = guard
        self._changed = changed
        self._ending = ending
        self._log_error = log_error
        self.known = False
        self.t_expires: float | None = None
        self._t_guard = math.inf
        self._timer: Handle | None = None
        self._stopped = False
        self._renewed = False
        #: Since when no limit is reported although the guard has fired.
        self._t_gone: float | None = None

    def outlasts(self, t_end: float) -> bool:
        """Whether there is time after an end that was about to come.

        Args:
            t_end: when the allocation was to expire when its guard fired, in this instance or in
                an earlier one with the same state.
        """
        if self.t_expires is not None:
            return self.t_expires != t_end
        # Of an instance that goes on beyond its own end, Slurm's INVALID says nothing.
        t_instance = self._t_instance()
        return t_instance is None or not t_instance < t_end <= time.time()

    def watch(self) -> None:
        """Look now, and from time to time."""
        if self._timer is None:
            self._look()

    def rest(self, *, start_queue: bool = True) -> None:
        """Look no more.

        Args:
            start_queue: start the queue again if it was stopped here: nobody sees to it any more.
        """
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self.known = False
        if start_queue:
            self._stop_queue(False)

    def _look(self) -> None:
        self._again(SPACING_SECONDS)
        run(self._steps(), over=lambda: self._timer is None)

    def _again(self, after: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._broker.loop.timer(after, self._look)

    def _steps(self) -> Steps:
        future = self._broker.handle.rpc("resource.status", {}, nodeid=0)
        try:
            yield self._broker.response(future, self._receive, RESPONSE_SECONDS)
        except Exception as error:
            self._log_error(f"cannot tell when the allocation expires: {sentence(error)}")
            return
        if not self._renewed and self._is_of_earlier():
            self._renewed = True
            yield from self._renew()
            self._look()
            return
        self._renewed = True
        self.known = True
        self._changed()
        left = self._t_guard - time.time()
        if left <= 0.0 and self.t_expires is not None:
            self._stop_queue(True)
            self._ending(self.t_expires)
            self._again(GUARD_SPACING_SECONDS)
        else:
            self._stop_queue(False)
            self._again(min(left, SPACING_SECONDS))

    def _receive(self, future: Any) -> None:
        # An R (RFC 20); 0 is no limit.
        execution = future.get()["R"]["execution"]
        t_expires = execution.get("expiration") or None
        if t_expires is None and not self._is_gone():
            return
        self._t_gone = None
        self.t_expires = t_expires
        self._t_guard = math.inf
        if self.t_expires is not None and self._guard:
            # Resources that Flux has found by itself have no start.
            t_start = execution.get("starttime") or self._t_instance() or time.time()
            lasts = self.t_expires - t_start
            self._t_guard = self.t_expires - min(self._guard, GUARD_SHARE * lasts)

    def _is_gone(self) -> bool:
        """Whether a limit that is not reported any more is really gone."""
        if not self._stopped or self.t_expires is None:
            return True
        now = time.time()
        if self._t_gone is None:
            self._t_gone = now
        return now < self.t_expires and now - self._t_gone >= LASTING_SECONDS

    def _is_of_earlier(self) -> bool:
        """Whether the limit is over, and was so before this instance began."""
        if self.t_expires is None or self.t_expires > time.time():
            return False
        t_instance = self._t_instance()
        return t_instance is None or self.t_expires <= t_instance

    def _t_instance(self) -> float | None:
        """When the instance began; None where Flux does not tell."""
        try:
            return float(self._broker.handle.attr_get("broker.starttime"))
        except (OSError, ValueError):
            return None

    def _renew(self) -> Steps:
        """The time limit is that of an earlier instance: replace it."""
        handle = self._broker.handle
        t_expired = self.t_expires
        try:
            true = expiration(handle.attr_get) or 0.0
            # What Flux's own look at Slurm has set meanwhile is not to be overwritten.
            future = handle.rpc("resource.status", {}, nodeid=0)
            yield self._broker.response(future, self._receive, RESPONSE_SECONDS)
            if self.t_expires != t_expired:
                return
            request = {"expiration": true}
            future = handle.rpc("resource.expiration-update", request, nodeid=0)
            yield self._broker.response(future, seconds=RESPONSE_SECONDS)
        except Exception as error:
            self._log_error(
                f"Flux takes the allocation for expired since {t_expired or 0.0:.0f}, the time "
                f"limit of the instance whose state this one was started with: {sentence(error)}"
            )

    def _stop_queue(self, stopped: bool) -> None:
        """Stop the queue of the instance, or start it again if it was stopped here."""
        if stopped == self._stopped:
            return
        self._stopped = stopped

        def done(error: Exception | None) -> None:
            if error is not None:
                what = "stop" if stopped else "start"
                self._log_error(f"cannot {what} the queue: {sentence(error)}")

        self._broker.start_queues(not stopped, STOP_REASON, done)
