"""The end of the instance's allocation: finds it, and acts shortly before it comes.

    resource.status ──look──► expires ──► told to the ensembles to which it matters
                                 └─── guard seconds before ──► the queue stops ──► ending

When an allocation expires, Flux starts the waiting jobs one after the other, only to end each at
once by a time limit. So the queue is stopped shortly before. The time limit can change at any time:
if it is extended, the queue is started again. The queue is also started again when no ensemble is
left or when the service is removed, but not when the instance shuts down.

An instance that is started with the state of an earlier one takes that one's resources from its KVS
(flux-core, `src/modules/resource/inventory.c`), time limit included. If that limit is over, no job
can run. Then the true limit is requested from the enclosing instance and sent to the resource
module.

Under Slurm, Flux asks squeue for the time left. Between the limit and the kill, up to half a minute
later, squeue prints INVALID, which Flux takes for no limit. So once the guard has fired, a limit
that has disappeared is believed to be gone only if it stays away for some seconds before the old
end.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import flux.job
from flux.core.handle import Flux

from flux_ensemble.queues.flux.allocations import expires_at
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.steps import Steps, run
from flux_ensemble.runtime.ports import Handle
from flux_ensemble.service.settings import EXPIRING, t_instance

#: Seconds between two requests for the time limit of the instance's job, which can change. Near the
#: end they are more frequent.
SPACING_SECONDS = 30.0
GUARD_SPACING_SECONDS = 1.0

#: Seconds to wait for each response.
RESPONSE_SECONDS = 10.0

#: The guard takes at most this share of the allocation.
GUARD_SHARE = 0.05

#: Seconds, all before the end, for which no limit must be reported until that is believed.
LASTING_SECONDS = 3.0


class Allocation:
    """Follows when the allocation expires, while an ensemble needs to know.

    Args:
        broker: of the Flux instance.
        guard: seconds before the end from which no job is started any more; 0 for never.
        changed: called after each response with the time limit.
        ending: called after each response once the guard's time has come, with the time at which
            the allocation expires.
        log_error: writes a line to the service's log.

    Attributes:
        known: the time limit has been received.
        t_expires: when the allocation expires; None if it has no limit, or before it is known.
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
        #: When the limit was first missing from a response after the guard had fired.
        self._t_gone: float | None = None

    def outlasts(self, t_end: float) -> bool:
        """Return True if the allocation continues after an end that was imminent.

        Args:
            t_end: when the allocation was to expire when its guard fired, in this instance or in
                an earlier one with the same state.
        """
        if self.t_expires is not None:
            return self.t_expires != t_end
        # For an instance that outlives its own end, Slurm's INVALID means nothing.
        t_begin = t_instance(self._broker.handle.attr_get)
        return t_begin is None or not t_begin < t_end <= time.time()

    def watch(self) -> None:
        """Request the time limit now, and repeat that from time to time."""
        if self._timer is None:
            self._look()

    def rest(self, *, start_queue: bool = True) -> None:
        """Stop requesting the time limit.

        Args:
            start_queue: start the queue again if it was stopped here, since nobody else will.
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
        execution = future.get()["R"]["execution"]
        expires = expires_at(execution.get("expiration"))
        if expires is None and not self._is_gone():
            return
        self._t_gone = None
        self.t_expires = expires
        self._t_guard = math.inf
        if self.t_expires is not None and self._guard:
            # Resources that Flux has found by itself have no start.
            t_start = (
                execution.get("starttime")
                or t_instance(self._broker.handle.attr_get)
                or time.time()
            )
            lasts = self.t_expires - t_start
            self._t_guard = self.t_expires - min(self._guard, GUARD_SHARE * lasts)

    def _is_gone(self) -> bool:
        """Return True if a limit that is missing from the response is really gone."""
        if not self._stopped or self.t_expires is None:
            return True
        now = time.time()
        if self._t_gone is None:
            self._t_gone = now
        return now < self.t_expires and now - self._t_gone >= LASTING_SECONDS

    def _is_of_earlier(self) -> bool:
        """Return True if the limit is over, and was over before this instance began."""
        if self.t_expires is None or self.t_expires > time.time():
            return False
        t_begin = t_instance(self._broker.handle.attr_get)
        return t_begin is None or self.t_expires <= t_begin

    def _renew(self) -> Steps:
        """Replace the time limit, which is that of an earlier instance."""
        handle = self._broker.handle
        t_expired = self.t_expires
        try:
            true = expiration(handle.attr_get) or 0.0
            # A limit that Flux itself has got from Slurm meanwhile must not be overwritten.
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

        self._broker.start_queues(not stopped, EXPIRING, done)


def expiration(attr_get: Callable[[str], Any]) -> float | None:
    """Return the time when the job of an instance expires.

    None if the instance is no job, or has no time limit. This blocks until the enclosing instance
    answers, for `RESPONSE_SECONDS` at most.

    Args:
        attr_get: `flux.Flux.attr_get` of a handle of the instance.

    Raises:
        OSError: the enclosing instance does not answer, or does not know the job.
    """
    try:
        uri, job = attr_get("parent-uri"), attr_get("jobid")
    except OSError:
        return None
    if not uri or not job:
        return None
    request = {"id": int(flux.job.JobID(job)), "keys": ["R"], "flags": 0}
    future = Flux(uri).rpc("job-info.lookup", request)
    future.wait_for(RESPONSE_SECONDS)
    given = future.get()["R"]
    execution = (json.loads(given) if isinstance(given, str) else given)["execution"]
    return expires_at(execution.get("expiration"))
