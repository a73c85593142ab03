"""Has the journal bring the job events that ensembles need, and no others.

ensembles ──what they need──► Needs ──► Journal.require
"""

from __future__ import annotations

from collections.abc import Callable

from flux_ensemble.document.model import JOB_EVENTS
from flux_ensemble.members.flux.journal import Journal
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.recovery.recovery import Recovery
from flux_ensemble.service.recovery.shutdown import Shutdown
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.tracker import Tracker


class Needs:
    """What the ensembles need from the journal.

    Args:
        ensembles: all there are.
        journal: brings the events.
        tracker: hands them to the ensembles.
        recovery, shutdown: say whether the journal is to be read.

    Attributes:
        queue_wide: the live ensembles that need events of jobs they did not submit.
    """

    def __init__(
        self,
        ensembles: Ensembles,
        journal: Journal,
        tracker: Tracker,
        recovery: Recovery,
        shutdown: Shutdown,
    ) -> None:
        self._ensembles = ensembles
        self._journal = journal
        self._tracker = tracker
        self._recovery = recovery
        self._shutdown = shutdown
        self.queue_wide: list[Ensemble] = []

    def watch(self, ensemble: Ensemble, ready: Callable[[], None] = lambda: None) -> None:
        """Have the journal bring what an ensemble needs; `ready` is called when it does."""
        names, queue_wide = ensemble.needs
        if ensemble.log.wants_events:
            names |= frozenset(JOB_EVENTS)
        self._tracker.learning |= queue_wide
        if self._recovery.ready and not self._shutdown.begun:
            self._journal.require(names, queue_wide, ready, places=ensemble.needs_places)

    def update(self, ensemble: Ensemble) -> None:
        """An ensemble may need other events; with the last live one the journal is closed."""
        if ensemble.live:
            self.watch(ensemble)
        elif not any(other.live for other in self._ensembles):
            self._journal.stop()
            self._tracker.stop_learning()

    def find_queue_wide(self) -> None:
        """Bring `queue_wide` up to date."""
        self.queue_wide = [
            ensemble for ensemble in self._ensembles if ensemble.live and ensemble.needs[1]
        ]
