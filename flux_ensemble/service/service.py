"""The service: wires its parts together, begins, and ends.

    Flux requests ──listen──► Dispatcher ──► Handlers, Loading ──► Ensemble ──► engine
    journal ──► Tracker ──► Ensemble                                  │
    KVS, log, replies ◄───────────────────────────────────────────────┘

When the service begins, it restores the ensembles in the KVS (`recovery`). Until that is done, and
while the job manager is gone, requests that change something wait (`requests.dispatch`). The
handler of a request is found by its topic: `@request_handler("status")`.

The same class serves as a broker module (`service.module`) and as a client that has registered the
service (`service.serve`). An exception that escaped a callback would end the broker module, and
with it the user's whole Flux instance. So every callback that Flux receives is wrapped by a guard:
an error inside an ensemble fails that ensemble (`runtime.driver.Driver`), any other is logged.
"""

from __future__ import annotations

import errno
import syslog
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flux.core.handle import Flux
from flux.message import Message

# Imported early, before there are values: the import of River takes 0.2 s.
import flux_ensemble.metrics.univariate  # noqa: F401
from flux_ensemble import __version__
from flux_ensemble.faults import ENDINGS
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.journal import Journal
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.flux.shutdown import Shutdown
from flux_ensemble.queues.flux.stream import StreamingRequest
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.assembly import Assembly
from flux_ensemble.service.attachments import Attachments
from flux_ensemble.service.claim import ClaimedError, Claims
from flux_ensemble.service.collector import Collector
from flux_ensemble.service.fleets import Fleets
from flux_ensemble.service.lifetimes import Lifetimes
from flux_ensemble.service.load import Loading
from flux_ensemble.service.logger import log_exception
from flux_ensemble.service.marks import Marks
from flux_ensemble.service.member_services import Ssh
from flux_ensemble.service.needs import Needs
from flux_ensemble.service.own_instance import OwnInstance
from flux_ensemble.service.recovery.ended_file import EndedFile
from flux_ensemble.service.recovery.recovery import RETRY_LIMIT, Recovery
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.requests.attach import AttachRequests
from flux_ensemble.service.requests.dispatch import Dispatcher
from flux_ensemble.service.requests.handlers import Handlers
from flux_ensemble.service.requests.jobs import JobRequests, Reruns
from flux_ensemble.service.requests.messages import Responder, Streams, listen
from flux_ensemble.service.requests.registration import collect_handlers
from flux_ensemble.service.settings import Settings, kept_directory, read_settings, t_instance
from flux_ensemble.service.shares import Shares
from flux_ensemble.service.status.cache import Cache
from flux_ensemble.service.status.instance import query
from flux_ensemble.service.status.perf import Perf
from flux_ensemble.service.status.reports import Reports
from flux_ensemble.service.store.errors import StoreError
from flux_ensemble.service.store.kvs import KvsStores
from flux_ensemble.service.tracker import Tracker

#: Seconds for which ensembles are restored without a break at first, and then at a time; between
#: these spans requests are handled.
RESTORE_FIRST_SECONDS = 1.0
RESTORE_SECONDS = 0.1


