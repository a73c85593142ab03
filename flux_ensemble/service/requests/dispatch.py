"""Receives requests, and passes each one to its handler or refuses it.

message ──► sender? ──► bounds ──► parse ──► held until the service is ready ──► handler
               └───────────┴──────────┴──► refused with an errno and a sentence ◄───┘
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from flux.message import Message

from flux_ensemble.client.topics import READING
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.faults import ENDINGS
from flux_ensemble.queues.flux.shutdown import Shutdown
from flux_ensemble.service.recovery.recovery import Recovery
from flux_ensemble.service.requests.messages import Responder, is_owner
from flux_ensemble.service.requests.protocol import parse
from flux_ensemble.service.requests.registration import Handler

Payload = Mapping[str, Any]


class Dispatcher:
    """Receives requests.

    Args:
        responder: admits requests, and sends the responses.
        recovery: knows how far the service has recovered.
        shutdown: knows whether the Flux instance is shutting down.
        handlers: the handlers of the requests, by topic.
        guests: guests may send the requests that are open to them.
    """

    def __init__(
        self,
        responder: Responder,
        recovery: Recovery,
        shutdown: Shutdown,
        handlers: Mapping[str, Handler],
        *,
        guests: bool,
    ) -> None:
        self._responder = responder
        self._recovery = recovery
        self._shutdown = shutdown
        self._handlers = handlers
        self._guests = guests
        self._closed: str | None = None
        self._unfit: str | None = None
        self._held: list[tuple[str, Message, Payload]] = []

    def dispatch(self, method: str, message: Message) -> None:
        """Handle a request, which is answered in any case, now or later.

        Args:
            method: a key of `client.topics.TOPICS`.
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
        except RequestError as refusal:
            self._responder.refuse(message, refusal.errno, str(refusal))
            return
        if self._closed is not None:
            self._responder.refuse(message, errno.ESHUTDOWN, self._closed)
            return
        if self._unfit is not None:
            self._responder.refuse(message, errno.EIO, self._unfit)
            return
        # Nothing can be read before the KVS has been, and nothing be changed before the journal has
        # been.
        if self._recovery.ready or (self._recovery.epoch and self._is_readable(method, payload)):
            self._handle(method, message, payload)
        else:
            self._held.append((method, message, payload))

    def _is_readable(self, method: str, payload: Payload) -> bool:
        """Return True if the request only reads, and need not wait for ensembles to be restored."""
        if method not in READING:
            return False
        # A request that names an ensemble waits for it.
        return not self._recovery.coming or (method in ("list", "status") and not payload)

    def restored(self) -> None:
        """Handle the requests that only read, because the ensembles are restored."""
        held, self._held = self._held, []
        for method, message, payload in held:
            if method in READING:
                self._handle(method, message, payload)
            else:
                self._held.append((method, message, payload))

    def ready(self) -> None:
        """Handle the requests that waited until the service is ready."""
        held, self._held = self._held, []
        for method, message, payload in held:
            self._handle(method, message, payload)

    def cannot_begin(self, reason: str) -> None:
        """Refuse all requests, until `can_begin`; waiting would not help."""
        self._unfit = f"the ensemble service cannot begin: {reason}"
        held, self._held = self._held, []
        for _, message, _ in held:
            self._responder.refuse(message, errno.EIO, self._unfit)

    def can_begin(self) -> None:
        """Accept requests again, after `cannot_begin`."""
        self._unfit = None

    def close(self, reason: str) -> None:
        """Refuse all requests from now on; the responder refuses those that are held."""
        self._closed = reason
        self._held.clear()

    def _handle(self, method: str, message: Message, payload: Payload) -> None:
        try:
            if method not in READING and self._shutdown.begun:
                raise RequestError(errno.EAGAIN, "the Flux instance is shutting down")
            self._handlers[method](message, payload)
        except RequestError as refusal:
            self._responder.refuse(message, refusal.errno, str(refusal))
        except ENDINGS:
            raise
        except BaseException as error:
            self._responder.fail(method, message, error)
