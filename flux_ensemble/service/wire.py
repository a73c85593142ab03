"""Messages between a home and its workers: JSON over TLS, each after its length in four bytes.

put ──► unsent ──► TLS ──► taken        each message once and in order, until `lost`
"""

from __future__ import annotations

import json
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.files import in_memory
from flux_ensemble.runtime.ports import Handle, Loop

#: The name in the certificate of a home, whatever its addresses are.
HOME_NAME = "home.flux-ensemble"

#: Seconds that the handshake may take.
HANDSHAKE_SECONDS = 10.0

#: Seconds after which a worker that has nothing to report repeats its latest message. A home that
#: ends closes the connection, so this finds only networks that are cut.
QUIET_SECONDS = 10.0

#: Most bytes of a message; the largest has a document.
MOST_BYTES = 1 << 27

#: Bytes that are read or sent at once, and how often that is done in one turn of the loop.
_CHUNK, _CHUNKS = 1 << 16, 16

#: Most bytes of a record of TLS.
_RECORD = 1 << 14

#: Seconds after which what the socket has no room for is tried again: a `Loop` watches only reads.
_AGAIN_SECONDS = 0.01

_LENGTH = struct.Struct("!I")


class Wire:
    """A connection.

    Args:
        loop: for timers, and for the socket.
        sock: that does not block.
        opened: called once with the names in the peer's certificate: its URIs.
        taken: receives each message.
        lost: called once with the reason when the connection is lost; not after `close`.
        silence: seconds without a message after which it is lost.
        shaken: the handshake is done.
    """

    def __init__(
        self,
        loop: Loop,
        sock: ssl.SSLSocket,
        *,
        opened: Callable[[list[str]], None],
        taken: Callable[[Mapping[str, Any]], None],
        lost: Callable[[str], None],
        silence: float,
        shaken: bool = False,
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._opened = opened
        self._taken = taken
        self._lost = lost
        self._silence = silence
        self._shaken = shaken
        self._read = bytearray()
        self._unsent = bytearray()
        self._closed = False
        self._t_heard = time.monotonic()
        self._again: dict[Callable[[], None], Handle] = {}
        self._reader = loop.reader(sock.fileno(), self._readable)
        self._limit: Handle = loop.timer(
            silence if shaken else HANDSHAKE_SECONDS, self._look if shaken else self._late
        )
        if shaken:
            # What has arrived with the handshake wakes no loop.
            self._soon(self._readable)

    def put(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        text = json.dumps(message, separators=(",", ":")).encode()
        self._unsent += _LENGTH.pack(len(text)) + text
        if self._shaken:
            self._flush()

    def close(self) -> None:
        """Close the connection; what is unsent is dropped."""
        if not self._closed:
            self._closed = True
            self._reader.cancel()
            self._limit.cancel()
            for handle in self._again.values():
                handle.cancel()
            self._socket.close()

    def _end(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._lost(reason)

    def _late(self) -> None:
        self._end(f"its handshake did not end within {HANDSHAKE_SECONDS:g} seconds")

    def _look(self) -> None:
        """End a connection whose peer is silent: nothing else tells of a network that is cut."""
        left = self._t_heard + self._silence - time.monotonic()
        if left <= 0:
            self._end(f"nothing was heard for {self._silence:g} seconds")
        else:
            self._limit = self._loop.timer(left, self._look)

    def _soon(self, work: Callable[[], None], seconds: float = 0.0) -> None:
        if work not in self._again:
            self._again[work] = self._loop.timer(seconds, lambda: self._once(work))

    def _once(self, work: Callable[[], None]) -> None:
        del self._again[work]
        if not self._closed:
            work()

    def _readable(self) -> None:
        try:
            if not self._shaken:
                self._shake()
            for _ in range(_CHUNKS if self._shaken else 0):
                data = self._socket.recv(_CHUNK)
                if not data:
                    self._end("the other side has closed the connection")
                    return
                self._take(data)
                # What was not decrypted yet wakes the loop; to ask for it costs a message as much.
                if self._closed or (len(data) < _RECORD and not self._socket.pending()):
                    return
            # More may have been decrypted, of which the socket says nothing.
            if self._shaken:
                self._soon(self._readable)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._soon(self._readable, _AGAIN_SECONDS)
        except (OSError, ValueError) as error:
            self._end(why(error))

    def _shake(self) -> None:
        self._socket.do_handshake()
        self._shaken = True
        self._t_heard = time.monotonic()
        self._limit.cancel()
        self._limit = self._loop.timer(self._silence, self._look)
        self._opened(uris(self._socket))
        self._flush()

    def _take(self, data: bytes) -> None:
        self._t_heard = time.monotonic()
        self._read += data
        start = 0
        while len(self._read) - start >= _LENGTH.size and not self._closed:
            (size,) = _LENGTH.unpack_from(self._read, start)
            if size > MOST_BYTES:
                self._end(f"a message of {size} bytes was announced")
                return
            end = start + _LENGTH.size + size
            if len(self._read) < end:
                break
            message = json.loads(self._read[start + _LENGTH.size : end])
            start = end
            if not isinstance(message, dict):
                self._end("a message is no object")
                return
            self._taken(message)
        del self._read[:start]

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            for _ in range(_CHUNKS):
                if not self._unsent:
                    return
                sent = self._socket.send(self._unsent[:_CHUNK])
                del self._unsent[:sent]
            self._soon(self._flush)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._soon(self._flush, _AGAIN_SECONDS)
        except OSError as error:
            # Deferred, because the sender may be in the middle of something.
            reason = why(error)
            self._soon(lambda: self._end(reason))


def tls_context(protocol: int, trusted: bytes, cert: bytes, key: bytes) -> ssl.SSLContext:
    """Return the context of one side, which accepts the certificates of one authority alone.

    Args:
        protocol: `ssl.PROTOCOL_TLS_SERVER` or `ssl.PROTOCOL_TLS_CLIENT`.
        trusted: the certificate of the authority, in PEM, as the others are.
        cert, key: the side's own.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    with in_memory(cert) as cert_file, in_memory(key) as key_file:
        context.load_cert_chain(cert_file, key_file)
    context.load_verify_locations(cadata=trusted.decode())
    return context


def uris(sock: ssl.SSLSocket) -> list[str]:
    """Return the URIs in the certificate of a peer."""
    names: Any = (sock.getpeercert() or {}).get("subjectAltName", ())
    return [value for kind, value in names if kind == "URI"]


def why(error: Exception) -> str:
    """Return the reason of an error of a connection, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