class Service:
    """The service `ensemble` of a Flux instance.

    Args:
        handle: Flux handle of the module, or of a client.
        mode: "module", "process" (of a keeper) or "client".
        log: writes a line to Flux's log: syslog level, text.
        stop: called when another service drives the ensembles, so that this one has to end.
        name: the service's name.
        requests: the handle that the service is registered by, on the same reactor, if it is
            another
            one: then requests do not wait behind messages of Flux about jobs.
        t_begin: when the service began, by the monotonic clock; None for a module.

    Attributes:
        over: why the service has to end, or None.
    """

    def __init__(
        self,
        handle: Flux,
        *,
        mode: str,
        log: Callable[[int, str], None],
        stop: Callable[[], None],
        name: str = "ensemble",
        requests: Flux | None = None,
        t_begin: float | None = None,
    ) -> None:
        self._handle = handle
        self._requests = requests or handle
        self._log = log
        self._name = name
        self._stop = stop
        self.over: str | None = None
        configured = handle.conf_get("ensemble", default={})
        settings = read_settings(configured, self._error)
        self._wire_flux(mode, settings, t_begin)
        self._configure(configured)
        self._wire_ensembles(mode)
        self._wire_requests(guests=settings.allow_guest_status)
        self._watchers = listen(
            self._requests, name, self._broker.guard, self._dispatcher.dispatch, self._gone
        )
        self._broker.guard(self._begin)()

    # -- wiring ---------------------------------------------------------------------

    def _wire_flux(self, mode: str, settings: Settings, t_begin: float | None) -> None:
        """Create the parts that use Flux: queue and journal, the KVS, the size of the instance."""
        handle = self._handle
        self._broker = Broker(handle, self.unexpected)
        self._queue = FluxQueue(self._broker)
        self._ensembles = Ensembles()
        self._tracker = Tracker(
            int(handle.attr_get("security.owner")),
            self._ensembles.find,
            lambda: self._needs.queue_wide,
        )
        self._fleets = Fleets(
            self._queue,
            owner=int(handle.attr_get("security.owner")),
            epoch=lambda: self._recovery.epoch,
            keeps=lambda name: name in self._recovery.unreadable,
            over=lambda: self._needs.calm(),
            log_error=self._error,
            reconnect=settings.reconnect_limit,
        )
        self._journal = Journal(
            partial(StreamingRequest, handle, self._broker.inbox),
            event=self._job_event,
            backlog=self._tracker.learn,
            lost=self._lost_journal,
            tagged=self._tracker.meet,
        )
        self._claims = Claims(
            handle,
            self._requests,
            self._broker.guard,
            name=self._name,
            mode=mode,
            lost=self._end,
            t_begin=t_begin,
        )
        self._stores = KvsStores(handle, self._broker.guard)
        self._marks = Marks()
        kept = kept_directory(handle.attr_get)
        self._ended = EndedFile(
            None if kept is None else Path(kept, f"{self._name}.ended"),
            self._ensembles,
            self._broker.loop,
            lambda: self._recovery.ready,
        )
        self._recovery = Recovery(
            self._claim,
            partial(self._marks.of, replay=True),
            self._stores,
            self._journal,
            self._tracker,
            self._ensembles,
            self._queue,
            self._broker.loop,
            self._error,
            self._fleets,
            t_instance(handle.attr_get),
            self._ended.before,
        )
        self._own = OwnInstance(
            self._broker,
            self._ensembles,
            lambda: self._recovery.ready,
            settings.walltime_guard,
            self._error,
        )
        self._shutdown = Shutdown(handle, self._broker.guard, self._broker.inbox, self._suspend)

    def _configure(self, table: Any) -> None:
        """Use the scaler that the site has configured; without it the size is fixed."""
        try:
            if isinstance(table, dict):
                self._own.configure(table)
        except (ValueError, OSError) as error:
            self._error(f"[ensemble] {error}; the size of this instance cannot change")

    def _wire_ensembles(self, mode: str) -> None:
        """Create the parts that make ensembles, follow their needs, and report on them."""
        submissions, instance = (
            self._queue.submissions,
            Cache(partial(query, self._broker), self._broker.loop),
        )
        submissions.turns = self._shares = Shares(
            self._ensembles,
            self._broker.loop,
            lambda done: instance.get(lambda nodes, *_: done(nodes)),
            submissions.wake,
        )
        self._perf = Perf(self._broker.loop, lambda: submissions.waiting)
        self._reports = Reports(
            mode,
            self._ensembles,
            self._tracker,
            self._recovery,
            self._own,
            instance,
            self._perf,
            lambda: self._state,
        )
        self._assembly = Assembly(
            self._handle,
            self._queue,
            self._log,
            lambda ensemble: self._lifetimes.changed(ensemble),
            self._stirred,
            self._marks,
            lambda: self._own.scaler,
            self._fleets,
        )
        self._needs = Needs(
            self._ensembles,
            self._journal,
            self._tracker,
            self._recovery,
            self._shutdown,
            self._queue.submissions,
            self._broker.loop,
            self._fleets,
        )
        self._collector = Collector()
        self._lifetimes = Lifetimes(
            self._ensembles,
            self._needs,
            self._own,
            self._assembly,
            self._tracker,
            self._reports,
            self._collector,
            self._log,
            self._fleets,
        )

    def _wire_requests(self, *, guests: bool) -> None:
        """Create the parts that pass requests to their handlers, and send the responses."""
        self._responder = Responder(self._requests, self._error)
        self._streams = Streams(self._responder)
        self._loading = Loading(
            self._responder,
            self._ensembles,
            self._assembly,
            self._lifetimes,
            self._stores,
            self._recovery,
            self._own,
            self._marks,
            self._error,
            self._broker.loop,
            Ssh.of(self._broker),
        )
        handlers = Handlers(
            self._responder,
            self._streams,
            self._ensembles,
            self._own,
            self._tracker,
            self._reports,
            self._needs,
        )
        jobs = JobRequests(
            self._responder, self._streams, self._ensembles, self._broker.loop, self._reports
        )
        self._attachments = AttachRequests(
            self._responder,
            Attachments(self._fleets, self._broker.loop, lambda: self._recovery.epoch),
        )
        self._dispatcher = Dispatcher(
            self._responder,
            self._recovery,
            self._shutdown,
            collect_handlers(
                handlers,
                jobs,
                Reruns(self._responder, self._ensembles, self._broker.loop),
                self._loading,
                self._attachments,
            ),
            guests=guests,
        )

    # -- lifetime -------------------------------------------------------------------

    def _claim(self) -> int:
        """Claim the ensembles for this service, and read at which event the previous one died."""
        epoch = self._claims.take()
        try:
            self._marks.open(Path(self._handle.attr_get("rundir"), f"{self._name}.mark"))
        except OSError as error:
            self._error(
                f"cannot note which event is being handled ({error}): one that ends the service "
                "will do so again"
            )
        return epoch

    def _begin(self) -> None:
        """Restore the ensembles in the KVS; try again a little later if it does not answer."""
        self._restore(self._recovery.restoring(self._loading.restore), RESTORE_FIRST_SECONDS)

    def _restore(self, steps: Iterator[None], seconds: float = RESTORE_SECONDS) -> None:
        """Continue for a moment, and then again when the reactor has had its turn."""
        t_end = time.monotonic() + seconds
        try:
            for _ in steps:
                if time.monotonic() >= t_end:
                    self._broker.loop.timer(0.0, partial(self._restore, steps))
                    return
        except ClaimedError as refusal:
            self._end(str(refusal))
            return
        except (StoreError, OSError) as error:
            self._error(f"cannot read the KVS: {error}; trying again")
            self._dispatcher.cannot_begin(f"it cannot read the KVS: {error}")
            self._broker.loop.timer(RETRY_LIMIT, self._begin)
            return
        except ENDINGS:
            raise
        except BaseException as error:
            self.unexpected(error)
            self._dispatcher.cannot_begin(f"internal error: {error!r} (see flux dmesg)")
            return
        if self.over is None:
            self._restored()

    def _restored(self) -> None:
        """Catch up with the events of jobs, now that the ensembles are restored."""
        self._dispatcher.can_begin()
        self._queue.elsewhere[:] = self._claims.elsewhere
        self._log(
            syslog.LOG_INFO,
            f"flux-ensemble {__version__} begins epoch {self._recovery.epoch}",
        )
        if kept_directory(self._handle.attr_get) is None:
            self._log(
                syslog.LOG_WARNING,
                "this instance has no statedir: ensembles survive a crash of this service, but "
                "not the end of the instance (see 'flux ensemble doctor')",
            )
        self._collector.calm()
        self._needs.find_queue_wide()
        self._own.begin_again()
        self._dispatcher.restored()
        if self._shutdown.begun:
            self._suspend()
        else:
            self._recovery.catch_up(self._ready)

    def _ready(self) -> None:
        """Start the ensembles that were loaded, and handle the requests held, until now."""
        self._log(syslog.LOG_INFO, "ready")
        self._claims.settle()
        self._needs.ready()
        self._shares.ready()
        self._lifetimes.ready()
        self._dispatcher.ready()
        for ensemble in self._ensembles:
            self._lifetimes.changed(ensemble)

    def _end(self, reason: str) -> None:
        """Stop, because another service drives the ensembles."""
        self.over = reason
        self._error(reason)
        self._take_down(reason)
        # Requests that were received are answered first.
        self._broker.loop.timer(0.0, lambda: self._broker.inbox.put(self._stop))

    def close(self) -> None:
        """Stop everything: workers end, pending requests get an error, jobs continue."""
        if self.over is None:
            for ensemble in self._ensembles:
                self._broker.guard(self._assembly.checkpoint)(ensemble)
            self._take_down("the ensemble service is shutting down")
            self._marks.close()
        self._claims.close()
        for watcher in self._watchers:
            watcher.destroy()
            self._requests.del_watcher(watcher)

    def _take_down(self, reason: str) -> None:
        self._dispatcher.close(reason)
        self._streams.close(errno.ESHUTDOWN, reason)
        self._lifetimes.stop()
        self._loading.close(reason)
        self._fleets.close()
        for ensemble in self._ensembles:
            # An error with one ensemble must not leave out those after it.
            self._broker.guard(ensemble.close)(errno.ESHUTDOWN, reason)
        self._stop_journal()
        # If another service drives the ensembles, that one starts the queue.
        self._own.close(start_queue=self.over is None and not self._shutdown.begun)
        self._perf.stop()
        self._shutdown.stop()
        self._responder.close(errno.ESHUTDOWN, reason)

    def _suspend(self) -> None:
        """Stop: the instance shuts down and cancels its jobs, which is no event of theirs."""
        self._loading.close("the Flux instance is shutting down")
        self._stop_journal()
        self._fleets.close()
        self._own.close(start_queue=False)
        for ensemble in self._ensembles:
            if ensemble.live:
                ensemble.suspend()

    def _stop_journal(self) -> None:
        """Follow no more jobs; no job is sent again, since its first attempt would not be seen."""
        self._queue.suspend()
        self._journal.stop()

    def _gone(self, message: Message) -> None:
        """Handle a client that has disconnected, or ends a stream."""
        self._streams.gone(message)
        self._attachments.gone(message)

    def _stirred(self, ensemble: Ensemble) -> None:
        """Note that an ensemble got its first jobs in the queue, or has none left."""
        self._needs.stirred(ensemble)
        self._ended.stirred()

    def _job_event(
        self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None
    ) -> None:
        self._tracker.event(job, entry, jobspec)
        self._fleets.event(job, entry, jobspec)

    # -- callbacks of the parts -------------------------------------------------------

    def _lost_journal(self, reason: str) -> None:
        self._error(reason)
        if not self._shutdown.begun:
            self._recovery.lost()

    @property
    def _state(self) -> str:
        if self._shutdown.begun:
            return "shutting down"
        return "ready" if self._recovery.ready else "recovering"

    def _error(self, text: str) -> None:
        self._log(syslog.LOG_ERR, text)

    def unexpected(self, error: BaseException) -> None:
        """Log an unexpected exception, or a panic."""
        log_exception(error, self._error)
