"""Waking the thread of the broker that passes messages on to a module in Python.

Flux 0.88 runs such a module as a process of its own. A thread of the broker copies messages to it
through a socket (flux-core, `src/common/libsubprocess/msgchan.c`). For a message that is longer
than the socket's buffer, the thread has two watchers on one handle, and each check of a watcher
consumes the edges that the other one waits for (`flux_pollevents` in
`src/common/libflux/handle.c`). If the module reads between the two checks, the thread sleeps on the
rest of the message, and on all that comes after it, until the module sends something. So the module
has to send something.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from flux.constants import FLUX_RPC_NORESPONSE
from flux.core.handle import Flux

#: The longest time in seconds that the rest of a message is delayed.
NUDGE_SECONDS = 1.0


def nudge(handle: Flux) -> None:
    """Send the broker a message without a response."""
    handle.rpc("broker.ping", {"seq": 0}, flags=FLUX_RPC_NORESPONSE)


def wait(handle: Flux, future: Any, seconds: float) -> None:
    """Wait for a response that may be long.

    Args:
        handle: the response's handle.
        future: of the request.
        seconds: the time limit.

    Raises:
        OSError: ETIMEDOUT; or the error of the response.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            future.wait_for(min(left, NUDGE_SECONDS))
            return
        except OSError as error:
            if error.errno != errno.ETIMEDOUT or future.is_ready() or left <= NUDGE_SECONDS:
                raise
        nudge(handle)
