"""The ranks that a job is kept off when it runs again: those where it failed, if possible.

    SubmitJobs.off ──► ranks down, queues' requirements ──► feasibility.check ──► constraint

A job that runs again should not fail on the same node each time, and it must not wait for nodes
that do not exist. So the scheduler is asked whether the job could run without the ranks where it
failed and without those that are down or drained. If it could not, the ranks where it failed first
are allowed again before the others, and at last all of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.jobspec import kept_off, scheduled
from flux_ensemble.engine.intervals import union
from flux_ensemble.queues.flux.allocations import ranks_of
from flux_ensemble.queues.flux.broker import Broker, check
from flux_ensemble.queues.flux.steps import Resume, Step, run


class Others:
    """The ranks of an instance on which jobs can run instead of others.

    Args:
        broker: of the instance.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asking: list[Resume] = []

    def without(self, jobspec: Mapping[str, Any], off: Sequence[str]) -> Generator[Step, Any, str]:
        """Find out which ranks a job can be kept off.

        Args:
            jobspec: of the job.
            off: ranks where it failed, as idsets (RFC 22), the latest last.

        Returns:
            The ranks that it can be kept off, as one idset, which may be empty.
        """
        try:
            down, config = yield self._look
            form = scheduled(jobspec, config)
            for first in range(len(off)):
                fits = yield from self._fits(kept_off(form, union(*off[first:], down)))
                if fits:
                    return union(*off[first:])
        except OSError:
            # Without an answer of the scheduler, a constraint could make the job wait for ever.
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
        """Find out the ranks that are down and the configuration, once for those that ask at once.

        An older answer is not reused: a job that is kept off the only rank that is up would wait.
        """
        self._asking.append(resume)
        if len(self._asking) == 1:
            run(self._ask(), self._answered)

    def _ask(self) -> Generator[Step, Any, tuple[str, Mapping[str, Any]]]:
        handle = self._broker.handle
        status = yield self._broker.response(handle.rpc("resource.sched-status", {}, 0))
        config = yield self._broker.response(handle.rpc("config.get", {}))
        return ranks_of(status["down"]) or "", config

    def _answered(self, answer: Any) -> None:
        asking, self._asking = self._asking, []
        for resume in asking:
            resume(answer)
