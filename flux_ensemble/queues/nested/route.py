"""The connection to a member by its URI: by a socket, or by a proxy to another machine.

Flux connects to the socket of a broker and then reads one byte, by which the broker accepts it
(flux-core `src/common/librouter/usock.c`). A broker that is stopped never sends it. So this module
makes the connection, has the loop wait for the byte, and then gives the socket to Flux.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from functools import partial
from urllib.parse import urlparse

from flux.core.handle import Flux

from flux_ensemble.queues.nested.proxy import Proxy, here
from flux_ensemble.runtime.ports import Loop

#: Seconds after which a broker that does not answer is given up.
ANSWER_SECONDS = 10.0


def connect(
    uri: str, loop: Loop, done: Callable[[Flux | OSError], None], seconds: float = ANSWER_SECONDS
) -> None:
    """Open a handle.

    Args:
        uri: `local://PATH`.
        loop: of the service.
        done: receives the handle, or the error; not called from within this call.
        seconds: that the broker may take.
    """
    Connection(uri, loop, done, seconds)


class Connection:
    """A connection in progress: see `connect`."""

    def __init__(
        self, uri: str, loop: Loop, done: Callable[[Flux | OSError], None], seconds: float
    ) -> None:
        self._uri = uri
        self._done = done
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(_path(uri))
        except (OSError, ValueError) as raised:
            error = self._error(raised)
            self._limit = self._reader = loop.timer(0.0, lambda: self._end(error))
            return
        late = OSError(errno.ETIMEDOUT, f"{uri}: its broker does not answer within {seconds:g} s")
        self._limit = loop.timer(seconds, lambda: self._end(late))
        self._reader = loop.reader(self._socket.fileno(), self._answered)

    def _answered(self) -> None:
        self._reader.cancel()
        try:
            # The byte is left in the socket for Flux.
            if not self._socket.recv(1, socket.MSG_PEEK):
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            # Flux's first read needs a blocking socket; it does not block, since the byte is there.
            self._socket.setblocking(True)
            handle = Flux(f"fd://{self._socket.fileno()}")
            self._socket.detach()
        except OSError as error:
            self._end(self._error(error))
        else:
            self._end(handle)

    def _end(self, result: Flux | OSError) -> None:
        self._limit.cancel()
        self._reader.cancel()
        self._socket.close()
        self._done(result)

    def _error(self, error: Exception) -> OSError:
        number = getattr(error, "errno", None) or errno.EINVAL
        text = getattr(error, "strerror", None) or str(error)
        return OSError(number, f"cannot connect to {self._uri}: {text}")


def _path(uri: str) -> str:
    """Return the path of a `local:` URI.

    >>> _path("local:///run/flux/local-0")
    '/run/flux/local-0'

    Raises:
        ValueError: the URI is another one.
    """
    parts = urlparse(uri)
    if parts.scheme != "local" or parts.netloc or not parts.path:
        raise ValueError("a URI of this machine is written local:///PATH")
    return parts.path


#: Receives a handle, or the error.
Opened = Callable[[Flux | OSError], None]


class Route:
    """The way to a member.

    Args:
        loop: of the service.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._proxy: Proxy | None = None

    @property
    def direct(self) -> bool:
        """True if the latest way has no proxy: a socket without a listener is then the member's."""
        return self._proxy is None

    def find(self, uri: str, started: bool, opened: Opened) -> None:
        """Open a handle.

        Args:
            uri: of the member.
            started: the member is a job of the enclosing instance.
            opened: receives the outcome; not called from within this call.
        """
        local = here(uri)
        if local is not None and started:
            connect(local, self._loop, opened)
            return
        self.close()
        self._proxy = Proxy(uri, self._loop, partial(self._found, opened))

    def _found(self, opened: Opened, result: str | OSError) -> None:
        if isinstance(result, OSError):
            opened(result)
        elif self._proxy is not None:
            connect(result, self._loop, opened)

    def close(self) -> None:
        """End the proxy, if there is one."""
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()
