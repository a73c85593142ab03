"""The two handles of a service outside the broker, and what each is registered by.

    requests ──NAME────────────► broker     requests and their responses
    handle ────NAME-commits────► broker     commits, jobs, the journal

A broker drops what a client is registered by as soon as it has read all that the client sent by
that handle, however it died; two handles it reads independently of each other. So NAME alone, which
is free when all requests have been read, does not say that the last commits have. That is what
NAME-commits is for: who has got it can be sure that all that a service of this name before it sent
is on its way, before anything that is sent from then on. Nobody sends it requests.
"""

from __future__ import annotations

import contextlib
import errno
import time
from itertools import count
from typing import Any

from flux.core.handle import Flux

#: Seconds in which a broker has read all that a dead client sent.
DRAIN_SECONDS = 30.0

_PAUSE_SECONDS = 0.005

#: Tries after each of which what may be left behind of the name is taken back.
_TRIES = 20


def beside(handle: Flux) -> Flux:
    """Another handle of the same broker, on the same reactor.

    Returns:
        The handle itself where it is one of another machine's broker.
    """
    try:
        other = Flux(handle.attr_get("local-uri"))
    except OSError:
        return handle
    other.flux_set_reactor(handle.get_reactor())
    return other


def commits(name: str) -> str:
    """What the handle is registered by whose service has a name."""
    return f"{name}-commits"


def register(handle: Flux, requests: Flux, name: str) -> None:
    """Register a service; all that one of this name before it sent is on its way then.

    Args:
        handle: for what the service does.
        requests: for what it is asked; may be the same.
        name: the service's.

    Raises:
        OSError: EEXIST where the service is there already.
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
    """Whether whoever is registered by a name answers.

    Args:
        handle: for the request.
        name: the service's.
    """

    def __init__(self, handle: Flux, name: str) -> None:
        self._handle = handle
        self._topic = f"{name}.list"
        self._future: Any = None

    def comes(self, seconds: float) -> bool:
        """It has answered, with an error perhaps, within some seconds of any of the calls."""
        if self._future is None:
            self._future = self._handle.rpc(self._topic)
        try:
            self._future.wait_for(seconds).get()
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                return False
            self._future = None
            # The broker says so of a name that nobody is registered by.
            return error.errno not in (errno.ENOSYS, errno.EHOSTUNREACH)
        return True


def _obtain(handle: Flux, registered: str, answer: _Answer | None, taken: str) -> None:
    """Register by a name, which one that has died may still have.

    Args:
        handle: to be registered.
        registered: by this name.
        answer: of who has it; one that answers has not died. None if nobody there answers.
        taken: the sentence where it is not to be had.
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
    """Have a broker forget a name if that is left behind by a client that is gone.

    The name of a client that goes at the moment when its registration is answered is left behind:
    connector-local of Flux 0.88 takes back what has been answered, and what has not, and that is
    neither (flux-core, `src/common/librouter/servhash.c`). It does take back the name for the next
    client that asks for it and goes before the answer. It asks the broker neither for the name of
    a client that is there, nor does the broker take back that of a module.
    """
    with contextlib.suppress(OSError):
        other = Flux(handle.attr_get("local-uri"))
        # Both go with the end of this function, at once.
        future = other.rpc("service.add", {"service": registered})
        del future, other


def unregister(handle: Flux, requests: Flux, name: str) -> None:
    """A service ends: another one of its name may begin.

    Raises:
        OSError: the broker has gone away.
    """
    if requests is not handle:
        with contextlib.suppress(OSError):
            handle.service_unregister(commits(name)).get()
    requests.service_unregister(name).get()
