"""The service: requests in, ensembles driven, responses and log entries out.

    Flux requests ──listen──► Service.dispatch ──► Ensemble ──► engine
    journal ──► Tracker ──► Ensemble                  │
    KVS, log, replies ◄───────────────────────────────┘

When it begins it brings back the ensembles that the KVS holds (`recovery`). Until that is
done, and while the job manager is gone, requests that change something wait.

The same class serves as a broker module (`service.module`) and as a client that has
registered the service (`service.serve`). An exception that escaped a callback would end
the broker module, and with it the user's whole Flux instance, so every callback that
Flux is given is wrapped by a guard: what goes wrong inside an ensemble fails that
ensemble (`runtime.driver.Driver`), what goes wrong elsewhere is logged.
"""

from __future__ import annotations

import errno
import re
import syslog
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flux.core.handle import Flux
from flux.job import JobID
from flux.message import Message

from flux_ensemble import __version__
from flux_ensemble.document.model import JOB_EVENTS, Spec
from flux_ensemble.engine.commands import CancelJobs
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.faults import ENDINGS
from flux_ensemble.members.flux.broker import Broker
from flux_ensemble.members.flux.journal import Journal
from flux_ensemble.members.flux.queue import FluxQueue
from flux_ensemble.members.flux.stream import Stream
from flux_ensemble.runtime.durability.replay import Replayed
from flux_ensemble.runtime.ensemble import Answer, Ensemble
from flux_ensemble.service.assembly import Assembly
from flux_ensemble.service.claim import ClaimedError, Claims
from flux_ensemble.service.collector import Collector
from flux_ensemble.service.marks import REPLAY, Marks
from flux_ensemble.service.members import Members
from flux_ensemble.service.recovery.recovery import RETRY_LIMIT, Recovery
from flux_ensemble.service.recovery.shutdown import Shutdown
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.requests.documents import check_context, open_recorder, read_document
from flux_ensemble.service.requests.limits import check_ensembles
from flux_ensemble.service.requests.messages import Responder, Streams, is_owner, listen
from flux_ensemble.service.requests.protocol import READING, parse
from flux_ensemble.service.settings import kept_directory, read_settings
from flux_ensemble.service.status.cache import Cache
from flux_ensemble.service.status.instance import query
from flux_ensemble.service.status.perf import Perf
from flux_ensemble.service.status.reports import Reports
from flux_ensemble.service.store.errors import StoreError
from flux_ensemble.service.store.kvs import KvsStore, KvsStores
from flux_ensemble.service.store.stored import check_load, check_name
from flux_ensemble.service.tracker import Tracker

Payload = Mapping[str, Any]


