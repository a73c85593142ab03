"""Flux's queue: jobs are submitted asynchronously and pipelined.

`FluxQueue` is shared by all ensembles of a service: a bounded number of submissions in progress,
with turns, and fences. `queues.flux.member` is one ensemble's view of it: it makes jobspecs
with the environment and working directory of the user who loaded the document, and reports
each command's outcome.

A site's frobnicators see every job, and its validators one of each job set
(`queues.flux.submission`). A response can be lost for good (job-ingest reloaded under load), so
every wait has a time limit. The outcome of a submission without a response is found out with a
fence and from the journal (`queues.flux.delivery`, `queues.flux.fence`, `Submitter.seen`): no job
is submitted twice, and no job that runs is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from flux_ensemble.queues.flux.broker import PAUSE, Broker
from flux_ensemble.queues.flux.delivery import PATIENCE, RESPONSE_SECONDS, Answer, Fences, Outcomes
from flux_ensemble.queues.flux.excluded_ranks import Others
from flux_ensemble.queues.flux.fence import raise_fence
from flux_ensemble.queues.flux.nested_jobs import read_json
from flux_ensemble.queues.flux.pipeline import Pipeline, Report, Window
from flux_ensemble.queues.flux.release import Release
from flux_ensemble.queues.flux.submit_rpc import Submissions

#: Submissions in progress at once over all ensembles: as many as Flux accepts in this many seconds,
#: the number to begin with, and its bounds. With more of them Flux needs less time for each, but
#: the submissions of others wait behind them; and `queues.flux.delivery` takes late ones for lost.
SUBMISSIONS_SECONDS = 3.0
SUBMISSIONS = 2048
FEWEST_SUBMISSIONS = 256
MOST_SUBMISSIONS = 16384


class FluxQueue:
    """Flux's queue, for any number of ensembles.

    Args:
        broker: the broker of the instance.
        patience: seconds after which a fence that cannot be raised is begun again.

    Attributes:
        others: finds out which nodes a job can be kept off.
        elsewhere: other ranks where jobs of earlier services may be on their way; the next
            fence is raised there, too.
    """

    def __init__(self, broker: Broker, *, patience: float = PATIENCE) -> None:
        self.broker = broker
        self.elsewhere: list[int] = []
        self._patience = patience
        self._sent = Submissions(broker.handle, broker.inbox, broker.loop)
        window = Window(
            SUBMISSIONS,
            seconds=SUBMISSIONS_SECONDS,
            low=FEWEST_SUBMISSIONS,
            high=MOST_SUBMISSIONS,
        )
        self.submissions = Pipeline(window, partial(broker.loop.timer, PAUSE))
        self.outcomes = Outcomes(lambda done: self.fence(done), broker.loop.timer)
        self._fences = Fences(self.raise_fence, broker.loop.timer, patience)
        self.others = Others(broker)

    def raise_fence(self, report: Report) -> None:
        """Begin one fence, behind all that was sent before it; others call `fence`."""
        raise_fence(self.broker, self.elsewhere, report)

    def fence(self, done: Report) -> None:
        """Call back when the journal has shown all that was submitted before this.

        No job is submitted meanwhile.

        Args:
            done: receives None, or the error if there was no fence.
        """
        self.submissions.hold()

        def back(error: Exception | None) -> None:
            try:
                done(error)
            finally:
                self.submissions.go_on()

        self._fences.wait(back)

    def hold(self) -> None:
        """Send no jobs, and repeat none, until `go_on`; holds are counted."""
        self.submissions.hold()
        self._fences.hold()

    def go_on(self) -> None:
        """End one hold."""
        self._fences.go_on()
        self.submissions.go_on()

    def suspend(self) -> None:
        """Note that the journal has ended; without it the outcome of a submission is unknown."""
        self._fences.suspend()

    def resume(self) -> None:
        """Note that the journal goes on, and that `Submitter.seen` received all that it showed."""
        self._fences.resume()

    def newest(self, done: Callable[[int | Exception], None]) -> None:
        """Request the greatest id of a job that the queue has ever had.

        Args:
            done: receives the id, or the error.
        """
        future = self.broker.handle.rpc("job-manager.getinfo")
        self.broker.call(future, done, _max_jobid, RESPONSE_SECONDS)

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None:
        """Read the eventlog of a job from the KVS.

        Args:
            job: its id.
            done: receives its entries (RFC 18), or the error.
        """
        request = {"id": job, "keys": ["eventlog"], "flags": 0}
        future = self.broker.handle.rpc("job-info.lookup", request)
        self.broker.call(future, done, _entries, RESPONSE_SECONDS)

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        """Submit a job.

        Args:
            text: its jobspec, encoded.
            urgency: 0 holds it.
            answer: receives its id, or the error; it is not called if no response comes.
            validate: the validators of job-ingest are to check the job.
        """
        self._sent.send(text, urgency, answer, validate=validate)

    def release(
        self,
        lane: Hashable,
        held: MutableMapping[int, int],
        jobs: Sequence[int],
        known: Mapping[int, int],
        done: Report,
        *,
        trouble: Callable[[Exception], None],
    ) -> None:
        """Release held jobs when they are on disk: see `queues.flux.release.Release`."""
        Release(self.broker, lane, held, jobs, known).begin(done, trouble)


def _max_jobid(future: Any) -> int:
    newest: int = future.get()["max_jobid"]
    return newest


def _entries(future: Any) -> list[Any]:
    return [read_json(line) for line in future.get()["eventlog"].splitlines()]
