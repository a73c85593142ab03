"""Puts an ensemble together: its member, its custom functions, its write-ahead log in the KVS.

load request, or what the KVS holds of one ──► Assembly.make ──► Ensemble
"""

from __future__ import annotations

import syslog
import time
from collections.abc import Callable, Mapping
from typing import Any

from flux.core.handle import Flux

from flux_ensemble import eventlog
from flux_ensemble.document.model import Spec
from flux_ensemble.feature_list import parts
from flux_ensemble.queues.flux.loop import FluxLoop, guard
from flux_ensemble.queues.flux.member import FluxMember
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.flux.submission import EnsembleRun
from flux_ensemble.runtime.custom.caller import FunctionCaller, caller_of
from flux_ensemble.runtime.durability.batches import identity
from flux_ensemble.runtime.durability.replay import Replayed
from flux_ensemble.runtime.durability.wal import WriteAheadLog, pace
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.host import Host
from flux_ensemble.runtime.ports import Scaler
from flux_ensemble.runtime.recording import Recorder
from flux_ensemble.service.fleet import MemberFleet
from flux_ensemble.service.fleets import Fleets
from flux_ensemble.service.functions import Prepared
from flux_ensemble.service.logger import Seldom
from flux_ensemble.service.marks import Marks
from flux_ensemble.service.status.waits import SaidWaits
from flux_ensemble.service.store.kvs import KvsStore
from flux_ensemble.service.store.transactions import PATIENCE
from flux_ensemble.texts import listed
from flux_ensemble.words import counted

#: Most names in a line of the log.
_MOST = 5


