"""A streaming request to Flux whose responses are handled in the order they arrive.

Each job event is a response, so the work for one is done with Flux's C functions alone: the
bindings' own message handler takes three times as long, most of it to make an object of a message
that is read once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_MSGTYPE_RESPONSE
from flux.core.handle import Flux
from flux.core.inner import ffi, lib
from flux.message import Message

from flux_ensemble.queues.flux.inbox import Inbox
from flux_ensemble.queues.flux.journal import Aside, Ended, Receive, nothing


@ffi.callback("void(flux_t *, flux_msg_handler_t *, const flux_msg_t *, void *)")
def _came(_handle: Any, _handler: Any, message: Any, stream: Any) -> None:
    ffi.from_handle(stream).take(message)


class StreamingRequest:
    """A streaming request.

    Responses are read by a message handler, not by a future: the continuations of two
    futures run in another order than their messages came in.

    Args:
        handle: Flux handle.
        inbox: the queue through which the responses go.
        topic: of the request; TOPIC-cancel ends it.
        payload: of the request.
        receive: receives each response's payload, as text.
        ended: receives the error that ended the stream.
        aside: receives each response's payload before anything that waits in the inbox is
            handled; if it returns True the response needs no further handling.
    """

    def __init__(
        self,
        handle: Flux,
        inbox: Inbox,
        topic: str,
        payload: Mapping[str, Any],
        receive: Receive,
        ended: Ended,
        aside: Aside = nothing,
    ) -> None:
        self._handle = handle
        self._inbox = inbox
        self._topic = topic
        self._receive = receive
        self._ended = ended
        self._aside = aside
        self._text = ffi.new("char *[1]")
        self._tag = handle.flux_matchtag_alloc()
        glob = ffi.new("char[]", topic.encode())
        match = {"typemask": FLUX_MSGTYPE_RESPONSE, "matchtag": self._tag, "topic_glob": glob}
        # Flux only stores this pointer; `_open` keeps the object alive until the stream ends.
        self._pointer = ffi.new_handle(self)
        _open.add(self)
        self._handler = handle.flux_msg_handler_create(
            ffi.new("struct flux_match *", match)[0], _came, self._pointer
        )
        lib.flux_msg_handler_allow_rolemask(self._handler, lib.FLUX_ROLE_ALL)
        lib.flux_msg_handler_start(self._handler)
        request = Message(FLUX_MSGTYPE_REQUEST)
        request.topic = topic
        request.payload = payload
        request.pimpl.set_matchtag(self._tag)
        request.pimpl.set_streaming()
        handle.send(request)

    def cancel(self) -> None:
        """Request the end of the stream; the error response to this ends it."""
        request = Message(FLUX_MSGTYPE_REQUEST)
        request.topic = f"{self._topic}-cancel"
        request.payload = {"matchtag": self._tag}
        request.pimpl.set_noresponse()
        self._handle.send(request)

    def take(self, message: Any) -> None:
        """Handle a response, given as an undecoded message."""
        if lib.flux_response_decode(message, ffi.NULL, self._text) == 0:
            text = ffi.string(self._text[0])
            if not self._aside(text):
                self._inbox.put(self._receive, self, text.decode("utf-8", "replace"))
            return
        number = ffi.errno
        detail = os.strerror(number)
        if lib.flux_response_decode_error(message, self._text) == 0:
            detail = ffi.string(self._text[0]).decode(errors="replace")
        self._close()
        self._handle.flux_matchtag_free(self._tag)
        self._inbox.put(self._ended, self, OSError(number, detail))

    def _close(self) -> None:
        lib.flux_msg_handler_destroy(self._handler)
        _open.discard(self)

    def answers(self, handle: Flux, tag: int) -> bool:
        """Return whether a response with this matchtag from this handle belongs to the stream."""
        return self._handle is handle and self._tag == tag

    def forget(self, handle: Flux) -> None:
        """Stop handling responses if the stream is one of this handle."""
        if self._handle is handle:
            self._close()


def hand_over(handle: Flux, message: Any) -> None:
    """Pass a response that was read without the reactor to its stream, if it has one.

    Args:
        handle: that received it.
        message: undecoded.
    """
    kind, tag = ffi.new("int *"), ffi.new("uint32_t *")
    if lib.flux_msg_get_type(message, kind) < 0 or kind[0] != FLUX_MSGTYPE_RESPONSE:
        return
    if lib.flux_msg_get_matchtag(message, tag) == 0:
        for stream in [stream for stream in _open if stream.answers(handle, tag[0])]:
            stream.take(message)


def forget(handle: Flux) -> None:
    """Close the streams of a handle that is needed no more."""
    for stream in tuple(_open):
        stream.forget(handle)


#: Streams that Flux may still call back.
_open: set[StreamingRequest] = set()
