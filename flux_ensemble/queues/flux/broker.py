"""A Flux broker as an asynchronous client sees it: calls with a limit, and changes of jobs.

    broker = Broker(handle, report)
    broker.call(broker.handle.rpc("resource.status"), done)

What is submitted goes through `queues.flux.queue`; everything else that is asked of Flux goes
through here, in the order of the handle, and its responses through the inbox.
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

#: Calls under way at once.
CALLS = 256

#: Seconds between two lots of calls: responses to requests are not to wait in a queue behind them.
PAUSE = 0.006


def get(future: Any) -> Any:
    """The response."""
    return future.get()


def check(future: Any) -> None:
    """Raise the error of a future, if it is one; what the response says is of no interest."""
    future.get()


class Broker:
    """A handle with its reactor.

    Args:
        handle: Flux handle.
        report: called with unexpected exceptions.
        main: another handle, whose reactor has the timers, where the handle's own is run from that
            (`queues.nested.pump`).
        more: there are messages to be read by the handle.

    Attributes:
        handle, report: as given.
        guard: wraps callbacks, so that `report` gets what they raise.
        loop: the reactor with the timers.
        inbox: what the journal and responses go through.
        calls: takes turns between ensembles that make many calls.
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
            done: gets what `receive` makes of the future, or the error that it raises.
            receive: makes the result of the future.
            seconds: how long.
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
            # The future stays until its response comes; why it has no limit of its own is said
            # in `queues.flux.futures`.
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
        """Wait so long, as a step of a sequence."""
        return lambda resume: self.loop.timer(seconds, partial(resume, None))

    def change(self, job: int, topic: str, payload: Mapping[str, Any], report: Report) -> None:
        """Have the job manager change a job; one that has ended is no error."""
        self.call(self.handle.rpc(topic, {"id": job, **payload}), report, _unless_inactive)

    def start_queues(self, start: bool, reason: str, report: Report) -> None:
        """Start or stop all queues, for as long as the job manager is loaded.

        Args:
            start: start them, else stop them.
            reason: why they are stopped.
            report: gets the outcome.
        """
        request = {"start": start, "all": True, "nocheckpoint": True, "reason": reason}
        future = self.handle.rpc("job-manager.queue-start", request, nodeid=0)
        self.call(future, report, check)

    def cancel(self, job: int, reason: str, report: Report) -> None:
        """Raise a cancel exception on a job; one that has ended is no error."""
        future = flux.job.cancel_async(self.handle, job, reason)
        self.call(future, report, _unless_inactive)


def _unless_inactive(future: Any) -> None:
    """Raise the future's error, except where the job has ended or can no longer be changed.

    The job manager tells these apart by its sentence alone (`urgency.c`, `update.c` and
    `raise.c` in flux-core's job-manager).
    """
    try:
        future.get()
    except OSError as error:
        over = "inactive" in sentence(error) or "once resources are allocated" in sentence(error)
        if error.errno != errno.ENOENT and not over:
            raise
