"""Opens the journal for the job events that ensembles need, and closes it while none needs any.

    ensembles ──what they need──► Needs ──► Journal.require
        └────── they have jobs ─────└─────► submissions, held while the journal is closed

The journal delivers the events of all users' jobs, and each event costs Flux and the service
something. So the journal is closed, it *rests*, while no live ensemble has a job in the queue or on
its way there, and none has members or a rule with `scope: queue`. No event is lost or doubled by
that, because no job of an ensemble can get into the queue while the journal is closed:

1. It is closed when every job that was sent has been seen to be gone, and every command that sends
   jobs has its outcome (`Workload.queued`). Submissions are held from then on.
2. The first command that sends jobs opens it. Submissions continue when the end of the stream's
   backlog has been handled; every entry posted after that is delivered (`queues.flux.journal`).
3. If it cannot be opened, the service recovers as from any loss of the journal, by reading all of
   it (`recovery`), and submissions continue after that.

A job that somebody else submits meanwhile, with the tag of an ensemble's job, is found in the
backlog if it is still active (`Tracker.meet`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from flux_ensemble.document.keys.rules import JOB_EVENTS
from flux_ensemble.queues.flux.journal import Journal
from flux_ensemble.queues.flux.pipeline import Pipeline
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Loop
from flux_ensemble.service.recovery.recovery import Fleets, Recovery
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.tracker import Tracker

if TYPE_CHECKING:
    from flux_ensemble.queues.flux.shutdown import Shutdown

#: Seconds without a job of any ensemble after which the journal is closed; it can take twice as
#: long until that is noticed. To open the journal costs a message for each active job of the
#: instance.
REST_SECONDS = 2.0


class Needs:
    """The needs of all ensembles, for which the journal is opened and closed.

    Args:
        ensembles: all ensembles.
        journal: delivers the events.
        tracker: distributes the events to the ensembles.
        recovery, shutdown: know whether the journal is to be read.
        submissions: the jobs that are to be sent.
        loop: for timers.
        fleets: know whether there are members, which need the journal, too.

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
        submissions: Pipeline,
        loop: Loop,
        fleets: Fleets,
    ) -> None:
        self._ensembles = ensembles
        self._journal = journal
        self._tracker = tracker
        self._recovery = recovery
        self._shutdown = shutdown
        self._submissions = submissions
        self._loop = loop
        self._fleets = fleets
        self.queue_wide: list[Ensemble] = []
        #: The ensembles that have jobs in the queue, or on their way there.
        self._at_work: set[Ensemble] = set()
        #: How many times an ensemble got its first such jobs.
        self._stirs = 0
        self._resting = False
        self._opening = False
        self._looking = False

    def watch(self, ensemble: Ensemble, ready: Callable[[], None] = lambda: None) -> None:
        """Make the journal deliver the events that an ensemble needs.

        Args:
            ensemble: that is live.
            ready: called when the journal delivers them, or will once there are any.
        """
        names, queue_wide = self._names(ensemble), ensemble.needs[1]
        self._tracker.learning |= queue_wide
        if not self._reading:
            return
        if self._resting and not self._opening:
            if not _always(ensemble):
                ready()
                return
            self._open()
        self._journal.require(names, queue_wide, ready, places=ensemble.needs_places)

    def update(self, ensemble: Ensemble) -> None:
        """Adapt the journal to changed needs; close it after the last live ensemble."""
        if ensemble.live:
            self.watch(ensemble)
        else:
            self._at_work.discard(ensemble)
            if not self._fleets.busy and not any(other.live for other in self._ensembles):
                self._close()
        self._look_later()

    def stirred(self, ensemble: Ensemble) -> None:
        """Note that an ensemble got its first jobs in the queue or on the way, or has none left."""
        if ensemble.engine.workload.queued:
            self._at_work.add(ensemble)
            self._stirs += 1
            self._open()
        else:
            self._at_work.discard(ensemble)
            self._look_later()

    def calm(self) -> None:
        """Check whether the journal can be closed, because the last member is gone."""
        self._look_later()

    def ready(self) -> None:
        """Adapt to the end of a recovery; the journal is open if an ensemble is live."""
        self._opening = False
        if self._journal.is_open:
            self._wake()
        elif not self._resting:
            self._rest()

    def find_queue_wide(self) -> None:
        """Update `queue_wide`."""
        self.queue_wide = [
            ensemble for ensemble in self._ensembles if ensemble.live and ensemble.needs[1]
        ]

    @staticmethod
    def _names(ensemble: Ensemble) -> frozenset[str]:
        """Return the names of the events that an ensemble needs."""
        more = JOB_EVENTS if ensemble.log.wants_events else ()
        return ensemble.needs[0] | frozenset(more)

    @property
    def _reading(self) -> bool:
        """The journal may be read."""
        return self._recovery.ready and not self._shutdown.begun

    # -- rest -------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the journal if it rests."""
        if not self._resting or self._opening or not self._reading:
            return
        self._opening = True
        live = [ensemble for ensemble in self._ensembles if ensemble.live]
        self._journal.require(
            frozenset[str]().union(*map(self._names, live)),
            any(ensemble.needs[1] for ensemble in live),
            self._wake,
            places=any(ensemble.needs_places for ensemble in live),
        )

    def _wake(self) -> None:
        """Continue submissions, because the journal is open."""
        self._opening = False
        if self._resting:
            self._resting = False
            self._submissions.go_on()
        self._look_later()

    @property
    def _needless(self) -> bool:
        """The journal is open, and nobody needs it."""
        return (
            self._reading
            and not self._resting
            and not self._at_work
            and not self._fleets.busy
            and not any(one.live and _always(one) for one in self._ensembles)
        )

    def _look_later(self) -> None:
        """Check a little later whether still nobody needs the journal, if nobody does now."""
        if not self._looking and self._needless:
            self._looking = True
            self._loop.timer(REST_SECONDS, partial(self._look, self._stirs))

    def _look(self, stirs: int) -> None:
        self._looking = False
        quiet = stirs == self._stirs and self._journal.is_steady and not self._tracker.follows_live
        if quiet and self._needless:
            self._close()
        else:
            self._look_later()

    def _close(self) -> None:
        """Close the journal, when none of its events matters to an ensemble."""
        self._opening = False
        self._journal.stop()
        self._tracker.rest()
        if not self._resting:
            self._rest()

    def _rest(self) -> None:
        self._resting = True
        self._submissions.hold()


def _always(ensemble: Ensemble) -> bool:
    """Return True if an ensemble needs the journal without jobs: for others' jobs, or members."""
    return ensemble.needs[1] or ensemble.fleet is not None
