"""Batches of job events that come at once: several of one job, and the same of many jobs."""

from __future__ import annotations

from collections.abc import Callable

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.evaluation import Evaluation
from flux_ensemble.engine.events import Columns, JobEvents, JobsAlike
from flux_ensemble.engine.life_batches import Lives
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.observer import Observer
from flux_ensemble.engine.quick_path import Plain


class Together:
    """Handles batches of job events for one engine.

    Args:
        core: the engine's core.
        members: the members, if the document has any.
        observer: handles single events of jobs.
        evaluation: evaluates the rules that the events trigger.
        settle: does the work that an event leaves besides, and ends the ensemble if it is idle.
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
        #: The batch that `knows` has decoded, with its columns; `alike` uses these.
        self._known: tuple[JobsAlike, Columns] | None = None
        if members is not None:
            self._plain = Plain(core, members)
            self._lives = Lives(core, members, observer, self._plain)

    def several(self, several: JobEvents) -> None:
        """Handle events of a job, one after the other, as `Engine.handle` does.

        No jobs are sent between plain events (see `quick_path`): they make no room.
        """
        core, plain = self._core, self._plain
        if plain is not None and not plain.are(several):
            plain = None
        for event in several.each():
            if event.t > core.t:
                core.t = core.stats.t = event.t
            triggered = self._observer.on_job_event(event)
            if triggered:
                self._evaluation.run(triggered)
            elif (
                plain is not None
                and not plain.more
                and not (event.name == "clean" and plain.makes_room(event.job))
            ):
                continue
            self._settle()

    def alike(self, alike: JobsAlike) -> None:
        """Handle the same events of jobs, one job after the other, as `several` does."""
        lives, plain = self._lives, self._plain
        known, self._known = self._known, None
        columns = known[1] if known is not None and known[0] is alike else alike.columns()
        first, jobs = 0, len(columns.ids)
        while first < jobs:
            if lives is not None and plain is not None and not plain.more:
                stop = lives.take(alike, columns, first)
                if stop > first:
                    first = stop
                    if lives.more:
                        self._settle()
                    continue
            self.several(alike.job(columns, first))
            first += 1

    def knows(self, alike: JobsAlike) -> bool:
        """Return whether the jobs have all been sent, each once, and all events are needed."""
        wants = self._core.rules.wants_events
        if self._lives is None or not all(name in wants for name in alike.names):
            return False
        columns = alike.columns()
        self._known = alike, columns
        return alike.firing is None or self._lives.expected(alike, columns)
