"""The jobs of one ensemble in Flux's queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import flux.job

from flux_ensemble.engine.commands import CancelJobs, Scale, UpdateJobs
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.queues.flux.delivery import PATIENCE, Attempts
from flux_ensemble.queues.flux.errors import errno_name, sentence
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.flux.refusals import is_lost
from flux_ensemble.queues.flux.steps import Step, run
from flux_ensemble.queues.flux.submission import EnsembleRun, Submitter
from flux_ensemble.runtime.ports import Done, Outcome, Scaler
from flux_ensemble.texts import bounded


class FluxMember(Submitter):
    """The jobs of one ensemble in Flux's queue: a `runtime.ports.Queue`; see `Submitter`.

    Args:
        queue, ensemble, warn, news: as for `Submitter`.
        scaler: returns the scaler of the instance; None if its size is fixed.
    """

    def __init__(
        self,
        queue: FluxQueue,
        ensemble: EnsembleRun,
        *,
        scaler: Callable[[], Scaler | None] = lambda: None,
        warn: Callable[[str], None] = lambda text: None,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(queue, ensemble, warn=warn, news=news)
        self._broker = queue.broker
        self._scaler = scaler

    @property
    def elastic(self) -> bool:
        """True if the size of the instance can change."""
        return self._scaler() is not None

    def cancel(self, command: CancelJobs, done: Done) -> None:
        """Raise a cancel exception on each job."""

        def start(call: int, report: Report) -> None:
            self._broker.cancel(command.jobs[call], command.reason, report)

        run(self._calls(command.id, "cancel", command.jobs, start), done)

    def update(self, command: UpdateJobs, done: Done) -> None:
        """Set the urgency, or the duration, or both, of each job."""
        requests: list[tuple[int, str, dict[str, Any]]] = []
        updates = {"attributes.system.duration": command.duration}
        for job in command.jobs:
            if command.urgency is not None and job in self._held:
                self._held[job] = command.urgency
            elif command.urgency is not None:
                requests.append((job, "job-manager.urgency", {"urgency": command.urgency}))
            if command.duration is not None:
                requests.append((job, "job-manager.update", {"updates": updates}))

        def start(call: int, report: Report) -> None:
            self._broker.change(*requests[call], report)

        jobs = tuple(job for job, *_ in requests)
        run(self._calls(command.id, "update", jobs, start), done)

    def scale(self, command: Scale, done: Done) -> None:
        """Change the size of the instance, if it can change."""
        scaler = self._scaler()
        if scaler is None:
            reason = "the instance has a fixed size"
            done(CommandFailed(time.time(), command.id, "EINVAL", reason))
            return
        run(self._resize(scaler, command), done)

    def _resize(self, scaler: Scaler, command: Scale) -> Generator[Step, Any, Outcome]:
        try:
            size = yield partial(scaler.scale, command.to)
        except Exception as error:
            name = errno_name(error)
            return CommandFailed(time.time(), command.id, name, f"{sentence(error)} ({name})")
        granted = size - (command.to - command.by)
        return CommandDone(time.time(), command.id, {"nodes": size, "by": granted})

    def _calls(
        self,
        command: int,
        verb: str,
        jobs: tuple[int, ...],
        start: Callable[[int, Report], None],
    ) -> Generator[Step, Any, Outcome]:
        """Make a call for each of some jobs; `start` as for `Calls`."""
        calls = yield self._broker.calls.step(self, len(jobs), partial(self._insist, start))
        if not calls.errors:
            return CommandDone(time.time(), command)
        lines = [
            f"{flux.job.JobID(jobs[call]).f58}: {sentence(error)} ({errno_name(error)})"
            for call, error in calls.errors
        ]
        reason = f"cannot {verb} {len(lines)} of {len(jobs)} jobs: {lines[0]}"
        failed = errno_name(calls.errors[0][1])
        detail = bounded("\n".join(lines))
        return CommandFailed(time.time(), command, failed, reason, detail)

    def _insist(self, start: Callable[[int, Report], None], call: int, report: Report) -> None:
        """Make a call, and repeat it while its outcome is unknown."""

        def answered(error: Exception | None) -> None:
            if error is not None and is_lost(error):
                Attempts(partial(start, call), self._broker.loop.timer, PATIENCE, report)
            else:
                report(error)

        start(call, answered)
