"""The two handles of a service outside the broker, and the name that each is registered by.

    requests ──NAME────────────► broker     requests and their responses
    handle ────NAME-commits────► broker     commits, jobs, the journal

A broker drops the name of a client as soon as it has read all that the client sent by that handle,
however the client died. It reads two handles independently of each other. So the name NAME is free
when all requests have been read, which does not mean that the last commits have been. NAME-commits
is for that: a service that holds it can be sure that everything its predecessor of this name sent
is on its way, ahead of anything that is sent from then on. Nobody sends requests to NAME-commits.
"""

from __future__ import annotations

import contextlib
import errno
import time
from itertools import count
from typing import Any

from flux.core.handle import Flux

#: Seconds within which a broker has read everything that a dead client sent.
DRAIN_SECONDS = 30.0

_PAUSE_SECONDS = 0.005

#: After each so many tries, a name that may have been left behind is taken back.
_TRIES = 20


def beside(handle: Flux) -> Flux:
    """Return another handle of the same broker, on the same reactor.

    Returns:
        The handle itself if it is one of another machine's broker.
    """
    try:
        other = Flux(handle.attr_get("local-uri"))
    except OSError:
        return handle
    other.flux_set_reactor(handle.get_reactor())
    return other


def commits(name: str) -> str:
    """Return the name that the handle for commits of a service is registered by."""
    return f"{name}-commits"


def register(handle: Flux, requests: Flux, name: str) -> None:
    """Register a service, once everything that its predecessor of this name sent is on its way.

    Args:
        handle: for what the service does.
        requests: receives the requests; may be the same.
        name: of the service.

    Raises:
        OSError: EEXIST if the service exists already.
    """
    _obtain(
        requests,
        name,
        _Answer(requests, name),
        f"a service named {name!r} is registered already; is the broker module loaded? "
        "(see 'flux module list')",
    )
    if requests is not handle:
        _obtain(
            handle,
            commits(name),
            None,
            f"the service named {name!r} before this one is still registered as "
            f"{commits(name)!r}: it ends, or is stopped; try again later, or end it first",
        )


class _Answer:
    """A probe that finds whether the service registered by a name answers.

    Args:
        handle: for the request.
        name: of the service.
    """

    def __init__(self, handle: Flux, name: str) -> None:
        self._handle = handle
        self._topic = f"{name}.list"
        self._future: Any = None

    def comes(self, seconds: float) -> bool:
        """Return True if it has answered, even with an error, within some seconds of any call."""
        if self._future is None:
            self._future = self._handle.rpc(self._topic)
        try:
            self._future.wait_for(seconds).get()
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                return False
            self._future = None
            # With these errors the broker responds that nobody is registered by the name.
            return error.errno not in (errno.ENOSYS, errno.EHOSTUNREACH)
        return True


def _obtain(handle: Flux, registered: str, answer: _Answer | None, taken: str) -> None:
    """Register by a name that a dead client may still hold.

    Args:
        handle: to be registered.
        registered: the name.
        answer: probes the holder, which is alive if it answers; None if no holder would answer.
        taken: the error's text if the name cannot be had.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    for tries in count(1):
        try:
            handle.service_register(registered).get()
            return
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        if answer is None:
            time.sleep(_PAUSE_SECONDS)
        elif answer.comes(_PAUSE_SECONDS):
            raise OSError(errno.EEXIST, taken)
        if tries % _TRIES == 0:
            _take_back(handle, registered)
        if time.monotonic() > deadline:
            raise OSError(errno.EEXIST, taken)


def _take_back(handle: Flux, registered: str) -> None:
    """Make a broker forget a name that was left behind by a client that is gone.

    A name is left behind if its client goes at the moment when the registration is answered:
    connector-local of Flux 0.88 takes back what has been answered and what has not, and this
    registration is neither (flux-core, `src/common/librouter/servhash.c`). It does take the name
    back for the next client that asks for it and goes before the answer. The name of a live client
    is not affected, because connector-local does not ask the broker for it. Nor is that of a
    module, which the broker does not take back.
    """
    with contextlib.suppress(OSError):
        other = Flux(handle.attr_get("local-uri"))
        # Both are destroyed at once when this function returns.
        future = other.rpc("service.add", {"service": registered})
        del future, other


def unregister(handle: Flux, requests: Flux, name: str) -> None:
    """Unregister a service that ends, so that another one of its name may begin.

    Raises:
        OSError: the broker has gone away.
    """
    if requests is not handle:
        with contextlib.suppress(OSError):
            handle.service_unregister(commits(name)).get()
    requests.service_unregister(name).get()
