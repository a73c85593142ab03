"""The connection to an instance on another machine: a `flux proxy` of the service's own.

The proxy makes a socket on this machine that leads to the instance, by ssh if the URI requires it,
and prints its path. It lasts as long as its standard input is open, so it ends with the service,
even if the service is killed.
"""

from __future__ import annotations

import errno
import os
import platform
import subprocess
from collections.abc import Callable
from urllib.parse import urlparse

from flux.uri import JobURI

from flux_ensemble.queues.nested.refusals import no_way
from flux_ensemble.runtime.ports import Loop

#: Seconds that the connection may take.
WAY_SECONDS = 30.0

#: Seconds after which a proxy that was told to end is killed.
REAP_SECONDS = 2.0

#: Prints the URI of the socket, and waits for the end of its input.
_SCRIPT = 'echo "$FLUX_URI"; exec cat'


class Proxy:
    """A proxy process for an instance.

    Args:
        uri: of the instance.
        loop: of the service.
        done: receives the `local:` URI, or the error (`refusals.no_way`); not called from within
            this call.
        seconds: that the connection may take.
    """

    def __init__(
        self,
        uri: str,
        loop: Loop,
        done: Callable[[str | OSError], None],
        seconds: float = WAY_SECONDS,
    ) -> None:
        self._uri = uri
        self._loop = loop
        self._done = done
        self._told = b""
        self._process = subprocess.Popen(
            ["flux", "proxy", uri, _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=proxy_environment(),
        )
        assert self._process.stdout is not None
        self._limit = loop.timer(seconds, self._late)
        self._reader = loop.reader(self._process.stdout.fileno(), self._read)

    @property
    def pid(self) -> int:
        """Process id of the proxy."""
        return self._process.pid

    def close(self) -> None:
        """End the proxy."""
        self._limit.cancel()
        self._reader.cancel()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._loop.timer(REAP_SECONDS, self._reap)

    def _reap(self) -> None:
        if self._process.poll() is None:
            # The end of its input was not enough: ssh may hang.
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        read = os.read(self._process.stdout.fileno(), 65536)
        self._told += read
        lines = self._told.decode(errors="replace").splitlines()
        found = [line for line in lines if line.startswith("local://")]
        if found and self._told.endswith(b"\n"):
            self._end(found[0])
        elif not read:
            self._end(no_way(self._uri, lines[-1] if lines else "it says nothing"))

    def _late(self) -> None:
        self._end(OSError(errno.ETIMEDOUT, f"flux proxy {self._uri} says nothing"))

    def _end(self, result: str | OSError) -> None:
        self._limit.cancel()
        self._reader.cancel()
        self._done(result)


def proxy_environment() -> dict[str, str]:
    """Return the environment of a `flux proxy`, whose ssh must not prompt."""
    return {**os.environ, "FLUX_SSH": os.environ.get("FLUX_SSH", "ssh -o BatchMode=yes")}


def here(uri: str) -> str | None:
    """Return the URI of an instance on this machine; None if it is on another.

    >>> here("local:///run/flux/local-0"), here("ssh://elsewhere.example/run/flux/local-0")
    ('local:///run/flux/local-0', None)
    """
    host = urlparse(uri).hostname
    if host is not None and host != platform.node().lower():
        return None
    return str(JobURI(uri).local)
