"""Events of jobs that come at once: several of one job, and the whole lives of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flux_ensemble.engine.commands import Command
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.evaluation import Evaluation
from flux_ensemble.engine.events import Event, JobEvents
from flux_ensemble.engine.lives import Lives
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.observer import Observer
from flux_ensemble.engine.plain import Plain


class Together:
    """Handles them for one engine.

    Args:
        core: of the engine.
        members: that there are, if there are some.
        observer: handles single events of jobs.
        evaluation: evaluates the rules that these trigger.
        settle: does what an event has brought about besides.
    """

    def __init__(
        self,
        core: Core,
        members: Members | None,
        observer: Observer,
        evaluation: Evaluation,
        settle: Callable[[], None],
    ) -> None:
        self._core = core
        self._observer = observer
        self._evaluation = evaluation
        self._settle = settle
        self._plain = self._lives = None
        if members is not None:
            self._plain = Plain(core, members)
            self._lives = Lives(core, members, observer, self._plain)

    def several(self, several: JobEvents) -> None:
        """Handle events of a job, one after the other, as `Engine.handle` does.

        Nothing is sent between plain events, as there is no more room than before.
        """
        core = self._core
        plain = self._plain is not None and self._plain.are(several)
        for event in several.each():
            if event.t > core.t:
                core.t = core.stats.t = event.t
            triggered = self._observer.on_job_event(event)
            if triggered:
                self._evaluation.run(triggered)
            elif (
                plain
                and not self._has_more
                and not (event.name == "clean" and self._makes_room(event.job))
            ):
                continue
            self._settle()

    def lives(self, events: Sequence[Event], first: int, out: Sequence[Command]) -> int:
        """Handle those of events from `first` on that are lives, until one brings something about.

        Args:
            events: that come at once.
            first: where the first of them is.
            out: where the commands go that this emits.

        Returns:
            Where the first event is that was not handled.
        """
        lives = self._lives
        if lives is None or self._has_more or not lives.possible:
            return first
        stop, more = first, False
        while stop < len(events) and not more and not out:
            event = events[stop]
            if not isinstance(event, JobEvents) or not lives.take(event):
                break
            stop += 1
            more = self._has_more or self._makes_room(event.job)
        if stop > first:
            lives.end()
        if more:
            self._settle()
        return stop

    @property
    def _has_more(self) -> bool:
        """Something comes of an event besides rules that it triggers, and jobs that can be sent."""
        core, workload = self._core, self._core.workload
        drained = workload.drained or not workload.busy
        return bool(drained or core.scale_outcomes or core.deferred or core.search_due)

    def _makes_room(self, job: int) -> bool:
        """Whether a job that is clean may have made room for others."""
        if self._plain is None or not self._core.workload.backlog.queues:
            return False
        return self._plain.makes_room(job)
