"""Clients of the broker that send any bytes to any topic, and see when an answer comes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import flux
from flux.constants import FLUX_MSGTYPE_REQUEST, FLUX_MSGTYPE_RESPONSE, FLUX_NODEID_ANY
from flux.core.inner import ffi, lib


@dataclass(frozen=True, slots=True)
class Answer:
    """A response.

    Args:
        tag: the matchtag of its request.
        errnum: 0, or why it failed.
        text: its payload.
        t: when it was received, by the monotonic clock.
    """

    tag: int
    errnum: int
    text: bytes
    t: float


class Client:
    """One connection to a broker.

    Args:
        uri: of the broker.
        userid, rolemask: whom Flux is to take it for; None for who it is.

    Attributes:
        streamed: the matchtag of the last streaming request.
    """

    def __init__(self, uri: str, *, userid: int | None = None, rolemask: int | None = None) -> None:
        given = {"FLUX_HANDLE_USERID": userid, "FLUX_HANDLE_ROLEMASK": rolemask}
        os.environ.update({key: str(value) for key, value in given.items() if value is not None})
        try:
            self._handle = flux.Flux(uri)
        finally:
            for key in given:
                os.environ.pop(key, None)
        self._match = lib.flux_match_init(FLUX_MSGTYPE_RESPONSE, 0, ffi.NULL)
        self._tag = 0
        self.streamed = 0
        self.fd = int(self._handle.pollfd())

    def send(
        self,
        topic: str,
        payload: bytes | None,
        *,
        streaming: bool = False,
        noresponse: bool = False,
    ) -> int:
        """Send a request.

        Args:
            payload: goes into the message as it is; None for no payload.

        Returns:
            Its matchtag, which no other request of this client has.

        Raises:
            OSError: the broker is gone.
        """
        self._tag += 1
        message = lib.flux_msg_create(FLUX_MSGTYPE_REQUEST)
        try:
            _check(lib.flux_msg_set_topic(message, topic.encode()))
            _check(lib.flux_msg_set_nodeid(message, FLUX_NODEID_ANY))
            _check(lib.flux_msg_set_matchtag(message, self._tag))
            if payload:
                _check(lib.flux_msg_set_payload(message, ffi.from_buffer(payload), len(payload)))
            if streaming:
                _check(lib.flux_msg_set_streaming(message))
                self.streamed = self._tag
            if noresponse:
                _check(lib.flux_msg_set_noresponse(message))
            _check(lib.flux_send(self._handle.handle, message, 0))
        finally:
            lib.flux_msg_decref(message)
        return self._tag

    def receive(self) -> Iterator[Answer]:
        """The answers that are there.

        Raises:
            OSError: the broker is gone.
        """
        while True:
            message = lib.flux_recv(self._handle.handle, self._match, lib.FLUX_O_NONBLOCK)
            if message == ffi.NULL:
                if ffi.errno not in (0, 11):
                    raise OSError(ffi.errno, os.strerror(ffi.errno))
                return
            try:
                yield _answer(message)
            finally:
                lib.flux_msg_decref(message)

    def close(self) -> None:
        """Disconnect, whatever is open."""
        # Flux's bindings close a handle that nobody has any more.
        del self._handle


def _answer(message: object) -> Answer:
    tag, number = ffi.new("uint32_t *"), ffi.new("int *")
    data, size = ffi.new("const void **"), ffi.new("size_t *")
    _check(lib.flux_msg_get_matchtag(message, tag))
    _check(lib.flux_msg_get_errnum(message, number))
    text = b""
    if lib.flux_msg_get_payload(message, data, size) == 0:
        text = bytes(ffi.buffer(data[0], size[0])).rstrip(b"\0")
    return Answer(tag[0], number[0], text, time.monotonic())


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
