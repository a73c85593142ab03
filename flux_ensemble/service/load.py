"""Loads and unloads ensembles, and restores them from the KVS.

load request ──► load ────┐
what the KVS holds ──► restore ──► Assembly.make ──► Ensemble
unload request ──► unload ──► Lifetimes.drop
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flux.job import JobID
from flux.message import Message

from flux_ensemble import eventlog
from flux_ensemble.document.feature import objection
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.faults import ENDINGS
from flux_ensemble.own_command import own_command
from flux_ensemble.run_names import free_name, goes_on_already
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Loop
from flux_ensemble.service.assembly import Assembly
from flux_ensemble.service.files import WantedFiles, read_files
from flux_ensemble.service.functions import FunctionChecks, Prepared
from flux_ensemble.service.lifetimes import Lifetimes
from flux_ensemble.service.marks import DEATHS, REPLAY, Marks
from flux_ensemble.service.member_queues import Answer, WantedQueues, ask
from flux_ensemble.service.member_services import Ssh, is_open, served
from flux_ensemble.service.own_instance import OwnInstance
from flux_ensemble.service.recovery.recovery import Reading, Recovery
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.requests.documents import (
    check_context,
    check_load,
    check_name,
    document_directory,
    open_recorder,
    read_document,
)
from flux_ensemble.service.requests.limits import check_ensembles
from flux_ensemble.service.requests.messages import Responder
from flux_ensemble.service.requests.registration import request_handler
from flux_ensemble.service.store.errors import StoreError
from flux_ensemble.service.store.kvs import KvsStore, KvsStores

Payload = Mapping[str, Any]


@dataclass
class _Known:
    """The findings about what a document names.

    Args:
        files: their texts.
        queues: of instances that are there already.
        ssh_was_tried: it was looked whether ssh reaches other nodes, if members need it.
        notes: for the log of the ensemble.
    """

    files: WantedFiles = field(default_factory=WantedFiles)
    queues: WantedQueues = field(default_factory=WantedQueues)
    ssh_was_tried: bool = False
    notes: list[eventlog.Entry] = field(default_factory=list)


class Loading:
    """Makes ensembles of load requests or of what the KVS holds.

    Args:
        responder: sends the responses.
        ensembles: all ensembles.
        assembly: makes an ensemble.
        lifetimes: starts and drops it.
        stores: the KVS.
        recovery: knows which ensembles of the KVS are unreadable.
        own: uses the scaler that an ensemble brings.
        marks: know at which event services died.
        log_error: writes a line to the service's log.
        loop: of the service.
        ssh: knows whether ssh reaches other nodes.
    """

    def __init__(
        self,
        responder: Responder,
        ensembles: Ensembles,
        assembly: Assembly,
        lifetimes: Lifetimes,
        stores: KvsStores,
        recovery: Recovery,
        own: OwnInstance,
        marks: Marks,
        log_error: Callable[[str], None],
        loop: Loop,
        ssh: Ssh,
    ) -> None:
        self._ssh = ssh
        self._responder = responder
        self._ensembles = ensembles
        self._assembly = assembly
        self._lifetimes = lifetimes
        self._stores = stores
        self._recovery = recovery
        self._own = own
        self._marks = marks
        self._log_error = log_error
        self._loop = loop
        self._closed: str | None = None
        self._checks = FunctionChecks(responder, assembly.prepare)
        #: Names that ensembles were requested by, if they got another name: see `run_names`.
        self._asked: dict[str, str] = {}

    def close(self, reason: str) -> None:
        """Refuse the loads that are under way, and load nothing more."""
        self._closed = reason
        self._checks.close(reason)

    @request_handler("load")
    def load(self, message: Message, payload: Payload) -> None:
        """Load an ensemble; the response follows when its start is durable."""
        self._load(message, payload, _Known())

    def _load(self, message: Message, payload: Payload, known: _Known) -> None:
        """Read a document, after what it names is known.

        Args:
            message, payload: the request.
            known: what is known of that.
        """
        elastic = self._own.elastic or "scaler" in payload
        files, queues = known.files, known.queues
        try:
            spec = read_document(payload, files, elastic=elastic, queues=queues)
        except RequestError:
            # An error in a document whose files are not read yet is no verdict.
            if not files.missing:
                raise
        if files.missing:
            read = partial(self._read, message, payload, known)
            read_files(self._loop, files.missing, document_directory(payload), read)
            return
        if queues.missing:
            ask(self._loop, queues.missing, partial(self._told, message, payload, known))
            return
        if is_open(spec) and not known.ssh_was_tried:
            known.ssh_was_tried = True
            self._ssh.ask(partial(self._tried, message, payload, known, spec))
            return
        check_context(payload)
        uninstalled = objection(spec, payload.get("file"))
        if uninstalled is not None:
            raise RequestError(errno.EINVAL, uninstalled)
        homeless = next((pool.name for pool in spec.members if pool.calls_home), None)
        if homeless is not None:
            raise RequestError(
                errno.EINVAL,
                f"members: {homeless!r} has workers that call a home without Flux, for now: run "
                "the document outside of a Flux instance ('flux-ensemble run --queue local'), or "
                "take members of another kind",
            )
        name = self._free_name(spec.name)
        if name != spec.name:
            payload = {**payload, "name": name, "asked": spec.name}
            self._remember(name, spec.name)
            spec = spec.renamed(name)
        make = partial(self._make, message, payload, spec, known)
        self._checks.run(message, spec, payload, make)

    def _read(
        self, message: Message, payload: Payload, known: _Known, result: dict[str, str] | str
    ) -> None:
        """Continue a load with the files that its document names."""
        if isinstance(result, str):
            file = payload.get("file") or "document"
            self._responder.refuse(message, errno.EINVAL, f"{file}: {result}")
            return
        known.files.take(result)
        self._go_on(message, payload, known)

    def _told(
        self, message: Message, payload: Payload, known: _Known, answers: Mapping[str, Answer]
    ) -> None:
        """Continue a load with the queues of the instances that its document names."""
        known.queues.take(answers)
        self._go_on(message, payload, known)

    def _tried(
        self, message: Message, payload: Payload, known: _Known, spec: Spec, reason: str | None
    ) -> None:
        """Continue a load when it is known whether ssh reaches other nodes."""
        if reason is not None:
            payload, pools = served(spec, payload)
            if pools:
                known.notes.append(eventlog.MemberServices(pools=pools, reason=reason))
        self._go_on(message, payload, known)

    def _go_on(self, message: Message, payload: Payload, known: _Known) -> None:
        if self._closed is not None:
            self._responder.refuse(message, errno.EAGAIN, self._closed)
            return
        try:
            self._load(message, payload, known)
        except RequestError as refusal:
            self._responder.refuse(message, refusal.errno, str(refusal))
        except ENDINGS:
            raise
        except BaseException as error:
            self._responder.fail("load", message, error)

    def _make(
        self,
        message: Message,
        payload: Payload,
        spec: Spec,
        known: _Known,
        prepared: Prepared | None,
    ) -> None:
        if self._free_name(spec.name) != spec.name:
            raise RequestError(errno.EEXIST, f"an ensemble named {spec.name!r} was loaded just now")
        if "scaler" in payload:
            self._own.adopt(payload["scaler"])
        document = payload.get("text", payload.get("spec"))
        kept = {key: value for key, value in payload.items() if key != "record"}
        if spec.expansion is not None:
            # The expanded document is kept, which needs no algorithms any more.
            document = spec.expansion
            kept = {
                **{key: value for key, value in kept.items() if key != "text"},
                "spec": document,
            }
        recorder = open_recorder(payload.get("record"), spec, document)
        load = {**kept, "run": int(time.time() * 1e6), "files": known.files}
        store = self._stores.create(spec.name, load)
        ensemble = self._assembly.make(spec, load, store, recorder=recorder, prepared=prepared)
        self._ensembles.add(ensemble)
        ensemble.note(eventlog.Load(document=document))
        for entry in known.notes:
            ensemble.note(entry)
        for pool in spec.members:
            if pool.uri in known.queues.unknown:
                reason = known.queues.unknown[pool.uri]
                ensemble.note(eventlog.QueuesUnknown(member=f"{pool.name}.0", reason=reason))
        ensemble.owe(self._responder.answer_to(message))
        self._lifetimes.begin(ensemble)

    def _free_name(self, asked: str) -> str:
        """Return a free name for an ensemble that is to be loaded; kept ensembles keep theirs.

        Raises:
            RequestError: EEXIST if an ensemble requested by that name has not ended, or EAGAIN if
                there are too many ensembles.
        """
        if asked in self._recovery.unreadable:
            raise RequestError(
                errno.EEXIST,
                f"an ensemble named {asked!r} is in the KVS and could not be restored: "
                f"{self._recovery.unreadable[asked]}; unload it, or choose another name",
            )
        states = {ensemble.name: ensemble.state for ensemble in self._ensembles}
        for name in (asked, *(name for name in self._asked if self._asked[name] == asked)):
            if name in self._checks:
                raise RequestError(
                    errno.EEXIST, f"an ensemble named {name!r} is being loaded already"
                )
            if name in states and not self._ensembles.get(name).ended:
                watch = own_command("watch", name, flux=True)
                text = goes_on_already(name, watch, states[name], alone=True)
                raise RequestError(errno.EEXIST, text)
        live = sum(not ensemble.ended for ensemble in self._ensembles)
        check_ensembles(live + len(self._checks))
        return free_name(asked, {*states, *self._recovery.unreadable})

    def _remember(self, name: str, asked: str) -> None:
        """Keep the name that an ensemble was requested by, for as long as the ensemble exists."""
        there = {ensemble.name for ensemble in self._ensembles}
        self._asked = {
            other: what
            for other, what in self._asked.items()
            if other in there or other in self._checks
        }
        self._asked[name] = asked

    def restore(
        self, load: Payload, store: KvsStore, read: Reading
    ) -> Generator[None, None, Ensemble]:
        """Restore an ensemble, in steps.

        Args:
            load: the payload of its load request.
            store: holds its log.
            read: reads the log.

        Raises:
            Exception: the ensemble cannot be restored.
        """
        check_load(store.name, load)
        # The capabilities of the member were checked when it was loaded.
        spec = read_document(load, load["files"], elastic=True)
        check_name(store.name, spec.name)
        fatal = self._marks.fatal(spec.name, load["run"])
        if fatal is not None:
            fatal = re.sub(r"\bjob (\d+)", lambda job: f"job {JobID(int(job[1])).f58}", fatal)
        if fatal is not None and fatal.startswith(REPLAY):
            raise StoreError(
                f"{DEATHS} services in a row died in {fatal}; the event is tried again when the "
                "service has been stopped and is started again"
            )
        replayed = yield from read.steps(spec)
        ensemble = self._assembly.make(spec, load, store, replayed=replayed)
        if type(load.get("asked")) is str:
            self._asked[spec.name] = load["asked"]
        if fatal is not None and ensemble.live:
            ensemble.fail(
                f"{DEATHS} services in a row died while they handled {fatal}; its jobs are left as "
                "they are: mend the document (the rules for that event first), unload it and load "
                "it again"
            )
        if "scaler" in load and ensemble.live:
            try:
                self._own.adopt(load["scaler"])
            except RequestError as refusal:
                self._log_error(f"{spec.name}: {refusal}")
        return ensemble

    @request_handler("unload")
    def unload(self, message: Message, payload: Payload) -> None:
        """Drop an ended ensemble, or what the KVS holds of an unreadable one."""
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
        self._lifetimes.drop(ensemble)
        self._responder.respond(message, {"state": state})
