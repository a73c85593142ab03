"""The Flux member: jobs go to Flux's queue, asynchronously and pipelined.

`FluxQueue` is what all ensembles of a service share: the handle, and a bounded number of
submissions and other calls under way, taken in turns. `FluxMember` is one ensemble's
view of it: it makes jobspecs with the environment and working directory of the user who
loaded the document, and reports each command's outcome.

A site's frobnicators see every job, and its validators one of each job set
(`members.flux.submission`). A response can be lost for good (job-ingest reloaded under load), so
nothing is awaited without a limit. What became of a submission without a response is found
out with a fence and with what the journal has shown (`members.flux.delivery`, `members.flux.fence`,
`FluxMember.seen`): no job is submitted twice, and none is given up that runs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from flux.core.handle import Flux

from flux_ensemble.members.flux.delivery import PATIENCE, RESPONSE_SECONDS, Answer, Fences, Outcomes
from flux_ensemble.members.flux.errors import sentence
from flux_ensemble.members.flux.fence import raise_fence
from flux_ensemble.members.flux.inbox import Inbox
from flux_ensemble.members.flux.loop import FluxLoop, guard
from flux_ensemble.members.flux.pipeline import Pipeline, Report, Window
from flux_ensemble.members.flux.release import Release
from flux_ensemble.members.flux.submit_rpc import Submissions

if TYPE_CHECKING:
    from flux_ensemble.runtime.ports import Scaler

#: Submissions under way at once over all ensembles: as many as Flux takes in so many seconds, the
#: number to begin with, and its bounds. The more Flux has the less it needs for each, but what
#: others submit waits behind them; and `members.flux.delivery` takes what is late for lost.
SUBMISSIONS_SECONDS = 4.0
SUBMISSIONS = 2048
FEWEST_SUBMISSIONS = 256
MOST_SUBMISSIONS = 16384

#: Seconds between two lots of calls: responses to requests are not to wait in a queue behind them.
PAUSE = 0.006

#: Other calls under way at once.
CALLS = 256


class FluxQueue:
    """Flux's queue, for any number of ensembles.

    Args:
        handle: Flux handle.
        report: gets exceptions that are nobody's business but the programmer's.
        patience: seconds after which a submission fails if it cannot be found out what became
            of it, for instance because job-ingest is not loaded.

    Attributes:
        inbox: what the journal and responses go through.
        scaler: what the instance grows and shrinks by, or None.
        elsewhere: other ranks where jobs may be on their way that earlier services sent; the next
            fence is raised there, too.
    """

    def __init__(
        self,
        handle: Flux,
        report: Callable[[BaseException], None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self.handle = handle
        self.report = report
        self.guard = guard(report)
        self.patience = patience
        self.scaler: Scaler | None = None
        self.elsewhere: list[int] = []
        self.loop = FluxLoop(handle, self.guard)
        self.inbox = Inbox(handle, report)
        self._sent = Submissions(handle, self.inbox, self.loop)
        later = partial(self.loop.timer, PAUSE)
        window = Window(
            SUBMISSIONS,
            seconds=SUBMISSIONS_SECONDS,
            low=FEWEST_SUBMISSIONS,
            high=MOST_SUBMISSIONS,
        )
        self.submissions = Pipeline(window, later)
        self.calls = Pipeline(Window(CALLS), later)
        self.outcomes = Outcomes(lambda done: self.fence(done), self.loop.timer)
        self._fences = Fences(partial(raise_fence, self), self.loop.timer, patience)

    def fence(self, done: Report) -> None:
        """Call back when all that was submitted before this has shown in the journal.

        Meanwhile no job is submitted.

        Args:
            done: gets None, or why that cannot be known.
        """
        self.submissions.hold()

        def back(error: Exception | None) -> None:
            try:
                done(error)
            finally:
                self.submissions.go_on()

        self._fences.wait(back)

    def hold(self) -> None:
        """Send no jobs, also none again, until `go_on`; holds are counted."""
        self.submissions.hold()
        self._fences.hold()

    def go_on(self) -> None:
        """End one hold."""
        self._fences.go_on()
        self.submissions.go_on()

    def suspend(self) -> None:
        """The journal has ended; what became of a submission cannot be known without it."""
        self._fences.suspend()

    def resume(self) -> None:
        """The journal goes on, and `FluxMember.seen` was told all that it shows again."""
        self._fences.resume()

    def newest(self, done: Callable[[int | Exception], None]) -> None:
        """Ask for the greatest id of a job that the queue has ever had.

        Args:
            done: gets it, or why it cannot be known.
        """
        found: list[int] = []
        self.call(
            self.handle.rpc("job-manager.getinfo"),
            lambda future: found.append(future.get()["max_jobid"]),
            lambda error: done(found[0] if error is None else error),
            RESPONSE_SECONDS,
        )

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        """Submit a job.

        Args:
            text: its jobspec, encoded.
            urgency: 0 holds it.
            answer: gets its id, or why there is none; not if no response comes.
            validate: the validators of job-ingest are to look at it.
        """
        self._sent.send(text, urgency, answer, validate=validate)

    def release(
        self,
        lane: Hashable,
        held: MutableMapping[int, int],
        jobs: Sequence[int],
        known: Mapping[int, int],
        done: Report,
    ) -> None:
        """Release held jobs when they are on disk: see `members.flux.release.Release`."""
        Release(self, lane, held, jobs, known, done)

    def call(
        self,
        future: Any,
        receive: Callable[[Any], None],
        report: Report,
        timeout: float = PATIENCE,
    ) -> None:
        """Report what comes of a future: what `receive` raises for it, or success."""

        def answered(future: Any) -> None:
            try:
                receive(future)
            except Exception as error:
                report(error)
            else:
                report(None)

        def come(future: Any) -> None:
            limit.cancel()
            self.inbox.put(answered, future)

        def late() -> None:
            # The future stays until its response comes; why it has no limit of its own is said
            # in `members.flux.futures`.
            future.stop()
            report(OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

        limit = self.loop.timer(timeout, late)
        future.then(come)

    def change(self, job: int, topic: str, payload: Mapping[str, Any], report: Report) -> None:
        """Have the job manager change a job; one that has ended is no error."""
        self.call(self.handle.rpc(topic, {"id": job, **payload}), _unless_inactive, report)


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
