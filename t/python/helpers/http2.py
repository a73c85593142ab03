"""A client of HTTP/2 that does only what it is told, so that it can misbehave.

It sends headers as literals, compresses nothing, reads nothing unless asked, and answers no
PING unless asked. Frames: RFC 9113; headers: RFC 7541.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from patience import PATIENCE
from rpc_servers import AUTHORIZATION

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Types of frames.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8

#: Flags of frames.
END_STREAM, ACK, END_HEADERS = 1, 1, 4

#: Settings.
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4


@dataclass(frozen=True)
class Frame:
    """A frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame to send."""
    head = struct.pack(">I", len(payload))[1:] + bytes((kind, flags))
    return head + struct.pack(">I", stream) + payload


def message(data: bytes) -> bytes:
    """A message of gRPC, as it is in DATA frames."""
    return b"\0" + struct.pack(">I", len(data)) + data


class Http2:
    """A connection.

    Args:
        target: HOST:PORT.
        settings: by number.
        context: for TLS; None is plaintext.
        source: the address to connect from.
        timeout: how long a read may take, in seconds.
    """

    def __init__(
        self,
        target: str,
        settings: dict[int, int] | None = None,
        *,
        context: ssl.SSLContext | None = None,
        source: str | None = None,
        timeout: float = PATIENCE,
    ) -> None:
        host, _, port = target.rpartition(":")
        # Any address of 127.0.0.0/8 is this machine's.
        own = (source, 0) if source else None
        plain = socket.create_connection((host, int(port)), timeout, source_address=own)
        self.socket = context.wrap_socket(plain, server_hostname=host) if context else plain
        self._timeout = timeout
        self._received = b""
        self._stream = -1
        # Without a table of headers, what is received can be read as it is.
        chosen = {HEADER_TABLE_SIZE: 0, **(settings or {})}
        payload = b"".join(struct.pack(">HI", *item) for item in chosen.items())
        self.socket.sendall(PREFACE + frame(SETTINGS, payload=payload))

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()

    def call(
        self,
        path: str | bytes,
        data: bytes | None = b"",
        *,
        headers: dict[bytes, bytes] | None = None,
    ) -> int:
        """Begins a call, with one request; None sends none and leaves the call open.

        Returns:
            the number of its stream.
        """
        self._stream += 2
        fields = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": path.encode() if isinstance(path, str) else path,
            b":authority": b"localhost",
            b"content-type": b"application/grpc",
            b"te": b"trailers",
            AUTHORIZATION[0].encode(): AUTHORIZATION[1].encode(),
            **(headers or {}),
        }
        block = b"".join(_literal(name) + _literal(value, b"") for name, value in fields.items())
        self.socket.sendall(frame(HEADERS, END_HEADERS, self._stream, block))
        if data is not None:
            self.finish(self._stream, data)
        return self._stream

    def finish(self, stream: int, data: bytes) -> None:
        """Sends the request of a call that was left open."""
        self.socket.sendall(frame(DATA, END_STREAM, stream, message(data)))

    def frames(self, *, pong: bool = True, seconds: float | None = None) -> Iterator[Frame]:
        """The frames that come, until the other side closes the connection.

        Args:
            pong: answer PINGs.
            seconds: end after this time too.

        Raises:
            TimeoutError: nothing came for too long, and no time was given.
        """
        t_end = None if seconds is None else time.monotonic() + seconds
        while True:
            while (one := self._take()) is not None:
                if one.kind == SETTINGS and not one.flags & ACK:
                    self.socket.sendall(frame(SETTINGS, ACK))
                if one.kind == PING and not one.flags & ACK and pong:
                    self.socket.sendall(frame(PING, ACK, payload=one.payload))
                yield one
            left = self._timeout if t_end is None else t_end - time.monotonic()
            if left <= 0:
                return
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return
            except TimeoutError:
                if t_end is None:
                    raise
                return
            if not data:
                return
            self._received += data

    def closed(self) -> set[int]:
        """Waits until the other side closes the connection; gives the kinds of frames before."""
        return {one.kind for one in self.frames()}

    def ended(self, stream: int) -> bytes:
        """The headers with which a stream ends, or b"" if it or the connection is broken off."""
        for one in self.frames():
            if one.stream == stream and one.kind == HEADERS and one.flags & END_STREAM:
                return one.payload
            if one.stream == stream and one.kind == RST_STREAM:
                return b""
        return b""

    def _take(self) -> Frame | None:
        """The first frame of what was received, if it is whole."""
        size = 9 + int.from_bytes(self._received[:3], "big")
        if len(self._received) < size:
            return None
        data, self._received = self._received[:size], self._received[size:]
        return Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:])


def _literal(text: bytes, prefix: bytes = b"\0") -> bytes:
    """A name or value of a header, which is not compressed and not kept."""
    size = len(text)
    if size < 127:
        return prefix + bytes((size,)) + text
    number, rest = b"\x7f", size - 127
    while rest >= 128:
        number, rest = number + bytes((rest % 128 + 128,)), rest // 128
    return prefix + number + bytes((rest,)) + text
