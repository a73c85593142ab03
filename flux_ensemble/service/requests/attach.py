"""Requests of the services of members that arrive through Flux."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import partial
from typing import Any

from flux.core.inner import lib
from flux.message import Message

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.service.attachments import Attachments, Way
from flux_ensemble.service.requests.messages import Responder
from flux_ensemble.service.requests.registration import request_handler


class AttachRequests:
    """Handlers of `ensemble.attach` and `ensemble.report`.

    Args:
        responder: sends the responses.
        attachments: the connections.
    """

    def __init__(self, responder: Responder, attachments: Attachments) -> None:
        self._responder = responder
        self._attachments = attachments
        self._open: list[tuple[Message, Way]] = []

    @request_handler("attach")
    def attach(self, message: Message, payload: Mapping[str, Any]) -> None:
        """Connect to the service of a member; each response is a message to that service."""
        if not message.pimpl.is_streaming():
            raise RequestError(errno.EPROTO, "ensemble.attach: expected a streaming request")
        respond = partial(self._responder.respond, message)
        way = self._attachments.attach(payload, respond, partial(self._over, message))
        self._open.append((message, way))

    @request_handler("report")
    def report(self, message: Message, payload: Mapping[str, Any]) -> None:
        """Process a report from the service of a member; the response is the answer to it."""
        self._responder.respond(message, self._attachments.report(payload))

    def gone(self, message: Message) -> None:
        """Close the channels of a client that has disconnected or ended its stream."""
        matches = (
            lib.flux_disconnect_match
            if message.topic.endswith(".disconnect")
            else lib.flux_cancel_match
        )
        for opened, way in list(self._open):
            if matches(message.handle, opened.handle):
                way.lost()

    def _over(self, message: Message) -> None:
        self._open = [(opened, way) for opened, way in self._open if opened is not message]
        self._responder.refuse(message, errno.ESTALE, "the contact is over; attach again")
