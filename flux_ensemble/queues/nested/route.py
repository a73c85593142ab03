"""The connection to a member by its URI: by a socket, or by a proxy to another machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flux.core.handle import Flux

from flux_ensemble.queues.nested.connection import connect
from flux_ensemble.queues.nested.proxy import Proxy, here
from flux_ensemble.runtime.ports import Loop

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
