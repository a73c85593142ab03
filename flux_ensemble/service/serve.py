"""The service outside the broker: a client that registers it (`flux ensemble serve`).

If a client dies, the Flux instance lives on. The broker module `ensemble-keeper` runs the service
this way (`modules/ensemble-keeper.py`). It also serves for debugging, and for Flux before 0.84,
which has no broker modules in Python.

Requests arrive by a handle of their own, on the reactor of the other handle. The messages of Flux
about jobs, hundreds at once in a burst, are queued in the broker for each handle separately, and
the reactor reads from both handles in turns. A broker module has one handle, so there a request
waits until everything that arrived before it has been read (`queues.flux.inbox`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

from flux.core.handle import Flux

from flux_ensemble.queues.flux.loop import FluxLoop, guard
from flux_ensemble.runtime.signals import signal_pipe
from flux_ensemble.service.handles import beside, register, unregister
from flux_ensemble.service.logger import logger
from flux_ensemble.service.service import Service


class KeeperLink:
    """The keeper that has started this process, at the other end of a socket.

    Args:
        fd: this end of the socket.
    """

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.fd = fd

    def ready(self) -> None:
        """Report that the service answers."""
        self._tell("0 ready")

    def refused(self, number: int, why: str) -> None:
        """Report that the service does not begin, or ends: an errno and a sentence."""
        self._tell(f"{number} {' '.join(why.split())}")

    def _tell(self, line: str) -> None:
        # The keeper may be gone, which the reader of the socket finds out.
        with contextlib.suppress(OSError):
            os.write(self.fd, line.encode("utf-8", "backslashreplace")[:4096] + b"\n")


def serve(
    handle: Flux,
    *,
    name: str = "ensemble",
    log_level: str = "info",
    keeper: KeeperLink | None = None,
) -> None:
    """Serve until interrupted (SIGINT, SIGTERM) or disconnected from the broker, or the keeper.

    Args:
        handle: Flux handle.
        name: the service's name.
        log_level: a key of `logger.LEVELS`.
        keeper: receives the message that the service answers.

    Raises:
        OSError: EEXIST if the service exists already; EBUSY if another service drives the
            ensembles, now or at the beginning; or the broker went away.
        ValueError: no such log level.
    """
    t_begin = time.monotonic()
    log = logger(handle, log_level)
    handle.flux_log_set_appname(name)
    requests = beside(handle)
    register(handle, requests, name)
    mode = "client" if keeper is None else "process"
    service = Service(
        handle,
        mode=mode,
        log=log,
        stop=handle.reactor_stop,
        name=name,
        requests=requests,
        t_begin=t_begin,
    )
    loop = FluxLoop(handle, guard(service.unexpected))
    try:
        with contextlib.ExitStack() as stack:
            signaled = stack.enter_context(signal_pipe((signal.SIGINT, signal.SIGTERM)))
            stack.callback(loop.reader(signaled, handle.reactor_stop).cancel)
            if keeper is not None:
                loop.reader(keeper.fd, handle.reactor_stop)
                if service.over is None:
                    keeper.ready()
            handle.reactor_run()
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(OSError):  # the broker may be what has gone away
            service.close()
            unregister(handle, requests, name)
    if service.over is not None:
        raise OSError(errno.EBUSY, service.over)