class Service:
    """The service `ensemble` of a Flux instance.

    Args:
        handle: Flux handle of the module, or of a client that has registered the service.
        mode: "module" or "client".
        log: writes a line to Flux's log: syslog level, text.
        stop: called when another service drives the ensembles: this one is to end.
        name: the service's name.

    Attributes:
        over: why it is to end, or None.
    """

    def __init__(
        self,
        handle: Flux,
        *,
        mode: str,
        log: Callable[[int, str], None],
        stop: Callable[[], None],
        name: str = "ensemble",
    ) -> None:
        self._handle = handle
        self._log = log
        self._name = name
        self._stop = stop
        self.over: str | None = None
        configured = handle.conf_get("ensemble", default={})
        settings = read_settings(configured, self._error)
        self._guests = settings["allow-guest-status"]
        self._collector = Collector()
        self._ensembles = Ensembles()
        self._queue_wide: list[Ensemble] = []
        self._starting: set[Ensemble] = set()
        self._held: list[tuple[str, Message, Payload]] = []
        self._unfit: str | None = None
        self._responder = Responder(handle, self._error)
        self._streams = Streams(self._responder)
        self._broker = Broker(handle, self.unexpected)
        self._queue = FluxQueue(self._broker)
        self._marks = Marks()
        self._assembly = Assembly(
            handle, self._queue, log, self._changed, self._marks, lambda: self._members.scaler
        )
        self._tracker = Tracker(
            int(handle.attr_get("security.owner")),
            self._ensembles.find,
            lambda: self._queue_wide,
        )
        self._journal = Journal(
            partial(Stream, handle, self._broker.inbox),
            event=self._tracker.event,
            backlog=self._tracker.learn,
            lost=self._lost_journal,
        )
        self._claims = Claims(handle, self._broker.guard, name=name, mode=mode, lost=self._end)
        self._stores = KvsStores(handle, self._broker.guard)
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
        )
        self._members = Members(
            self._broker, self._ensembles, lambda: self._recovery.ready, self._error
        )
        self._configure(configured)
        self._perf = Perf(self._broker.loop, lambda: self._queue.submissions.waiting)
        self._reports = Reports(
            mode,
            self._ensembles,
            self._tracker,
            self._recovery,
            self._members,
            Cache(partial(query, self._broker), self._broker.loop),
            self._perf,
            lambda: self._state,
        )
        self._methods: Mapping[str, Callable[[Message, Payload], None]] = {
            "load": self._load,
            "list": self._list,
            "status": self._status,
            "submit": self._submit,
            "metrics": self._metrics,
            "log": self._read_log,
            "pause": self._change_state,
            "resume": self._change_state,
            "terminate": self._change_state,
            "cancel": self._change_state,
            "unload": self._unload,
            "rules": self._ask_engine,
            "action": self._ask_engine,
            "scale": self._scale,
        }
        self._watchers = listen(handle, name, self._broker.guard, self.dispatch, self._streams.gone)
        self._shutdown = Shutdown(handle, self._broker.guard, self._broker.inbox, self._suspend)
        self._broker.guard(self._begin)()

    def _claim(self) -> int:
        """Claim the ensembles for this service, and see what the one before it died of."""
        epoch = self._claims.take()
        try:
            self._marks.open(Path(self._handle.attr_get("rundir"), f"{self._name}.mark"))
        except OSError as error:
            self._error(
                f"cannot note which event is being handled ({error}): one that ends the service "
                "will do so again"
            )
        return epoch

    def _configure(self, table: Any) -> None:
        """Take the scaler that the site has configured; without it the size is fixed."""
        try:
            if isinstance(table, dict):
                self._members.configure(table)
        except (ValueError, OSError) as error:
            self._error(f"[ensemble] {error}; the size of this instance cannot change")

    def _begin(self) -> None:
        """Bring back what the KVS holds; if it does not answer, again a little later."""
        try:
            self._recovery.restore(self._restore)
        except ClaimedError as refusal:
            self._end(str(refusal))
            return
        except (StoreError, OSError) as error:
            self._error(f"cannot read the KVS: {error}; trying again")
            self._cannot_begin(f"it cannot read the KVS: {error}")
            self._broker.loop.timer(RETRY_LIMIT, self._begin)
            return
        except ENDINGS:
            raise
        except BaseException as error:
            self.unexpected(error)
            self._cannot_begin(f"internal error: {error!r} (see flux dmesg)")
            return
        self._unfit = None
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
        self._count_queue_wide()
        self._recovery.catch_up(self._ready)

    def _cannot_begin(self, reason: str) -> None:
        """Refuse what is asked; waiting would not help."""
        self._unfit = f"the ensemble service cannot begin: {reason}"
        held, self._held = self._held, []
        for _, message, _ in held:
            self._responder.refuse(message, errno.EIO, self._unfit)

    def _ready(self) -> None:
        """The journal is read: start what was loaded, and do what was asked, meanwhile."""
        self._log(syslog.LOG_INFO, "ready")
        self._claims.settle()
        for ensemble in list(self._starting):
            self._prepare(ensemble)
        held, self._held = self._held, []
        for one in held:
            self._handle_now(*one)
        for ensemble in self._ensembles:
            self._changed(ensemble)

    def _end(self, reason: str) -> None:
        """Another service drives the ensembles: take in and perform nothing more, and end."""
        self.over = reason
        self._error(reason)
        self._take_down(reason)
        # What has been asked is answered first.
        self._broker.loop.timer(0.0, lambda: self._broker.inbox.put(self._stop))

    def close(self) -> None:
        """Take everything down: workers end, whoever waits gets an error; jobs go on."""
        if self.over is None:
            for ensemble in self._ensembles:
                self._broker.guard(self._assembly.checkpoint)(ensemble)
            self._take_down("the ensemble service is shutting down")
        self._claims.close()
        for watcher in self._watchers:
            watcher.destroy()
            self._handle.del_watcher(watcher)

    def _take_down(self, reason: str) -> None:
        self._streams.close(errno.ESHUTDOWN, reason)
        self._starting.clear()
        for ensemble in self._ensembles:
            # What goes wrong with one is no reason to leave out those after it.
            self._broker.guard(ensemble.close)(errno.ESHUTDOWN, reason)
        self._journal.stop()
        self._members.close()
        self._perf.stop()
        self._shutdown.stop()
        self._responder.close(errno.ESHUTDOWN, reason)
        self._held.clear()

    def _suspend(self) -> None:
        """The instance is shutting down, and cancels its jobs: that is no event of theirs."""
        self._journal.stop()
        self._members.close()
        for ensemble in self._ensembles:
            if ensemble.live:
                ensemble.suspend()

    # -- guard ----------------------------------------------------------------------

    def _error(self, text: str) -> None:
        self._log(syslog.LOG_ERR, text)

    def unexpected(self, error: BaseException) -> None:
        """Log an exception, or a panic, that nobody expected."""
        for line in "".join(traceback.format_exception(error)).splitlines():
            self._error(line)

    # -- requests -------------------------------------------------------------------

    def dispatch(self, method: str, message: Message) -> None:
        """Handle a request; it is answered now or later, and whatever happens.

        Args:
            method: a key of `requests.TOPICS`.
            message: the request.
        """
        try:
            if not is_owner(message) and not self._guests:
                raise RequestError(
                    errno.EPERM,
                    "guests may not see the owner's ensembles here "
                    "(a site can allow it: allow-guest-status in [ensemble])",
                )
            payload = parse(method, self._responder.admit(method, message))
        except RequestError as refused:
            self._responder.refuse(message, refused.errno, str(refused))
            return
        if self.over is not None:
            self._responder.refuse(message, errno.ESHUTDOWN, self.over)
            return
        if self._unfit is not None:
            self._responder.refuse(message, errno.EIO, self._unfit)
            return
        # Nothing can be read before the KVS was, and nothing be changed before the journal.
        if self._recovery.ready or (self._recovery.epoch and method in READING):
            self._handle_now(method, message, payload)
        else:
            self._held.append((method, message, payload))

    def _handle_now(self, method: str, message: Message, payload: Payload) -> None:
        try:
            if method not in READING and self._shutdown.begun:
                raise RequestError(errno.EAGAIN, "the Flux instance is shutting down")
            self._methods[method](message, payload)
        except RequestError as refused:
            self._responder.refuse(message, refused.errno, str(refused))
        except ENDINGS:
            raise
        except BaseException as error:
            self._fail(method, message, error)

    def _fail(self, method: str, message: Message, error: BaseException) -> None:
        """Nothing comes of a request, because of an exception that nobody expected."""
        self.unexpected(error)
        reason = f"internal error in ensemble.{method}: {error!r} (see flux dmesg)"
        self._responder.refuse(message, errno.EIO, reason)

    def _answer(self, message: Message) -> Answer:
        """What answers a request with what comes of it."""

        def answer(result: Payload | RequestError) -> None:
            if isinstance(result, RequestError):
                self._responder.refuse(message, result.errno, str(result))
            else:
                self._responder.respond(message, result)

        return answer

    def _list(self, message: Message, payload: Payload) -> None:
        self._responder.respond(message, self._reports.list(is_owner(message)))

    def _status(self, message: Message, payload: Payload) -> None:
        def answer(result: Payload | Exception) -> None:
            if isinstance(result, Exception):
                self._fail("status", message, result)
            else:
                self._responder.respond(message, result)

        self._reports.status(payload.get("name"), is_owner(message), answer)

    @property
    def _state(self) -> str:
        if self._shutdown.begun:
            return "shutting down"
        return "ready" if self._recovery.ready else "recovering"

    def _metrics(self, message: Message, payload: Payload) -> None:
        ensemble = self._ensembles.get(payload["name"])
        self._responder.respond(message, ensemble.engine.metrics(time.time()))

    def _read_log(self, message: Message, payload: Payload) -> None:
        if not message.pimpl.is_streaming():
            raise RequestError(errno.EPROTO, "ensemble.log: expected a streaming request")
        ensemble = self._ensembles.get(payload["name"])
        events = payload.get("events", False)
        follow = payload.get("follow", False)
        skip = payload.get("skip", 0)
        self._streams.open(message, ensemble.log, follow=follow, events=events, skip=skip)
        if ensemble.log.wants_events and ensemble.live:
            self._watch(ensemble)

    def _submit(self, message: Message, payload: Payload) -> None:
        self._ask(message, payload, lambda result: {"ids": result["ids"]})

    def _ask_engine(self, message: Message, payload: Payload) -> None:
        self._ask(message, payload, lambda result: result)

    def _change_state(self, message: Message, payload: Payload) -> None:
        ensemble = self._ensembles.get(payload["name"])
        if ensemble.stopped is not None and message.topic.endswith(".cancel"):
            self._cancel_jobs(ensemble, message)
        else:
            self._ask(message, payload, lambda _: {"state": ensemble.state})

    def _ask(self, message: Message, payload: Payload, shape: Callable[[Payload], Payload]) -> None:
        """Put a request to the engine, and shape its result as the response."""
        ensemble = self._ensembles.get(payload["name"])
        answer = self._answer(message)
        args = {key: value for key, value in payload.items() if key != "name"}
        ensemble.ask(
            message.topic.rpartition(".")[2],
            args,
            lambda result: answer(result if isinstance(result, RequestError) else shape(result)),
        )

    def _cancel_jobs(self, ensemble: Ensemble, message: Message) -> None:
        """Cancel what a broken ensemble has left in the queue."""
        command = CancelJobs(0, self._tracker.jobs_of(ensemble), "a request")
        ensemble.member.cancel(
            command, lambda _: self._responder.respond(message, {"state": ensemble.state})
        )

    def _scale(self, message: Message, payload: Payload) -> None:
        self._responder.respond(message, self._members.scale(payload["to"]))

    # -- loading and unloading ------------------------------------------------------

    def _load(self, message: Message, payload: Payload) -> None:
        files: dict[str, str] = {}
        elastic = self._members.elastic or "scaler" in payload
        spec = read_document(payload, files, elastic=elastic)
        check_context(payload)
        if spec.name in self._recovery.unreadable:
            raise RequestError(
                errno.EEXIST,
                f"an ensemble named {spec.name!r} is in the KVS and could not be restored: "
                f"{self._recovery.unreadable[spec.name]}; unload it, or choose another name",
            )
        found = next((one for one in self._ensembles if one.name == spec.name), None)
        if found is not None and not found.ended:
            raise RequestError(
                errno.EEXIST, f"an ensemble named {spec.name!r} is {found.state} already"
            )
        check_ensembles(sum(not one.ended for one in self._ensembles))
        if "scaler" in payload:
            self._members.adopt(payload["scaler"])
        document = payload.get("text", payload.get("spec"))
        recorder = open_recorder(payload.get("record"), spec, document)
        if found is not None:
            self._drop(found)
        given = {key: value for key, value in payload.items() if key != "record"}
        load = {**given, "run": int(time.time() * 1e6), "files": files}
        store = self._stores.create(spec.name, load)
        ensemble = self._assembly.make(spec, load, store, recorder=recorder)
        self._ensembles.add(ensemble)
        ensemble.note("load", {"document": document})
        ensemble.owe(self._answer(message))
        self._starting.add(ensemble)
        self._watch(ensemble, lambda: self._prepare(ensemble))

    def _restore(
        self, load: Payload, store: KvsStore, read: Callable[[Spec], Replayed]
    ) -> Ensemble:
        check_load(store.name, load)
        # What the member can do was looked at when it was loaded.
        spec = read_document(load, load["files"], elastic=True)
        check_name(store.name, spec.name)
        fatal = self._marks.fatal(spec.name, load["run"])
        if fatal is not None:
            fatal = re.sub(r"\bjob (\d+)", lambda job: f"job {JobID(int(job[1])).f58}", fatal)
        if fatal is not None and fatal.startswith(REPLAY):
            raise StoreError(f"the service died twice in a row in {fatal}")
        ensemble = self._assembly.make(spec, load, store, replayed=read(spec))
        if fatal is not None and ensemble.live:
            ensemble.fail(
                f"the service died twice in a row while it handled {fatal}; its jobs are left as "
                "they are: mend the document (the rules for that event first), unload it and load "
                "it again"
            )
        if "scaler" in load and ensemble.live:
            try:
                self._members.adopt(load["scaler"])
            except RequestError as refused:
                self._error(f"{spec.name}: {refused}")
        return ensemble

    def _prepare(self, ensemble: Ensemble) -> None:
        """The journal is being read: tell the ensemble what there is, and start it."""
        self._members.begin(ensemble, lambda: self._start(ensemble))

    def _start(self, ensemble: Ensemble) -> None:
        if ensemble not in self._starting:
            return
        self._starting.remove(ensemble)
        if not ensemble.ended:
            self._log(syslog.LOG_INFO, f"{ensemble.name}: loaded from {ensemble.cwd}")
            ensemble.start()

    def _unload(self, message: Message, payload: Payload) -> None:
        if self._recovery.unreadable.pop(payload["name"], None) is not None:
            self._stores.create(payload["name"], {}).remove(self._assembly.removed)
            self._responder.respond(message, {"state": "unreadable"})
            return
        ensemble = self._ensembles.get(payload["name"])
        if not ensemble.ended:
            raise RequestError(
                errno.EAGAIN,
                f"ensemble {ensemble.name!r} is {ensemble.state}: cancel or terminate it first",
            )
        state = ensemble.state
        self._drop(ensemble)
        self._responder.respond(message, {"state": state})

    def _drop(self, ensemble: Ensemble) -> None:
        """Forget an ended ensemble; jobs of it that are active are left alone."""
        self._reports.forget(ensemble)
        self._ensembles.remove(ensemble)
        self._tracker.forget(ensemble)
        self._starting.discard(ensemble)
        was_live = ensemble.live
        ensemble.close(errno.ENOENT, f"ensemble {ensemble.name!r} was unloaded")
        self._assembly.discard(ensemble)
        self._collector.dropped()
        if was_live:
            self._changed(ensemble)

    # -- the journal ----------------------------------------------------------------

    def _watch(self, ensemble: Ensemble, ready: Callable[[], None] = lambda: None) -> None:
        """Have the journal bring what an ensemble needs."""
        names, queue_wide = ensemble.needs
        if ensemble.log.wants_events:
            names |= frozenset(JOB_EVENTS)
        self._tracker.learning |= queue_wide
        if self._recovery.ready and not self._shutdown.begun:
            self._journal.require(names, queue_wide, ready)

    def _changed(self, ensemble: Ensemble) -> None:
        """An ensemble needs to know other things, or nothing any more."""
        self._count_queue_wide()
        self._assembly.pace()
        self._members.changed(ensemble)
        if ensemble.live:
            self._watch(ensemble)
        elif not any(one.live for one in self._ensembles):
            self._journal.stop()
            self._tracker.stop_learning()
        for one in self._ensembles.surplus():
            self._drop(one)

    def _count_queue_wide(self) -> None:
        self._queue_wide = [one for one in self._ensembles if one.live and one.needs[1]]

    def _lost_journal(self, reason: str) -> None:
        self._error(reason)
        if not self._shutdown.begun:
            self._recovery.lost()
