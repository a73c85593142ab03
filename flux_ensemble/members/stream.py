"""A streaming request to Flux whose responses are handled in the order they arrive."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_MSGTYPE_RESPONSE
from flux.core.handle import Flux
from flux.core.inner import ffi, lib
from flux.message import Message

from flux_ensemble.members.flux import Guard
from flux_ensemble.members.journal import Ended, Receive


class Stream:
    """A streaming request.

    Responses are read by a message handler, not by a future: the continuations of two
    futures run in another order than their messages came in.

    Args:
        handle: Flux handle.
        guard: wraps what is called from the reactor.
        topic: of the request; TOPIC-cancel ends it.
        payload: of the request.
        receive: gets each response's payload, as text.
        ended: gets the error that ended the stream.
    """

    def __init__(
        self,
        handle: Flux,
        guard: Guard,
        topic: str,
        payload: Mapping[str, Any],
        receive: Receive,
        ended: Ended,
    ) -> None:
        self._handle = handle
        self._topic = topic
        self._receive = receive
        self._ended = ended
        self._text = ffi.new("char *[1]")
        self._tag = handle.flux_matchtag_alloc()
        self._watcher = handle.msg_watcher_create(
            guard(self._respond),
            FLUX_MSGTYPE_RESPONSE,
            topic,
            match_tag=self._tag,
            rolemask=lib.FLUX_ROLE_ALL,
        )
        self._watcher.start()
        request = Message(FLUX_MSGTYPE_REQUEST)
        request.topic = topic
        request.payload = payload
        request.pimpl.set_matchtag(self._tag)
        request.pimpl.set_streaming()
        handle.send(request)

    def cancel(self) -> None:
        """Ask for the end of the stream; the response to that ends it here."""
        request = Message(FLUX_MSGTYPE_REQUEST)
        request.topic = f"{self._topic}-cancel"
        request.payload = {"matchtag": self._tag}
        request.pimpl.set_noresponse()
        self._handle.send(request)

    def _respond(self, handle: Flux, watcher: Any, message: Message, args: Any) -> None:
        if lib.flux_response_decode(message.handle, ffi.NULL, self._text) == 0:
            self._receive(self, ffi.string(self._text[0]).decode())
            return
        number = ffi.errno
        detail = os.strerror(number)
        if lib.flux_response_decode_error(message.handle, self._text) == 0:
            detail = ffi.string(self._text[0]).decode()
        watcher.destroy()
        self._handle.del_watcher(watcher)
        self._handle.flux_matchtag_free(self._tag)
        self._ended(self, OSError(number, detail))
