"""An asynchronous client of a Flux broker: calls with a time limit, and changes of jobs.

    broker = Broker(handle, report)
    broker.call(broker.handle.rpc("resource.status"), done)

Jobs are submitted by `queues.flux.queue`. All other requests to Flux go through this module, in the
order of the handle, and their responses through the inbox.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flux.job
from flux.core.handle import Flux

from flux_ensemble.queues.flux.delivery import PATIENCE, RESPONSE_SECONDS
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.inbox import Inbox, unread
from flux_ensemble.queues.flux.loop import FluxLoop, guard
from flux_ensemble.queues.flux.pipeline import Pipeline, Report, Window
from flux_ensemble.queues.flux.steps import Resume, Step

#: Calls in progress at once.
CALLS = 256

#: Seconds between two turns of calls, so that responses to clients need not wait behind them.
PAUSE = 0.006


def get(future: Any) -> Any:
    """Return the payload of the response."""
    return future.get()


def check(future: Any) -> None:
    """Raise the error of a future, if it has one; ignore the payload of the response."""
    future.get()


class Broker:
    """A handle with its reactor.

    Args:
        handle: Flux handle.
        report: called with unexpected exceptions.
        main: another handle, whose reactor has the timers, if the handle's own reactor is run
            from that one (`queues.nested.pump`).
        more: returns True if the handle has messages to be read.

    Attributes:
        handle, report: as given.
        guard: wraps callbacks, so that `report` receives their exceptions.
        loop: the reactor with the timers.
        inbox: the queue through which events of the journal and responses go.
        calls: the pipeline in which ensembles take turns with their calls.
    """

    def __init__(
        self,
        handle: Flux,
        report: Callable[[BaseException], None],
        *,
        main: Flux | None = None,
        more: Callable[[], bool] | None = None,
    ) -> None:
        self.handle = handle
        self.report = report
        self.guard = guard(report)
        self.loop = FluxLoop(main or handle, self.guard)
        self.inbox = Inbox(self.loop, more or partial(unread, handle), report)
        self.calls = Pipeline(Window(CALLS), partial(self.loop.timer, PAUSE))

    def call(
        self,
        future: Any,
        done: Resume,
        receive: Callable[[Any], Any] = get,
        seconds: float = PATIENCE,
    ) -> None:
        """Wait for a response.

        Args:
            future: of the request.
            done: receives the result of `receive`, or the exception that it raises.
            receive: makes the result from the future.
            seconds: the time limit.
        """

        def answered(future: Any) -> None:
            try:
                result = receive(future)
            except Exception as error:
                done(error)
            else:
                done(result)

        def come(future: Any) -> None:
            limit.cancel()
            self.inbox.put(answered, future)

        def late() -> None:
            # The future stays until its response comes; `queues.flux.futures` has the reason why it
            # has no time limit of its own.
            future.stop()
            done(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

        limit = self.loop.timer(seconds, late)
        future.then(come)

    def response(
        self,
        future: Any,
        receive: Callable[[Any], Any] = get,
        seconds: float = RESPONSE_SECONDS,
    ) -> Step:
        """Wait for a response, as a step of a sequence: see `call`."""
        return partial(self.call, future, receive=receive, seconds=seconds)

    def pause(self, seconds: float) -> Step:
        """Wait for some time, as a step of a sequence."""
        return lambda resume: self.loop.timer(seconds, partial(resume, None))

    def change(self, job: int, topic: str, payload: Mapping[str, Any], report: Report) -> None:
        """Have the job manager change a job; a job that has ended is no error."""
        self.call(self.handle.rpc(topic, {"id": job, **payload}), report, _unless_inactive)

    def start_queues(self, start: bool, reason: str, report: Report) -> None:
        """Start or stop all queues; this holds until the job manager is unloaded.

        Args:
            start: start them, else stop them.
            reason: the reason why they are stopped.
            report: receives the outcome.
        """
        request = {"start": start, "all": True, "nocheckpoint": True, "reason": reason}
        future = self.handle.rpc("job-manager.queue-start", request, nodeid=0)
        self.call(future, report, check)

    def cancel(self, job: int, reason: str, report: Report) -> None:
        """Raise a cancel exception on a job; a job that has ended is no error."""
        future = flux.job.cancel_async(self.handle, job, reason)
        self.call(future, report, _unless_inactive)


def _unless_inactive(future: Any) -> None:
    """Raise the future's error, unless the job has ended or can no longer be changed.

    The job manager distinguishes these errors by the text alone (`urgency.c`, `update.c` and
    `raise.c` in flux-core's job-manager).
    """
    try:
        future.get()
    except OSError as error:
        over = "inactive" in sentence(error) or "once resources are allocated" in sentence(error)
        if error.errno != errno.ENOENT and not over:
            raise
