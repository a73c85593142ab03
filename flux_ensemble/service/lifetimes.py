"""The life of an ensemble in the service, from its start until it is dropped.

begin ──► the journal is read ──► its nodes are known ──► start ──► changed ... ──► drop
"""

from __future__ import annotations

import errno
import syslog
from collections.abc import Callable

from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.assembly import Assembly
from flux_ensemble.service.collector import Collector
from flux_ensemble.service.fleets import Fleets
from flux_ensemble.service.needs import Needs
from flux_ensemble.service.own_instance import OwnInstance
from flux_ensemble.service.registry import KEPT_ENDED, Ensembles
from flux_ensemble.service.status.reports import Reports
from flux_ensemble.service.tracker import Tracker


class Lifetimes:
    """Starts ensembles, follows their changes, and drops them.

    Args:
        ensembles: all ensembles.
        needs: what they need from the journal.
        own: tells them of the nodes and the allocation of the instance.
        assembly: holds the store of each ensemble.
        tracker, reports, collector: notified when an ensemble is dropped.
        log: writes a line to the service's log: syslog level, text.
        fleets: the members that ensembles have.
    """

    def __init__(
        self,
        ensembles: Ensembles,
        needs: Needs,
        own: OwnInstance,
        assembly: Assembly,
        tracker: Tracker,
        reports: Reports,
        collector: Collector,
        log: Callable[[int, str], None],
        fleets: Fleets,
    ) -> None:
        self._ensembles = ensembles
        self._needs = needs
        self._own = own
        self._assembly = assembly
        self._tracker = tracker
        self._reports = reports
        self._collector = collector
        self._log = log
        self._fleets = fleets
        self._starting: set[Ensemble] = set()

    def begin(self, ensemble: Ensemble) -> None:
        """Start an ensemble when the journal delivers what it needs."""
        self._starting.add(ensemble)
        self._needs.watch(ensemble, lambda: self._prepare(ensemble))

    def ready(self) -> None:
        """Start the ensembles that were loaded before the service was ready."""
        for ensemble in list(self._starting):
            self._prepare(ensemble)

    def stop(self) -> None:
        """Start nothing more."""
        self._starting.clear()

    def _prepare(self, ensemble: Ensemble) -> None:
        """Tell the ensemble of the nodes and start it, now that the journal is read."""
        self._own.begin(ensemble, lambda: self._start(ensemble))

    def _start(self, ensemble: Ensemble) -> None:
        if ensemble not in self._starting:
            return
        self._starting.remove(ensemble)
        if not ensemble.ended:
            self._log(syslog.LOG_INFO, f"{ensemble.name}: loaded from {ensemble.cwd}")
            ensemble.start()

    def changed(self, ensemble: Ensemble) -> None:
        """Adapt to an ensemble that needs other facts, or nothing any more."""
        self._needs.find_queue_wide()
        self._assembly.pace()
        self._own.changed(ensemble)
        self._fleets.changed(ensemble)
        self._needs.update(ensemble)
        for surplus in self._ensembles.surplus():
            self._log(
                syslog.LOG_INFO,
                f"{surplus.name}: removed, as {KEPT_ENDED} ensembles that ended later are kept",
            )
            self.drop(surplus)

    def drop(self, ensemble: Ensemble) -> None:
        """Forget an ended ensemble; leave its active jobs alone."""
        self._reports.forget(ensemble)
        self._ensembles.remove(ensemble)
        self._tracker.forget(ensemble)
        self._fleets.dropped(ensemble)
        self._starting.discard(ensemble)
        was_live = ensemble.live
        ensemble.close(errno.ENOENT, f"ensemble {ensemble.name!r} was unloaded")
        self._assembly.discard(ensemble)
        self._collector.dropped()
        if was_live:
            self.changed(ensemble)