class Assembly:
    """Makes ensembles, and holds the store and the log of each.

    Args:
        handle: Flux handle.
        queue: receives the jobs.
        log: writes a line to the service's log: syslog level, text.
        changed: called when an ensemble may have ended, or may need other job events.
        stirred: called when an ensemble gets its first jobs in the queue, or has none any more.
        marks: note which event is being handled.
        scaler: returns the scaler of the instance, None if its size is fixed.
        fleets: make the members of ensembles that have some.
    """

    def __init__(
        self,
        handle: Flux,
        queue: FluxQueue,
        log: Callable[[int, str], None],
        changed: Callable[[Ensemble], None],
        stirred: Callable[[Ensemble], None],
        marks: Marks,
        scaler: Callable[[], Scaler | None],
        fleets: Fleets,
    ) -> None:
        self._handle = handle
        self._queue = queue
        self._log = log
        self._changed = changed
        self._stirred = stirred
        self._marks = marks
        self._scaler = scaler
        self._fleets = fleets
        self._uri = handle.attr_get("local-uri")
        self._late = Seldom(time.monotonic, self._say_late)
        self._kept: dict[Ensemble, tuple[KvsStore, WriteAheadLog]] = {}

    def make(
        self,
        spec: Spec,
        load: Mapping[str, Any],
        store: KvsStore,
        *,
        recorder: Recorder | None = None,
        replayed: Replayed | None = None,
        prepared: Prepared | None = None,
    ) -> Ensemble:
        """Make an ensemble.

        Args:
            spec: its document.
            load: the payload of its load request, of which `environment`, `cwd` and `run` are used.
            store: holds its log.
            recorder: writes a recording, if given.
            replayed: the result of replaying its log, if there is one.
            prepared: its process of functions, if that has been started.
        """
        loop = FluxLoop(self._handle, guard(lambda error: ensemble.broken(error)))
        where = {"environment": load["environment"], "cwd": load["cwd"]}

        def warn(text: str) -> None:
            self._error(f"{spec.name}: {text}")
            # Deferred, because this runs within the ensemble's driver.
            loop.timer(0.0, lambda: ensemble.note(eventlog.Error(text=text)))

        fleet = self._fleets.make(spec, load, warn) if spec.members else None
        said = SaidWaits(lambda: ensemble)

        def news() -> None:
            # Deferred, because this can run within the ensemble's driver.
            loop.timer(0.0, said.tell)

        member: FluxMember | MemberFleet
        if fleet is not None:
            member, fleet.news = fleet, news
        else:
            member = FluxMember(
                self._queue,
                EnsembleRun.of(spec, load),
                scaler=self._scaler,
                warn=warn,
                news=news,
            )

        def put_down(ensemble: Ensemble) -> WriteAheadLog:
            wal = self._wal(ensemble, store, loop, replayed)
            if fleet is not None:
                fleet.ensemble, fleet.durable = ensemble, wal.barrier
            return wal

        host = Host(
            loop=loop,
            queue=member,
            custom=lambda states: self._caller(spec, load, loop, ensemble.note, states),
            caller=None if prepared is None else prepared.caller,
            adviser=lambda: parts("advisers")[0].processes(
                spec, loop, log=self._log_of(spec), **where
            ),
            fleet=fleet,
            store=put_down,
            marker=self._marks.of(spec.name, load["run"]),
            log_error=self._error,
            changed=self._changed,
            stirred=self._stirred,
        )
        ensemble = Ensemble(
            spec, host, run=load["run"], cwd=load["cwd"], recorder=recorder, replayed=replayed
        )
        if prepared is not None:
            prepared.ensemble = ensemble
        self.pace()
        return ensemble

    def _wal(
        self, ensemble: Ensemble, store: KvsStore, loop: FluxLoop, replayed: Replayed | None
    ) -> WriteAheadLog:
        """Make the log of an ensemble, and keep it with the ensemble's store."""
        ensemble.engine.stats.keep_values()
        wal = WriteAheadLog(
            store,
            loop,
            ensemble,
            lambda text: self._error(f"{ensemble.name}: {text}"),
            self._queue,
            identity=identity(ensemble.name, ensemble.run),
            replayed=replayed,
            late=lambda: self._late.note(ensemble.name),
        )
        self._kept[ensemble] = store, wal
        return wal

    def _say_late(self, names: list[str]) -> None:
        whose = listed(names) if len(names) <= _MOST else counted(len(names), "ensemble")
        self._log(
            syslog.LOG_WARNING,
            f"commits to the KVS take more than {PATIENCE:g} s, and new jobs of {whose} wait for "
            "them: the broker is busy, or its disk is slow",
        )

    def prepare(self, spec: Spec, load: Mapping[str, Any], prepared: Prepared) -> FunctionCaller:
        """Make the process of an ensemble that is made later.

        Args:
            spec: the document of the ensemble.
            load: the payload of its load request.
            prepared: receives the errors of the process.
        """
        loop = FluxLoop(self._handle, guard(prepared.broken))
        return self._caller(spec, load, loop, prepared.note)

    def _caller(
        self,
        spec: Spec,
        load: Mapping[str, Any],
        loop: FluxLoop,
        note: Callable[[eventlog.Entry], None],
        states: Mapping[str, Any] | None = None,
    ) -> FunctionCaller:
        return caller_of(
            spec,
            loop,
            note,
            self._log_of(spec),
            environment=load["environment"],
            cwd=load["cwd"],
            uri=self._uri,
            states=states,
        )

    def _log_of(self, spec: Spec) -> Callable[[str, str], None]:
        """Return a function that logs a level and a line printed by a process of an ensemble."""
        return lambda level, text: self._log(
            getattr(syslog, f"LOG_{level.upper()}", syslog.LOG_INFO), f"{spec.name}: {text}"
        )

    def pace(self) -> None:
        """Adapt the pace of the logs to the number of live ensembles."""
        pace([wal for ensemble, (_, wal) in self._kept.items() if ensemble.live])

    def checkpoint(self, ensemble: Ensemble) -> None:
        """Store the current state of an ensemble, without anybody waiting for it."""
        self._kept[ensemble][1].checkpoint()

    def discard(self, ensemble: Ensemble) -> None:
        """Remove what the KVS holds of an ensemble that has been closed."""
        store, _ = self._kept.pop(ensemble)
        store.remove(self.removed)

    def removed(self, error: Exception | None) -> None:
        """Handle the outcome of a removal from the KVS: log the error, if there is one."""
        if error is not None:
            self._error(str(error))

    def _error(self, text: str) -> None:
        self._log(syslog.LOG_ERR, text)
