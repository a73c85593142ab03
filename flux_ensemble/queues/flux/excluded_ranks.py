"""Which of the ranks where a job failed it can be kept off.

    SubmitJobs.off ──► what is down, what queues require ──► feasibility.check ──► constraint

A job that runs again is not to fail for its node each time, and it is not to wait for nodes that
there are not. So the scheduler is asked whether the job could run if it had neither the ranks where
it failed nor those that are down or drained. If not, the ranks where it failed first are tried
again before the others, and at last all of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.jobspec import kept_off, scheduled
from flux_ensemble.engine.intervals import union
from flux_ensemble.queues.flux.allocations import ranks_of
from flux_ensemble.queues.flux.broker import Broker, check
from flux_ensemble.queues.flux.steps import Resume, Step, run

#: Seconds for which is known what is down: many jobs may fail at once.
FRESH_SECONDS = 1.0


class Others:
    """Knows of an instance whether jobs can run elsewhere.

    Args:
        broker: of the instance.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asking: list[Resume] = []
        self._known: tuple[str, Mapping[str, Any]] | None = None

    def without(self, jobspec: Mapping[str, Any], off: Sequence[str]) -> Generator[Step, Any, str]:
        """Find out what a job can be kept off.

        Args:
            jobspec: of the job.
            off: ranks where it failed, as idsets (RFC 22), the latest last.

        Returns:
            Those that it can be kept off as one idset, which may be none.
        """
        try:
            down, config = yield self._look
            form = scheduled(jobspec, config)
            for first in range(len(off)):
                fits = yield from self._fits(kept_off(form, union(*off[first:], down)))
                if fits:
                    return union(*off[first:])
        except OSError:
            # A scheduler that does not say whether the job could run may have it wait for ever.
            pass
        return ""

    def _fits(self, jobspec: Mapping[str, Any]) -> Generator[Step, Any, bool]:
        future = self._broker.handle.rpc("feasibility.check", {"jobspec": jobspec})
        try:
            yield self._broker.response(future, check)
        except OSError:
            return False
        return True

    def _look(self, resume: Resume) -> None:
        """Ask what is down, and how the instance is configured; several may wait for that."""
        if self._known is not None:
            resume(self._known)
            return
        self._asking.append(resume)
        if len(self._asking) == 1:
            run(self._ask(), self._answered)

    def _ask(self) -> Generator[Step, Any, tuple[str, Mapping[str, Any]]]:
        handle = self._broker.handle
        status = yield self._broker.response(handle.rpc("resource.sched-status", {}, 0))
        config = yield self._broker.response(handle.rpc("config.get", {}))
        return ranks_of(status["down"]) or "", config

    def _answered(self, answer: Any) -> None:
        if not isinstance(answer, Exception):
            self._known = answer
            self._broker.loop.timer(FRESH_SECONDS, self._forget)
        asking, self._asking = self._asking, []
        for resume in asking:
            resume(answer)

    def _forget(self) -> None:
        self._known = None
